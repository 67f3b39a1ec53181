//! One cluster: its cached view, live reads, and writes.

use super::clusters::ClusterDeps;
use super::connection::{Clients, Connection};
use super::poll_schedule::{Queries, Schedule};
use super::state::{SlurmState, Target};
use super::view::View;
use super::{ClusterKey, metrics};
use parking_lot::Mutex;
use slurm_rest::{Error, NodeUpdate, ReservationRequest, TransportError};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// The Slurm cluster of one Controller. A recreated Controller of the same name is another cluster.
pub struct Cluster {
    pub(super) key: ClusterKey,
    /// UID of the Controller.
    pub(super) uid: Option<String>,
    pub(super) deps: Arc<ClusterDeps>,
    /// When polling started.
    started: Instant,
    pub(super) state: Mutex<ClusterState>,
    /// Wakes the polling task.
    pub(super) wake: Notify,
    /// Batches that write to the cluster.
    holders: AtomicUsize,
}

/// A cluster that a batch writes to. It is polled until it is dropped, even if another replica owns the cluster by then: a
/// batch goes on to its end.
pub struct HeldCluster(Arc<Cluster>);

impl HeldCluster {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        cluster.holders.fetch_add(1, Ordering::Relaxed);
        Self(cluster)
    }
}

impl Deref for HeldCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Drop for HeldCluster {
    fn drop(&mut self) {
        self.0.holders.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct ClusterState {
    pub connection: Connection,
    pub slurm: SlurmState,
    pub schedule: Schedule,
    /// Callers that wait for a node list that starts after their call.
    pub list_waiters: Vec<oneshot::Sender<View>>,
    /// The state and the uncertain nodes that were published last.
    pub published: (String, BTreeSet<String>),
    /// Unreadable hostlists of running jobs that were logged.
    pub unreadable_hostlists: BTreeSet<String>,
    /// The last logged error of listing partitions.
    pub partitions_error: Option<String>,
    /// Whether it was logged that slurmrestd shows no topology.
    pub lacks_topology: bool,
    /// The Controller was deleted or replaced, or the cluster has no reader.
    pub closed: bool,
}

impl ClusterState {
    pub fn view(&self, now: Instant) -> View {
        self.connection.disconnected_view(now).unwrap_or_else(|| self.slurm.view(now))
    }
}

impl Cluster {
    pub(super) fn new(key: ClusterKey, uid: Option<String>, deps: Arc<ClusterDeps>) -> Self {
        let now = Instant::now();
        let mut state = ClusterState {
            connection: Connection::default(),
            slurm: SlurmState::default(),
            schedule: Schedule::new(now),
            list_waiters: vec![],
            published: (String::new(), BTreeSet::new()),
            unreadable_hostlists: BTreeSet::new(),
            partitions_error: None,
            lacks_topology: false,
            closed: false,
        };
        state.published = summary(&state.view(now));
        Self {
            key,
            uid,
            deps,
            started: now,
            state: Mutex::new(state),
            wake: Notify::new(),
            holders: AtomicUsize::new(0),
        }
    }

    /// Records a reader, and the queries that it needs.
    pub(super) fn request(&self, queries: Queries) {
        if self.state.lock().schedule.request(queries, Instant::now()) {
            self.wake.notify_one();
        }
    }

    /// Whether the cluster had no reader for a while, or another replica owns it and no batch of this one is open.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let is_held = self.holders.load(Ordering::Relaxed) > 0;
        !is_held && !(self.deps.is_owned)(&self.key) || self.state.lock().schedule.is_idle(now)
    }

    /// The current view.
    pub(super) fn view(&self) -> View {
        self.state.lock().view(Instant::now())
    }

    /// The time since Slurm last answered, or since polling started.
    pub(super) fn unreachable_for(&self) -> Duration {
        self.state.lock().slurm.last_listed_at().unwrap_or(self.started).elapsed()
    }

    /// The Controller, a RestApi or the signing key may have changed.
    pub(super) fn refresh(&self) {
        self.state.lock().connection.invalidate_key();
        self.wake.notify_one();
    }

    /// Whether readers have to be notified of a change since the last call.
    pub(super) fn take_changes(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let current = summary(&state.view(now));
        let is_other_state = current.0 != state.published.0;
        if is_other_state {
            tracing::info!(cluster = %self.key, state = current.0, "Slurm cluster state changed");
        }
        // Nodes become uncertain by the readers' own writes: only the end of that is a change to them.
        let is_certain_again = !state.published.1.is_subset(&current.1);
        state.published = current;
        let requests_readers = state.schedule.requests_readers(now);
        state.slurm.take_changed() || is_other_state || is_certain_again || requests_readers
    }

    /// Ends polling; later reads and writes fail.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.list_waiters.clear();
        self.wake.notify_one();
    }

    /// All nodes, from a list that starts after this call. Calls during a list share the next one. Never [`View::Known`]
    /// without a new answer. During the backoff after a failed list it returns at once, without a request.
    pub async fn list_nodes_live(&self) -> View {
        let answer = {
            let (sender, answer) = oneshot::channel();
            let mut state = self.state.lock();
            if !state.closed {
                state.list_waiters.push(sender);
            }
            answer
        };
        self.wake.notify_one();
        answer.await.unwrap_or_else(|_| View::unreachable(self.closed_message()))
    }

    /// Reads one node live. A busy node is never returned as idle; an idle one may be returned as busy, see
    /// [`slurm_rest::Node::is_busy`].
    pub async fn get_node(&self, name: &str) -> Result<Option<slurm_rest::Node>, Error> {
        let (clients, started) = (self.clients()?, Instant::now());
        let result = clients.writer.get_node(name).await;
        self.record_request("node", started, &result);
        result
    }

    /// Applies the same update to all these nodes, see [`slurm_rest::SlurmClient::update_nodes`].
    pub async fn update_nodes(&self, names: &[&str], update: &NodeUpdate) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.start_write("update nodes", Target::Nodes, names);
        write.finish(clients.writer.update_nodes(names, update).await, false)
    }

    /// Deletes the record of a node, see [`slurm_rest::SlurmClient::delete_node`].
    pub async fn delete_node(&self, name: &str) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.start_write("delete node", Target::Nodes, &[name]);
        write.finish(clients.writer.delete_node(name).await, true)
    }

    /// Creates or updates a reservation, see [`slurm_rest::SlurmClient::put_reservation`].
    pub async fn put_reservation(&self, request: &ReservationRequest) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.start_write("put reservation", Target::Reservations, &[&request.name]);
        write.finish(clients.writer.put_reservation(request).await, false)
    }

    /// Replaces the nodes of a reservation, see [`slurm_rest::SlurmClient::set_reservation_nodes`].
    pub async fn set_reservation_nodes(&self, name: &str, nodes: &[String]) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.start_write("set reservation nodes", Target::Reservations, &[name]);
        write.finish(clients.writer.set_reservation_nodes(name, nodes).await, false)
    }

    /// Deletes a reservation, see [`slurm_rest::SlurmClient::delete_reservation`].
    pub async fn delete_reservation(&self, name: &str) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.start_write("delete reservation", Target::Reservations, &[name]);
        write.finish(clients.writer.delete_reservation(name).await, true)
    }

    /// The clients. An error without a connection and after a failed node list, so that no request is sent.
    fn clients(&self) -> Result<Arc<Clients>, Error> {
        let state = self.state.lock();
        let disconnected = state.connection.disconnected_view(Instant::now());
        let why = match (state.closed, disconnected, state.slurm.error()) {
            (true, ..) => self.closed_message(),
            (false, Some(View::Unknown { why, .. }), _) => why,
            (false, _, Some(error)) => error.to_owned(),
            (false, ..) => "the Controller has no RestApi".to_owned(),
        };
        let is_usable = !state.closed && !state.schedule.is_failing();
        let clients = state.connection.clients().filter(|_| is_usable).cloned();
        clients.ok_or_else(|| Error::Unreachable(TransportError::Unreachable(why.into())))
    }

    fn closed_message(&self) -> String {
        format!("Slurm cluster {} is no longer polled", self.key)
    }

    fn start_write<'a>(&'a self, request: &'static str, target: Target, names: &[&str]) -> Write<'a> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.state.lock().slurm.write_started(target, &names);
        Write { cluster: self, request, target, names, sent: Instant::now(), is_answered: false }
    }

    /// Updates the metrics, and has the signing key read again if Slurm refused the token.
    pub(super) fn record_request<T>(
        &self,
        request: &'static str,
        started: Instant,
        result: &Result<T, Error>,
    ) {
        metrics::request_finished(&self.key, request, started.elapsed(), result);
        if matches!(result, Err(Error::Unauthorized(_))) {
            self.state.lock().connection.token_refused();
        }
    }
}

/// The state as it is logged, and the uncertain nodes.
fn summary(view: &View) -> (String, BTreeSet<String>) {
    match view {
        View::NoRestApi => ("no RestApi".to_owned(), BTreeSet::new()),
        View::Unknown { why, .. } => (format!("unknown: {why}"), BTreeSet::new()),
        View::Known(known) => {
            let state = if known.is_new { "known, nodes may still register" } else { "known" };
            (state.to_owned(), known.uncertain.clone())
        }
    }
}

/// A write in flight. One that is dropped before [`Self::finish`] counts as unanswered.
struct Write<'a> {
    cluster: &'a Cluster,
    request: &'static str,
    target: Target,
    names: Vec<String>,
    sent: Instant,
    is_answered: bool,
}

impl Write<'_> {
    /// Records the answer. `deletes`: success means that the objects no longer exist.
    fn finish(mut self, result: Result<(), Error>, deletes: bool) -> Result<(), Error> {
        self.cluster.record_request(self.request, self.sent, &result);
        self.is_answered = result.as_ref().err().is_none_or(|error| !error.maybe_applied());
        if self.is_answered {
            let mut state = self.cluster.state.lock();
            state.slurm.write_answered(self.target, &self.names, deletes && result.is_ok());
            if self.target == Target::Reservations {
                state.schedule.reservations_written();
            }
        }
        result
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.cluster.state.lock().slurm.write_unanswered(self.target, &self.names, self.sent);
        }
    }
}
