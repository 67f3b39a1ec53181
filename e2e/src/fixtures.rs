//! Objects that the tests of several controllers apply, and checks that they share.

use crate::test_env::TestEnv;
use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{Resource, ResourceExt};
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::v1beta1::Controller;

/// The Controller of [`apply_controller`].
pub const CONTROLLER: &str = "slurm";

/// Name, key and value of each Secret of [`apply_keys`].
const KEYS: [(&str, &str, &str); 2] = [("auth", "slurm.key", "slurm-key"), ("tokens", "jwt.key", "jwt-key")];

/// Applies a Secret with these keys and values.
pub async fn apply_secret(env: &TestEnv, name: &str, content: &[(&str, &str)]) -> Result<Secret> {
    env.apply(name, json!({ "data": secret_data(content) })).await
}

/// Applies the Secrets with the keys of daemons.
pub async fn apply_keys(env: &TestEnv) -> Result<()> {
    for (secret, key, value) in KEYS {
        apply_secret(env, secret, &[(key, value)]).await?;
    }
    Ok(())
}

/// Deletes each Secret of [`apply_keys`], applies it without its key and then as it was; fails unless the object that refers
/// to them reports both.
pub async fn ensure_missing_keys_are_reported<K: Object>(env: &TestEnv, object: &str) -> Result<()> {
    for (secret, key, value) in KEYS {
        env.delete::<Secret>(secret).await?;
        let text = format!("Secret {secret} does not exist");
        env.ensure_degraded::<K>(object, "SecretMissing", &text).await?;
        apply_secret(env, secret, &[("another", value)]).await?;
        let text = format!("Secret {secret} has no key {key:?}");
        env.ensure_degraded::<K>(object, "SecretKeyMissing", &text).await?;
        apply_secret(env, secret, &[(key, value)]).await?;
        env.wait_for_ready_reason::<K>(object, "RollingOut").await?;
    }
    Ok(())
}

/// The data of a Secret with these keys and values.
pub fn secret_data(content: &[(&str, &str)]) -> Value {
    content.iter().map(|(key, text)| ((*key).to_owned(), json!(ByteString((*text).into())))).collect()
}

/// Applies the Controller that other resources refer to.
pub async fn apply_controller(env: &TestEnv) -> Result<Controller> {
    let key = |name: &str| json!({ "name": "auth", "key": name });
    let spec = json!({ "slurmKeyRef": key("slurm.key"), "jwtKeyRef": key("jwt.key") });
    env.apply(CONTROLLER, json!({ "spec": spec })).await
}

/// An object with this spec, in which some top-level fields are replaced.
pub fn with_spec(mut spec: Value, replaced: &Value) -> Value {
    for (field, value) in replaced.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({ "spec": spec })
}

/// Applies a Service that a controller must not touch because of its metadata.
pub async fn apply_foreign_service(env: &TestEnv, name: &str, metadata: &Value) -> Result<Service> {
    let spec = json!({ "selector": { "app": "theirs" }, "ports": [{ "name": "theirs", "port": 1 }] });
    env.apply(name, json!({ "metadata": metadata, "spec": spec })).await
}

/// The spec of a Deployment or StatefulSet without pods that a controller must not touch.
pub fn foreign_workload_spec(labels: &Value) -> Value {
    let pod = json!({ "containers": [{ "name": "theirs", "image": "theirs" }] });
    let template = json!({ "metadata": { "labels": labels }, "spec": pod });
    json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": template })
}

/// Waits until an object reports these children of another owner, in a condition and in an Event. `sentences` are those of
/// [`TestEnv::foreign_owner_message`]; returns the condition's message.
pub async fn ensure_foreign_owners_are_reported<K: Object>(
    env: &TestEnv,
    object: &str,
    sentences: &[String],
) -> Result<String> {
    let message = env.wait_for_degraded::<K>(object, "ForeignOwner").await?;
    for sentence in sentences {
        ensure!(message.contains(sentence), "the condition has no {sentence:?}: {message}");
    }
    env.wait_for_event(object, "ForeignOwner").await?;
    Ok(message)
}

/// Changes the replicas of a Deployment or StatefulSet and then deletes it; fails unless its controller reverts both.
pub async fn ensure_workload_is_restored<K: Object>(env: &TestEnv, name: &str) -> Result<()> {
    let replicas = |workload: &K| json!(workload)["spec"]["replicas"].clone();
    let before = replicas(&env.get(name).await?);
    let changed = env.patch_spec(name, json!({ "replicas": 7 })).await?;
    ensure!(replicas(&changed) != before, "the replicas were not changed");
    env.wait_until(name, |workload| replicas(workload) == before).await?;
    env.ensure_recreated::<K>(name).await?;
    Ok(())
}

/// Fails unless the spec of an object has changed exactly once between two observations.
pub fn ensure_changed_once<K: Object>(before: &K, after: &K) -> Result<()> {
    let generations = (before.meta().generation, after.meta().generation);
    let is_next = matches!(generations, (Some(before), Some(after)) if after == before + 1);
    ensure!(is_next, "generations of {} {}: {generations:?}", K::kind(&()), after.name_any());
    Ok(())
}

/// Fails unless an object has one owner, which controls it.
pub fn ensure_controlled_by<K: Object>(object: &K, owner: &impl Object) -> Result<()> {
    let references = object.owner_references();
    let is_controlled = references.len() == 1
        && Some(&references[0].uid) == owner.meta().uid.as_ref()
        && references[0].controller == Some(true);
    ensure!(is_controlled, "owners of {} {}: {references:?}", K::kind(&()), object.name_any());
    Ok(())
}

/// Whether a field manager has written an object other than its status.
pub fn is_managed_by(object: &impl Resource, manager: &str) -> bool {
    let entries = object.meta().managed_fields.iter().flatten();
    entries.into_iter().any(|entry| entry.manager.as_deref() == Some(manager) && entry.subresource.is_none())
}
