//! One epoch of the service: the state machine, which answers only while this process leads.

use expectations::convert::duration_message;
use expectations::proto::{self, StatusResponse};
use expectations::{
    Clock, Counters, Heartbeat, Machine, Membership, OpenBatch, ReplicaId, Status, WaitingNodeSet, owner_of,
};
use operator_runtime::lease::Term;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tracing::info;

/// The epoch that this process leads.
pub struct Leading {
    /// A `std` mutex because it is poisoned by a panic: a machine that panicked in the middle of a change may have lost
    /// track of an open batch, so it must not answer any more.
    state: Mutex<State>,
    term: Term,
    clock: Clock,
    identity: String,
    memberships: watch::Sender<Membership>,
}

struct State {
    machine: Machine,
    /// The latest Join stream of each replica that has one.
    streams: BTreeMap<ReplicaId, Stream>,
    /// How many Join streams there were.
    opened: u64,
}

struct Stream {
    number: u64,
    /// The clusters that the replica works on.
    clusters: Vec<String>,
}

/// The Join stream of a replica.
#[derive(Clone, Debug)]
pub struct Joined {
    pub replica: ReplicaId,
    /// Differs between streams of the same replica.
    number: u64,
}

/// This process may not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLeading {
    /// Another process may hold the Lease by now.
    #[error("the term of this process is over")]
    TermOver,
    /// The state may be inconsistent.
    #[error("the state machine has panicked")]
    Panicked,
}

/// A heartbeat that does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    /// This process may not answer.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// It was sent before one that has been received on another stream.
    #[error("the replica has opened another Join stream")]
    Superseded,
}

/// The state is left out: it may be locked.
impl Debug for Leading {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Leading").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Leading {
    /// The epoch of this machine, as long as the term lasts. `identity` is the holder of the Lease.
    pub fn new(machine: Machine, term: Term, clock: Clock, identity: &str) -> Self {
        let memberships = watch::Sender::new(machine.membership());
        let state = Mutex::new(State { machine, streams: BTreeMap::new(), opened: 0 });
        Self { state, term, clock, identity: identity.to_owned(), memberships }
    }

    /// Calls the machine with the present time, which is read after the request was received and the lock acquired.
    pub fn call<T>(&self, method: impl FnOnce(&mut Machine, Duration) -> T) -> Result<T, NotLeading> {
        let (mut state, now) = self.lock()?;
        Ok(method(&mut state.machine, now))
    }

    fn lock(&self) -> Result<(MutexGuard<'_, State>, Duration), NotLeading> {
        let state = self.state.lock().map_err(|_: PoisonError<_>| NotLeading::Panicked)?;
        let now = (self.clock)();
        if self.term.covers(now) { Ok((state, now)) } else { Err(NotLeading::TermOver) }
    }

    /// Opens a Join stream. Heartbeats that are still on their way in earlier streams of the replica no longer count:
    /// they could bring back a replica that has left.
    pub fn join(&self, replica: ReplicaId) -> Result<Joined, NotLeading> {
        let (mut state, _) = self.lock()?;
        state.opened += 1;
        let number = state.opened;
        state.streams.insert(replica.clone(), Stream { number, clusters: Vec::new() });
        Ok(Joined { replica, number })
    }

    /// Extends the membership of a replica or ends it, and stores the clusters that it works on if it reports them.
    pub fn heartbeat(
        &self,
        joined: &Joined,
        leaving: bool,
        clusters: Option<Vec<String>>,
    ) -> Result<(), HeartbeatError> {
        let (mut state, now) = self.lock()?;
        let Some(stream) = state.streams.get_mut(&joined.replica) else {
            return Err(HeartbeatError::Superseded);
        };
        if stream.number != joined.number {
            return Err(HeartbeatError::Superseded);
        }
        if let Some(clusters) = clusters {
            stream.clusters = clusters;
        }
        state.machine.heartbeat(&Heartbeat { replica: joined.replica.clone(), leaving }, now);
        self.publish(&state);
        Ok(())
    }

    /// Forgets a Join stream that has ended. The replica stays a member until its time is over.
    pub fn end_stream(&self, joined: &Joined) {
        if let Ok((mut state, _)) = self.lock()
            && state.streams.get(&joined.replica).is_some_and(|stream| stream.number == joined.number)
        {
            state.streams.remove(&joined.replica);
        }
    }

    /// Removes replicas without recent heartbeats.
    pub fn tick(&self) -> Result<(), NotLeading> {
        let (mut state, now) = self.lock()?;
        state.machine.tick(now);
        self.publish(&state);
        Ok(())
    }

    /// Publishes the membership if it changed.
    fn publish(&self, state: &State) {
        if state.machine.membership_version() != self.memberships.borrow().version {
            let current = state.machine.membership();
            let live: Vec<_> = current.live.iter().map(ReplicaId::as_str).collect();
            info!(version = current.version, ?live, "Membership changed");
            self.memberships.send_replace(current);
        }
    }

    /// The membership and its changes.
    pub fn memberships(&self) -> watch::Receiver<Membership> {
        self.memberships.subscribe()
    }

    /// The state of the service, for people.
    pub fn status(&self) -> Result<StatusResponse, NotLeading> {
        let (mut state, now) = self.lock()?;
        let status = state.machine.status(now);
        let keys: BTreeSet<&String> = state.streams.values().flat_map(|stream| &stream.clusters).collect();
        let clusters = keys.into_iter().map(|key| proto::Cluster {
            key: key.clone(),
            owner: owner_of(key, &status.membership.live).map(|owner| owner.as_str().to_owned()),
        });
        let clusters = clusters.collect();
        drop(state);
        Ok(status_message(status, clusters, self.identity.clone()))
    }
}

fn status_message(status: Status, clusters: Vec<proto::Cluster>, leader: String) -> StatusResponse {
    StatusResponse {
        half_open_left: duration_message(status.half_open_left),
        membership: Some(status.membership.into()),
        open_batches: status.open.into_iter().map(open_batch).collect(),
        waiting: status.waiting.iter().map(waiting_nodeset).collect(),
        counters: counters(&status.counters),
        leader,
        clusters,
    }
}

fn open_batch(batch: OpenBatch) -> proto::OpenBatch {
    proto::OpenBatch {
        namespace: batch.nodeset.namespace.to_string(),
        name: batch.nodeset.name.to_string(),
        batch_id: Some(batch.batch.into()),
        age: duration_message(batch.age),
        creates: batch.granted.creates,
        deletes: batch.granted.deletes,
        others: batch.others,
    }
}

fn waiting_nodeset(waiting: &WaitingNodeSet) -> proto::WaitingNodeSet {
    proto::WaitingNodeSet {
        namespace: waiting.nodeset.namespace.to_string(),
        name: waiting.nodeset.name.to_string(),
        reason: proto::WaitReason::from(waiting.reason).into(),
        age: duration_message(waiting.age),
    }
}

/// The counters by their names in messages and metrics.
pub fn named_counters(counters: &Counters) -> [(&'static str, u64); 10] {
    [
        ("granted", counters.granted),
        ("repeated", counters.repeated),
        ("not_owner", counters.not_owner),
        ("wait_open_batch", counters.wait_open_batch),
        ("wait_half_open", counters.wait_half_open),
        ("wait_budget", counters.wait_budget),
        ("wait_stopping", counters.wait_stopping),
        ("need_fresh", counters.need_fresh),
        ("closed", counters.closed),
        ("ran_out", counters.ran_out),
    ]
}

fn counters(counters: &Counters) -> Vec<proto::Counter> {
    let named = named_counters(counters).into_iter();
    named.map(|(name, value)| proto::Counter { name: name.to_owned(), value }).collect()
}

/// The epoch of this process, once it leads.
pub type Epoch = Arc<std::sync::OnceLock<Leading>>;
