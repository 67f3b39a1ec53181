//! Invariants that must hold whatever faults occur.

use super::process::{NAMESPACE, NODESET, OPERATOR};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use slinky_api::labels::annotations::{CORDONED_PODS, POD_CORDON_BY};
use slinky_api::v1beta1::NodeSet;
use slurm_fake::FakeSlurm;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use test_support::api_model::{ApiModel, Change, Event, Verb};
use tokio::time::Instant;

/// For how long an outdated spec may still be acted on: the duration of a batch, and of delayed requests.
const GRACE: Duration = Duration::from_secs(150);
/// For how long more workers may be drained by an update than may be unavailable, while Slurm and the operator work.
const DRAIN_GRACE: Duration = Duration::from_secs(30);
/// How many workers may be unavailable because of an update.
pub const MAX_UNAVAILABLE: usize = 1;

/// Checks the changes of a scenario.
#[derive(Default)]
pub struct Invariants {
    /// Number of changes already checked.
    checked: usize,
    /// Desired numbers of workers, and until when each may be acted on.
    desired: Vec<(i64, Option<Instant>)>,
    /// Workers deleted by an update and not ready since.
    updating: BTreeSet<String>,
    /// Slurm nodes drained by a person.
    pub drained_by_person: BTreeSet<String>,
    /// Pods deleted by a person: the operator is not responsible for their jobs.
    pub deleted_by_person: BTreeSet<String>,
    /// Pods that a person cordoned, by name, and whether the record and the drain of it were seen since.
    pub cordoned_by_person: BTreeMap<String, bool>,
    /// The Slurm nodes that pods run under another name, by UID of the pod.
    pub other_names: BTreeMap<String, String>,
    /// Since when more workers are drained by an update than may be unavailable.
    overdrained: Option<Instant>,
    /// Until when that is forgiven.
    drains_forgiven_until: Option<Instant>,
}

impl Invariants {
    /// Sets the desired number of workers from now on.
    pub fn set_desired(&mut self, replicas: i64) {
        let now = Instant::now();
        for (_, until) in self.desired.iter_mut().filter(|(_, until)| until.is_none()) {
            *until = Some(now + GRACE);
        }
        self.desired.push((replicas, None));
        // After a scale-in some of them are not recreated.
        self.updating.clear();
        self.cordoned_by_person.clear();
    }

    /// Forgives surplus drains for this long: the operator cannot lift them.
    pub fn forgive_drains(&mut self, time: Duration) {
        self.drains_forgiven_until = self.drains_forgiven_until.max(Some(Instant::now() + time));
    }

    /// Checks the changes since the last call.
    pub fn check(&mut self, api: &ApiModel, slurm: &FakeSlurm) -> Result<(), String> {
        let history = api.history(self.checked);
        self.checked += history.len();
        for change in history.iter().filter(|change| change.target.resource == "pods") {
            self.check_pod(change, api, slurm)?;
        }
        for node in &self.drained_by_person {
            let reason = slurm.unavailable_reason(node);
            if !reason.as_ref().is_some_and(|reason| reason.starts_with("person")) {
                return Err(format!(
                    "the operator undid or overwrote a person's drain of {node}: {reason:?}"
                ));
            }
        }
        self.check_cordons(api, slurm)?;
        self.check_drains(api, slurm)
    }

    /// A cordon by a person that was recorded lasts, also if its pod is replaced.
    fn check_cordons(&mut self, api: &ApiModel, slurm: &FakeSlurm) -> Result<(), String> {
        let nodeset = api.get::<NodeSet>(NAMESPACE, NODESET);
        let record = nodeset.map(|nodeset| text(&nodeset, &annotation(CORDONED_PODS))).unwrap_or_default();
        let recorded = slurm_conf::hostlist::expand(&record).unwrap_or_default();
        for (name, seen) in &mut self.cordoned_by_person {
            let is_drained = slurm.unavailable_reason(name).is_some();
            if *seen && !is_drained && !slurm.is_busy(name) {
                return Err(format!("the operator undid a person's cordon of {name}"));
            }
            *seen |= is_drained && recorded.contains(name);
        }
        Ok(())
    }

    /// An update drains no more workers than may be unavailable, except for moments.
    fn check_drains(&mut self, api: &ApiModel, slurm: &FakeSlurm) -> Result<(), String> {
        let is_drained = |(name, pod): (&String, &Arc<Value>)| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && text(pod, &annotation(POD_CORDON_BY)).ends_with("update")
                && slurm.unavailable_reason(name).is_some()
        };
        let pods = pods(api);
        let drained: Vec<_> = pods.iter().filter(|pod| is_drained(*pod)).map(|(name, _)| name).collect();
        if drained.len() <= MAX_UNAVAILABLE || self.drains_forgiven_until > Some(Instant::now()) {
            self.overdrained = None;
            return Ok(());
        }
        let since = *self.overdrained.get_or_insert_with(Instant::now);
        if since.elapsed() > DRAIN_GRACE {
            return Err(format!("an update keeps {drained:?} drained at once"));
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
                let valid = self.desired.iter().filter(|(_, until)| until.is_none_or(|until| until > now));
                let most = valid.map(|(replicas, _)| *replicas).max().unwrap_or_default();
                if i64::try_from(pods).unwrap_or_default() > most {
                    return Err(format!(
                        "{pods} pods after {name} was created, and at most {most} were desired"
                    ));
                }
            }
            Verb::Delete => {
                let before = change.before.as_ref().unwrap_or(&change.object);
                let uid = text(before, "/metadata/uid");
                // Without a slurmd there is no job: a busy Slurm node belongs to the previous pod.
                let started = before["status"]["containerStatuses"].is_array();
                let node = self.other_names.get(&uid).unwrap_or(name);
                if started && slurm.is_busy(node) && !self.deleted_by_person.contains(&uid) {
                    return Err(format!("{name} was deleted with a running job"));
                }
                if is_ready(before) && text(before, &annotation(POD_CORDON_BY)) == "update" {
                    self.updating.insert(name.clone());
                }
                // A worker chosen for scale-in may stay in the place of one that an update deleted.
                if self.updating.len() > MAX_UNAVAILABLE && self.has_too_few_available(api) {
                    return Err(format!("an update deleted {:?} at once", self.updating));
                }
            }
            Verb::Get | Verb::List | Verb::Update | Verb::Patch => {}
        }
        Ok(())
    }

    fn has_too_few_available(&self, api: &ApiModel) -> bool {
        let is_available = |pod: &Value| is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null();
        let available = pods(api).values().filter(|pod| is_available(pod)).count();
        let desired = self.desired.last().map_or(0, |(desired, _)| *desired);
        available + MAX_UNAVAILABLE < usize::try_from(desired).unwrap_or_default()
    }
}

/// The JSON pointer of an annotation.
pub fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('/', "~1"))
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.clone().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The string at a JSON pointer, or an empty one.
pub fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Pods by name.
pub fn pods(api: &ApiModel) -> BTreeMap<String, Arc<Value>> {
    let pods = api.list::<Pod>(NAMESPACE).into_iter();
    pods.map(|pod| (text(&pod, "/metadata/name"), pod)).collect()
}
