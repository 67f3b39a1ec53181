//! Invariants that must hold whatever faults occur.

use super::ledger::Ledger;
use super::process::{NAMESPACE, REPLICA};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use slinky_api::labels::annotations::{CORDONED_PODS, POD_CORDON, POD_CORDON_BY};
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

/// Checks the changes of one NodeSet and its workers.
pub struct Invariants {
    nodeset: &'static str,
    ledger: Arc<Ledger>,
    /// Until when a stopped process may still send what it decided on before.
    stopped_until: Instant,
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
    pub fn new(nodeset: &'static str, ledger: Arc<Ledger>) -> Self {
        Self {
            nodeset,
            ledger,
            stopped_until: Instant::now(),
            checked: 0,
            desired: vec![],
            updating: BTreeSet::new(),
            drained_by_person: BTreeSet::new(),
            deleted_by_person: BTreeSet::new(),
            cordoned_by_person: BTreeMap::new(),
            other_names: BTreeMap::new(),
            overdrained: None,
            drains_forgiven_until: None,
        }
    }

    /// A process is stopped until then: it may send one write that it decided on before.
    pub fn forgive_late_writes(&mut self, until: Instant) {
        self.stopped_until = self.stopped_until.max(until);
        for (_, valid_until) in &mut self.desired {
            *valid_until = valid_until.map(|valid_until| valid_until.max(until + GRACE));
        }
    }

    /// Sets the desired number of workers from now on.
    pub fn set_desired(&mut self, replicas: i64) {
        let now = self.stopped_until.max(Instant::now());
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
        for (index, change) in (self.checked..).zip(&history) {
            let is_of_worker = change.target.name.starts_with(&format!("{}-", self.nodeset));
            if is_of_worker && change.target.resource == "pods" {
                self.check_pod(change, api, slurm)?;
            }
            if is_of_worker && change.target.resource == "pods" || change.target.name == self.nodeset {
                self.ledger.check(change, is_effect(change), self.nodeset, index)?;
            }
        }
        self.checked += history.len();
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
        let nodeset = api.get::<NodeSet>(NAMESPACE, self.nodeset);
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
        let pods = pods(api, self.nodeset);
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
        let Some(call) = change.by.as_ref().filter(|call| call.client.starts_with(REPLICA)) else {
            return Ok(());
        };
        match call.verb {
            Verb::Create => {
                let pods = pods(api, self.nodeset).len();
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
        let available = pods(api, self.nodeset).values().filter(|pod| is_available(pod)).count();
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

/// The pods of a NodeSet, by name.
pub fn pods(api: &ApiModel, nodeset: &str) -> BTreeMap<String, Arc<Value>> {
    let pods = api.list::<Pod>(NAMESPACE).into_iter().map(|pod| (text(&pod, "/metadata/name"), pod));
    pods.filter(|(name, _)| name.strip_prefix(nodeset).is_some_and(|rest| rest.starts_with('-'))).collect()
}

/// Whether a change is one that needs a batch: a pod is created, deleted, marked or unmarked, or a finalizer of the NodeSet is
/// removed.
fn is_effect(change: &Change) -> bool {
    let before = change.before.as_deref().unwrap_or(&Value::Null);
    let verb = change.by.as_ref().map(|call| call.verb);
    match change.target.resource.as_str() {
        "pods" => {
            let mark = |pod: &Value| [POD_CORDON, POD_CORDON_BY].map(|key| text(pod, &annotation(key)));
            matches!(verb, Some(Verb::Create | Verb::Delete)) || mark(before) != mark(&change.object)
        }
        "nodesets.slinky.slurm.net" => {
            let finalizers = |object: &Value| object["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
            finalizers(&change.object) < finalizers(before)
        }
        _ => false,
    }
}
