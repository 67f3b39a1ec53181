//! The one Kubernetes node of the golden data. Nothing runs on it, but it is reported as ready.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::sleep;

const NAME: &str = "node0";
/// Kubernetes takes a node for lost that was silent for several times this long.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Makes the node, and reports it as ready for as long as this is awaited.
pub async fn reports_itself(client: &Client) -> Result<Infallible> {
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams::apply("golden").force();
    let labels = json!({ "kubernetes.io/os": "linux", "kubernetes.io/hostname": NAME });
    let metadata = json!({ "name": NAME, "labels": labels });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
    nodes.patch(NAME, &params, &Patch::Apply(&node)).await?;
    // Kubernetes looks for reports that differ, and not at the time that they tell.
    let mut number = 0_u64;
    loop {
        number += 1;
        let time = format!("2000-01-01T00:{:02}:{:02}Z", number / 60 % 60, number % 60);
        let ready =
            json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": time });
        let report = json!({ "status": { "conditions": [ready] } });
        nodes.patch_status(NAME, &PatchParams::default(), &Patch::Strategic(&report)).await?;
        sleep(HEARTBEAT).await;
    }
}

/// Takes the node away again.
pub async fn delete(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.delete(NAME, &DeleteParams::default()).await?;
    Ok(())
}
