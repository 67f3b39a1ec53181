//! A worker pod with the fields that decisions depend on, parsed once from labels, annotations, spec and status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use kube::ResourceExt;
use slinky_api::labels::{self, annotations};
use slinky_api::v1beta1::ScalingMode;
use slinky_api::workers::{ordinal_of, scaling_mode, slurm_node_name};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Prefix of the pod conditions that mirror the state of the Slurm node.
pub const STATE_PREFIX: &str = "SlurmNodeState";

/// Prefix of the cause in the mark of a pod that a person had cordoned before the operator did.
pub const PERSON_PREFIX: &str = "person,";

/// One version of one pod: the precondition of a write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
}

/// Why the operator marked a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// There are more pods than desired, or the pod has no place any more.
    ScaleIn,
    /// It is outdated, or has to be replaced for another reason.
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

/// Whether a pod is cordoned, and by whom. Slurm starts no more jobs on a cordoned worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cordon {
    /// It is not cordoned.
    None,
    /// By a person or another program: the operator does not undo it.
    Person,
    /// By the operator, which left its mark.
    Ours(Cause),
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Accepted, and no container runs yet. Also the phase of a pod that no kubelet has reported on.
    Pending,
    /// At least one container runs or is restarting.
    Running,
    /// All containers exited with success.
    Succeeded,
    /// All containers exited, at least one with failure.
    Failed,
    /// The kubelet does not report.
    Unknown,
}

/// A worker pod.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The pod as cached: trimmed to the fields that this module reads.
    pub pod: Arc<Pod>,
    /// The scaling mode that it was created in, from its label; without one, from its name and node. `None` if nothing
    /// shows it.
    pub mode: Option<ScalingMode>,
    /// Its ordinal, if its name ends in one.
    pub ordinal: Option<i32>,
    /// The name of its Slurm node.
    pub slurm_name: String,
    /// The Slurm cluster that it serves, if its NodeSet now names another one: then nothing is known about its jobs.
    pub other_cluster: Option<String>,
    /// The addresses of the pod.
    pub addresses: Vec<String>,
    /// The Kubernetes node that the pod is bound to.
    pub node: Option<String>,
    /// Its phase.
    pub phase: Phase,
    /// The Ready condition; `None` if the pod is not ready.
    pub ready: Option<Ready>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it is cordoned, and by whom.
    pub cordon: Cordon,
    /// Whether a person cordoned it, with or without the operator: that cordon stays when the operator removes its
    /// mark.
    pub cordoned_by_person: bool,
    /// Hash of the revision that it was created from.
    pub hash: String,
    /// Deletion cost: on scale-in, lower goes first.
    pub cost: i32,
    /// Its running jobs.
    pub job_state: JobState,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// When the last of its containers started; `None` if one was restarted since, or none runs.
    pub containers_started_at: Option<Timestamp>,
    /// Whether its slurmd may have run. Only a pod without a started container certainly never registered in Slurm.
    pub started: bool,
    /// States of its Slurm node as last mirrored to pod conditions, without prefix; empty if it never registered.
    pub mirrored: Vec<String>,
}

/// The running jobs of a worker, as far as known. In the order in which workers are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    /// No job.
    None,
    /// At least one job, with unknown end: the job is new, or completing.
    UnknownEnd,
    /// Jobs that end at this time at the latest.
    Until(Timestamp),
}

/// The Ready condition of a pod that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its last transition time, if set.
    pub since: Option<Timestamp>,
}

impl Worker {
    /// Parses a pod.
    pub fn new(pod: Arc<Pod>) -> Self {
        let mode = scaling_mode(&pod);
        let (cordon, cordoned_by_person) = cordon_of(&pod);
        let mut status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.take().unwrap_or_default();
        let mirrored = mirrored_of(&conditions);
        Self {
            mode,
            ordinal: ordinal_of(&pod.name_any()).map(|(_, ordinal)| ordinal),
            slurm_name: slurm_node_name(&pod),
            other_cluster: None,
            addresses: addresses_of(&status),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty()),
            phase: phase_of(status.phase.as_deref()),
            ready: ready_of(&conditions),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            cordon,
            cordoned_by_person,
            hash: pod.labels().get(labels::REVISION_HASH).cloned().unwrap_or_default(),
            cost: pod.annotations().get(annotations::POD_DELETION_COST).map_or(0, |text| cost_of(text)),
            job_state: job_state_of(&pod, &mirrored),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            containers_started_at: containers_started_at(
                status.container_statuses.as_deref().unwrap_or_default(),
            ),
            started: status.container_statuses.iter().flatten().any(has_started),
            mirrored,
            pod,
        }
    }

    /// Reference to the version that was read.
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

    /// Whether all its containers have exited.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it runs or will run: neither finished nor terminating.
    pub fn is_alive(&self) -> bool {
        !self.terminating && !self.is_finished()
    }

    /// Whether it runs and is ready.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready.is_some()
    }

    /// Whether it runs, is ready and is not terminating.
    pub fn is_healthy(&self) -> bool {
        self.is_ready() && !self.terminating
    }

    /// Whether it has been ready for longer than `min_ready`.
    pub fn is_available(&self, min_ready: SignedDuration, now: Timestamp) -> bool {
        match self.ready {
            None => false,
            Some(_) if min_ready.is_zero() || min_ready.is_negative() => true,
            Some(ready) => ready.since.is_some_and(|since| now.duration_since(since) > min_ready),
        }
    }

    /// Whether it is available, and neither finished nor terminating.
    pub fn is_serving(&self, min_ready: SignedDuration, now: Timestamp) -> bool {
        self.is_alive() && self.is_available(min_ready, now)
    }

    /// Whether its Slurm node was ever observed.
    pub fn was_registered(&self) -> bool {
        !self.mirrored.is_empty()
    }

    /// Whether its Slurm node had a job when it was last observed.
    pub fn was_busy(&self) -> bool {
        is_busy(&self.mirrored)
    }

    /// Whether the operator marked it for this cause.
    pub fn is_marked(&self, cause: Cause) -> bool {
        self.cordon == Cordon::Ours(cause)
    }
}

fn job_state_of(pod: &Pod, mirrored: &[String]) -> JobState {
    let deadline = pod.annotations().get(annotations::POD_DEADLINE).and_then(|text| text.parse().ok());
    let without_end = if is_busy(mirrored) { JobState::UnknownEnd } else { JobState::None };
    deadline.map_or(without_end, JobState::Until)
}

fn is_busy(mirrored: &[String]) -> bool {
    mirrored.iter().any(|state| matches!(state.as_str(), "Allocated" | "Mixed" | "Completing"))
}

fn addresses_of(status: &PodStatus) -> Vec<String> {
    let all = status.pod_ips.iter().flatten().map(|address| &address.ip).chain(&status.pod_ip);
    let addresses: BTreeSet<&String> = all.filter(|address| !address.is_empty()).collect();
    addresses.into_iter().cloned().collect()
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
    let (person, cause) = by.strip_prefix(PERSON_PREFIX).map_or((false, by), |cause| (true, cause));
    Cause::parse(cause).map_or((Cordon::Person, true), |cause| (Cordon::Ours(cause), person))
}

/// An integer without `+` and leading zeros, as Kubernetes parses deletion costs; anything else counts as 0.
fn cost_of(text: &str) -> i32 {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if text.starts_with('+') || (digits.len() > 1 && digits.starts_with('0')) {
        return 0;
    }
    text.parse().unwrap_or(0)
}

fn containers_started_at(containers: &[ContainerStatus]) -> Option<Timestamp> {
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
