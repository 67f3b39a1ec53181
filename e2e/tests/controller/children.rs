//! The life of the children: created, restored, adopted, deleted.

use crate::fixture::{
    CHILD, CONFIG, INTERNAL, NAME, POD, apply_all, apply_controller, child_versions, conf_lines,
    ensure_degraded, start, wait_for_conf_line, wait_for_degraded, wait_for_stateful_set,
};
use anyhow::{Context, Result};
use e2e::fixtures::{
    apply_foreign_service, apply_keys, ensure_controlled_by, ensure_foreign_owners_are_reported,
    ensure_workload_is_restored, foreign_workload_spec,
};
use e2e::test_env::condition;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use slinky_api::conditions::{CONFIGURED, READY};
use slinky_api::labels::CONTROLLER_ACTIVE;
use slinky_api::v1beta1::Controller;

#[tokio::test]
async fn children_are_created_with_owner_and_an_idle_controller_sends_no_requests() -> Result<()> {
    let mut env = start("children").await?;
    let controller = apply_all(&env).await?;
    let rolling_out = condition(&env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?, READY)?;
    assert_eq!(rolling_out.status, "False");
    let cluster_name = format!("ClusterName={}_{NAME}", env.namespace());
    ensure_controlled_by(&wait_for_stateful_set(&env).await?, &controller)?;
    ensure_controlled_by(&wait_for_conf_line(&env, &cluster_name).await?, &controller)?;
    ensure_controlled_by(&env.get::<Service>(CHILD).await?, &controller)?;
    ensure_controlled_by(&env.get::<Service>(INTERNAL).await?, &controller)?;
    env.wait_for_event(NAME, "CreateSucceeded").await?;

    env.mark_pod_ready(POD).await?;
    env.wait_until::<Pod>(POD, |pod| pod.labels().get(CONTROLLER_ACTIVE).is_some_and(|is| is == "true"))
        .await?;
    let ready = env.wait_for_ready_reason::<Controller>(NAME, "AsExpected").await?;
    let configured = condition(&ready, CONFIGURED)?;
    assert_eq!((configured.status.as_str(), configured.reason.as_str()), ("True", "Applied"));
    assert_eq!(env.wait_for_event(NAME, "Applied").await?.note, Some(configured.message));
    env.ensure_idle_and_unchanged_by_restart(child_versions).await?;
    env.tear_down().await
}

#[tokio::test]
async fn changed_or_deleted_children_are_restored() -> Result<()> {
    let env = start("repair").await?;
    apply_all(&env).await?;
    wait_for_stateful_set(&env).await?;
    let is_labelled = |pod: &Pod| pod.labels().contains_key(CONTROLLER_ACTIVE);
    env.wait_until(POD, is_labelled).await?;
    // An idle controller can only be triggered by the changes below.
    env.ensure_idle().await?;

    env.patch::<ConfigMap>(CONFIG, json!({ "data": { "slurm.conf": "SlurmUser=root\n" } })).await?;
    wait_for_conf_line(&env, "SlurmUser=slurm").await?;
    env.ensure_recreated::<ConfigMap>(CONFIG).await?;

    env.patch_spec::<Service>(CHILD, json!({ "selector": { CONTROLLER_ACTIVE: "false" } })).await?;
    let selector = |service: &Service| service.spec.as_ref().unwrap().selector.clone().unwrap();
    env.wait_until::<Service>(CHILD, |service| selector(service)[CONTROLLER_ACTIVE] == "true").await?;
    env.ensure_recreated::<Service>(INTERNAL).await?;

    env.patch::<Pod>(POD, json!({ "metadata": { "labels": { CONTROLLER_ACTIVE: null } } })).await?;
    env.wait_until(POD, is_labelled).await?;

    ensure_workload_is_restored::<StatefulSet>(&env, CHILD).await?;
    env.tear_down().await
}

#[tokio::test]
async fn name_that_is_invalid_for_a_child_is_reported_and_nothing_is_created() -> Result<()> {
    let env = start("long").await?;
    apply_keys(&env).await?;
    let name = "c".repeat(60);
    apply_controller(&env, &name, json!({})).await?;
    let text = format!("\"{name}-controller\" cannot be the name of a StatefulSet (longer than 52");
    env.ensure_degraded::<Controller>(&name, "InvalidName", &text).await?;
    env.wait_for_event(&name, "InvalidName").await?;
    assert!(!env.exists::<ConfigMap>(&format!("{name}-config")).await?);

    // The name of the Slurm cluster that follows from this one would be too long.
    let longest = "c".repeat(41);
    apply_controller(&env, &longest, json!({ "clusterName": "long" })).await?;
    env.wait_for_ready_reason::<Controller>(&longest, "RollingOut").await?;
    env.wait_for::<Pod>(&format!("{longest}-controller-0")).await?;
    env.tear_down().await
}

#[tokio::test]
async fn children_controlled_by_another_owner_are_not_touched() -> Result<()> {
    let env = start("foreign").await?;
    apply_keys(&env).await?;
    let mut metadata = env.metadata_with_foreign_owner().await?;
    let config = json!({ "metadata": metadata, "data": { "slurm.conf": "theirs" } });
    let config: ConfigMap = env.apply(CONFIG, config).await?;
    let service = apply_foreign_service(&env, CHILD, &metadata).await?;
    // With labels of a StatefulSet that an older version of the operator created.
    let labels = json!({ "app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "theirs" });
    metadata["labels"] = labels.clone();
    let mut spec = foreign_workload_spec(&labels);
    spec["serviceName"] = json!(CHILD);
    let theirs: StatefulSet = env.apply(CHILD, json!({ "metadata": metadata, "spec": spec })).await?;

    apply_controller(&env, NAME, json!({})).await?;
    let foreign = [
        env.foreign_owner_message::<ConfigMap>(CONFIG),
        env.foreign_owner_message::<StatefulSet>(CHILD),
        env.foreign_owner_message::<Service>(CHILD),
    ];
    ensure_foreign_owners_are_reported::<Controller>(&env, NAME, &foreign).await?;
    assert!(
        env.exists::<Service>(INTERNAL).await?,
        "one foreign child does not keep the others from being created"
    );
    assert_eq!(env.get::<ConfigMap>(CONFIG).await?.resource_version(), config.resource_version());
    assert_eq!(env.get::<Service>(CHILD).await?.resource_version(), service.resource_version());
    let now = wait_for_stateful_set(&env).await?;
    assert_eq!((now.uid(), now.spec), (theirs.uid(), theirs.spec.clone()));

    // An external slurmctld has no StatefulSet; a foreign one is not deleted as such.
    env.patch_spec::<Controller>(NAME, external()).await?;
    ensure_degraded(&env, "ForeignOwner", CONFIG)
        .await
        .context("an external slurmctld still has a configuration")?;
    assert_eq!(wait_for_stateful_set(&env).await?.uid(), theirs.uid());
    env.patch_spec::<Controller>(NAME, internal()).await?;

    env.delete::<ConfigMap>(CONFIG).await?;
    env.delete::<Service>(CHILD).await?;
    env.delete::<StatefulSet>(CHILD).await?;
    env.wait_for_replacement::<StatefulSet>(CHILD, theirs.uid()).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    env.tear_down().await
}

#[tokio::test]
async fn invalid_spec_is_reported_and_changes_no_child() -> Result<()> {
    let env = start("bad").await?;
    apply_all(&env).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    let good = child_versions(&env).await?;
    let port = json!({ "spec": { "ports": [{ "name": "slurmctld", "port": 1 }] } });
    let cases = [
        (json!({ "clusterName": "hpc\nSlurmUser=root" }), "InvalidSpec", "must not contain '\\n'"),
        (
            json!({ "extraConf": "just words" }),
            "ConfigRefused",
            "\"just\": the line is not of the form Key=Value",
        ),
        (
            json!({ "extraConf": "NodeName=gpu[0- CPUs=1" }),
            "ConfigRefused",
            "nodename: the hostlist has an unclosed bracket",
        ),
        (json!({ "configFileRefs": [{ "name": "../x" }] }), "InvalidSpec", "\"../x\" cannot be the name"),
        (json!({ "slurmKeyRef": { "name": "../x", "key": "k" } }), "InvalidSpec", "slurmKeyRef: \"../x\""),
        (json!({ "slurmctld": { "image": 5 } }), "InvalidSpec", "slurmctld.image"),
        (
            json!({ "template": { "spec": { "hostNetwork": "yes" } } }),
            "InvalidSpec",
            "template.spec.hostNetwork",
        ),
        (json!({ "service": port }), "InvalidSpec", "port name 'slurmctld' is already taken"),
        (
            json!({ "slurmctld": { "image": "i", "volumeMounts": [{ "name": "no", "mountPath": "/no" }] } }),
            "Rejected",
            "volumeMounts",
        ),
    ];
    for (change, reason, text) in cases {
        apply_controller(&env, NAME, change.clone()).await?;
        ensure_degraded(&env, reason, text).await.with_context(|| change.to_string())?;
        assert_eq!(child_versions(&env).await?, good, "{change}");
    }
    env.ensure_event_note(NAME, "ConfigRefused", "just").await?;
    apply_controller(&env, NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    wait_for_conf_line(&env, "MinJobAge=99").await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    env.tear_down().await
}

/// The fields of a spec whose slurmctld is external.
fn external() -> Value {
    json!({ "external": true, "externalConfig": { "host": "ctl.example", "port": 7817 } })
}

/// The fields that undo [`external`].
fn internal() -> Value {
    json!({ "external": false, "externalConfig": null })
}

#[tokio::test]
async fn slurmctld_that_becomes_external_keeps_its_configuration_and_volume() -> Result<()> {
    let env = start("external").await?;
    apply_all(&env).await?;
    let old = wait_for_stateful_set(&env).await?;
    let claim = format!("statesave-{POD}");
    env.wait_for::<PersistentVolumeClaim>(&claim).await?;

    env.patch_spec::<Controller>(NAME, external()).await?;
    let config = wait_for_conf_line(&env, "SlurmctldHost=ctl.example").await?;
    assert!(conf_lines(&config).contains(&"SlurmctldPort=7817"));
    env.wait_until_deleted::<StatefulSet>(CHILD).await?;
    env.wait_until_deleted::<Service>(CHILD).await?;
    env.wait_until_deleted::<Service>(INTERNAL).await?;
    let ready = env.wait_for_ready_reason::<Controller>(NAME, "AsExpected").await?;
    assert!(condition(&ready, CONFIGURED).is_err(), "the configuration of an external slurmctld is unknown");
    env.wait_for_event(NAME, "DeleteSucceeded").await?;
    assert!(env.exists::<PersistentVolumeClaim>(&claim).await?, "the volume was deleted");
    env.ensure_idle().await?;

    env.patch_spec::<Controller>(NAME, internal()).await?;
    env.wait_for_replacement::<StatefulSet>(CHILD, old.uid()).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    let now = wait_for_conf_line(&env, "SlurmUser=slurm").await?;
    assert!(!conf_lines(&now).contains(&"SlurmctldHost=ctl.example"));
    assert!(env.exists::<Service>(CHILD).await?);
    env.tear_down().await
}

#[tokio::test]
async fn stateful_set_with_outdated_immutable_fields_is_recreated_around_its_pod() -> Result<()> {
    let env = start("takeover").await?;
    apply_all(&env).await?;
    let ours = wait_for_stateful_set(&env).await?;
    let pod: Pod = env.wait_for(POD).await?;

    // While a key is missing the controller creates nothing, so that ours can be exchanged for an outdated one.
    env.delete::<Secret>("auth").await?;
    wait_for_degraded(&env, "SecretMissing").await?;
    let sets = env.api::<StatefulSet>();
    sets.delete(CHILD, &DeleteParams::orphan()).await?;
    env.wait_until_deleted::<StatefulSet>(CHILD).await?;
    let mut old = StatefulSet { spec: ours.spec.clone(), ..StatefulSet::default() };
    old.metadata.name = Some(CHILD.to_owned());
    old.metadata.labels = ours.metadata.labels.clone();
    old.metadata.owner_references = ours.metadata.owner_references.clone();
    let spec = old.spec.as_mut().unwrap();
    spec.service_name = Some(CHILD.to_owned());
    spec.pod_management_policy = Some("Parallel".to_owned());
    let old = sets.create(&PostParams::default(), &old).await?;
    let owner = |pod: &Pod| pod.owner_references().first().map(|owner| owner.uid.clone());
    env.wait_until::<Pod>(POD, |pod| owner(pod) == old.uid()).await?;

    apply_keys(&env).await?;
    let new = env.wait_for_replacement::<StatefulSet>(CHILD, old.uid()).await?;
    assert_eq!(new.spec.as_ref().unwrap().service_name.as_deref(), Some(INTERNAL));
    let adopted = env.wait_until::<Pod>(POD, |pod| owner(pod) == new.uid()).await?;
    assert_eq!(adopted.uid(), pod.uid(), "the pod was restarted");
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    env.ensure_idle().await?;
    assert_eq!(env.get::<Pod>(POD).await?.uid(), pod.uid(), "the pod was restarted");
    env.tear_down().await
}
