//! Mirrors Slurm nodes to pods and pods to Slurm nodes. Only differences become writes. While Slurm is unreachable,
//! mirrored values stay, and after a while every worker that was ever registered counts as busy.

use super::effect::{NodeMirror, PodMirror};
use super::features::{PodInfo, desired_features, desired_topology, recorded_topology};
use super::job_state::{JobEnd, job_end};
use super::registration::lookup;
use crate::node_facts::Nodes;
use crate::observe::Observed;
use crate::slurm::reachability::{must_protect_workers, protects_workers_in};
use crate::slurm::{NodeLookup, View};
use crate::worker::{STATE_PREFIX, Worker};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use slinky_api::labels::{self, annotations};
use slinky_api::v1beta1::{NodeSet, ScalingMode};
use slurm_rest::{Node, NodeState, NodeUpdate};
use std::collections::BTreeMap;
use std::time::Duration;

/// Base states with their names in conditions. The first match wins.
const BASE: [(NodeState, &str); 7] = [
    (NodeState::Allocated, "Allocated"),
    (NodeState::Down, "Down"),
    (NodeState::Error, "Error"),
    (NodeState::Future, "Future"),
    (NodeState::Idle, "Idle"),
    (NodeState::Mixed, "Mixed"),
    (NodeState::Unknown, "Unknown"),
];

/// State flags with their names in conditions. A node can have several.
const FLAGS: [(NodeState, &str); 8] = [
    (NodeState::Completing, "Completing"),
    (NodeState::Drain, "Drain"),
    (NodeState::Fail, "Fail"),
    (NodeState::Invalid, "Invalid"),
    (NodeState::InvalidReg, "InvalidReg"),
    (NodeState::Maintenance, "Maintenance"),
    (NodeState::NotResponding, "NotResponding"),
    (NodeState::Undrain, "Undrain"),
];

/// Inputs for the mirrors of all workers.
pub struct Mirrors<'a> {
    /// The NodeSet.
    pub nodeset: &'a NodeSet,
    /// The state of Slurm.
    pub slurm: &'a View,
    /// For how long Slurm has been unreachable.
    pub unreachable_for: Duration,
    /// The Kubernetes nodes.
    pub nodes: &'a Nodes,
    /// Current time.
    pub now: Timestamp,
}

impl<'a> Mirrors<'a> {
    /// Takes the inputs from an observation.
    pub fn new(observed: &'a Observed, now: Timestamp) -> Self {
        Self {
            nodeset: &observed.nodeset,
            slurm: &observed.slurm,
            unreachable_for: observed.unreachable_for,
            nodes: &observed.nodes,
            now,
        }
    }

    /// Updates of pods that differ from their Slurm nodes.
    pub fn pods(&self, workers: &[Worker]) -> Vec<PodMirror> {
        let staying = workers.iter().filter(|worker| !worker.terminating);
        staying.filter_map(|worker| self.pod(worker)).collect()
    }

    fn pod(&self, worker: &Worker) -> Option<PodMirror> {
        let mut mirror = PodMirror {
            pod: worker.reference(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            conditions: vec![],
            ended: vec![],
        };
        let pod = &worker.pod;
        for (key, value) in Self::identity(worker) {
            set(&mut mirror.labels, pod.labels(), key, Some(value));
        }
        if let Some(protected) = self.is_protected(worker) {
            set(
                &mut mirror.labels,
                pod.labels(),
                labels::POD_PROTECT,
                protected.then(|| labels::TRUE.to_owned()),
            );
        }
        if let JobEnd::Known(end) = job_end(self.slurm, worker) {
            let end = end.map(|end| end.to_string());
            set(&mut mirror.annotations, pod.annotations(), annotations::POD_DEADLINE, end);
        }
        let host = worker.node.as_ref().and_then(|name| self.nodes.get(name));
        if let Some(host) = host.filter(|_| self.nodeset.spec.sync_topology) {
            let topology = recorded_topology(
                host.annotations.get(annotations::TOPOLOGY).map(String::as_str),
                pod.annotations().get(annotations::TOPOLOGY).map(String::as_str),
                lookup(self.slurm, worker),
            );
            // A missing annotation means no topology too, so pods on nodes without topology need no write.
            if !topology.is_empty() || pod.annotations().contains_key(annotations::TOPOLOGY) {
                set(
                    &mut mirror.annotations,
                    pod.annotations(),
                    annotations::TOPOLOGY,
                    Some(topology.to_owned()),
                );
            }
        }
        if let NodeLookup::Present(node) = lookup(self.slurm, worker) {
            (mirror.conditions, mirror.ended) = conditions(pod, node, self.now);
        }
        (!mirror.is_empty()).then_some(mirror)
    }

    /// Labels with the pod's name and ordinal, which an adopted pod may lack.
    fn identity(worker: &Worker) -> Vec<(&'static str, String)> {
        let mut identity = vec![(labels::POD_NAME, worker.name())];
        let name = worker.pod.labels().get(labels::POD_NAME);
        if name != Some(&worker.name()) && worker.mode == Some(ScalingMode::StatefulSet) {
            // The ordinal as in the name: the padding may have changed since.
            let ordinal = worker.name().rsplit('-').next().unwrap_or_default().to_owned();
            identity.push((labels::POD_INDEX, ordinal));
        }
        identity
    }

    /// Whether the pod must be protected from eviction; `None` if that is unknown now.
    fn is_protected(&self, worker: &Worker) -> Option<bool> {
        if !self.nodeset.spec.workload_disruption_protection {
            return Some(false);
        }
        match (self.slurm, lookup(self.slurm, worker)) {
            (_, NodeLookup::Present(node)) => Some(node.is_busy()),
            // A job may have started that Slurm cannot report.
            (View::Unknown { .. } | View::NoRestApi, _)
                if must_protect_workers(self.unreachable_for) && worker.was_registered() =>
            {
                Some(true)
            }
            (View::Known(_), NodeLookup::Absent) if !worker.was_busy() => Some(false),
            (_, NodeLookup::Absent | NodeLookup::Unknown) => None,
        }
    }

    /// Time until workers must be protected if Slurm stays unreachable; `None` if there are none to protect.
    pub fn protect_after(&self, workers: &[Worker]) -> Option<Duration> {
        let is_unprotected = |worker: &Worker| {
            !worker.terminating
                && worker.was_registered()
                && !worker.pod.labels().contains_key(labels::POD_PROTECT)
        };
        let is_due = matches!(self.slurm, View::Unknown { .. } | View::NoRestApi)
            && self.nodeset.spec.workload_disruption_protection
            && workers.iter().any(is_unprotected);
        protects_workers_in(self.unreachable_for).filter(|_| is_due)
    }

    /// Updates of Slurm nodes that differ from their pods.
    pub fn slurm_nodes(&self, workers: &[Worker]) -> Vec<NodeMirror> {
        let alive = workers.iter().filter(|worker| worker.is_alive());
        alive.flat_map(|worker| self.slurm_node(worker)).collect()
    }

    fn slurm_node(&self, worker: &Worker) -> Vec<NodeMirror> {
        let (NodeLookup::Present(node), Some(host)) =
            (lookup(self.slurm, worker), worker.node.as_ref().and_then(|name| self.nodes.get(name)))
        else {
            return vec![];
        };
        let info = PodInfo::of(self.nodeset, worker, &host.name);
        let needs_comment = worker.is_healthy() && !info.is_in(&node.comment);
        let features =
            desired_features(node, host.annotations.get(annotations::FEATURES).map(String::as_str));
        let recorded = worker.pod.annotations().get(annotations::TOPOLOGY).map(String::as_str);
        let topology =
            desired_topology(node, host.annotations.get(annotations::TOPOLOGY).map(String::as_str), recorded)
                .filter(|_| self.nodeset.spec.sync_topology);
        let updates = [
            topology.map(NodeUpdate::Topology),
            features.map(|(available, active)| NodeUpdate::Features { available, active }),
            needs_comment.then(|| NodeUpdate::Comment(info.to_comment())),
        ];
        updates.into_iter().flatten().map(|update| NodeMirror { node: node.name.clone(), update }).collect()
    }
}

/// Adds a change if the value differs.
fn set(
    changes: &mut BTreeMap<String, Option<String>>,
    present: &BTreeMap<String, String>,
    key: &str,
    value: Option<String>,
) {
    if present.get(key) != value.as_ref() {
        changes.insert(key.to_owned(), value);
    }
}

/// The states of a node by their condition names: one base state and the flags.
pub fn slurm_state_names(node: &Node) -> Vec<&'static str> {
    let base = BASE.iter().find(|(state, _)| node.is(state));
    let flags = FLAGS.iter().filter(|(state, _)| node.is(state));
    base.into_iter().chain(flags).map(|(_, name)| *name).collect()
}

/// Conditions to set and condition types to remove so that a pod mirrors the states of its node.
fn conditions(pod: &Pod, node: &Node, now: Timestamp) -> (Vec<PodCondition>, Vec<String>) {
    let present = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let present: BTreeMap<&str, &PodCondition> =
        present.map(|condition| (condition.type_.as_str(), condition)).collect();
    let desired: Vec<_> =
        slurm_state_names(node).into_iter().map(|state| format!("{STATE_PREFIX}{state}")).collect();
    let ended = present
        .keys()
        .filter(|name| name.starts_with(STATE_PREFIX) && !desired.iter().any(|type_| type_ == *name));
    let ended = ended.map(|name| (*name).to_owned()).collect();
    let message = Some(node.reason.clone()).filter(|reason| !reason.is_empty());
    let set = desired.into_iter().filter_map(|type_| {
        let before = present.get(type_.as_str()).filter(|condition| condition.status == "True");
        if before.is_some_and(|before| before.message.clone().filter(|text| !text.is_empty()) == message) {
            return None;
        }
        let since = before.and_then(|before| before.last_transition_time.clone()).unwrap_or(Time(now));
        Some(PodCondition {
            type_,
            status: "True".to_owned(),
            message: message.clone(),
            last_transition_time: Some(since),
            ..PodCondition::default()
        })
    });
    (set.collect(), ended)
}

#[cfg(test)]
mod tests;
