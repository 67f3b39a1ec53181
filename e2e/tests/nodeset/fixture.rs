//! Objects and helpers that the tests of the nodeset-controller share.

use anyhow::Result;
use e2e::eventually;
use e2e::fixtures::{CONTROLLER, with_spec};
use e2e::test_env::{TestEnv, condition};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::conditions::SLURM_REACHABLE;
use slinky_api::labels::APP_INSTANCE;
use slinky_api::v1beta1::{Controller, NodeSet};
use std::collections::BTreeMap;
use std::time::Duration;

pub const NAME: &str = "gpu";
/// Timeout for the first write of a controller. After its start it waits until writes of its predecessor must have landed,
/// and until it may conclude that there is no slurmrestd.
pub const FIRST_WRITE: Duration = Duration::from_mins(3);

pub async fn start(test: &str) -> Result<TestEnv> {
    TestEnv::start("nodeset-controller", test).await
}

pub async fn apply_nodeset(env: &TestEnv, name: &str, replaced: Value) -> Result<NodeSet> {
    let spec = json!({
        "controllerRef": { "name": CONTROLLER },
        "slurmd": { "image": "slurmd:26.05", "resources": { "limits": { "cpu": "2" } } },
        "logfile": { "image": "alpine:3" },
    });
    env.apply(name, with_spec(spec, &replaced)).await
}

pub async fn list<K: Object>(env: &TestEnv, nodeset: &str) -> Result<Vec<K>> {
    let of_nodeset = ListParams::default().labels(&format!("{APP_INSTANCE}={nodeset}"));
    Ok(env.api::<K>().list(&of_nodeset).await?.items)
}

/// Waits until a NodeSet has exactly the objects of these names, and returns them by name.
pub async fn wait_for_objects<K: Object>(
    env: &TestEnv,
    nodeset: &str,
    names: &[&str],
) -> Result<BTreeMap<String, K>> {
    let list_by_name = async || {
        let objects = list::<K>(env, nodeset).await?.into_iter();
        Ok(objects.map(|object| (object.name_any(), object)).collect::<BTreeMap<_, _>>())
    };
    let what = format!("{} {names:?}", K::kind(&()));
    eventually(&what, FIRST_WRITE, list_by_name, |objects| objects.keys().eq(names)).await
}

pub async fn wait_for_pods(env: &TestEnv, nodeset: &str, names: &[&str]) -> Result<BTreeMap<String, Pod>> {
    wait_for_objects(env, nodeset, names).await
}

pub fn uids<K: Object>(objects: &BTreeMap<String, K>) -> Vec<String> {
    objects.values().map(|object| object.uid().unwrap()).collect()
}

pub fn pod_condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// The owner references of an object: UID and `controller`.
pub fn owners(object: &impl Object) -> Vec<(String, Option<bool>)> {
    object.owner_references().iter().map(|owner| (owner.uid.clone(), owner.controller)).collect()
}

/// The controller's requests that have one of these prefixes.
pub fn requests(env: &TestEnv, prefixes: &[&str]) -> Result<Vec<String>> {
    let mut requests = env.requests()?;
    requests.retain(|request| prefixes.iter().any(|prefix| request.starts_with(prefix)));
    Ok(requests)
}

/// Waits until the controller has concluded that there is no slurmrestd: the condition `SlurmReachable`
/// of the NodeSet disappears.
pub async fn wait_until_managed_without_slurm(env: &TestEnv, nodeset: &str) -> Result<NodeSet> {
    let has_no_slurm =
        |nodeset: &NodeSet| nodeset.status.is_some() && condition(nodeset, SLURM_REACHABLE).is_err();
    let get = async || env.get::<NodeSet>(nodeset).await;
    eventually("no condition SlurmReachable", FIRST_WRITE, get, has_no_slurm).await
}

/// Deletes all objects of a test. Without their Controller, NodeSets are deleted without waiting for Slurm.
pub async fn tear_down(env: TestEnv) -> Result<()> {
    let params = DeleteParams::background();
    env.api::<Controller>().delete_collection(&params, &ListParams::default()).await?;
    let nodesets = env.api::<NodeSet>();
    nodesets.delete_collection(&params, &ListParams::default()).await?;
    let list = async || Ok(nodesets.list(&ListParams::default()).await?.items);
    eventually("deletion of all NodeSets", FIRST_WRITE, list, Vec::is_empty).await?;
    env.tear_down().await
}
