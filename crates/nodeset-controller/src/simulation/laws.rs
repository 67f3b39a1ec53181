//! What must hold whatever happens.

use super::process::{NAMESPACE, OPERATOR};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use slinky_api::labels::annotations::POD_CORDON_BY;
use slurm_fake::FakeSlurm;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use test_support::api_model::{ApiModel, Change, Event, Verb};
use tokio::time::Instant;

/// For how long a wish that was taken back may still be acted on: a batch, and what lands late.
const LATE: Duration = Duration::from_secs(150);
/// How many workers may be away because of an update.
pub const MAX_UNAVAILABLE: usize = 1;

/// Watches over a story.
#[derive(Default)]
pub struct Laws {
    /// How much of what happened was looked at.
    seen: usize,
    /// Numbers of workers that were wanted, and until when.
    wanted: Vec<(i64, Option<Instant>)>,
    /// Workers that an update took away and that are not back.
    updating: BTreeSet<String>,
    /// Nodes that a person drained.
    pub drained_by_person: BTreeSet<String>,
    /// Pods that a person deleted: what ran there is that person's business.
    pub killed: BTreeSet<String>,
}

impl Laws {
    /// Somebody wants so many workers from now on.
    pub fn want(&mut self, replicas: i64) {
        let now = Instant::now();
        for (_, until) in self.wanted.iter_mut().filter(|(_, until)| until.is_none()) {
            *until = Some(now + LATE);
        }
        self.wanted.push((replicas, None));
        // A smaller number may leave some of them away for good.
        self.updating.clear();
    }

    /// Looks at what happened since the last time.
    pub fn check(&mut self, api: &ApiModel, slurm: &FakeSlurm) -> Result<(), String> {
        let history = api.history(self.seen);
        self.seen += history.len();
        for change in history.iter().filter(|change| change.target.resource == "pods") {
            self.check_pod(change, api, slurm)?;
        }
        for node in &self.drained_by_person {
            let reason = slurm.unavailable_reason(node);
            if !reason.as_ref().is_some_and(|reason| reason.starts_with("person")) {
                return Err(format!("the drain of a person on {node} was undone or overwritten: {reason:?}"));
            }
        }
        Ok(())
    }

    fn check_pod(&mut self, change: &Change, api: &ApiModel, slurm: &FakeSlurm) -> Result<(), String> {
        let name = &change.target.name;
        if is_ready(&change.object) && change.event != Event::Deleted {
            self.updating.remove(name);
        }
        let Some(call) = change.by.as_ref().filter(|call| call.client == OPERATOR) else { return Ok(()) };
        match call.verb {
            Verb::Create => {
                let pods = api.list::<Pod>(NAMESPACE).len();
                let now = Instant::now();
                let wanted = self.wanted.iter().filter(|(_, until)| until.is_none_or(|until| until > now));
                let most = wanted.map(|(replicas, _)| *replicas).max().unwrap_or_default();
                if i64::try_from(pods).unwrap_or_default() > most {
                    return Err(format!("{pods} pods after {name} was made, and {most} were wanted at most"));
                }
            }
            Verb::Delete => {
                let before = change.before.as_ref().unwrap_or(&change.object);
                let uid = text(before, "/metadata/uid");
                // Without a slurmd there is no job: what Slurm thinks is about the pod before.
                let started = before["status"]["containerStatuses"].is_array();
                if started && slurm.is_busy(name) && !self.killed.contains(&uid) {
                    return Err(format!("{name} was deleted with a job on it"));
                }
                let annotation = format!("/metadata/annotations/{}", POD_CORDON_BY.replace('/', "~1"));
                if is_ready(before) && text(before, &annotation) == "update" {
                    self.updating.insert(name.clone());
                }
                // One that was to leave for good may stay in the place of one that an update took away.
                if self.updating.len() > MAX_UNAVAILABLE && self.too_few_serve(api) {
                    return Err(format!("an update took away {:?} at once", self.updating));
                }
            }
            Verb::Get | Verb::List | Verb::Update | Verb::Patch => {}
        }
        Ok(())
    }

    fn too_few_serve(&self, api: &ApiModel) -> bool {
        let serves = |pod: &Value| is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null();
        let serving = pods(api).values().filter(|pod| serves(pod)).count();
        let wanted = self.wanted.last().map_or(0, |(wanted, _)| *wanted);
        serving + MAX_UNAVAILABLE < usize::try_from(wanted).unwrap_or_default()
    }
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.clone().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The text at a place, or nothing.
pub fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Pods by name.
pub fn pods(api: &ApiModel) -> BTreeMap<String, std::sync::Arc<Value>> {
    let pods = api.list::<Pod>(NAMESPACE).into_iter();
    pods.map(|pod| (text(&pod, "/metadata/name"), pod)).collect()
}
