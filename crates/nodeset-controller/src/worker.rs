//! A worker pod as decisions see it: what its labels, annotations, spec and status say, read once.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt;
use slinky_api::labels::{self, annotations};
use slinky_api::v1beta1::ScalingMode;
use std::sync::Arc;

/// Prefix of the pod conditions that mirror the state of the Slurm node.
pub const STATE_PREFIX: &str = "SlurmNodeState";

/// What precedes the cause in the mark of a pod that a person had cordoned before.
pub const PERSON_AND: &str = "person,";

/// Exactly one version of one pod: what a write is conditional on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Its version.
    pub version: String,
}

/// Why the operator marked a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// There are more pods than wanted.
    ScaleIn,
    /// It has an old template.
    Update,
    /// Its Kubernetes node is cordoned.
    Node,
}

impl Cause {
    /// The value of the annotation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ScaleIn => "scale-in",
            Self::Update => "update",
            Self::Node => "node",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::ScaleIn, Self::Update, Self::Node].into_iter().find(|cause| cause.as_str() == text)
    }
}

/// Whether, and by whom, a pod was marked to get no more jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cordon {
    /// It is not.
    None,
    /// By a person, or by a program that is not this one: not ours to undo.
    Person,
    /// By the operator.
    Ours(Cause),
}

/// What the pod is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Accepted, and nothing runs yet. Also what the API server says of a pod that nobody has looked at.
    Pending,
    /// Its containers run, or did.
    Running,
    /// All its containers ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// Its kubelet is silent.
    Unknown,
}

/// A worker pod.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The pod itself, as the cache has it: trimmed to what this file reads.
    pub pod: Arc<Pod>,
    /// The scaling mode that made it, if its label says so.
    pub mode: Option<ScalingMode>,
    /// Its number, if its name ends in one.
    pub ordinal: Option<i32>,
    /// The name of its Slurm node.
    pub slurm_name: String,
    /// The Kubernetes node that it is bound to.
    pub node: Option<String>,
    /// What it is doing.
    pub phase: Phase,
    /// Since when it is ready; `None` if it is not.
    pub ready: Option<Ready>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it was marked.
    pub cordon: Cordon,
    /// Whether a person cordoned it, before or without us: that stays whatever we undo.
    pub cordoned_by_person: bool,
    /// The revision that it was made from.
    pub hash: String,
    /// Lower goes first.
    pub cost: i32,
    /// The work that it has.
    pub work: Work,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// When its containers began to run; `None` if one has been restarted since, or none runs.
    pub began: Option<Timestamp>,
    /// Whether its slurmd may have run: only a pod whose container never started certainly registered nowhere.
    pub started: bool,
    /// States of its Slurm node as they were last mirrored, without prefix; empty if it was never seen there.
    pub mirrored: Vec<String>,
}

/// The work that a worker has, as far as was heard. Less comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// None.
    Nothing,
    /// Some, and nobody said until when: the job is new, or ending.
    Something,
    /// A job that is over then at the latest.
    Until(Timestamp),
}

/// Since when a pod is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// `None` if the condition does not say.
    pub since: Option<Timestamp>,
}

impl Worker {
    /// Reads a pod.
    pub fn new(pod: Arc<Pod>) -> Self {
        let mode = mode_of(&pod);
        let (cordon, cordoned_by_person) = cordon_of(&pod);
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let mirrored = mirrored_of(&conditions);
        Self {
            mode,
            ordinal: ordinal_of(&pod.name_any()).map(|(_, ordinal)| ordinal),
            slurm_name: slurm_name_of(&pod, mode),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty()),
            phase: phase_of(status.phase.as_deref()),
            ready: ready_of(&conditions),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            cordon,
            cordoned_by_person,
            hash: pod.labels().get(labels::REVISION_HASH).cloned().unwrap_or_default(),
            cost: pod.annotations().get(annotations::POD_DELETION_COST).map_or(0, |text| cost_of(text)),
            work: work_of(&pod, &mirrored),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            began: began_of(status.container_statuses.as_deref().unwrap_or_default()),
            started: status.container_statuses.iter().flatten().any(has_started),
            mirrored,
            pod,
        }
    }

    /// The version that was read.
    pub fn reference(&self) -> PodRef {
        PodRef {
            name: self.pod.name_any(),
            uid: self.uid().to_owned(),
            version: self.pod.resource_version().unwrap_or_default(),
        }
    }

    /// The pod's UID.
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The pod's name.
    pub fn name(&self) -> String {
        self.pod.name_any()
    }

    /// Whether it has ended by itself.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it works, or will.
    pub fn is_alive(&self) -> bool {
        !self.terminating && !self.is_finished()
    }

    /// Whether it runs and is ready.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready.is_some()
    }

    /// Whether it runs, is ready and stays.
    pub fn is_healthy(&self) -> bool {
        self.is_ready() && !self.terminating
    }

    /// Whether it has been ready for long enough.
    pub fn is_available(&self, min_ready: SignedDuration, now: Timestamp) -> bool {
        match self.ready {
            None => false,
            Some(_) if min_ready.is_zero() || min_ready.is_negative() => true,
            Some(ready) => ready.since.is_some_and(|since| now.duration_since(since) > min_ready),
        }
    }

    /// Whether it works, and has been ready for long enough.
    pub fn serves(&self, min_ready: SignedDuration, now: Timestamp) -> bool {
        self.is_alive() && self.is_available(min_ready, now)
    }

    /// Whether its Slurm node was ever seen.
    pub fn was_registered(&self) -> bool {
        !self.mirrored.is_empty()
    }

    /// Whether its Slurm node had a job when it was last seen.
    pub fn was_busy(&self) -> bool {
        is_busy(&self.mirrored)
    }

    /// Whether it was marked by the operator, for this cause.
    pub fn is_marked(&self, cause: Cause) -> bool {
        self.cordon == Cordon::Ours(cause)
    }
}

fn work_of(pod: &Pod, mirrored: &[String]) -> Work {
    let deadline = pod.annotations().get(annotations::POD_DEADLINE).and_then(|text| text.parse().ok());
    let otherwise = if is_busy(mirrored) { Work::Something } else { Work::Nothing };
    deadline.map_or(otherwise, Work::Until)
}

fn is_busy(mirrored: &[String]) -> bool {
    mirrored.iter().any(|state| matches!(state.as_str(), "Allocated" | "Mixed" | "Completing"))
}

fn mode_of(pod: &Pod) -> Option<ScalingMode> {
    match pod.labels().get(labels::SCALING_MODE)?.as_str() {
        "StatefulSet" => Some(ScalingMode::StatefulSet),
        "DaemonSet" => Some(ScalingMode::DaemonSet),
        _ => None,
    }
}

/// What precedes the number at the end of a name, and the number.
pub fn ordinal_of(name: &str) -> Option<(&str, i32)> {
    let (parent, number) = name.rsplit_once('-')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((parent, number.parse().ok()?))
}

fn slurm_name_of(pod: &Pod, mode: Option<ScalingMode>) -> String {
    let spec = pod.spec.as_ref();
    let hostname = spec.and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    if mode != Some(ScalingMode::StatefulSet) {
        return hostname.unwrap_or_default();
    }
    match spec {
        Some(spec) if spec.host_network == Some(true) => spec.node_name.clone().unwrap_or_default(),
        _ => hostname.unwrap_or_else(|| pod.name_any()),
    }
}

fn phase_of(phase: Option<&str>) -> Phase {
    match phase {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Unknown") => Phase::Unknown,
        _ => Phase::Pending,
    }
}

fn ready_of(conditions: &[PodCondition]) -> Option<Ready> {
    let ready =
        conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(Ready { since: ready.last_transition_time.as_ref().map(|time| time.0) })
}

fn cordon_of(pod: &Pod) -> (Cordon, bool) {
    let annotations = pod.annotations();
    if annotations.get(annotations::POD_CORDON).is_none_or(|value| value != labels::TRUE) {
        return (Cordon::None, false);
    }
    let by = annotations.get(annotations::POD_CORDON_BY).map(String::as_str).unwrap_or_default();
    let (person, cause) = by.strip_prefix(PERSON_AND).map_or((false, by), |cause| (true, cause));
    Cause::parse(cause).map_or((Cordon::Person, true), |cause| (Cordon::Ours(cause), person))
}

/// A number without sign `+` and without leading zeros; anything else counts as 0.
fn cost_of(text: &str) -> i32 {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if text.starts_with('+') || (digits.len() > 1 && digits.starts_with('0')) {
        return 0;
    }
    text.parse().unwrap_or(0)
}

fn began_of(containers: &[ContainerStatus]) -> Option<Timestamp> {
    if containers.iter().any(|container| container.restart_count > 0) {
        return None;
    }
    let running = containers.iter().filter_map(|container| container.state.as_ref()?.running.as_ref());
    running.filter_map(|running| running.started_at.as_ref()).map(|time| time.0).max()
}

fn has_started(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    let running = state.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
    running
        || container.restart_count > 0
        || container.last_state.as_ref().is_some_and(|state| state.terminated.is_some())
}

fn mirrored_of(conditions: &[PodCondition]) -> Vec<String> {
    let on = conditions.iter().filter(|condition| condition.status == "True");
    on.filter_map(|condition| condition.type_.strip_prefix(STATE_PREFIX)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
