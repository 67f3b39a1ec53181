//! How slurm.conf changes: with NodeSets, and after a check by a pod if slurmctld runs.

use crate::fixture::{
    CHILD, CONFIG, NAME, POD, apply_all, apply_controller, conf_lines, start, wait_for_conf_line,
    wait_for_degraded, wait_for_stateful_set,
};
use anyhow::Result;
use e2e::fixtures::apply_keys;
use e2e::test_env::{TestEnv, condition};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::{Value, json};
use slinky_api::conditions::CONFIGURED;
use slinky_api::labels::annotations::ACCEPTED_CONFIG;
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
    wait_until_running(env).await
}

async fn wait_until_running(env: &TestEnv) -> Result<ConfigMap> {
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
async fn refused_nodeset_and_cluster_name_stop_no_other_change() -> Result<()> {
    let env = start("refused").await?;
    apply_running(&env).await?;
    env.patch_spec::<Controller>(NAME, json!({ "clusterName": "other", "extraConf": "MinJobAge=98" }))
        .await?;
    apply_nodeset(&env, "bad", "MaxTime=never").await?;
    // slurmctld refuses everything together, accepts the change without the NodeSet, and refuses the NodeSet alone.
    end_check(&env, "Failed", 3, "fatal: MaxTime").await?;
    end_check(&env, "Succeeded", 0, "").await?;
    let config = wait_for_conf_line(&env, "MinJobAge=98").await?;
    let name = format!("ClusterName={}_slurm", env.namespace());
    assert!(conf_lines(&config).contains(&name.as_str()), "the name of the cluster was changed");
    end_check(&env, "Failed", 3, "fatal: MaxTime").await?;
    let refused = |controller: &Controller| {
        let status = controller.status.clone().unwrap_or_default();
        status.refused_node_sets.iter().any(|set| set.name == "bad" && set.message == "fatal: MaxTime")
    };
    env.wait_until::<Controller>(NAME, refused).await?;
    let message = wait_for_degraded(&env, "ClusterNameUnchanged").await?;
    assert!(message.contains("\"other\""), "{message}");
    assert!(!conf_lines(&env.get(CONFIG).await?).iter().any(|line| line.contains("bad")));

    env.patch_spec::<Controller>(NAME, json!({ "clusterName": null })).await?;
    apply_nodeset(&env, "bad", "MaxTime=5").await?;
    end_check(&env, "Succeeded", 0, "").await?;
    wait_for_conf_line(&env, "PartitionName=bad Nodes=bad MaxTime=5").await?;
    env.wait_until::<Controller>(NAME, |controller| !refused(controller)).await?;
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

#[tokio::test]
async fn check_pod_on_a_dead_node_does_not_block_later_changes() -> Result<()> {
    let env = start("deadnode").await?;
    apply_running(&env).await?;
    env.patch_spec::<Controller>(NAME, json!({ "extraConf": "MinJobAge=98" })).await?;
    let stuck: Pod = env.wait_for(CHECK).await?;
    // The API server waits for the kubelet before it removes a pod that is bound to a node.
    let target = json!({ "apiVersion": "v1", "kind": "Node", "name": "dead" });
    let binding =
        json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": CHECK }, "target": target });
    let pods = env.api::<Pod>();
    let _: Status = pods.create_subresource("binding", CHECK, &PostParams::default(), &binding).await?;

    env.patch_spec::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    env.wait_for_replacement::<Pod>(CHECK, stuck.uid()).await?;
    end_check(&env, "Succeeded", 0, "").await?;
    wait_for_conf_line(&env, "MinJobAge=99").await?;
    env.tear_down().await
}

#[tokio::test]
async fn refused_edit_of_a_user_file_takes_effect_only_if_the_user_insists() -> Result<()> {
    let env = start("userfile").await?;
    let apply_file =
        |text: &str| env.apply::<ConfigMap>("files", json!({ "data": { "topology.yaml": text } }));
    apply_keys(&env).await?;
    apply_file("good").await?;
    apply_controller(&env, NAME, json!({ "configFileRefs": [{ "name": "files" }] })).await?;
    let good = wait_until_running(&env).await?;
    assert_eq!(good.data.as_ref().unwrap()["topology.yaml"], "good");
    let set = wait_for_stateful_set(&env).await?;

    apply_file("bad").await?;
    end_check(&env, "Failed", 3, "fatal: topology").await?;
    let message = wait_for_degraded(&env, "ConfigRefused").await?;
    assert!(message.ends_with("fatal: topology"), "{message}");
    assert_eq!(env.get::<ConfigMap>(CONFIG).await?.resource_version(), good.resource_version());
    let unchanged = wait_for_stateful_set(&env).await?;
    assert_eq!(unchanged.metadata.generation, set.metadata.generation, "slurmctld was restarted");
    assert!(
        !serde_json::to_string(&set.spec)?.contains("\"files\""),
        "slurmctld mounts the user's ConfigMap"
    );

    let refused = message.split_whitespace().nth(3).unwrap();
    let accept = json!({ "metadata": { "annotations": { ACCEPTED_CONFIG: refused } } });
    env.patch::<Controller>(NAME, accept).await?;
    env.wait_until::<ConfigMap>(CONFIG, |config| config.data.as_ref().unwrap()["topology.yaml"] == "bad")
        .await?;
    env.ensure_event_note(NAME, "ConfigUnchecked", "fatal: topology").await?;
    let changed = env.wait_for_generation::<StatefulSet>(CHILD, set.metadata.generation.unwrap() + 1).await?;
    assert!(!serde_json::to_string(&changed.spec)?.contains(ACCEPTED_CONFIG));
    let is_told = |controller: &Controller| {
        condition(controller, CONFIGURED)
            .is_ok_and(|configured| configured.message.contains("fatal: topology"))
    };
    env.wait_until::<Controller>(NAME, is_told).await?;
    env.tear_down().await
}

#[tokio::test]
async fn inconclusive_check_is_reported_by_event_and_condition() -> Result<()> {
    let env = start("inconclusive").await?;
    apply_running(&env).await?;
    env.patch_spec::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    end_check(&env, "Failed", 4, "it hangs").await?;
    wait_for_conf_line(&env, "MinJobAge=99").await?;
    env.ensure_event_note(NAME, "ConfigUnchecked", "it hangs").await?;
    let is_told = |controller: &Controller| {
        condition(controller, CONFIGURED).is_ok_and(|configured| configured.message.contains("it hangs"))
    };
    env.wait_until::<Controller>(NAME, is_told).await?;
    env.tear_down().await
}

#[tokio::test]
async fn slurmctld_in_a_crash_loop_degrades_the_controller() -> Result<()> {
    let env = start("crashloop").await?;
    apply_running(&env).await?;
    let status = |state: Value, ready: bool| {
        let container = json!({ "name": "slurmctld", "image": "", "imageID": "", "ready": ready,
            "restartCount": 3, "state": state });
        json!({ "containerStatuses": [container] })
    };
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    env.patch_status::<Pod>(POD, status(waiting, false)).await?;
    let message = wait_for_degraded(&env, "CrashLoopBackOff").await?;
    assert!(
        message.starts_with("container slurmctld of pod slurm-controller-0 ends again and again"),
        "{message}"
    );
    env.wait_for_event(NAME, "CrashLoopBackOff").await?;
    env.patch_status::<Pod>(POD, status(json!({ "running": {} }), true)).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "AsExpected").await?;
    env.tear_down().await
}
