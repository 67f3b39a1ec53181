//! How slurm.conf changes: with NodeSets, and after a check by a pod if slurmctld runs.

use crate::fixture::{
    CHILD, CONFIG, NAME, POD, apply_all, conf_lines, start, wait_for_conf_line, wait_for_degraded,
    wait_for_stateful_set,
};
use anyhow::Result;
use e2e::test_env::TestEnv;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use slinky_api::v1beta1::{Controller, NodeSet};

/// The pod that checks a configuration, and the ConfigMap with that configuration.
const CHECK: &str = "slurm-config-check";
/// Parameters of a partition that pass the schema but do not fit into one line of slurm.conf.
const BROKEN_PARTITION: &str = "State=UP\rSlurmUser=root";

async fn apply_nodeset(env: &TestEnv, name: &str, partition: &str) -> Result<NodeSet> {
    let spec =
        json!({ "controllerRef": { "name": NAME }, "partition": { "enabled": true, "config": partition } });
    env.apply(name, json!({ "spec": spec })).await
}

#[tokio::test]
async fn nodesets_are_configured_without_a_check_while_slurmctld_does_not_run() -> Result<()> {
    let env = start("nodesets").await?;
    apply_all(&env).await?;
    let before = wait_for_stateful_set(&env).await?;
    apply_nodeset(&env, "gpu", "State=UP").await?;
    let with_gpu = wait_for_conf_line(&env, "PartitionName=gpu Nodes=gpu State=UP").await?;
    assert!(conf_lines(&with_gpu).contains(&"NodeSet=gpu Feature=gpu"));
    env.wait_until::<StatefulSet>(CHILD, |set| set.spec != before.spec).await?;

    apply_nodeset(&env, "bad", BROKEN_PARTITION).await?;
    apply_nodeset(&env, "cpu", "State=UP").await?;
    let message = wait_for_degraded(&env, "NodeSetRefused").await?;
    assert_eq!(message, "NodeSet bad: partition.config must not contain '\\r'");
    wait_for_conf_line(&env, "NodeSet=cpu Feature=cpu").await?;
    apply_nodeset(&env, "gpu", BROKEN_PARTITION).await?;
    env.delete::<NodeSet>("bad").await?;
    env.wait_for_degraded_message::<Controller>(NAME, "NodeSetRefused", "NodeSet gpu:").await?;
    let kept = wait_for_conf_line(&env, "PartitionName=gpu Nodes=gpu State=UP").await?;
    assert!(!kept.data.unwrap()["slurm.conf"].contains("SlurmUser=root"));

    env.delete::<NodeSet>("gpu").await?;
    let has_gpu = |config: &ConfigMap| conf_lines(config).iter().any(|line| line.contains("gpu"));
    env.wait_until::<ConfigMap>(CONFIG, |config| !has_gpu(config)).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    assert!(!env.exists::<Pod>(CHECK).await?);
    env.ensure_idle().await?;
    env.tear_down().await
}

/// Applies a Controller, waits until its slurmctld is ready, and returns its configuration.
async fn apply_running(env: &TestEnv) -> Result<ConfigMap> {
    apply_all(env).await?;
    env.mark_pod_ready(POD).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "AsExpected").await?;
    Ok(env.api().get(CONFIG).await?)
}

/// Reports that the pod of a configuration check has ended, as a kubelet does; returns the pod's UID.
async fn end_check(env: &TestEnv, phase: &str, exit_code: i32, message: &str) -> Result<Option<String>> {
    let is_new =
        |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Pending"));
    let pod = env.wait_until(CHECK, is_new).await?;
    let state = json!({ "terminated": { "exitCode": exit_code, "message": message } });
    let container = json!({
        "name": "check", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    env.patch_status::<Pod>(CHECK, json!({ "phase": phase, "containerStatuses": [container] })).await?;
    Ok(pod.uid())
}

#[tokio::test]
async fn configuration_that_fails_its_check_is_not_written_even_after_a_restart() -> Result<()> {
    let mut env = start("check").await?;
    let good = apply_running(&env).await?;
    env.patch_spec::<Controller>(NAME, json!({ "extraConf": "MinJobAge=98" })).await?;
    let uid = end_check(&env, "Failed", 3, "fatal: not with me").await?;
    let message = wait_for_degraded(&env, "ConfigRefused").await?;
    assert!(message.ends_with("fatal: not with me"), "{message}");
    env.ensure_event_note(NAME, "Refused", "fatal: not with me").await?;

    env.patch_status::<Pod>(POD, json!({ "conditions": [{ "type": "Ready", "status": "False" }] })).await?;
    env.restart_controller()?;
    env.ensure_idle().await?;
    wait_for_degraded(&env, "ConfigRefused").await?;
    let kept = env.get::<ConfigMap>(CONFIG).await?;
    assert_eq!(kept.resource_version(), good.resource_version(), "the rejected configuration was written");
    assert_eq!(env.get::<Pod>(CHECK).await?.uid(), uid, "one configuration is checked once");

    env.patch_spec::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    end_check(&env, "Succeeded", 0, "").await?;
    wait_for_conf_line(&env, "MinJobAge=99").await?;
    env.wait_until_deleted::<Pod>(CHECK).await?;
    env.wait_until_deleted::<ConfigMap>(CHECK).await?;
    env.tear_down().await
}

#[tokio::test]
async fn configuration_is_written_unchecked_if_the_check_pod_is_forbidden() -> Result<()> {
    let env = start("unchecked").await?;
    apply_running(&env).await?;
    let restricted =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: Api<Namespace> = Api::all(env.client().clone());
    namespaces.patch(env.namespace(), &PatchParams::default(), &Patch::Merge(restricted)).await?;
    env.patch_spec::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    wait_for_conf_line(&env, "MinJobAge=99").await?;
    env.ensure_event_note(NAME, "ConfigUnchecked", "violates PodSecurity").await?;
    env.wait_until_deleted::<ConfigMap>(CHECK).await?;
    env.tear_down().await
}
