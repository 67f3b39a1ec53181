//! The test suite of the Slurm REST client against a real slurmctld, slurmrestd and two slurmds in plain pods.

use anyhow::{Context, Result, bail};
use e2e::{TestNamespace, client, eventually};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slurm_fake::suite::{TestCluster, run};
use slurm_rest::{HttpTransport, NodeState};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

const OBJECTS: &str = include_str!("../fixtures/slurm-rest/objects.yaml");

/// As in the Secret of [`OBJECTS`].
const KEY: &[u8] = b"another-key-that-protects-nothing-but-a-cluster-of-tests";

const WORKERS: [&str; 2] = ["w0", "w1"];

#[tokio::test]
async fn real_slurm_passes_the_suite_of_the_fake() -> Result<()> {
    let namespace = TestNamespace::create(&client().await?, "slurm-rest").await?;
    for object in serde_saphyr::from_multiple::<Value>(OBJECTS)? {
        match object["kind"].as_str() {
            Some("ConfigMap") => create::<ConfigMap>(&namespace, object).await?,
            Some("Pod") => create::<Pod>(&namespace, object).await?,
            Some("Secret") => create::<Secret>(&namespace, object).await?,
            Some("Service") => create::<Service>(&namespace, object).await?,
            kind => bail!("an object of kind {kind:?}"),
        }
    }
    for name in WORKERS {
        create::<Pod>(&namespace, worker(name)).await?;
    }
    let address = wait_for_restapi_address(&namespace).await?;
    let cluster = TestCluster {
        transport: Arc::new(HttpTransport::new(&format!("http://{address}:6820"), None)?),
        key: KEY.to_vec(),
        clock: Arc::new(now),
        nodes: WORKERS.map(str::to_owned),
    };
    workers_are_idle(&cluster).await?;
    run(&cluster).await?;
    namespace.delete().await
}

#[expect(clippy::disallowed_methods, reason = "a real Slurm goes by the real time")]
fn now() -> Timestamp {
    Timestamp::now()
}

async fn create<K>(namespace: &TestNamespace, object: Value) -> Result<()>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + serde::Serialize,
{
    let object: K = serde_json::from_value(object)?;
    namespace.api().create(&PostParams::default(), &object).await.with_context(|| object.name_any())?;
    Ok(())
}

fn worker(name: &str) -> Value {
    let sources =
        json!([{ "secret": { "name": "keys", "items": [{ "key": "slurm.key", "path": "slurm.key" }] } }]);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": "slurm" } },
        "spec": {
            "hostname": name,
            "subdomain": "slurm",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "slurmd",
                "image": "slurm-operator.test/slurmd:26.05",
                "args": ["-Z", "--conf-server", "controller.slurm:6817", "--conf", "'CPUs=2 Features=worker'"],
                "securityContext": { "privileged": true },
                "volumeMounts": [{ "name": "etc", "mountPath": "/etc/slurm", "readOnly": true }],
            }],
            "volumes": [{ "name": "etc", "projected": { "defaultMode": 0o600, "sources": sources } }],
        },
    })
}

/// Waits until every pod is ready, and returns the address of slurmrestd.
async fn wait_for_restapi_address(namespace: &TestNamespace) -> Result<String> {
    let pods: Api<Pod> = namespace.api();
    let conditions = || async {
        let pods = pods.list(&ListParams::default()).await?.items;
        Ok(pods.iter().map(|pod| (pod.name_any(), is_ready(pod))).collect::<Vec<_>>())
    };
    let all_ready = |pods: &Vec<(String, bool)>| pods.iter().all(|(_, ready)| *ready);
    eventually("all pods are ready", Duration::from_secs(90), conditions, all_ready).await?;
    pods.get("restapi").await?.status.and_then(|status| status.pod_ip).context("slurmrestd has no address")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

async fn workers_are_idle(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let list = || async { Ok(client.list_nodes().await?.nodes) };
    eventually("both workers are idle", Duration::from_mins(1), list, |nodes| {
        nodes.iter().filter(|node| node.is(&NodeState::Idle)).count() == WORKERS.len()
    })
    .await
    .map(drop)
}
