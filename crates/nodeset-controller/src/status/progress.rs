//! What is under way in a NodeSet, and what it waits for.

use super::EffectsState;
use super::degraded::silent_since;
use super::message::{Part, few, workers};
use crate::observe::Observed;
use crate::plan::{DeletionWait, Plan, WaitFor};
use crate::slurm::View;
use crate::worker::{Cause, Worker};
use jiff::Timestamp;
use slinky_api::conditions::{RESERVATION_CREATED, find};
use slinky_api::labels::{TRUE, annotations::FORCE_DELETE};
use slinky_api::v1beta1::{NodeSetStatus, ScalingMode, UpdateStrategyType};

/// Reason while workers are being made: the first of all but that the NodeSet goes.
pub const CREATING: &str = "Creating";

/// What progress is told from.
pub struct Progress<'a> {
    /// What was seen.
    pub observed: &'a Observed,
    /// What was decided.
    pub plan: &'a Plan,
    /// What became of that.
    pub effects: &'a EffectsState,
    /// The status as far as it is made.
    pub status: &'a NodeSetStatus,
    /// The time.
    pub now: Timestamp,
}

impl Progress<'_> {
    /// Whether all workers that there should be are there, available, known to Slurm, and not about to be replaced.
    pub fn is_complete(&self) -> bool {
        let serves = |worker: &&Worker| {
            worker.is_alive()
                && !self.is_updated_now(worker)
                && self.is_available(worker)
                && self.is_registered(worker)
        };
        let serving = self.plan.workers.iter().filter(serves).count();
        self.plan.deletion.is_none()
            && i32::try_from(serving).is_ok_and(|serving| serving >= self.status.desired)
    }

    /// What is under way, the most important first.
    pub fn parts(&self) -> Vec<Part> {
        let parts = [
            self.leaving(),
            self.creating(),
            self.starting(),
            self.registering(),
            self.waiting_for_slurm(),
            self.draining(),
            self.ending(),
            self.updating(),
            self.waiting_for_others(),
            self.backing_off(),
            self.effects.waiting.as_ref().map(|why| Part::new("Waiting", format!("changes wait: {why}"))),
        ];
        parts.into_iter().flatten().collect()
    }

    fn leaving(&self) -> Option<Part> {
        let awaited = match self.plan.deletion.as_ref()? {
            DeletionWait::Workers(count) => format!("{} to leave", workers(*count)),
            DeletionWait::Jobs(1) => "1 job record that still names its partition".to_owned(),
            DeletionWait::Jobs(count) => format!("{count} job records that still name its partition"),
            DeletionWait::Open => "its partition to take no new jobs".to_owned(),
            DeletionWait::Slurm => "Slurm to tell which job records name its partition".to_owned(),
            DeletionWait::Nothing => {
                return Some(Part::new("Deleting", "its deletion waits for nothing".to_owned()));
            }
        };
        let text = format!(
            "its deletion waits for {awaited}; annotation {FORCE_DELETE}={TRUE} ends it without waiting"
        );
        Some(Part::new("Deleting", text))
    }

    fn creating(&self) -> Option<Part> {
        let count = self.plan.effects.iter().filter(|effect| effect.is_create()).count();
        (count > 0).then(|| Part::new(CREATING, format!("creating {}", workers(count))))
    }

    fn starting(&self) -> Option<Part> {
        let pods = self.those(|worker| worker.is_alive() && !self.is_available(worker));
        told("Starting", &pods, "not available yet")
    }

    fn registering(&self) -> Option<Part> {
        let pods = self.those(|worker| worker.is_healthy() && !self.is_registered(worker));
        let what = match self.observed.slurm {
            View::Unknown { .. } => "not known to be registered in Slurm",
            View::NotExpected | View::Known(_) => "not registered in Slurm",
        };
        told("Registering", &pods, what)
    }

    fn waiting_for_slurm(&self) -> Option<Part> {
        let pods = self.who_wait(|awaited| awaited == WaitFor::Slurm);
        let since = silent_since(self.status).map(|since| format!(" since {since}")).unwrap_or_default();
        let why = match &self.observed.slurm {
            View::Unknown { why, .. } => format!(": {why}"),
            View::NotExpected => ", which is not there any more".to_owned(),
            View::Known(_) => String::new(),
        };
        told("AwaitingSlurm", &pods, &format!("to leave, waiting for word from Slurm{since}{why}"))
    }

    fn draining(&self) -> Option<Part> {
        let pods = self.who_wait(|awaited| awaited == WaitFor::Drain);
        told("Draining", &pods, "draining until no job is left")
    }

    fn ending(&self) -> Option<Part> {
        told("Ending", &self.those(|worker| worker.terminating), "ending")
    }

    fn updating(&self) -> Option<Part> {
        let alive = self.those(Worker::is_alive).len();
        let outdated = self.those(|worker| worker.is_alive() && self.is_outdated(worker)).len();
        let text = format!("updating: {} of {} are up to date", alive - outdated, workers(alive));
        let is_one = self.plan.workers.iter().any(|worker| worker.is_alive() && self.is_updated_now(worker));
        (is_one && self.plan.deletion.is_none()).then(|| Part::new("Updating", text))
    }

    /// What nobody works at: it waits for a person, or for its time.
    pub fn postponed(&self) -> Option<Part> {
        self.postponed_update().or_else(|| self.no_node())
    }

    /// A selector that matches nothing is easily written, and looks like all is well.
    fn no_node(&self) -> Option<Part> {
        let is_daemon = self.observed.nodeset.spec.scaling_mode == ScalingMode::DaemonSet;
        let expects_some = self.plan.deletion.is_none() && self.plan.obstacles.is_empty();
        let text = "no Kubernetes node fits the template".to_owned();
        (is_daemon && expects_some && self.plan.desired == 0).then(|| Part::new("NoNodeFits", text))
    }

    fn postponed_update(&self) -> Option<Part> {
        let is_one =
            |worker: &Worker| worker.is_alive() && self.is_outdated(worker) && !self.is_updated_now(worker);
        let outdated = self.those(is_one);
        if self.plan.deletion.is_some() {
            return None;
        }
        match self.strategy() {
            UpdateStrategyType::RollingUpdate => None,
            UpdateStrategyType::OnDelete => {
                told("Outdated", &outdated, "outdated until somebody deletes the pod")
            }
            UpdateStrategyType::ScheduledUpdate => {
                let reservation = find(&self.status.conditions, RESERVATION_CREATED);
                let when = reservation.filter(|condition| condition.status == "True").map_or_else(
                    || "outdated until a reservation for updates begins".to_owned(),
                    |condition| format!("outdated until reservation {}", condition.message),
                );
                told("UpdateScheduled", &outdated, &when)
            }
        }
    }

    fn waiting_for_others(&self) -> Option<Part> {
        let pods = self.who_wait(|awaited| awaited == WaitFor::Others);
        told("AwaitingOthers", &pods, "to be replaced as soon as enough others are available")
    }

    fn backing_off(&self) -> Option<Part> {
        let pods = self.who_wait(|awaited| matches!(awaited, WaitFor::Backoff(_)));
        told("BackingOff", &pods, "finished, and made anew after a pause")
    }

    fn those(&self, is_one: impl Fn(&Worker) -> bool) -> Vec<String> {
        self.plan.workers.iter().filter(|worker| is_one(worker)).map(Worker::name).collect()
    }

    fn who_wait(&self, is_it: impl Fn(WaitFor) -> bool) -> Vec<String> {
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

    /// Whether a worker is outdated, and is to be replaced without anybody's doing.
    fn is_updated_now(&self, worker: &Worker) -> bool {
        self.is_outdated(worker)
            && match self.strategy() {
                UpdateStrategyType::RollingUpdate => true,
                UpdateStrategyType::OnDelete => false,
                // Chosen when the reservation held its node.
                UpdateStrategyType::ScheduledUpdate => worker.is_marked(Cause::Update),
            }
    }

    fn strategy(&self) -> UpdateStrategyType {
        self.observed.nodeset.spec.effective_update_strategy().type_
    }

    fn is_available(&self, worker: &Worker) -> bool {
        worker.is_ready() && worker.is_available(self.plan.min_ready, self.now)
    }

    /// Whether Slurm has the node, as far as anybody knows. A node that was written to a moment ago did not vanish by that.
    fn is_registered(&self, worker: &Worker) -> bool {
        match &self.observed.slurm {
            View::NotExpected => true,
            View::Unknown { .. } => worker.was_registered(),
            View::Known(known) => {
                known.snapshot.nodes.contains_key(&worker.slurm_name)
                    || (known.doubtful.contains(&worker.slurm_name) && worker.was_registered())
            }
        }
    }
}

/// `2 workers are draining (pods a, b)`.
fn told(reason: &'static str, pods: &[String], what: &str) -> Option<Part> {
    let are = if pods.len() == 1 { "is" } else { "are" };
    let text = format!("{} {are} {what} ({})", workers(pods.len()), few(pods));
    (!pods.is_empty()).then(|| Part::new(reason, text))
}
