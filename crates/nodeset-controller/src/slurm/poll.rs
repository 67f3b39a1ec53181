//! The task that keeps what is known of a cluster fresh: one question after another, as the schedule says.

use super::cluster::{Cluster, State};
use super::connect::KeyError;
use super::connection::Clients;
use super::endpoint::endpoint;
use super::jobs::summarize;
use super::poll_schedule::Step;
use super::view::View;
use super::write_log::Asked;
use super::{lock, metrics};
use crate::timing::{KEY_TIMEOUT, NODE_LIST_TIMEOUT, POLL_INTERVAL};
use operator_runtime::error::chain;
use operator_runtime::find;
use slinky_api::v1beta1::Controller;
use slurm_rest::{Error, NodeList, Partition, ReservationList};
use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

impl Cluster {
    /// Does what is due, or waits until something is. Whether the cluster is still there.
    pub(super) async fn advance(&self) -> bool {
        let Some(controller) = self.controller() else { return false };
        self.find_way(&controller).await;
        match self.next_step() {
            (Step::Nodes { all }, Some(clients)) => self.read_nodes(&clients, all).await,
            (Step::Jobs, Some(clients)) => self.read_jobs(&clients).await,
            (Step::Reservations, Some(clients)) => self.read_reservations(&clients).await,
            (Step::Wait(until), _) => self.wait(until).await,
            (_, None) => self.wait(Instant::now() + POLL_INTERVAL).await,
        }
        let (now, mut state) = (Instant::now(), lock(&self.state));
        let wishes = (state.schedule.wishes_jobs(now), state.schedule.wishes_reservations(now));
        state.memory.forget_old(wishes.0, wishes.1, now);
        !state.ended
    }

    /// The Controller, if it is the one that this is the cluster of.
    fn controller(&self) -> Option<Arc<Controller>> {
        let found = find(&self.around.controllers, &self.key.namespace, &self.key.controller);
        found.filter(|controller| controller.metadata.uid == self.uid)
    }

    async fn wait(&self, until: Instant) {
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.wake.notified() => {}
        }
    }

    async fn find_way(&self, controller: &Controller) {
        let Some(url) = endpoint(&self.key, &self.around.restapis.state()) else {
            return lock(&self.state).connection.lose(Instant::now());
        };
        let selector = controller.spec.signing_key_ref();
        if lock(&self.state).connection.needs_key(selector, Instant::now()) {
            lock(&self.state).connection.reads_key(selector, Instant::now());
            let reading = timeout(KEY_TIMEOUT, self.around.connect.signing_key(controller));
            let read = reading.await.unwrap_or(Err(KeyError::Slow));
            lock(&self.state).connection.key(read);
        }
        let mut state = lock(&self.state);
        if state.connection.connect(&url, self.around.connect.as_ref()) {
            info!(cluster = %self.key, url, "Asking slurmrestd");
            state.schedule.start_over(Instant::now());
        }
    }

    /// What to do, and the way to the cluster. Those who wait for a look are told at once if there will be none.
    fn next_step(&self) -> (Step, Option<Arc<Clients>>) {
        let (now, mut state) = (Instant::now(), lock(&self.state));
        let clients = state.connection.clients().cloned();
        if clients.is_none() || state.schedule.is_pausing(now) {
            let view = state.blind(now);
            answer(std::mem::take(&mut state.looks), &view);
        }
        let step = state.schedule.next(!state.looks.is_empty(), state.memory.busy(), now);
        (step, clients)
    }

    fn ask(&self) -> (Asked, MutexGuard<'_, State>) {
        let time = (self.around.clock)();
        let mut state = lock(&self.state);
        (state.memory.ask(Instant::now(), time), state)
    }

    async fn read_nodes(&self, clients: &Clients, all: bool) {
        let (asked, since, looks) = {
            let (asked, mut state) = self.ask();
            (asked, state.memory.nodes_as_of().filter(|_| !all), std::mem::take(&mut state.looks))
        };
        let reading = async {
            match since {
                Some(as_of) => clients.reader.list_nodes_since(as_of).await,
                None => clients.reader.list_nodes().await.map(Some),
            }
        };
        let result =
            timeout(NODE_LIST_TIMEOUT, reading).await.unwrap_or(Err(Error::Timeout(NODE_LIST_TIMEOUT)));
        self.account("nodes", asked.at, &result);
        let view = self.take_nodes(asked, since.is_none(), result);
        answer(looks, &view);
    }

    /// Takes in what a question for nodes brought, and gives what it shows.
    fn take_nodes(&self, asked: Asked, all: bool, result: Result<Option<NodeList>, Error>) -> View {
        let (now, mut state) = (Instant::now(), lock(&self.state));
        match result {
            Err(error) => {
                state.schedule.nodes_failed(&error, asked.at, now);
                if state.memory.nodes_failed(chain(&error)) {
                    warn!(cluster = %self.key, error = chain(&error), "Slurm does not tell its nodes");
                }
                return state.blind(now);
            }
            Ok(Some(list)) => state.memory.nodes_listed(asked, list),
            Ok(None) => state.memory.nodes_unchanged(asked),
        }
        state.schedule.nodes_answered(all, asked.at, now);
        metrics::looked(&self.key, asked.time);
        state.view(now)
    }

    async fn read_jobs(&self, clients: &Clients) {
        let (asked, busy, wished) = {
            let (asked, state) = self.ask();
            (asked, state.memory.busy().clone(), state.schedule.wishes_jobs(asked.at))
        };
        let open_partitions = if wished { self.read_open_partitions(clients).await } else { None };
        let began = Instant::now();
        let result = clients.reader.list_jobs().await;
        self.account("jobs", began, &result);
        let (now, mut state) = (Instant::now(), lock(&self.state));
        state.schedule.jobs_asked(&busy, asked.at, now);
        match result {
            Ok(jobs) => {
                let (mut summary, unreadable) = summarize(&jobs);
                summary.open_partitions = open_partitions;
                for nodes in unreadable.difference(&state.unreadable) {
                    warn!(cluster = %self.key, nodes, "A running job holds nodes that cannot be read");
                }
                state.unreadable = unreadable;
                let wished = state.schedule.wishes_jobs(now);
                state.memory.jobs_listed(asked, summary, wished);
            }
            Err(error) => warn!(cluster = %self.key, error = chain(&error), "Slurm does not tell its jobs"),
        }
    }

    /// The partitions that take new jobs.
    async fn read_open_partitions(&self, clients: &Clients) -> Option<BTreeSet<String>> {
        let asked = Instant::now();
        let result = clients.reader.list_partitions().await;
        self.account("partitions", asked, &result);
        let error = result.as_ref().err().map(|error| chain(error));
        let complaint = changed(&mut lock(&self.state).partitions_error, error);
        if let Some(error) = complaint {
            warn!(cluster = %self.key, error, "Slurm does not tell its partitions");
        }
        let open = result.ok()?.into_iter().filter(Partition::takes_jobs);
        Some(open.map(|partition| partition.name).collect())
    }

    async fn read_reservations(&self, clients: &Clients) {
        let (asked, since) = {
            let (asked, state) = self.ask();
            (asked, state.memory.reservations_as_of())
        };
        let result: Result<Option<ReservationList>, Error> = match since {
            Some(as_of) => clients.reader.list_reservations_since(as_of).await,
            None => clients.reader.list_reservations().await.map(Some),
        };
        self.account("reservations", asked.at, &result);
        let (now, mut state) = (Instant::now(), lock(&self.state));
        state.schedule.reservations_asked(asked.at, now);
        match result {
            Ok(Some(list)) => state.memory.reservations_listed(asked, list),
            Ok(None) => state.memory.reservations_unchanged(asked),
            Err(error) => {
                warn!(cluster = %self.key, error = chain(&error), "Slurm does not tell its reservations");
            }
        }
    }
}

impl State {
    /// What a look that led to nothing shows, even if an earlier one is still good for decisions.
    fn blind(&self, now: Instant) -> View {
        let error = self.memory.error().unwrap_or("Slurm was not asked");
        self.connection.obstacle(now).unwrap_or_else(|| View::unreachable(error.to_owned()))
    }
}

/// An error that takes the place of another one, or of none.
fn changed(before: &mut Option<String>, error: Option<String>) -> Option<String> {
    let is_new = error != *before;
    before.clone_from(&error);
    error.filter(|_| is_new)
}

fn answer(looks: Vec<oneshot::Sender<View>>, view: &View) {
    for look in looks {
        // Who asked may have given up.
        let _ = look.send(view.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_complained_about_when_it_comes_and_not_while_it_stays() {
        let mut told = None;
        let errors = [None, Some("refused"), Some("refused"), Some("slow"), None, Some("slow")];
        let complaints = errors.map(|error| changed(&mut told, error.map(str::to_owned)));
        let expected = [None, Some("refused"), None, Some("slow"), None, Some("slow")];
        assert_eq!(complaints.each_ref().map(Option::as_deref), expected);
    }
}
