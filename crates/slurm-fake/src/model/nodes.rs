//! Nodes: updates, and the consequences of an unreachable slurmd.

use super::{Cluster, SlurmError};
use slurm_conf::hostlist;
use slurm_rest::errno;
use std::collections::BTreeSet;

/// Seconds until a live slurmd answers the ping that follows an undrain.
const PING_ANSWER: i64 = 2;

/// Seconds after which a node with an unreachable slurmd is not responding, and down.
const NOT_RESPONDING_AFTER: i64 = 20;
const DOWN_AFTER: i64 = 40;

/// A state in which a node gets no jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeFlag {
    Down,
    Drain,
    Fail,
}

/// The record of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub flags: BTreeSet<NodeFlag>,
    /// When slurmd answers the ping that followed an undrain.
    pub unconfirmed_until: Option<i64>,
    /// Since when its slurmd does not answer.
    pub unreachable_since: Option<i64>,
    pub not_responding: bool,
    pub reason: String,
    pub reason_user: String,
    pub reason_at: i64,
    pub comment: String,
    pub topology: String,
    pub features: Vec<String>,
    pub active_features: Vec<String>,
    pub cpus: u32,
    /// CPUs in use when nodes were last listed.
    pub counted_cpus: u32,
    pub slurmd_start: i64,
    /// The address that its slurmd registered from.
    pub address: String,
    /// A record created without a slurmd.
    pub cloud: bool,
}

/// An update. Absent fields change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    pub state: Vec<String>,
    pub reason: Option<String>,
    pub comment: Option<String>,
    pub topology: Option<String>,
    pub features: Option<Vec<String>>,
    pub active_features: Option<Vec<String>>,
}

impl Node {
    /// A node whose slurmd registered at `now`.
    pub fn registered(now: i64) -> Self {
        Self { cpus: 2, slurmd_start: now, reason_user: "root".to_owned(), ..Self::default() }
    }

    /// Applies the changes until `now`; returns `now` if there were any.
    pub fn advance(&mut self, now: i64) -> Option<i64> {
        let before = self.clone();
        self.unconfirmed_until =
            self.unconfirmed_until.filter(|until| now < *until || self.unreachable_since.is_some());
        if let Some(since) = self.unreachable_since {
            self.not_responding |= now - since >= NOT_RESPONDING_AFTER;
            if now - since >= DOWN_AFTER && self.flags.insert(NodeFlag::Down) {
                // slurmctld appends to an existing reason.
                let reasons = [self.reason.as_str(), "Not responding"];
                let reason =
                    reasons.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" : ");
                self.set_reason(&reason, "slurm", now);
            }
        }
        (*self != before).then_some(now)
    }

    fn set_reason(&mut self, reason: &str, user: &str, now: i64) {
        if !reason.is_empty() {
            (self.reason, self.reason_user, self.reason_at) = (reason.to_owned(), user.to_owned(), now);
        }
    }

    fn clear_reason(&mut self) {
        (self.reason, self.reason_user, self.reason_at) = (String::new(), String::new(), 0);
    }

    fn await_ping(&mut self, now: i64) {
        self.unconfirmed_until = (!self.cloud).then_some(now + PING_ANSWER);
    }

    /// Applies a requested state. `busy`: a job runs on the node.
    fn set_state(&mut self, state: &str, reason: &str, user: &str, busy: bool, now: i64) -> Result<(), i32> {
        let flag = match state {
            "DRAIN" => NodeFlag::Drain,
            "DOWN" => NodeFlag::Down,
            "FAIL" => NodeFlag::Fail,
            "UNDRAIN" => {
                self.flags.retain(|flag| *flag == NodeFlag::Down);
                if self.flags.is_empty() {
                    self.clear_reason();
                }
                self.await_ping(now);
                return Ok(());
            }
            "RESUME" if !self.flags.is_empty() => {
                self.resume();
                self.await_ping(now);
                return Ok(());
            }
            "IDLE" if !busy => {
                self.resume();
                return Ok(());
            }
            _ => return Err(errno::INVALID_NODE_TRANSITION),
        };
        self.flags.insert(flag);
        self.set_reason(reason, user, now);
        Ok(())
    }

    fn resume(&mut self) {
        self.flags.clear();
        self.clear_reason();
    }

    /// Applies everything but the state, even if the state is rejected afterwards.
    fn set_properties(&mut self, change: &NodeChange) -> Result<(), i32> {
        let features = change.features.as_ref().unwrap_or(&self.features).clone();
        let active = change.active_features.as_ref().unwrap_or(&self.active_features).clone();
        if !active.iter().all(|feature| features.contains(feature)) {
            return Err(errno::INVALID_FEATURES);
        }
        if let Some(topology) = &change.topology {
            if !topology.is_empty() && topology.split(':').next() != Some("default") {
                return Err(errno::TOPOLOGY_UNAVAILABLE);
            }
            self.topology.clone_from(topology);
        }
        (self.features, self.active_features) = (features, active);
        if let Some(comment) = &change.comment {
            self.comment.clone_from(comment);
        }
        Ok(())
    }
}

impl Cluster {
    /// Applies a change to the nodes of these hostlists in alphabetical order, skips those that reject it, and stops
    /// at the first that does not exist. Returns the first error.
    pub fn update_nodes(
        &mut self,
        hostlists: &[String],
        change: &NodeChange,
        user: &str,
        now: i64,
    ) -> Result<(), SlurmError> {
        let mut first_error = None;
        for name in self.resolve(hostlists) {
            if let Err(errno) = self.update_node(&name, change, user, now) {
                first_error.get_or_insert(errno);
                if errno == errno::INVALID_NODE_NAME {
                    break;
                }
            }
        }
        match first_error.or(hostlists.is_empty().then_some(errno::INVALID_NODE_NAME)) {
            Some(errno) => {
                Err(SlurmError::new(errno, format!("Failure to update node {}", hostlists.join(","))))
            }
            None => Ok(()),
        }
    }

    fn resolve(&self, hostlists: &[String]) -> BTreeSet<String> {
        let expand = |hostlist: &String| match hostlist.as_str() {
            "ALL" => self.nodes.keys().cloned().collect(),
            hostlist => hostlist::expand(hostlist).unwrap_or_else(|_| vec![hostlist.to_owned()]),
        };
        hostlists.iter().flat_map(expand).collect()
    }

    fn update_node(&mut self, name: &str, change: &NodeChange, user: &str, now: i64) -> Result<(), i32> {
        let busy = self.used_cpus(name) > 0;
        let node = self.nodes.get_mut(name).ok_or(errno::INVALID_NODE_NAME)?;
        self.nodes_changed = now;
        node.set_properties(change)?;
        let reason = change.reason.as_deref().unwrap_or_default();
        match change.state.as_slice() {
            [] if !node.flags.is_empty() => node.set_reason(reason, user, now),
            [] => {}
            [state] => node.set_state(state, reason, user, busy, now)?,
            _ => return Err(errno::INVALID_NODE_TRANSITION),
        }
        if change.state == ["DOWN"] {
            self.requeue_jobs_of(name, now);
        }
        Ok(())
    }

    /// Deletes each node of a hostlist that is not in use. Returns the first error.
    pub fn delete_nodes(&mut self, hostlist: &str, now: i64) -> Result<(), SlurmError> {
        let mut first_error = None;
        for name in self.resolve(&[hostlist.to_owned()]) {
            let in_use = self.used_cpus(&name) > 0 || self.reservation_of(&name, now).is_some();
            if in_use {
                first_error.get_or_insert(errno::NODES_BUSY);
            } else if self.nodes.remove(&name).is_none() {
                first_error.get_or_insert(errno::INVALID_NODE_NAME);
            } else {
                self.nodes_changed = now;
                self.remove_from_reservations(&name, now);
            }
        }
        match first_error {
            Some(errno) => Err(SlurmError::new(errno, format!("Failure to delete node {hostlist}"))),
            None => Ok(()),
        }
    }
}
