//! The Progressing condition: running operations of a NodeSet, and what they wait for.

use super::clause::{Clause, few, workers};
use super::degraded::unreachable_since;
use crate::execute::Execution;
use crate::observe::{CREATING, Observed};
use crate::plan::{DeletionWait, Plan, WaitFor};
use crate::slurm::View;
use crate::worker::{Cause, Worker};
use jiff::Timestamp;
use slinky_api::conditions::{RESERVATION_CREATED, find};
use slinky_api::labels::{TRUE, annotations::FORCE_DELETE};
use slinky_api::v1beta1::{NodeSetStatus, ScalingMode, UpdateStrategyType};

/// Inputs of the Progressing condition.
pub struct Progress<'a> {
    /// What was observed.
    pub observed: &'a Observed,
    /// What was planned.
    pub plan: &'a Plan,
    /// The result of the last background run.
    pub last_run: &'a Execution,
    /// The status with its numbers and the `SlurmReachable` condition set.
    pub status: &'a NodeSetStatus,
    /// The time.
    pub now: Timestamp,
}

impl Progress<'_> {
    /// All running operations, the most important first.
    pub fn clauses(&self) -> Vec<Clause> {
        let clauses = [
            self.deleting(),
            self.creating(),
            self.starting(),
            self.registering(),
            self.waiting_for_slurm(),
            self.draining(),
            self.terminating(),
            self.updating(),
            self.waiting_for_others(),
            self.backing_off(),
            self.last_run.waiting.as_ref().map(|why| Clause::new("Waiting", format!("writes wait: {why}"))),
        ];
        clauses.into_iter().flatten().collect()
    }

    fn deleting(&self) -> Option<Clause> {
        let awaited = match self.plan.deletion.as_ref()? {
            DeletionWait::Workers(count) => format!("{} to be removed", workers(*count)),
            DeletionWait::Jobs(1) => "1 job record that still names its partition".to_owned(),
            DeletionWait::Jobs(count) => format!("{count} job records that still name its partition"),
            DeletionWait::Open => "its partition to take no new jobs".to_owned(),
            DeletionWait::Slurm => "Slurm to list the job records that name its partition".to_owned(),
            DeletionWait::Nothing => {
                return Some(Clause::new("Deleting", "the finalizers are being removed".to_owned()));
            }
        };
        let text = format!(
            "the deletion waits for {awaited}; annotation {FORCE_DELETE}={TRUE} ends it without waiting"
        );
        Some(Clause::new("Deleting", text))
    }

    fn creating(&self) -> Option<Clause> {
        let count = self.plan.effects.iter().filter(|effect| effect.is_create()).count();
        (count > 0).then(|| Clause::new(CREATING, format!("creating {}", workers(count))))
    }

    fn starting(&self) -> Option<Clause> {
        let pods = self.pods(|worker| worker.is_alive() && !self.is_available(worker));
        clause("Starting", &pods, "not available yet")
    }

    fn registering(&self) -> Option<Clause> {
        let pods = self.pods(|worker| worker.is_healthy() && !self.is_registered(worker));
        let what = match self.observed.slurm {
            View::Unknown { .. } => "not known to be registered in Slurm",
            View::NoRestApi | View::Known(_) => "not registered in Slurm",
        };
        clause("Registering", &pods, what)
    }

    fn waiting_for_slurm(&self) -> Option<Clause> {
        let pods = self.waiting_pods(|awaited| awaited == WaitFor::Slurm);
        let since = unreachable_since(self.status).map(|since| format!(" since {since}")).unwrap_or_default();
        let why = match &self.observed.slurm {
            View::Unknown { why, .. } => format!(": {why}"),
            View::NoRestApi => ", which has no RestApi any more".to_owned(),
            View::Known(_) => String::new(),
        };
        clause(
            "AwaitingSlurm",
            &pods,
            &format!("to be removed, waiting for an answer from Slurm{since}{why}"),
        )
    }

    fn draining(&self) -> Option<Clause> {
        let pods = self.waiting_pods(|awaited| awaited == WaitFor::Drain);
        clause("Draining", &pods, "draining until no job is left")
    }

    fn terminating(&self) -> Option<Clause> {
        clause("Ending", &self.pods(|worker| worker.terminating), "terminating")
    }

    fn updating(&self) -> Option<Clause> {
        let alive = self.pods(Worker::is_alive).len();
        let outdated = self.pods(|worker| worker.is_alive() && self.is_outdated(worker)).len();
        let text = format!("updating: {} of {} are up to date", alive - outdated, workers(alive));
        let is_one = self.plan.workers.iter().any(|worker| worker.is_alive() && self.is_updated_now(worker));
        (is_one && self.plan.deletion.is_none()).then(|| Clause::new("Updating", text))
    }

    /// Operations that wait for an administrator or for a scheduled time; they do not count as progress.
    pub fn postponed(&self) -> Option<Clause> {
        self.postponed_update().or_else(|| self.no_node())
    }

    /// A node selector that matches no node is easily written, and its NodeSet is ready with 0 workers.
    fn no_node(&self) -> Option<Clause> {
        let is_daemon = self.observed.nodeset.spec.scaling_mode == ScalingMode::DaemonSet;
        let expects_some = self.plan.deletion.is_none() && self.plan.obstacles.is_empty();
        let text = "no Kubernetes node fits the template".to_owned();
        (is_daemon && expects_some && self.plan.desired == 0).then(|| Clause::new("NoNodeFits", text))
    }

    fn postponed_update(&self) -> Option<Clause> {
        let is_one =
            |worker: &Worker| worker.is_alive() && self.is_outdated(worker) && !self.is_updated_now(worker);
        let outdated = self.pods(is_one);
        if self.plan.deletion.is_some() {
            return None;
        }
        match self.strategy() {
            UpdateStrategyType::RollingUpdate => None,
            UpdateStrategyType::OnDelete => {
                clause("Outdated", &outdated, "outdated until the pod is deleted")
            }
            UpdateStrategyType::ScheduledUpdate => {
                let reservation = find(&self.status.conditions, RESERVATION_CREATED);
                let when = reservation.filter(|condition| condition.status == "True").map_or_else(
                    || "outdated until a reservation for updates begins".to_owned(),
                    |condition| format!("outdated until reservation {}", condition.message),
                );
                clause("UpdateScheduled", &outdated, &when)
            }
        }
    }

    fn waiting_for_others(&self) -> Option<Clause> {
        let pods = self.waiting_pods(|awaited| awaited == WaitFor::Others);
        clause("AwaitingOthers", &pods, "to be replaced when enough others are available")
    }

    fn backing_off(&self) -> Option<Clause> {
        let pods = self.waiting_pods(|awaited| matches!(awaited, WaitFor::Backoff(_)));
        clause("BackingOff", &pods, "finished, and will be re-created after a backoff")
    }

    fn pods(&self, is_one: impl Fn(&Worker) -> bool) -> Vec<String> {
        self.plan.workers.iter().filter(|worker| is_one(worker)).map(Worker::name).collect()
    }

    fn waiting_pods(&self, is_it: impl Fn(WaitFor) -> bool) -> Vec<String> {
        let mut pods: Vec<_> = self
            .plan
            .waiting
            .iter()
            .filter(|waiting| is_it(waiting.for_))
            .map(|waiting| waiting.pod.clone())
            .collect();
        pods.sort();
        pods
    }

    fn is_outdated(&self, worker: &Worker) -> bool {
        worker.hash != self.plan.revisions.hash
    }

    /// Whether a worker is outdated, and will be replaced without further action.
    pub fn is_updated_now(&self, worker: &Worker) -> bool {
        self.is_outdated(worker)
            && match self.strategy() {
                UpdateStrategyType::RollingUpdate => true,
                UpdateStrategyType::OnDelete => false,
                // Marked when the reservation covered its node.
                UpdateStrategyType::ScheduledUpdate => worker.is_marked(Cause::Update),
            }
    }

    fn strategy(&self) -> UpdateStrategyType {
        self.observed.nodeset.spec.effective_update_strategy().type_
    }

    pub fn is_available(&self, worker: &Worker) -> bool {
        worker.is_ready() && worker.is_available(self.plan.min_ready, self.now)
    }

    /// Whether Slurm has the node, as far as is known. A node without evidence because of a recent write still exists.
    pub fn is_registered(&self, worker: &Worker) -> bool {
        match &self.observed.slurm {
            View::NoRestApi => true,
            View::Unknown { .. } => worker.was_registered(),
            View::Known(known) => {
                known.snapshot.nodes.contains_key(&worker.slurm_name)
                    || (known.uncertain.contains(&worker.slurm_name) && worker.was_registered())
            }
        }
    }
}

/// `2 workers are draining (a, b)`.
fn clause(reason: &'static str, pods: &[String], what: &str) -> Option<Clause> {
    let are = if pods.len() == 1 { "is" } else { "are" };
    let text = format!("{} {are} {what} ({})", workers(pods.len()), few(pods));
    (!pods.is_empty()).then(|| Clause::new(reason, text))
}
