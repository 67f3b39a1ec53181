//! Objects that the tests of the controller-controller share.

use anyhow::Result;
use e2e::fixtures::{apply_keys, with_spec};
use e2e::test_env::TestEnv;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use serde_json::{Value, json};
use slinky_api::v1beta1::Controller;

pub const NAME: &str = "slurm";
/// The StatefulSet and the Service for clients.
pub const CHILD: &str = "slurm-controller";
pub const INTERNAL: &str = "slurm-controller-internal";
pub const CONFIG: &str = "slurm-config";
pub const POD: &str = "slurm-controller-0";

pub async fn start(test: &str) -> Result<TestEnv> {
    TestEnv::start("controller-controller", test).await
}

/// Applies a Controller that is complete once the Secrets with its keys exist.
pub async fn apply_controller(env: &TestEnv, name: &str, replaced: Value) -> Result<Controller> {
    let spec = json!({
        "slurmKeyRef": { "name": "auth", "key": "slurm.key" },
        "jwtKeyRef": { "name": "tokens", "key": "jwt.key" },
        "slurmctld": { "image": "slurmctld:26.05" },
        "logfile": { "image": "alpine" },
        "persistence": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    env.apply(name, with_spec(spec, &replaced)).await
}

pub async fn apply_all(env: &TestEnv) -> Result<Controller> {
    apply_keys(env).await?;
    apply_controller(env, NAME, json!({})).await
}

pub async fn wait_for_stateful_set(env: &TestEnv) -> Result<StatefulSet> {
    env.wait_for(CHILD).await
}

/// The lines of slurm.conf.
pub fn conf_lines(config: &ConfigMap) -> Vec<&str> {
    config.data.as_ref().map_or(vec![], |files| files["slurm.conf"].lines().collect())
}

/// Waits until slurm.conf has this line, and returns its ConfigMap.
pub async fn wait_for_conf_line(env: &TestEnv, line: &str) -> Result<ConfigMap> {
    env.wait_until(CONFIG, |config| conf_lines(config).contains(&line)).await
}

pub async fn wait_for_degraded(env: &TestEnv, reason: &str) -> Result<String> {
    env.wait_for_degraded::<Controller>(NAME, reason).await
}

pub async fn ensure_degraded(env: &TestEnv, reason: &str, text: &str) -> Result<()> {
    env.ensure_degraded::<Controller>(NAME, reason, text).await
}

/// The spec of the StatefulSet and the versions of all children, which an invalid change must leave as they are.
pub async fn child_versions(env: &TestEnv) -> Result<(Option<StatefulSetSpec>, [Option<String>; 5])> {
    let set = wait_for_stateful_set(env).await?;
    let versions = [
        set.uid(),
        set.metadata.generation.map(|number| number.to_string()),
        env.get::<ConfigMap>(CONFIG).await?.resource_version(),
        env.get::<Service>(CHILD).await?.resource_version(),
        env.get::<Service>(INTERNAL).await?.resource_version(),
    ];
    Ok((set.spec, versions))
}
