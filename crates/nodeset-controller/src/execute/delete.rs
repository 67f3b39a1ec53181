//! Deletes pods, each right after it was seen that no job goes with it.

use super::grant::{ApiFault, Batch, Fault};
use super::notices::{Subject, Topic};
use super::report::{Deed, Report};
use super::writes::{PARALLEL, side_by_side};
use crate::plan::{DeleteReason, Effect, Evidence, PodDeletion};
use crate::slurm::{ClusterKey, NodeLookup, Queries, View};
use crate::worker::{Cordon, PodRef, Worker};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};

/// How long a look at Slurm proves something, from its answer on.
const PROOF: Duration = Duration::from_secs(5);
/// How often a delete is sent again because the pod had changed.
const REPEATS: usize = 3;

/// What became of a pod to delete.
enum Outcome {
    /// It is going, or gone.
    Deleted,
    /// Slurm does not show what it has to.
    Unproven(String),
    /// It is not what it was when its end was decided.
    Changed,
    /// It was not deleted.
    Failed(ApiFault),
}

/// A delete that was not answered.
pub(super) struct Unsettled<'e> {
    removal: &'e PodDeletion,
    /// The version that it was for.
    pod: PodRef,
    fault: ApiFault,
}

/// Deletes the pods of a plan; gives those deletes that were not answered. `without_claims` are the UIDs of pods that do
/// not have the claims yet which go with them.
pub(super) async fn delete_pods<'e>(
    batch: &Batch<'_>,
    looks: &Looks<'_>,
    effects: &'e [Effect],
    without_claims: &BTreeSet<&str>,
    report: &mut Report,
) -> Vec<Unsettled<'e>> {
    let deletes = effects.iter().filter_map(|effect| {
        let Effect::DeletePod(removal) = effect else { return None };
        if without_claims.contains(removal.pod.uid.as_str()) {
            report.leave();
            return None;
        }
        Some(async move { (removal, delete(batch, looks, removal).await) }.boxed())
    });
    let deletes: Vec<_> = deletes.collect();
    let mut unsettled = vec![];
    for (removal, outcome) in side_by_side(PARALLEL, deletes).await {
        match outcome {
            Ok(outcome) => tell(batch, removal, outcome, report),
            Err(unanswered) => unsettled.push(unanswered),
        }
    }
    unsettled
}

/// Sends the deletes again that were not answered, each time on evidence.
pub(super) async fn settle_deletes(
    batch: &Batch<'_>,
    looks: &Looks<'_>,
    unsettled: Vec<Unsettled<'_>>,
    report: &mut Report,
) {
    let copies = unsettled.into_iter().map(|Unsettled { removal, pod, fault }| {
        async move {
            let copy = || async {
                // Without evidence no copy is sent, and what becomes of the others stays open.
                looks.prove(&removal.evidence, None).await.map_err(|_| Fault::Late)?;
                batch.attempt(batch.delete_pod(&pod)).await
            };
            let outcome = match batch.settle(copy).await {
                Some(Ok(())) => Outcome::Deleted,
                // One of the copies changed the pod, or somebody else did.
                Some(Err(_)) => delete(batch, looks, removal).await.unwrap_or_else(Unsettled::give_up),
                None => Outcome::Failed(fault),
            };
            (removal, outcome)
        }
        .boxed()
    });
    let copies: Vec<_> = copies.collect();
    for (removal, outcome) in side_by_side(PARALLEL, copies).await {
        tell(batch, removal, outcome, report);
    }
}

impl Unsettled<'_> {
    fn give_up(self) -> Outcome {
        Outcome::Failed(self.fault)
    }
}

async fn delete<'e>(
    batch: &Batch<'_>,
    looks: &Looks<'_>,
    removal: &'e PodDeletion,
) -> Result<Outcome, Unsettled<'e>> {
    let mut pod = removal.pod.clone();
    // A look that began before the pod was read says nothing of the version that was read.
    let mut read = None;
    for _ in 0..=REPEATS {
        if let Err(doubt) = looks.prove(&removal.evidence, read).await {
            return Ok(Outcome::Unproven(doubt));
        }
        match batch.write(batch.delete_pod(&pod)).await {
            Ok(()) => return Ok(Outcome::Deleted),
            Err(fault) if fault.is_conflict() => {}
            Err(fault) if fault.is_final() => return Ok(Outcome::Failed(fault)),
            Err(fault) => return Err(Unsettled { removal, pod, fault }),
        }
        let live = match batch.attempt(batch.api::<Pod>().get_opt(&pod.name)).await {
            Ok(live) => live.map(|live| Worker::new(Arc::new(live))),
            Err(fault) => return Ok(Outcome::Failed(fault)),
        };
        match live.filter(|live| live.uid() == pod.uid && !live.terminating) {
            Some(live) if still_to_go(&live, removal) => pod = live.reference(),
            Some(_) => return Ok(Outcome::Changed),
            None => {
                batch.results().deleted(&pod.uid);
                return Ok(Outcome::Deleted);
            }
        }
        read = Some(looks.turn());
    }
    Ok(Outcome::Changed)
}

/// Whether a pod that has changed is to be deleted all the same, as far as it tells itself. One that is replaced may have
/// become ready: whether enough others serve is for the next plan to say.
fn still_to_go(live: &Worker, removal: &PodDeletion) -> bool {
    if matches!(removal.why, DeleteReason::Outdated | DeleteReason::Unregistered) {
        return false;
    }
    match &removal.evidence {
        Evidence::Drained(_) => matches!(live.cordon, Cordon::Ours(_)),
        Evidence::NotNeeded => live.is_finished() || !live.started,
        Evidence::SlurmNotExpected | Evidence::Absent(_) => true,
    }
}

fn tell(batch: &Batch<'_>, removal: &PodDeletion, outcome: Outcome, report: &mut Report) {
    let PodRef { name, uid, .. } = &removal.pod;
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        namespace: Some(batch.namespace()),
        uid: Some(uid.clone()),
        ..ObjectMeta::default()
    };
    let subject = |detail| Subject::of::<Pod>(&metadata, detail);
    match outcome {
        Outcome::Deleted => {
            info!(batch = %batch.id, pod = name, why = ?removal.why, "Deleted a pod");
            report.did(Deed::Deleted);
            if matches!(removal.why, DeleteReason::Failed | DeleteReason::Succeeded) {
                report.cleared.push(name.clone());
            }
            if removal.why == DeleteReason::Unregistered {
                report.told.tell(Topic::PodUnregistered, subject(String::new()));
            }
            report.told.tell(Topic::PodDeleted, subject(String::new()));
        }
        Outcome::Unproven(doubt) => {
            info!(batch = %batch.id, pod = name, doubt, "Did not delete a pod");
            report.leave();
        }
        Outcome::Changed => {
            debug!(batch = %batch.id, pod = name, "Did not delete a pod, it has changed");
            report.leave();
        }
        Outcome::Failed(fault) => {
            if let Some(error) = report.fail(format!("Pod {name}"), &fault) {
                report.told.tell(Topic::PodNotDeleted, subject(error));
            }
        }
    }
}

/// Looks at the Slurm cluster, made in this batch and shared by its deletes.
pub(super) struct Looks<'a> {
    batch: &'a Batch<'a>,
    /// What comes before what: a clock may show the same time for both.
    turn: AtomicU64,
    latest: Mutex<Option<Look>>,
}

struct Look {
    began: u64,
    answered: Instant,
    view: View,
}

impl<'a> Looks<'a> {
    /// No look was made yet.
    pub fn new(batch: &'a Batch<'a>) -> Self {
        Self { batch, turn: AtomicU64::default(), latest: Mutex::default() }
    }

    /// This moment.
    fn turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// What Slurm says now: a look that begins with this call.
    pub async fn now(&self) -> View {
        match self.look().await {
            Ok(look) => self.latest.lock().await.insert(look).view.clone(),
            Err(why) => View::unreachable(why),
        }
    }

    /// Shows what has to be seen, by a look that began after that moment; else says what stands against it.
    async fn prove(&self, evidence: &Evidence, after: Option<u64>) -> Result<(), String> {
        let node = match evidence {
            Evidence::NotNeeded => return Ok(()),
            Evidence::SlurmNotExpected => return self.prove_no_slurm(),
            Evidence::Absent(node) | Evidence::Drained(node) => node,
        };
        match (self.known(after).await?.lookup(node), evidence) {
            (NodeLookup::Absent, Evidence::Absent(_)) => self.prove_absent(node).await,
            (NodeLookup::Present(found), Evidence::Drained(_)) if found.is_drained() => Ok(()),
            (lookup, _) => Err(format!("Slurm shows {node} otherwise: {lookup:?}")),
        }
    }

    /// What a look shows that was answered a moment ago, and began after that moment; else why there is none.
    pub async fn known(&self, after: Option<u64>) -> Result<View, String> {
        let mut latest = self.latest.lock().await;
        let serves =
            |look: &Look| look.answered.elapsed() <= PROOF && after.is_none_or(|after| look.began > after);
        let look = match latest.take().filter(serves) {
            Some(look) => look,
            None => self.look().await?,
        };
        match &latest.insert(look).view {
            View::NotExpected => Err("Slurm is not expected any more".to_owned()),
            View::Unknown { why, .. } => Err(why.clone()),
            view @ View::Known(_) => Ok(view.clone()),
        }
    }

    /// A list may be cut short and look whole; the node itself is asked for, too.
    async fn prove_absent(&self, node: &str) -> Result<(), String> {
        let cluster = self.batch.cluster.as_ref().ok_or("the Controller is not there")?;
        match self.batch.attempt(cluster.get_node(node)).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(format!("Slurm has {node}, although it did not list it")),
            Err(fault) => Err(fault.message()),
        }
    }

    fn prove_no_slurm(&self) -> Result<(), String> {
        let key = ClusterKey::of(self.batch.nodeset);
        match self.batch.edges.clusters.view(&key, Queries::default()) {
            View::NotExpected => Ok(()),
            View::Unknown { .. } | View::Known(_) => Err("Slurm is expected now".to_owned()),
        }
    }

    async fn look(&self) -> Result<Look, String> {
        let cluster = self.batch.cluster.as_ref().ok_or("the Controller is not there")?;
        let began = self.turn();
        let look = async { Ok::<_, slurm_rest::Error>(cluster.look().await) };
        let view = match self.batch.attempt(look).await {
            Ok(view) => view,
            Err(fault) => View::unreachable(fault.message()),
        };
        Ok(Look { began, answered: Instant::now(), view })
    }
}
