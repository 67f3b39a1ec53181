//! The polling task of a cluster: one read after another, in the order of the schedule.

use super::ClusterKey;
use super::client_factory::KeyError;
use super::cluster::{Cluster, ClusterState};
use super::connection::Clients;
use super::jobs::summarize;
use super::metrics;
use super::poll_schedule::Step;
use super::view::View;
use super::write_log::ReadStart;
use crate::timing::{KEY_TIMEOUT, NODE_LIST_TIMEOUT, POLL_INTERVAL};
use operator_runtime::error::chain;
use operator_runtime::find;
use parking_lot::MutexGuard;
use slinky_api::v1beta1::Controller;
use slinky_api::workers::slurmrestd_url;
use slurm_rest::{Error, NodeList, Partition, ReservationList};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

impl Cluster {
    /// Performs the next step of the schedule, or waits for it. Returns whether the cluster is still open.
    pub(super) async fn advance(&self) -> bool {
        let Some(controller) = self.controller() else { return false };
        self.ensure_connected(&controller).await;
        match self.next_step() {
            (Step::ListNodes { full }, Some(clients)) => self.list_nodes(&clients, full).await,
            (Step::ListJobs, Some(clients)) => self.list_jobs(&clients).await,
            (Step::ListReservations, Some(clients)) => self.list_reservations(&clients).await,
            (Step::Wait(until), _) => self.wait(until).await,
            (_, None) => self.wait(Instant::now() + POLL_INTERVAL).await,
        }
        let (now, mut state) = (Instant::now(), self.state.lock());
        let (jobs, reservations) =
            (state.schedule.jobs_requested(now), state.schedule.reservations_requested(now));
        state.slurm.expire(jobs, reservations, now);
        !state.closed
    }

    /// The Controller, unless it was deleted or replaced.
    fn controller(&self) -> Option<Arc<Controller>> {
        let found = find(&self.deps.controllers, &self.key.namespace, &self.key.controller);
        found.filter(|controller| controller.metadata.uid == self.uid)
    }

    async fn wait(&self, until: Instant) {
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.wake.notified() => {}
        }
    }

    async fn ensure_connected(&self, controller: &Controller) {
        let restapis = self.deps.restapis.state();
        let ClusterKey { namespace, controller: name } = &self.key;
        let Some(url) = slurmrestd_url(namespace, name, restapis.iter().map(AsRef::as_ref)) else {
            return self.state.lock().connection.restapi_missing(Instant::now());
        };
        let selector = controller.spec.signing_key_ref();
        if self.state.lock().connection.needs_key(selector, Instant::now()) {
            self.state.lock().connection.key_read_started(selector, Instant::now());
            let reading = timeout(KEY_TIMEOUT, self.deps.client_factory.signing_key(controller));
            let read = reading.await.unwrap_or(Err(KeyError::Timeout));
            self.state.lock().connection.key_read_finished(read);
        }
        let mut state = self.state.lock();
        if state.connection.connect(&url, self.deps.client_factory.as_ref()) {
            info!(cluster = %self.key, url, "Polling slurmrestd");
            state.schedule.restart(Instant::now());
        }
    }

    /// The next step and the clients. Callers that wait for a live list get an answer at once if it cannot start now.
    fn next_step(&self) -> (Step, Option<Arc<Clients>>) {
        let (now, mut state) = (Instant::now(), self.state.lock());
        let clients = state.connection.clients().cloned();
        if clients.is_none() || state.schedule.is_backing_off(now) {
            let view = state.failed_view(now);
            answer(std::mem::take(&mut state.list_waiters), &view);
        }
        let step = state.schedule.next_step(!state.list_waiters.is_empty(), state.slurm.busy(), now);
        (step, clients)
    }

    fn start_read(&self) -> (ReadStart, MutexGuard<'_, ClusterState>) {
        let time = (self.deps.clock)();
        let mut state = self.state.lock();
        (state.slurm.start_read(Instant::now(), time), state)
    }

    async fn list_nodes(&self, clients: &Clients, full: bool) {
        let (read, since, waiters) = {
            let (read, mut state) = self.start_read();
            (read, state.slurm.nodes_as_of().filter(|_| !full), std::mem::take(&mut state.list_waiters))
        };
        let list = async {
            match since {
                Some(as_of) => clients.reader.list_nodes_since(as_of).await,
                None => clients.reader.list_nodes().await.map(Some),
            }
        };
        let result = timeout(NODE_LIST_TIMEOUT, list).await;
        let result = result.unwrap_or(Err(Error::Timeout(NODE_LIST_TIMEOUT)));
        self.record_request("nodes", read.at, &result);
        let view = self.record_nodes(read, since.is_none(), result);
        answer(waiters, &view);
    }

    /// Records the result of a node list, and returns the view of that list.
    fn record_nodes(&self, read: ReadStart, full: bool, result: Result<Option<NodeList>, Error>) -> View {
        let (now, mut state) = (Instant::now(), self.state.lock());
        match result {
            Err(error) => {
                state.schedule.node_list_failed(&error, read.at, now);
                if state.slurm.node_list_failed(chain(&error)) {
                    warn!(cluster = %self.key, error = chain(&error), "Listing Slurm nodes failed");
                }
                return state.failed_view(now);
            }
            Ok(Some(list)) => {
                let lacks_topology = lacks_topology(&list);
                if lacks_topology && !std::mem::replace(&mut state.lacks_topology, lacks_topology) {
                    warn!(
                        cluster = %self.key,
                        "The API version of slurmrestd has no topology: topology annotations are not written to Slurm"
                    );
                }
                state.slurm.nodes_listed(read, list);
            }
            Ok(None) => state.slurm.nodes_unchanged(read),
        }
        state.schedule.nodes_listed(full, read.at, now);
        metrics::nodes_listed(&self.key, read.time);
        state.view(now)
    }

    async fn list_jobs(&self, clients: &Clients) {
        let (read, busy, requested) = {
            let (read, state) = self.start_read();
            (read, state.slurm.busy().clone(), state.schedule.jobs_requested(read.at))
        };
        let open_partitions = if requested { self.list_open_partitions(clients).await } else { None };
        let started = Instant::now();
        let result = clients.reader.list_jobs().await;
        self.record_request("jobs", started, &result);
        let (now, mut state) = (Instant::now(), self.state.lock());
        state.schedule.jobs_read(&busy, result.is_ok(), read.at, now);
        match result {
            Ok(jobs) => {
                let (mut summary, unreadable) = summarize(&jobs);
                summary.open_partitions = open_partitions;
                for hostlist in unreadable.difference(&state.unreadable_hostlists) {
                    warn!(cluster = %self.key, hostlist, "Running job has an unreadable hostlist");
                }
                state.unreadable_hostlists = unreadable;
                let requested = state.schedule.jobs_requested(now);
                state.slurm.jobs_listed(read, summary, requested);
            }
            Err(error) => warn!(cluster = %self.key, error = chain(&error), "Listing Slurm jobs failed"),
        }
    }

    /// The partitions that accept new jobs.
    async fn list_open_partitions(&self, clients: &Clients) -> Option<BTreeSet<String>> {
        let started = Instant::now();
        let result = clients.reader.list_partitions().await;
        self.record_request("partitions", started, &result);
        let error = result.as_ref().err().map(|error| chain(error));
        let new_error = replace_error(&mut self.state.lock().partitions_error, error);
        if let Some(error) = new_error {
            warn!(cluster = %self.key, error, "Listing Slurm partitions failed");
        }
        let open = result.ok()?.into_iter().filter(Partition::takes_jobs);
        Some(open.map(|partition| partition.name).collect())
    }

    async fn list_reservations(&self, clients: &Clients) {
        let (read, since) = {
            let (read, state) = self.start_read();
            (read, state.slurm.reservations_as_of())
        };
        let result: Result<Option<ReservationList>, Error> = match since {
            Some(as_of) => clients.reader.list_reservations_since(as_of).await,
            None => clients.reader.list_reservations().await.map(Some),
        };
        self.record_request("reservations", read.at, &result);
        let (now, mut state) = (Instant::now(), self.state.lock());
        state.schedule.reservations_read(result.is_ok(), read.at, now);
        match result {
            Ok(Some(list)) => state.slurm.reservations_listed(read, list),
            Ok(None) => state.slurm.reservations_unchanged(read),
            Err(error) => {
                warn!(cluster = %self.key, error = chain(&error), "Listing Slurm reservations failed");
            }
        }
    }
}

impl ClusterState {
    /// The view of a live list that failed, even if an earlier list is still fresh enough for decisions.
    fn failed_view(&self, now: Instant) -> View {
        let error = self.slurm.error().unwrap_or("Slurm was not polled");
        self.connection.disconnected_view(now).unwrap_or_else(|| View::unreachable(error.to_owned()))
    }
}

/// Whether no node has a topology, not even an empty one: the API version is too old to show and to take it.
fn lacks_topology(list: &NodeList) -> bool {
    !list.nodes.is_empty() && list.nodes.iter().all(|node| node.topology.is_none())
}

/// Replaces the last error; returns the new one if it differs, so that each is logged once.
fn replace_error(last: &mut Option<String>, error: Option<String>) -> Option<String> {
    let is_new = error != *last;
    last.clone_from(&error);
    error.filter(|_| is_new)
}

fn answer(waiters: Vec<oneshot::Sender<View>>, view: &View) {
    for waiter in waiters {
        // The caller may have been cancelled.
        let _ = waiter.send(view.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_error_is_logged_once() {
        let mut last = None;
        let errors = [None, Some("refused"), Some("refused"), Some("slow"), None, Some("slow")];
        let logged = errors.map(|error| replace_error(&mut last, error.map(str::to_owned)));
        let expected = [None, Some("refused"), None, Some("slow"), None, Some("slow")];
        assert_eq!(logged.each_ref().map(Option::as_deref), expected);
    }
}
