//! Checks that the tests of controllers with a Deployment share.

use crate::fixtures::{CONTROLLER, apply_controller};
use crate::test_env::TestEnv;
use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use operator_runtime::apply::Object;
use serde_json::json;
use slinky_api::v1beta1::Controller;

/// The desired number of pods.
pub fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

/// Waits until a Deployment has this desired number of pods.
pub async fn wait_for_replicas(env: &TestEnv, name: &str, expected: i32) -> Result<Deployment> {
    env.wait_until(name, |deployment| replicas(deployment) == Some(expected)).await
}

/// Fails if the spec of a Deployment has changed, or if the Deployment was replaced.
pub async fn ensure_unchanged(env: &TestEnv, before: &Deployment) -> Result<()> {
    let now = env.get::<Deployment>(&before.name_any()).await?;
    ensure!((now.uid(), &now.spec) == (before.uid(), &before.spec), "the Deployment was changed: {now:#?}");
    Ok(())
}

/// Creates the missing Controller of an object that owns a Deployment, deletes it again, and fails if the Deployment follows
/// a change of its owner before the Controller is back. `is_expected` is what the owner must show meanwhile.
pub async fn ensure_frozen_without_controller<K: Object>(
    env: &TestEnv,
    owner: &str,
    deployment: &str,
    is_expected: impl Fn(&K) -> bool,
) -> Result<()> {
    apply_controller(env).await?;
    let created = env.wait_for::<Deployment>(deployment).await?;
    env.wait_for_ready_reason::<K>(owner, "RollingOut").await?;

    env.delete::<Controller>(CONTROLLER).await?;
    env.wait_for_ready_reason::<K>(owner, "ControllerMissing").await?;
    env.patch_spec::<K>(owner, json!({ "replicas": 3 })).await?;
    env.wait_for_ready_reason::<K>(owner, "ControllerMissing").await?;
    // The controller of Deployments may create the pods after that.
    env.wait_until(owner, is_expected).await?;
    ensure_unchanged(env, &created).await?;

    apply_controller(env).await?;
    wait_for_replicas(env, deployment, 3).await?;
    Ok(())
}
