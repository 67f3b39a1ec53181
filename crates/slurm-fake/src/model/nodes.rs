//! Nodes: what an update does to one, and what a silent slurmd does.

use super::{Cluster, Refusal};
use slurm_conf::hostlist;
use slurm_rest::errno;
use std::collections::BTreeSet;

/// Seconds until a live slurmd answers the ping that an undrain causes.
const PING_ANSWER: i64 = 2;

/// Seconds of silence after which a node counts as not responding, and as down.
const SILENT: i64 = 20;
const DOWN: i64 = 40;

/// What keeps a node from its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    Down,
    Drain,
    Fail,
}

/// What a node keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub marks: BTreeSet<Mark>,
    /// Between an undrain and the answer to the ping it causes.
    pub unconfirmed_until: Option<i64>,
    /// Since when its slurmd does not answer.
    pub silent_since: Option<i64>,
    pub not_responding: bool,
    pub reason: String,
    pub reason_user: String,
    pub reason_at: i64,
    pub comment: String,
    pub topology: String,
    pub features: Vec<String>,
    pub active_features: Vec<String>,
    pub cpus: u32,
    /// Used processors when somebody asked for a list last.
    pub counted_cpus: u32,
    pub slurmd_start: i64,
    /// A record without a slurmd, made by hand.
    pub cloud: bool,
}

/// An update. Absent members change nothing.
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

    /// Lets time pass; says when something changed.
    pub fn advance(&mut self, now: i64) -> Option<i64> {
        let before = self.clone();
        self.unconfirmed_until =
            self.unconfirmed_until.filter(|until| now < *until || self.silent_since.is_some());
        if let Some(since) = self.silent_since {
            self.not_responding |= now - since >= SILENT;
            if now - since >= DOWN && self.marks.insert(Mark::Down) {
                // What somebody said before is kept.
                let said = [self.reason.as_str(), "Not responding"];
                let reason = said.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" : ");
                self.explain(&reason, "slurm", now);
            }
        }
        (*self != before).then_some(now)
    }

    fn explain(&mut self, reason: &str, user: &str, now: i64) {
        if !reason.is_empty() {
            (self.reason, self.reason_user, self.reason_at) = (reason.to_owned(), user.to_owned(), now);
        }
    }

    fn forget_reason(&mut self) {
        (self.reason, self.reason_user, self.reason_at) = (String::new(), String::new(), 0);
    }

    fn await_ping(&mut self, now: i64) {
        self.unconfirmed_until = (!self.cloud).then_some(now + PING_ANSWER);
    }

    /// One state, and what it does. `busy`: a job runs on it.
    fn enter(&mut self, state: &str, reason: &str, user: &str, busy: bool, now: i64) -> Result<(), i32> {
        let mark = match state {
            "DRAIN" => Mark::Drain,
            "DOWN" => Mark::Down,
            "FAIL" => Mark::Fail,
            "UNDRAIN" => {
                self.marks.retain(|mark| *mark == Mark::Down);
                if self.marks.is_empty() {
                    self.forget_reason();
                }
                self.await_ping(now);
                return Ok(());
            }
            "RESUME" if !self.marks.is_empty() => {
                self.back_to_work();
                self.await_ping(now);
                return Ok(());
            }
            "IDLE" if !busy => {
                self.back_to_work();
                return Ok(());
            }
            _ => return Err(errno::INVALID_NODE_TRANSITION),
        };
        self.marks.insert(mark);
        self.explain(reason, user, now);
        Ok(())
    }

    fn back_to_work(&mut self) {
        self.marks.clear();
        self.forget_reason();
    }

    /// Everything but the state. Done even where the state is refused.
    fn describe(&mut self, change: &NodeChange) -> Result<(), i32> {
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
    /// Applies a change to the nodes of these hostlists in alphabetical order, past those that do not allow it, up
    /// to the first that does not exist; complains once.
    pub fn update_nodes(
        &mut self,
        hostlists: &[String],
        change: &NodeChange,
        user: &str,
        now: i64,
    ) -> Result<(), Refusal> {
        let mut refused = None;
        for name in self.resolve(hostlists) {
            if let Err(errno) = self.update_node(&name, change, user, now) {
                refused.get_or_insert(errno);
                if errno == errno::INVALID_NODE_NAME {
                    break;
                }
            }
        }
        match refused.or(hostlists.is_empty().then_some(errno::INVALID_NODE_NAME)) {
            Some(errno) => {
                Err(Refusal::new(errno, format!("Failure to update node {}", hostlists.join(","))))
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
        node.describe(change)?;
        let reason = change.reason.as_deref().unwrap_or_default();
        match change.state.as_slice() {
            [] if !node.marks.is_empty() => node.explain(reason, user, now),
            [] => {}
            [state] => node.enter(state, reason, user, busy, now)?,
            _ => return Err(errno::INVALID_NODE_TRANSITION),
        }
        if change.state == ["DOWN"] {
            self.requeue_jobs_of(name, now);
        }
        Ok(())
    }

    /// Deletes each node of a hostlist that nothing holds; complains of the others once.
    pub fn delete_nodes(&mut self, hostlist: &str, now: i64) -> Result<(), Refusal> {
        let mut refused = None;
        for name in self.resolve(&[hostlist.to_owned()]) {
            let held = self.used_cpus(&name) > 0 || self.reservation_of(&name, now).is_some();
            if held {
                refused.get_or_insert(errno::NODES_BUSY);
            } else if self.nodes.remove(&name).is_none() {
                refused.get_or_insert(errno::INVALID_NODE_NAME);
            } else {
                self.nodes_changed = now;
                self.leave_reservations(&name, now);
            }
        }
        match refused {
            Some(errno) => Err(Refusal::new(errno, format!("Failure to delete node {hostlist}"))),
            None => Ok(()),
        }
    }
}
