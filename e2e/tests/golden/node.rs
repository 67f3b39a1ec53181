//! The node of the golden data: no kubelet runs, but the node is reported as ready.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::sleep;

const NAME: &str = "node0";
/// Kubernetes marks a node as unreachable after several missing heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Creates the node, and reports it as ready for as long as this future is polled.
pub async fn keep_ready(client: &Client) -> Result<Infallible> {
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams::apply("golden").force();
    let labels = json!({ "kubernetes.io/os": "linux", "kubernetes.io/hostname": NAME });
    let metadata = json!({ "name": NAME, "labels": labels });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
    nodes.patch(NAME, &params, &Patch::Apply(&node)).await?;
    // Kubernetes detects heartbeats by a changed status, not by their time.
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

/// Deletes the node.
pub async fn delete(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.delete(NAME, &DeleteParams::default()).await?;
    Ok(())
}
