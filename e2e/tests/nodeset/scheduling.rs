//! Workers that fit no Kubernetes node.

use crate::fixture::{
    NAME, apply_nodeset, list, pod_condition, start, tear_down, uids, wait_for_pods,
    wait_until_managed_without_slurm,
};
use anyhow::Result;
use e2e::eventually;
use e2e::fixtures::apply_controller;
use e2e::node::{TestNode, node_labels};
use e2e::test_env::{SOON, TestEnv, condition};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde_json::{Value, json};
use slinky_api::conditions::{DEGRADED, PROGRESSING};
use slinky_api::v1beta1::NodeSet;
use std::time::Duration;

/// The scheduler of the cluster; it schedules only pods that name it.
const SCHEDULER: &str = "on-request";
/// After how many seconds an unschedulable worker is reported.
const UNSCHEDULABLE_AFTER: std::ops::Range<i64> = 30..50;

/// Applies a NodeSet whose workers fit one node only, which need not exist.
async fn apply_for_one_node(env: &TestEnv, name: &str, replaced: Value) -> Result<NodeSet> {
    let spec = json!({
        "schedulerName": SCHEDULER,
        "nodeSelector": node_labels(env, name),
        "tolerations": [{ "operator": "Exists" }],
        // No kubelet ends scheduled pods.
        "terminationGracePeriodSeconds": 0,
    });
    let mut replaced = replaced;
    replaced["template"] = json!({ "spec": spec });
    apply_nodeset(env, name, replaced).await
}

/// Waits until a pod is scheduled to a node, and reports it as ready.
async fn start_pod_on(env: &TestEnv, pod: &str, node: &TestNode) -> Result<()> {
    let is_scheduled =
        |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node.name());
    env.wait_until(pod, is_scheduled).await?;
    env.mark_pod_ready(pod).await?;
    Ok(())
}

/// Waits until a NodeSet reports its one worker as unschedulable with the scheduler's message, and checks the delay.
async fn wait_until_reported_unschedulable(env: &TestEnv, nodeset: &str) -> Result<()> {
    let pod = format!("{nodeset}-0");
    let get = async || {
        let degraded = condition(&env.get::<NodeSet>(nodeset).await?, DEGRADED)?;
        Ok((degraded, env.get::<Pod>(&pod).await?))
    };
    // The scheduler's message changes with the nodes of other tests.
    let quotes_scheduler = |(degraded, pod): &(Condition, Pod)| {
        let cause = pod_condition(pod, "PodScheduled").and_then(|it| it.message.as_deref());
        let message = cause.map(|cause| format!("no Kubernetes node fits 1 worker: {cause} ({nodeset}-0)"));
        degraded.reason == "Unschedulable" && message.as_ref() == Some(&degraded.message)
    };
    let timeout = Duration::from_secs(UNSCHEDULABLE_AFTER.end.unsigned_abs());
    let (degraded, pod) = eventually("the condition Unschedulable", timeout, get, quotes_scheduler).await?;
    assert_eq!(degraded.status, "True");
    let since = pod_condition(&pod, "PodScheduled").and_then(|it| it.last_transition_time.as_ref()).unwrap();
    let after = degraded.last_transition_time.0.duration_since(since.0).as_secs();
    assert!(UNSCHEDULABLE_AFTER.contains(&after), "reported after {after} s");
    let prefix = "no Kubernetes node fits 1 worker: 0/";
    assert!(degraded.message.starts_with(prefix), "{}", degraded.message);
    let event = env.wait_for_event(nodeset, "Unschedulable").await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.note.as_ref().is_some_and(|note| note.starts_with(prefix)), "{event:?}");
    Ok(())
}

#[tokio::test]
async fn unschedulable_workers_are_reported_until_scheduled_and_do_not_affect_others() -> Result<()> {
    let env = start("unschedulable").await?;
    apply_controller(&env).await?;
    let _elsewhere = TestNode::create(&env, "elsewhere", json!({})).await?;
    apply_for_one_node(&env, NAME, json!({ "replicas": 1 })).await?;
    apply_for_one_node(&env, "daemon", json!({ "scalingMode": "DaemonSet" })).await?;
    let unscheduled = wait_for_pods(&env, NAME, &["gpu-0"]).await?;
    wait_until_reported_unschedulable(&env, NAME).await?;
    let fits_nowhere =
        |nodeset: &NodeSet| condition(nodeset, PROGRESSING).is_ok_and(|it| it.reason == "NoNodeFits");
    let progress = condition(&env.wait_until::<NodeSet>("daemon", fits_nowhere).await?, PROGRESSING)?;
    assert_eq!(progress.status, "False");
    assert_eq!(progress.message, "no Kubernetes node fits the template");
    // Before there is a node: Kubernetes evicts pods from nodes without heartbeat for a minute, and these have none.
    wait_until_managed_without_slurm(&env, NAME).await?;

    let node = TestNode::create(&env, "good", json!({})).await?;
    apply_for_one_node(&env, "good", json!({ "replicas": 1 })).await?;
    start_pod_on(&env, "good-0", &node).await?;
    env.wait_for_ready_reason::<NodeSet>("good", "AsExpected").await?;
    env.wait_for_degraded::<NodeSet>(NAME, "Unschedulable").await?;

    let node = TestNode::create(&env, NAME, json!({})).await?;
    start_pod_on(&env, "gpu-0", &node).await?;
    env.wait_for_ready_reason::<NodeSet>(NAME, "AsExpected").await?;
    assert_eq!(
        uids(&wait_for_pods(&env, NAME, &["gpu-0"]).await?),
        uids(&unscheduled),
        "the worker was replaced"
    );

    let node = TestNode::create(&env, "daemon", json!({})).await?;
    let list_pods = async || list::<Pod>(&env, "daemon").await;
    let created = eventually("a worker on the new node", SOON, list_pods, |pods| pods.len() == 1).await?;
    start_pod_on(&env, &created[0].name_any(), &node).await?;
    let is_available = |nodeset: &NodeSet| {
        nodeset.status.as_ref().is_some_and(|status| status.ready_replicas == 1)
            && condition(nodeset, PROGRESSING).is_ok_and(|progress| progress.reason == "AsExpected")
    };
    env.wait_until::<NodeSet>("daemon", is_available).await?;
    tear_down(env).await
}
