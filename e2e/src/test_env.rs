//! The environment of a controller test: a namespace of its own in a real API server, and the controller's binary.

use crate::crds::install_crds;
use crate::process::{Process, binary, scratch};
use crate::{TestNamespace, audit, client, eventually};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::conditions;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

/// How long a controller may take for an immediate reaction.
pub const SOON: Duration = Duration::from_secs(20);
/// How long an idle controller is watched for requests.
const IDLE: Duration = Duration::from_secs(10);
/// How long a controller sends no request before it counts as idle.
const QUIET: Duration = Duration::from_secs(2);

/// A namespace with a controller that watches this namespace only.
pub struct TestEnv {
    client: Client,
    namespace: TestNamespace,
    program: PathBuf,
    log: PathBuf,
    /// `None` if a process outside this environment reconciles the namespace.
    controller: Option<Process>,
}

impl TestEnv {
    /// Starts a binary of the workspace in a namespace whose name begins with that of the test.
    pub async fn start(program: &str, test: &str) -> Result<Self> {
        let mut env = Self::without_controller(program, test).await?;
        env.restart_controller()?;
        Ok(env)
    }

    /// A namespace without a controller of its own.
    pub async fn without_controller(program: &str, test: &str) -> Result<Self> {
        let client = client().await?;
        install_crds(&client).await?;
        let namespace = TestNamespace::create(&client, test).await?;
        let log = scratch(&format!("{}.log", namespace.name()))?;
        Ok(Self { client, namespace, program: binary(program)?, log, controller: None })
    }

    /// A client of the cluster.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// The objects of one kind.
    pub fn api<K: Object>(&self) -> Api<K> {
        self.namespace.api()
    }

    /// The controller's log since its last start.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())
    }

    /// Kills the controller and starts it again.
    pub fn restart_controller(&mut self) -> Result<()> {
        if let Some(mut controller) = self.controller.take() {
            controller.kill()?;
        }
        let namespaces = ["--namespaces", self.namespace.name()];
        self.controller = Some(Process::start_elected(&self.program, &namespaces, &self.log)?);
        Ok(())
    }

    /// The metrics of the controller.
    pub fn metrics(&self) -> Result<String> {
        Ok(self.controller.as_ref().context("no controller")?.fetch("/metrics")?.1)
    }

    /// Applies an object as a user; `content` has everything but name and kind.
    pub async fn apply<K: Object>(&self, name: &str, content: Value) -> Result<K> {
        let mut object = content;
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        object["metadata"]["name"] = json!(name);
        let params = PatchParams::apply("user").force();
        Ok(self.api().patch(name, &params, &Patch::Apply(&object)).await?)
    }

    /// Creates an object as another operator does, without server-side apply; `content` has everything but the name.
    pub async fn create_as_other_operator<K: Object>(&self, name: &str, content: Value) -> Result<K> {
        let mut object = content;
        object["metadata"]["name"] = json!(name);
        let params = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
        Ok(self.api().create(&params, &serde_json::from_value(object)?).await?)
    }

    /// Merges fields into an object; `null` removes a field.
    pub async fn patch<K: Object>(&self, name: &str, fields: Value) -> Result<K> {
        Ok(self.api().patch(name, &PatchParams::default(), &Patch::Merge(fields)).await?)
    }

    /// Merges fields into the spec of an object; `null` removes a field.
    pub async fn patch_spec<K: Object>(&self, name: &str, spec: Value) -> Result<K> {
        self.patch(name, json!({ "spec": spec })).await
    }

    /// Merges fields into the status of an object.
    pub async fn patch_status<K: Object>(&self, name: &str, status: Value) -> Result<K> {
        let patch = Patch::Merge(json!({ "status": status }));
        Ok(self.api().patch_status(name, &PatchParams::default(), &patch).await?)
    }

    /// Reads an object that must exist.
    pub async fn get<K: Object>(&self, name: &str) -> Result<K> {
        Ok(self.api().get(name).await?)
    }

    /// Whether an object exists.
    pub async fn exists<K: Object>(&self, name: &str) -> Result<bool> {
        Ok(self.api::<K>().get_opt(name).await?.is_some())
    }

    /// Deletes an object, and the objects that it owns in the background.
    pub async fn delete<K: Object>(&self, name: &str) -> Result<()> {
        self.api::<K>().delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Deletes an object, and leaves the objects that it owns without an owner.
    pub async fn delete_without_children<K: Object>(&self, name: &str) -> Result<()> {
        self.api::<K>().delete(name, &DeleteParams::orphan()).await?;
        self.wait_until_deleted::<K>(name).await
    }

    /// Waits until the Ready condition of the object's current generation has this reason.
    pub async fn wait_for_ready_reason<K: Object>(&self, name: &str, reason: &str) -> Result<K> {
        self.wait_for_ready_reason_within(name, reason, SOON).await
    }

    /// As [`TestEnv::wait_for_ready_reason`], with another timeout.
    pub async fn wait_for_ready_reason_within<K: Object>(
        &self,
        name: &str,
        reason: &str,
        timeout: Duration,
    ) -> Result<K> {
        let api = self.api::<K>();
        let has_reason = |object: &K| {
            condition(object, conditions::READY).is_ok_and(|ready| {
                ready.reason == reason && ready.observed_generation == object.meta().generation
            })
        };
        eventually(reason, timeout, async || Ok(api.get(name).await?), has_reason).await
    }

    /// Waits until the object's current generation is degraded for this reason, and returns the condition's message.
    pub async fn wait_for_degraded<K: Object>(&self, name: &str, reason: &str) -> Result<String> {
        let object = self.wait_for_ready_reason::<K>(name, reason).await?;
        let degraded = condition(&object, conditions::DEGRADED)?;
        ensure!(degraded.reason == reason && degraded.status == "True", "{degraded:?}");
        Ok(degraded.message)
    }

    /// Waits until the object's current generation is degraded for this reason, and fails unless the condition's message
    /// contains `text`.
    pub async fn ensure_degraded<K: Object>(&self, name: &str, reason: &str, text: &str) -> Result<()> {
        let message = self.wait_for_degraded::<K>(name, reason).await?;
        ensure!(message.contains(text), "the condition has no {text:?}: {message}");
        Ok(())
    }

    /// Waits until the object's current generation is degraded for this reason with a message that contains `text`.
    pub async fn wait_for_degraded_message<K: Object>(
        &self,
        name: &str,
        reason: &str,
        text: &str,
    ) -> Result<String> {
        let message = async || self.wait_for_degraded::<K>(name, reason).await;
        eventually(text, SOON, message, |message| message.contains(text)).await
    }

    /// Waits until an object exists.
    pub async fn wait_for<K: Object>(&self, name: &str) -> Result<K> {
        self.wait_until(name, |_| true).await
    }

    /// Waits until an object exists and satisfies `is_expected`.
    pub async fn wait_until<K: Object>(&self, name: &str, is_expected: impl Fn(&K) -> bool) -> Result<K> {
        let api = self.api::<K>();
        let what = format!("{} {name} in the expected state", K::kind(&()));
        eventually(&what, SOON, async || Ok(api.get(name).await?), is_expected).await
    }

    /// Waits until the spec of an object has changed to this generation.
    pub async fn wait_for_generation<K: Object>(&self, name: &str, generation: i64) -> Result<K> {
        self.wait_until(name, |object: &K| object.meta().generation == Some(generation)).await
    }

    /// Waits until another object has replaced the one with this UID.
    pub async fn wait_for_replacement<K: Object>(&self, name: &str, uid: Option<String>) -> Result<K> {
        self.wait_until(name, |object: &K| object.uid() != uid).await
    }

    /// Deletes an object, and waits until its controller has created another one in its place.
    pub async fn ensure_recreated<K: Object>(&self, name: &str) -> Result<K> {
        let deleted = self.get::<K>(name).await?;
        self.delete::<K>(name).await?;
        self.wait_for_replacement(name, deleted.uid()).await
    }

    /// Waits until an object no longer exists.
    pub async fn wait_until_deleted<K: Object>(&self, name: &str) -> Result<()> {
        self.wait_until_deleted_within::<K>(name, SOON).await
    }

    /// As [`TestEnv::wait_until_deleted`], with another timeout.
    pub async fn wait_until_deleted_within<K: Object>(&self, name: &str, timeout: Duration) -> Result<()> {
        let api = self.api::<K>();
        let what = format!("deletion of {} {name}", K::kind(&()));
        eventually(&what, timeout, async || Ok(api.get_opt(name).await?), Option::is_none).await?;
        Ok(())
    }

    /// Waits for an Event about the object of that name.
    pub async fn wait_for_event(&self, name: &str, reason: &str) -> Result<Event> {
        let events: Api<Event> = self.api();
        let list = async || Ok(events.list(&ListParams::default()).await?.items);
        let is_about = |event: &&Event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()) == Some(name)
        };
        let listed =
            eventually(reason, SOON, list, |events| events.iter().any(|event| is_about(&event))).await?;
        listed.iter().find(is_about).cloned().context("the event")
    }

    /// Waits for an Event about the object of that name, and returns its note.
    pub async fn wait_for_event_note(&self, name: &str, reason: &str) -> Result<String> {
        self.wait_for_event(name, reason).await?.note.context("an event without note")
    }

    /// Waits for an Event about the object of that name, and fails unless its note contains `text`.
    pub async fn ensure_event_note(&self, name: &str, reason: &str, text: &str) -> Result<()> {
        let note = self.wait_for_event_note(name, reason).await?;
        ensure!(note.contains(text), "the Event has no {text:?}: {note}");
        Ok(())
    }

    /// The controller's requests to the API server so far, without watches.
    pub fn requests(&self) -> Result<Vec<String>> {
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        audit::requests(&program, self.namespace())
    }

    /// Waits until the controller is idle, then fails if it sends any request but watches for a while.
    pub async fn ensure_idle(&self) -> Result<()> {
        let requests = self.requests_while_idle().await?;
        ensure!(requests.is_empty(), "requests of an idle controller: {requests:#?}");
        Ok(())
    }

    async fn requests_while_idle(&self) -> Result<Vec<String>> {
        let is_quiet = async || {
            let before = self.requests()?;
            sleep(QUIET).await;
            Ok(self.requests()?.len() == before.len())
        };
        eventually("no more requests", SOON, is_quiet, |is_quiet| *is_quiet).await?;
        let before = self.requests()?.len();
        sleep(IDLE).await;
        Ok(self.requests()?.split_off(before))
    }

    /// Restarts the controller, then fails if it writes anything until it is idle.
    pub async fn ensure_restart_writes_nothing(&mut self) -> Result<()> {
        let before = self.requests()?.len();
        self.restart_controller()?;
        let mut requests = self.requests_while_idle().await?;
        requests.extend(self.requests()?.split_off(before));
        requests.retain(|request| !["get ", "list "].iter().any(|verb| request.starts_with(verb)));
        ensure!(requests.is_empty(), "writes of a restarted controller: {requests:#?}");
        Ok(())
    }

    /// Waits until the controller is idle, then fails if it sends any request but watches, or if a restart makes it write
    /// anything or changes the result of `observe`.
    pub async fn ensure_idle_and_unchanged_by_restart<T: Debug + PartialEq>(
        &mut self,
        observe: impl AsyncFn(&Self) -> Result<T>,
    ) -> Result<()> {
        self.ensure_idle().await?;
        let before = observe(self).await?;
        self.ensure_restart_writes_nothing().await?;
        let after = observe(self).await?;
        ensure!(after == before, "a restart changed {before:?} to {after:?}");
        Ok(())
    }

    /// Reports a pod as running and ready, as a kubelet does; the cluster may have none.
    pub async fn mark_pod_ready(&self, name: &str) -> Result<Pod> {
        self.wait_for::<Pod>(name).await?;
        let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        self.patch_status(name, status).await
    }

    /// Metadata of an object that is controlled by a foreign owner, the ConfigMap `owner`.
    pub async fn metadata_with_foreign_owner(&self) -> Result<Value> {
        let owner: ConfigMap = self.apply("owner", json!({})).await?;
        metadata_controlled_by(&owner)
    }

    /// The sentence with which a condition reports an object of [`TestEnv::metadata_with_foreign_owner`].
    pub fn foreign_owner_message<K: Object>(&self, name: &str) -> String {
        format!("{} {}/{name} is controlled by ConfigMap owner", K::kind(&()), self.namespace())
    }

    /// Ends the controller and deletes the namespace. A failed test keeps its namespace for inspection.
    pub async fn tear_down(self) -> Result<()> {
        self.namespace.delete().await
    }
}

/// Metadata of an object that is controlled by `owner`, as operators write it.
pub fn metadata_controlled_by(owner: &impl Object) -> Result<Value> {
    let reference = owner.controller_owner_ref(&()).context("an owner without name or UID")?;
    Ok(json!({ "ownerReferences": [OwnerReference { block_owner_deletion: Some(true), ..reference }] }))
}

/// One condition of a custom resource.
pub fn condition<K: Object>(object: &K, type_: &str) -> Result<Condition> {
    let object_as_json = serde_json::to_value(object)?;
    let list = object_as_json["status"]["conditions"].clone();
    let list: Vec<Condition> = serde_json::from_value(list).context("no conditions")?;
    let found = conditions::find(&list, type_).cloned();
    found.with_context(|| format!("{} has no condition {type_}", object.name_any()))
}
