//! Where a controller is tested: a namespace of its own in a real API server, and the binary that looks after it.

use crate::custom::install_definitions;
use crate::process::{Process, binary, scratch};
use crate::{TestNamespace, audit, client, eventually};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::conditions;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

/// How long a controller may take for what it does at once.
pub const SOON: Duration = Duration::from_secs(20);
/// How long a controller that has nothing more to do is watched doing nothing.
const IDLE: Duration = Duration::from_secs(10);
/// A silence after which a controller is probably done.
const BREATH: Duration = Duration::from_secs(2);

/// A namespace with a controller that looks after it and after no other.
pub struct Stage {
    client: Client,
    namespace: TestNamespace,
    program: PathBuf,
    log: PathBuf,
    /// `None` if it is a matter of somebody else's who looks after it.
    controller: Option<Process>,
}

impl Stage {
    /// Starts a binary of the workspace in a namespace whose name begins with that of the test.
    pub async fn set(program: &str, test: &str) -> Result<Self> {
        let mut stage = Self::unattended(program, test).await?;
        stage.restart()?;
        Ok(stage)
    }

    /// A namespace that nobody looks after, unless a process that looks after all does.
    pub async fn unattended(program: &str, test: &str) -> Result<Self> {
        let client = client().await?;
        install_definitions(&client).await?;
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

    /// What the controller has said since it was started last.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())
    }

    /// Kills the controller and starts it anew.
    pub fn restart(&mut self) -> Result<()> {
        if let Some(mut controller) = self.controller.take() {
            controller.kill()?;
        }
        let namespaces = ["--namespaces", self.namespace.name()];
        self.controller = Some(Process::start(&self.program, &namespaces, &self.log)?);
        Ok(())
    }

    /// Makes an object what a user wants; `content` has everything but name and kind.
    pub async fn put<K: Object>(&self, name: &str, content: Value) -> Result<K> {
        let mut object = content;
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        object["metadata"]["name"] = json!(name);
        let params = PatchParams::apply("user").force();
        Ok(self.api().patch(name, &params, &Patch::Apply(&object)).await?)
    }

    /// Changes the spec of an object; `null` removes a field.
    pub async fn edit<K: Object>(&self, name: &str, spec: Value) -> Result<K> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        Ok(self.api().patch(name, &PatchParams::default(), &patch).await?)
    }

    /// Waits until the object as it is now is ready, or not ready for the given reason.
    pub async fn ready<K: Object>(&self, name: &str, reason: &str) -> Result<K> {
        self.ready_within(name, reason, SOON).await
    }

    /// As [`Stage::ready`], for what takes its time.
    pub async fn ready_within<K: Object>(&self, name: &str, reason: &str, limit: Duration) -> Result<K> {
        let api = self.api::<K>();
        let says = |object: &K| {
            condition(object, conditions::READY).is_ok_and(|ready| {
                ready.reason == reason && ready.observed_generation == object.meta().generation
            })
        };
        eventually(reason, limit, async || Ok(api.get(name).await?), says).await
    }

    /// Waits until the object as it is now is not ready for the given reason, and gives the sentence that tells why.
    pub async fn degraded<K: Object>(&self, name: &str, reason: &str) -> Result<String> {
        let degraded = condition(&self.ready::<K>(name, reason).await?, conditions::DEGRADED)?;
        ensure!(degraded.reason == reason && degraded.status == "True", "{degraded:?}");
        Ok(degraded.message)
    }

    /// Waits until an object is there and `holds`.
    pub async fn child<K: Object>(&self, name: &str, holds: impl Fn(&K) -> bool) -> Result<K> {
        let api = self.api::<K>();
        eventually(&format!("{name} as wanted"), SOON, async || Ok(api.get(name).await?), holds).await
    }

    /// Waits for an Event about the object of that name.
    pub async fn event(&self, name: &str, reason: &str) -> Result<Event> {
        let events: Api<Event> = self.api();
        let look = async || Ok(events.list(&ListParams::default()).await?.items);
        let about = |event: &&Event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()) == Some(name)
        };
        let seen = eventually(reason, SOON, look, |events| events.iter().any(|event| about(&event))).await?;
        seen.iter().find(about).cloned().context("the event")
    }

    /// The requests of the controller to the API server so far, but for watches.
    pub fn requests(&self) -> Result<Vec<String>> {
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        audit::requests(&program, self.namespace())
    }

    /// Waits until the controller does nothing, and lets it do so for a while. Gives the requests of that time.
    pub async fn requests_when_idle(&self) -> Result<Vec<String>> {
        let settled = async || {
            let before = self.requests()?;
            sleep(BREATH).await;
            Ok(self.requests()?.len() == before.len())
        };
        eventually("no more requests", SOON, settled, |settled| *settled).await?;
        let before = self.requests()?.len();
        sleep(IDLE).await;
        Ok(self.requests()?.split_off(before))
    }

    /// Kills the controller and starts it anew. Gives what it writes before it does nothing any more.
    pub async fn writes_of_a_restart(&mut self) -> Result<Vec<String>> {
        let before = self.requests()?.len();
        self.restart()?;
        let mut requests = self.requests_when_idle().await?;
        requests.extend(self.requests()?.split_off(before));
        requests.retain(|request| !["get ", "list "].iter().any(|verb| request.starts_with(verb)));
        Ok(requests)
    }

    /// Plays the kubelet, which this cluster may have none of: the pod runs and is ready.
    pub async fn pod_becomes_ready(&self, name: &str) -> Result<Pod> {
        let pods = self.api::<Pod>();
        eventually("a pod", SOON, async || Ok(pods.get_opt(name).await?), Option::is_some).await?;
        let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        let patch = Patch::Merge(json!({ "status": status }));
        Ok(pods.patch_status(name, &PatchParams::default(), &patch).await?)
    }

    /// Metadata of an object that somebody else controls.
    pub async fn metadata_of_somebody_else(&self) -> Result<Value> {
        let owner: ConfigMap = self.put("owner", json!({})).await?;
        Ok(json!({ "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(), "controller": true,
        }] }))
    }

    /// Ends the controller and deletes the namespace. A test that failed leaves it for a look.
    pub async fn end(self) -> Result<()> {
        self.namespace.delete().await
    }
}

/// One condition of an object of ours.
pub fn condition<K: Object>(object: &K, type_: &str) -> Result<Condition> {
    let object_as_json = serde_json::to_value(object)?;
    let list = object_as_json["status"]["conditions"].clone();
    let list: Vec<Condition> = serde_json::from_value(list).context("no conditions")?;
    let found = conditions::find(&list, type_).cloned();
    found.with_context(|| format!("{} has no condition {type_}", object.name_any()))
}
