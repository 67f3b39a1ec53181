//! Missing or unsuitable Secrets, ConfigMaps, Accountings and volumes.

use crate::fixture::{
    CHILD, CONFIG, NAME, POD, apply_all, apply_controller, child_versions, conf_lines, ensure_degraded,
    start, wait_for_conf_line, wait_for_degraded, wait_for_stateful_set,
};
use anyhow::Result;
use e2e::fixtures::{apply_keys, apply_secret, ensure_missing_keys_are_reported};
use e2e::test_env::TestEnv;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use serde_json::{Value, json};
use slinky_api::v1beta1::{Accounting, Controller};

#[tokio::test]
async fn missing_key_prevents_the_start_of_slurmctld_but_does_not_stop_it() -> Result<()> {
    let env = start("keys").await?;
    apply_controller(&env, NAME, json!({})).await?;
    ensure_degraded(&env, "SecretMissing", "Secret auth does not exist").await?;
    env.ensure_event_note(NAME, "SecretMissing", "Secret auth").await?;
    wait_for_conf_line(&env, "SlurmUser=slurm").await?;
    assert!(env.exists::<Service>(CHILD).await?, "the Service needs no key");
    assert!(!env.exists::<StatefulSet>(CHILD).await?);

    apply_keys(&env).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    let created = child_versions(&env).await?;
    ensure_missing_keys_are_reported::<Controller>(&env, NAME).await?;
    env.wait_for_event(NAME, "SecretKeyMissing").await?;
    assert_eq!(child_versions(&env).await?, created, "a missing key changes no child");

    apply_secret(&env, "auth", &[("slurm.key", "new")]).await?;
    env.wait_for_generation::<StatefulSet>(CHILD, 2).await?;
    env.ensure_idle().await?;
    let generation = wait_for_stateful_set(&env).await?.metadata.generation;
    assert_eq!(generation, Some(2), "one new key changes the StatefulSet once");
    env.tear_down().await
}

#[tokio::test]
async fn claim_without_size_is_reported_and_gets_one() -> Result<()> {
    let env = start("size").await?;
    apply_keys(&env).await?;
    apply_controller(&env, NAME, json!({ "persistence": { "accessModes": ["ReadWriteOnce"] } })).await?;
    // Older API servers accept such a StatefulSet, which then gets no pod.
    let message = wait_for_degraded(&env, "Rejected").await?;
    assert!(message.contains("spec.resources[storage]: Required value"), "{message}");
    let resources = json!({ "requests": { "storage": "1Gi" } });
    env.patch_spec::<Controller>(NAME, json!({ "persistence": { "resources": resources } })).await?;
    env.wait_for::<Pod>(POD).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    env.tear_down().await
}

#[tokio::test]
async fn missing_parts_of_the_configuration_are_reported_and_freeze_the_children() -> Result<()> {
    let env = start("parts").await?;
    apply_keys(&env).await?;
    apply_controller(&env, NAME, json!({ "configFileRefs": [{ "name": "files" }] })).await?;
    ensure_degraded(&env, "ConfigMapMissing", "ConfigMap files does not exist").await?;
    env.ensure_event_note(NAME, "ConfigMapMissing", "ConfigMap files").await?;
    assert!(!env.exists::<ConfigMap>(CONFIG).await?, "an incomplete configuration is not written");
    assert!(!env.exists::<StatefulSet>(CHILD).await?, "slurmctld cannot start without configuration");

    let apply_files = |text: &str| env.apply::<ConfigMap>("files", json!({ "data": { "gres.conf": text } }));
    apply_files("AutoDetect=off\n").await?;
    let created = wait_for_stateful_set(&env).await?;
    apply_files("AutoDetect=nvml\n").await?;
    env.wait_until::<StatefulSet>(CHILD, |set| set.metadata.generation > created.metadata.generation).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    let before = child_versions(&env).await?;
    env.delete::<ConfigMap>("files").await?;
    wait_for_degraded(&env, "ConfigMapMissing").await?;
    assert_eq!(child_versions(&env).await?, before, "a missing reference changes no child");
    apply_files("AutoDetect=nvml\n").await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;

    // References to objects that do not exist yet do not stop a running slurmctld.
    let accounting =
        json!({ "accountingRef": { "name": "books" }, "prologScriptRefs": [{ "name": "scripts" }] });
    env.patch_spec::<Controller>(NAME, accounting).await?;
    ensure_degraded(&env, "AccountingMissing", "Accounting books does not exist").await?;
    env.ensure_event_note(NAME, "AccountingMissing", "Accounting books").await?;
    let external = json!({ "external": true, "externalConfig": { "host": "dbd.example", "port": 7819 } });
    env.apply::<Accounting>("books", json!({ "spec": external })).await?;
    wait_for_degraded(&env, "ConfigMapMissing").await?;
    assert_eq!(child_versions(&env).await?, before, "a missing reference changes no child");
    env.apply::<ConfigMap>("scripts", json!({ "data": { "prolog.sh": "" } })).await?;
    let new = wait_for_conf_line(&env, "AccountingStorageHost=dbd.example").await?;
    assert!(conf_lines(&new).contains(&"Prolog=prolog.sh"));
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;

    let before = child_versions(&env).await?;
    env.delete::<Accounting>("books").await?;
    wait_for_degraded(&env, "AccountingMissing").await?;
    assert_eq!(child_versions(&env).await?, before, "a missing reference changes no child");
    env.tear_down().await
}

async fn apply_claim(env: &TestEnv, mode: &str) -> Result<PersistentVolumeClaim> {
    let resources = json!({ "requests": { "storage": "1Gi" } });
    env.apply("shared", json!({ "spec": { "accessModes": [mode], "resources": resources } })).await
}

#[tokio::test]
async fn standby_slurmctlds_need_a_shared_volume() -> Result<()> {
    let env = start("standby").await?;
    apply_keys(&env).await?;
    let ha = |persistence: Value| json!({ "ha": { "enabled": true }, "persistence": persistence });
    let refused = apply_controller(&env, NAME, ha(json!({ "enabled": true }))).await.unwrap_err();
    assert!(format!("{refused:#}").contains("existingClaim"), "{refused:#}");

    apply_claim(&env, "ReadWriteOnce").await?;
    apply_controller(&env, NAME, ha(json!({ "enabled": true, "existingClaim": "shared" }))).await?;
    let text = "ReadWriteMany, which PersistentVolumeClaim shared does not have";
    ensure_degraded(&env, "ClaimNotShared", text).await?;
    env.wait_for_event(NAME, "ClaimNotShared").await?;
    assert!(!env.exists::<StatefulSet>(CHILD).await?);

    env.delete::<PersistentVolumeClaim>("shared").await?;
    env.wait_until_deleted::<PersistentVolumeClaim>("shared").await?;
    apply_claim(&env, "ReadWriteMany").await?;
    env.patch_spec::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    let set = wait_for_stateful_set(&env).await?;
    assert_eq!(set.spec.unwrap().replicas, Some(2));
    let config = wait_for_conf_line(&env, "MinJobAge=99").await?;
    let hosts = conf_lines(&config).iter().filter(|line| line.starts_with("SlurmctldHost=")).count();
    assert_eq!(hosts, 2);
    env.tear_down().await
}

#[tokio::test]
async fn changed_persistence_is_rejected_and_keeps_the_volume() -> Result<()> {
    let env = start("volume").await?;
    apply_all(&env).await?;
    env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    let before = child_versions(&env).await?;
    apply_controller(&env, NAME, json!({ "persistence": { "enabled": false } })).await?;
    ensure_degraded(&env, "PersistenceUnchanged", "persistence cannot change later").await?;
    assert_eq!(child_versions(&env).await?, before);
    let shared = json!({ "enabled": true, "existingClaim": "shared" });
    apply_controller(&env, NAME, json!({ "ha": { "enabled": true }, "persistence": shared })).await?;
    ensure_degraded(&env, "InvalidSpec", "a state that all daemons share").await?;
    assert_eq!(child_versions(&env).await?.0, before.0, "standby slurmctlds without a shared volume");
    env.tear_down().await
}
