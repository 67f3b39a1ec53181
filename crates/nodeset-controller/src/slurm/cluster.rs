//! One cluster: what is known of it, a look that begins now, and writes.

use super::clusters::ClusterDeps;
use super::connection::{Clients, Connection};
use super::poll_schedule::{Queries, Schedule};
use super::state::{SlurmState, Written};
use super::view::View;
use super::{ClusterKey, lock, metrics};
use slurm_rest::{Error, NodeUpdate, ReservationRequest, TransportError};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// The Slurm cluster of one Controller. One that is made anew under the same name is another cluster.
pub struct Cluster {
    pub(super) key: ClusterKey,
    /// Identity of the Controller.
    pub(super) uid: Option<String>,
    pub(super) around: Arc<ClusterDeps>,
    /// Since when it is kept in view.
    since: Instant,
    pub(super) state: Mutex<State>,
    /// There is something to do for the task.
    pub(super) wake: Notify,
}

pub(super) struct State {
    pub connection: Connection,
    pub memory: SlurmState,
    pub schedule: Schedule,
    /// Those who wait for a look that begins after they came.
    pub looks: Vec<oneshot::Sender<View>>,
    /// What was told last: how things stand, and which nodes are in doubt.
    pub told: (String, BTreeSet<String>),
    /// Hostlists that were complained about.
    pub unreadable: BTreeSet<String>,
    /// Why partitions cannot be read, if that was complained about.
    pub partitions_error: Option<String>,
    /// The Controller is gone, or nobody wants to know.
    pub ended: bool,
}

impl State {
    pub fn view(&self, now: Instant) -> View {
        self.connection.obstacle(now).unwrap_or_else(|| self.memory.view(now))
    }
}

impl Cluster {
    pub(super) fn new(key: ClusterKey, uid: Option<String>, around: Arc<ClusterDeps>) -> Self {
        let now = Instant::now();
        let mut state = State {
            connection: Connection::default(),
            memory: SlurmState::default(),
            schedule: Schedule::new(now),
            looks: vec![],
            told: (String::new(), BTreeSet::new()),
            unreadable: BTreeSet::new(),
            partitions_error: None,
            ended: false,
        };
        state.told = standing(&state.view(now));
        Self { key, uid, around, since: now, state: Mutex::new(state), wake: Notify::new() }
    }

    /// Somebody wants to know.
    pub(super) fn want(&self, wish: Queries) {
        if lock(&self.state).schedule.want(wish, Instant::now()) {
            self.wake.notify_one();
        }
    }

    /// Whether nobody wants to know any more.
    pub(super) fn is_unwanted(&self, now: Instant) -> bool {
        lock(&self.state).schedule.is_over(now)
    }

    /// What is known now.
    pub(super) fn view(&self) -> View {
        lock(&self.state).view(Instant::now())
    }

    /// For how long it has not answered.
    pub(super) fn unreachable_for(&self) -> Duration {
        lock(&self.state).memory.heard().unwrap_or(self.since).elapsed()
    }

    /// The signing key may have changed, or what else leads to the cluster.
    pub(super) fn refresh(&self) {
        lock(&self.state).connection.suspect_key();
        self.wake.notify_one();
    }

    /// Whether there is something that was not told yet.
    pub(super) fn has_news(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let told = standing(&state.view(now));
        let is_other = told.0 != state.told.0;
        if is_other {
            tracing::info!(cluster = %self.key, standing = told.0, "A Slurm cluster");
        }
        // What begins to be in doubt was written by those who would be told.
        let is_cleared = !state.told.1.is_subset(&told.1);
        state.told = told;
        let calls = state.schedule.calls(now);
        state.memory.take_news() || is_other || is_cleared || calls
    }

    /// Nothing is known of it any more, and nothing is written to it.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.looks.clear();
        self.wake.notify_one();
    }

    /// What all nodes are like, from a read that begins after this call. Calls that come while one is under way share
    /// the next one. Never [`View::Known`] without a new answer; a cluster that failed a moment ago is not asked.
    pub async fn list_nodes_live(&self) -> View {
        let answer = {
            let (sender, answer) = oneshot::channel();
            let mut state = lock(&self.state);
            if !state.ended {
                state.looks.push(sender);
            }
            answer
        };
        self.wake.notify_one();
        answer.await.unwrap_or_else(|_| View::unreachable(format!("{} is not there any more", self.key)))
    }

    /// A direct look at one node. It never shows a busy node as idle; the other way round it may, see
    /// [`slurm_rest::Node::is_busy`].
    pub async fn get_node(&self, name: &str) -> Result<Option<slurm_rest::Node>, Error> {
        let (clients, began) = (self.clients()?, Instant::now());
        let result = clients.writer.get_node(name).await;
        self.account("node", began, &result);
        result
    }

    /// Changes the same thing about all these nodes, see [`slurm_rest::SlurmClient::update_nodes`].
    pub async fn update_nodes(&self, names: &[&str], update: &NodeUpdate) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.begin("update nodes", Written::Nodes, names);
        write.end(clients.writer.update_nodes(names, update).await, false)
    }

    /// Deletes the record of a node, see [`slurm_rest::SlurmClient::delete_node`].
    pub async fn delete_node(&self, name: &str) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.begin("delete node", Written::Nodes, &[name]);
        write.end(clients.writer.delete_node(name).await, true)
    }

    /// Makes or changes a reservation, see [`slurm_rest::SlurmClient::put_reservation`].
    pub async fn put_reservation(&self, request: &ReservationRequest) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.begin("put reservation", Written::Reservations, &[&request.name]);
        write.end(clients.writer.put_reservation(request).await, false)
    }

    /// Changes the nodes of a reservation, see [`slurm_rest::SlurmClient::set_reservation_nodes`].
    pub async fn set_reservation_nodes(&self, name: &str, nodes: &[String]) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.begin("set reservation nodes", Written::Reservations, &[name]);
        write.end(clients.writer.set_reservation_nodes(name, nodes).await, false)
    }

    /// Deletes a reservation, see [`slurm_rest::SlurmClient::delete_reservation`].
    pub async fn delete_reservation(&self, name: &str) -> Result<(), Error> {
        let clients = self.clients()?;
        let write = self.begin("delete reservation", Written::Reservations, &[name]);
        write.end(clients.writer.delete_reservation(name).await, true)
    }

    /// The way to the cluster, unless there is none or it led nowhere a moment ago: then nothing is sent.
    fn clients(&self) -> Result<Arc<Clients>, Error> {
        let state = lock(&self.state);
        let why = match (state.ended, state.connection.obstacle(Instant::now()), state.memory.error()) {
            (true, ..) => format!("{} is not there any more", self.key),
            (false, Some(View::Unknown { why, .. }), _) => why,
            (false, _, Some(error)) => error.to_owned(),
            (false, ..) => "the Controller has no RestApi".to_owned(),
        };
        let open = !state.ended && !state.schedule.is_failing();
        let clients = state.connection.clients().filter(|_| open).cloned();
        clients.ok_or_else(|| Error::Unreachable(TransportError::Unreachable(why.into())))
    }

    fn begin<'a>(&'a self, request: &'static str, written: Written, names: &[&str]) -> Write<'a> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        lock(&self.state).memory.write_begins(written, &names);
        Write { cluster: self, request, written, names, sent: Instant::now(), is_logged: false }
    }

    /// Counts a request, and takes note if its token was refused.
    pub(super) fn account<T>(&self, request: &'static str, began: Instant, result: &Result<T, Error>) {
        metrics::requested(&self.key, request, began.elapsed(), result);
        if matches!(result, Err(Error::Unauthorized(_))) {
            lock(&self.state).connection.refused();
        }
    }
}

/// How things stand, and which nodes are in doubt.
fn standing(view: &View) -> (String, BTreeSet<String>) {
    match view {
        View::NotExpected => ("not expected".to_owned(), BTreeSet::new()),
        View::Unknown { why, .. } => (format!("unknown: {why}"), BTreeSet::new()),
        View::Known(known) => {
            let how = if known.is_new { "known since a moment ago" } else { "known" };
            (how.to_owned(), known.uncertain.clone())
        }
    }
}

/// A write on its connection. Dropped before its end it counts as not answered.
struct Write<'a> {
    cluster: &'a Cluster,
    request: &'static str,
    written: Written,
    names: Vec<String>,
    sent: Instant,
    is_logged: bool,
}

impl Write<'_> {
    /// Takes note of the answer; `deletes`: a good one means that there is no such thing any more.
    fn end(mut self, result: Result<(), Error>, deletes: bool) -> Result<(), Error> {
        self.cluster.account(self.request, self.sent, &result);
        let is_answered = result.as_ref().err().is_none_or(|error| !error.maybe_applied());
        if is_answered {
            let mut state = lock(&self.cluster.state);
            state.memory.write_answered(self.written, &self.names, deletes && result.is_ok());
            if self.written == Written::Reservations {
                state.schedule.reservations_changed();
            }
            self.is_logged = true;
        }
        result
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        if !self.is_logged {
            lock(&self.cluster.state).memory.write_lost(self.written, &self.names, self.sent);
        }
    }
}
