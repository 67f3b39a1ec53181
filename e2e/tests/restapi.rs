//! The restapi-controller against a real API server: children, missing references, foreign owners, invalid specs.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::{Context, Result};
use e2e::deployments::{ensure_frozen_without_controller, ensure_unchanged, wait_for_replicas};
use e2e::fixtures::{
    CONTROLLER, apply_controller, apply_foreign_service, ensure_changed_once, ensure_controlled_by,
    ensure_foreign_owners_are_reported, ensure_workload_is_restored, foreign_workload_spec, with_spec,
};
use e2e::test_env::{TestEnv, condition};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde_json::{Value, json};
use slinky_api::conditions::READY;
use slinky_api::v1beta1::{Controller, RestApi};
use std::time::Duration;
use tokio::time::sleep;

const NAME: &str = "rest";
const CHILD: &str = "rest-restapi";

async fn start(test: &str) -> Result<TestEnv> {
    TestEnv::start("restapi-controller", test).await
}

async fn apply_restapi(env: &TestEnv, name: &str, replaced: Value) -> Result<RestApi> {
    let spec = json!({ "controllerRef": { "name": "slurm" }, "slurmrestd": { "image": "slurmrestd:26.05" } });
    env.apply(name, with_spec(spec, &replaced)).await
}

async fn wait_for_deployment(env: &TestEnv) -> Result<Deployment> {
    env.wait_for(CHILD).await
}

fn args(deployment: &Deployment) -> Vec<String> {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).unwrap();
    pod.containers[0].args.clone().unwrap_or_default()
}

#[tokio::test]
async fn children_are_created_with_owner_and_an_idle_controller_sends_no_requests() -> Result<()> {
    let mut env = start("children").await?;
    apply_controller(&env).await?;
    let restapi = apply_restapi(&env, NAME, json!({})).await?;
    let created = wait_for_deployment(&env).await?;
    ensure_controlled_by(&created, &restapi)?;
    ensure_controlled_by(&env.get::<Service>(CHILD).await?, &restapi)?;
    assert_eq!(args(&created), ["-s", "openapi/slurmctld", "0.0.0.0:6820"]);
    let rolling_out = condition(&env.wait_for_ready_reason::<RestApi>(NAME, "RollingOut").await?, READY)?;
    assert_eq!(rolling_out.status, "False");
    assert!(env.wait_for_event_note(NAME, "CreateSucceeded").await?.starts_with("Created "));

    env.patch_spec::<RestApi>(NAME, json!({ "replicas": 0 })).await?;
    let ready = condition(&env.wait_for_ready_reason::<RestApi>(NAME, "AsExpected").await?, READY)?;
    assert_eq!(ready.status, "True");
    wait_for_replicas(&env, CHILD, 0).await?;
    let version = async |env: &TestEnv| Ok(wait_for_deployment(env).await?.resource_version());
    env.ensure_idle_and_unchanged_by_restart(version).await?;
    env.tear_down().await
}

#[tokio::test]
async fn changed_or_deleted_children_are_restored() -> Result<()> {
    let env = start("repair").await?;
    apply_restapi(&env, NAME, json!({})).await?;
    // Without a Deployment only changes of the Service can trigger a reconcile.
    env.wait_for_ready_reason::<RestApi>(NAME, "ControllerMissing").await?;
    env.patch_spec::<Service>(CHILD, json!({ "selector": { "app.kubernetes.io/name": "elsewhere" } }))
        .await?;
    let selector = |service: &Service| service.spec.clone().unwrap().selector.unwrap();
    let is_restored = |service: &Service| selector(service)["app.kubernetes.io/name"] == "slurmrestd";
    env.wait_until(CHILD, is_restored).await?;
    env.ensure_recreated::<Service>(CHILD).await?;

    apply_controller(&env).await?;
    wait_for_deployment(&env).await?;
    ensure_workload_is_restored::<Deployment>(&env, CHILD).await?;
    env.tear_down().await
}

#[tokio::test]
async fn missing_controller_is_reported_and_freezes_the_deployment() -> Result<()> {
    let env = start("missing").await?;
    apply_restapi(&env, NAME, json!({})).await?;
    env.ensure_degraded::<RestApi>(NAME, "ControllerMissing", "Controller slurm").await?;
    env.ensure_event_note(NAME, "ControllerMissing", "Controller slurm").await?;
    assert!(env.exists::<Service>(CHILD).await?, "the Service needs no Controller");
    assert!(!env.exists::<Deployment>(CHILD).await?);

    ensure_frozen_without_controller::<RestApi>(&env, NAME, CHILD, |_| true).await?;
    env.tear_down().await
}

#[tokio::test]
async fn children_controlled_by_another_owner_are_not_touched() -> Result<()> {
    let env = start("foreign").await?;
    apply_controller(&env).await?;
    let metadata = env.metadata_with_foreign_owner().await?;
    let service = apply_foreign_service(&env, CHILD, &metadata).await?;
    let spec = foreign_workload_spec(&json!({ "app": "theirs" }));
    let theirs: Deployment = env.apply(CHILD, json!({ "metadata": metadata, "spec": spec })).await?;

    apply_restapi(&env, NAME, json!({})).await?;
    let foreign =
        [env.foreign_owner_message::<Service>(CHILD), env.foreign_owner_message::<Deployment>(CHILD)];
    ensure_foreign_owners_are_reported::<RestApi>(&env, NAME, &foreign).await?;
    assert_eq!(env.get::<Service>(CHILD).await?.resource_version(), service.resource_version());
    assert_eq!(wait_for_deployment(&env).await?.spec, theirs.spec);

    env.delete::<Service>(CHILD).await?;
    env.delete::<Deployment>(CHILD).await?;
    env.wait_for_replacement::<Deployment>(CHILD, theirs.uid()).await?;
    env.wait_for_ready_reason::<RestApi>(NAME, "RollingOut").await?;
    env.tear_down().await
}

#[tokio::test]
async fn invalid_spec_is_reported_and_does_not_change_the_deployment() -> Result<()> {
    let env = start("bad").await?;
    apply_controller(&env).await?;
    apply_restapi(&env, NAME, json!({})).await?;
    let good = wait_for_deployment(&env).await?;
    let port = json!({ "spec": { "ports": [{ "name": "slurmrestd", "port": 1 }] } });
    let cases = [
        (json!({ "slurmrestd": { "image": 5 } }), "InvalidSpec", "slurmrestd.image"),
        (
            json!({ "template": { "spec": { "hostNetwork": "yes" } } }),
            "InvalidSpec",
            "template.spec.hostNetwork",
        ),
        (json!({ "service": port }), "InvalidSpec", "port name 'slurmrestd' is already taken"),
        (json!({ "template": { "spec": { "restartPolicy": "Never" } } }), "Rejected", "restartPolicy"),
        (json!({ "slurmrestd": { "fieldOfTomorrow": true } }), "InvalidSpec", "fieldOfTomorrow"),
    ];
    for (change, reason, text) in cases {
        apply_restapi(&env, NAME, change.clone()).await?;
        env.ensure_degraded::<RestApi>(NAME, reason, text).await.with_context(|| change.to_string())?;
        ensure_unchanged(&env, &good).await.with_context(|| change.to_string())?;
    }
    // The last spec stays invalid for a while: retries back off.
    let before = env.requests()?.len();
    sleep(Duration::from_secs(5)).await;
    let attempts = env.requests()?.split_off(before);
    assert!(attempts.len() <= 4, "{attempts:?}");

    env.ensure_event_note(NAME, "Rejected", "restartPolicy").await?;
    apply_restapi(&env, NAME, json!({ "replicas": 2 })).await?;
    wait_for_replicas(&env, CHILD, 2).await?;
    env.wait_for_ready_reason::<RestApi>(NAME, "RollingOut").await?;
    env.tear_down().await
}

#[tokio::test]
async fn name_that_is_too_long_for_a_child_is_reported() -> Result<()> {
    let env = start("long").await?;
    apply_controller(&env).await?;
    let name = "r".repeat(60);
    apply_restapi(&env, &name, json!({})).await?;
    env.ensure_degraded::<RestApi>(&name, "Rejected", "must be no more than 63").await?;
    env.wait_for_event(&name, "Rejected").await?;
    env.tear_down().await
}

#[tokio::test]
async fn accounting_reference_changes_the_arguments_of_slurmrestd_once() -> Result<()> {
    let env = start("args").await?;
    apply_controller(&env).await?;
    apply_restapi(&env, NAME, json!({})).await?;
    let before = wait_for_deployment(&env).await?;
    assert_eq!(args(&before), ["-s", "openapi/slurmctld", "0.0.0.0:6820"]);
    env.patch_spec::<Controller>(CONTROLLER, json!({ "accountingRef": { "name": "acct" } })).await?;
    let after = env.wait_until::<Deployment>(CHILD, |deployment| args(deployment) != args(&before)).await?;
    assert_eq!(args(&after), ["0.0.0.0:6820"]);
    env.patch_spec::<Controller>(CONTROLLER, json!({ "extraConf": "MinJobAge=1" })).await?;
    env.ensure_idle().await?;
    ensure_changed_once(&before, &wait_for_deployment(&env).await?)?;
    env.tear_down().await
}
