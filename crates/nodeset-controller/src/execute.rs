//! Performs what a plan contains, and decides nothing. All effects pass through here: no effect is sent without a granted
//! batch, and every result of a batch is recorded.
//!
//! The order within a batch makes every write safe to be the last one: the NodeSet has its finalizers before anything is
//! created for it, pods are marked before their Slurm nodes are drained, marks are removed before nodes are resumed, claims
//! have their owners before these are deleted, and a pod is deleted right after a read that shows its node drained.

mod basis;
mod children;
mod cordon;
mod create;
mod delete;
mod grant;
mod mirror;
mod ownership;
mod report;
mod slurm_writes;
#[cfg(test)]
mod tests;
mod writes;

pub use basis::{Bases, SeenByCache};
pub use children::apply_children;
pub use create::CREATION_OF_PODS;
pub use mirror::{mirror_name, mirror_pods};
pub use report::{BatchOutcome, Execution, Failure, Report, wait_message};

use crate::coordination::Coordination;
use crate::observe::Observed;
use crate::plan::{Effect, NodeMirror, Plan, is_force_deleted};
use crate::slurm::{ClusterKey, Clusters};
use cordon::{cordon_workers, uncordon_workers};
use create::create_pods;
use delete::{NodeReads, delete_pods, settle_deletes};
use expectations::{
    Answer, Basis, BatchId, Begin, Clock, Granted, NodeSetName, OPS_PER_BATCH, Ops, WaitReason,
};
use grant::Batch;
use kube::{Client, ResourceExt};
use mirror::mirror_nodes;
use operator_runtime::error::chain;
use ownership::{set_claim_owners, set_finalizers, set_pod_controllers};
use slinky_api::v1beta1::NodeSet;
use slurm_writes::{delete_node_records, write_reservations};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::{info, warn};

/// Sends the writes of NodeSets to the API server and to Slurm, in granted batches.
pub struct Executor {
    /// Sends every request once.
    pub client: Client,
    /// The Slurm clusters.
    pub clusters: Clusters,
    /// Grants batches.
    pub coordination: Coordination,
    /// Measures the time of a batch.
    pub clock: Clock,
    /// Whether the process is shutting down, so that nothing more may be sent.
    pub is_stopping: Box<dyn Fn() -> bool + Send + Sync>,
    /// What the watch of pods has shown of the last batches.
    pub bases: Arc<Bases>,
}

/// The writes of one plan that run in the background.
pub struct PlannedWrites {
    /// The NodeSet that they were planned for.
    pub nodeset: Arc<NodeSet>,
    /// Writes that need a batch, the most urgent first.
    pub effects: Vec<Effect>,
    /// Writes of pod facts to Slurm nodes, which need no batch.
    pub node_mirrors: Vec<NodeMirror>,
    /// Proof of what the view contained that they were planned from, if there is one.
    pub basis: Option<Basis>,
}

impl PlannedWrites {
    /// The background writes of a plan, without a basis; `None` if it has none.
    pub fn of(observed: &Observed, plan: &Plan) -> Option<Self> {
        let is_empty = plan.effects.is_empty() && plan.node_mirrors.is_empty();
        (!is_empty).then(|| Self {
            nodeset: observed.nodeset.clone(),
            effects: plan.effects.clone(),
            node_mirrors: plan.node_mirrors.clone(),
            basis: None,
        })
    }
}

impl Executor {
    /// Performs as much of the planned writes as is granted and as time allows.
    pub async fn perform(&self, writes: PlannedWrites) -> Report {
        let PlannedWrites { nodeset, mut effects, node_mirrors, basis } = writes;
        let mut report = Report::default();
        limit_to_batch_size(&mut effects, &mut report);
        perform_effects(&nodeset, effects, basis, self, &mut report).await;
        // A plan from a fresh view brings its own mirrors.
        if !matches!(report.outcome, BatchOutcome::NeedFresh(_))
            && !node_mirrors.is_empty()
            && let Some(cluster) = self.clusters.cluster(&ClusterKey::of(&nodeset))
        {
            mirror_nodes(&node_mirrors, &cluster, &mut report).await;
        }
        report
    }
}

/// Requests a batch with all effects; in half-open time, when only creates are granted, one with the creates.
async fn perform_effects(
    nodeset: &NodeSet,
    mut effects: Vec<Effect>,
    basis: Option<Basis>,
    executor: &Executor,
    report: &mut Report,
) {
    let requested = effects.len();
    perform_batch(nodeset, &mut effects, basis.clone(), executor, report).await;
    if report.outcome == BatchOutcome::Wait(WaitReason::HalfOpen) {
        effects.retain(Effect::only_creates);
        if effects.len() < requested {
            perform_batch(nodeset, &mut effects, basis, executor, report).await;
        }
    }
}

async fn perform_batch(
    nodeset: &NodeSet,
    effects: &mut Vec<Effect>,
    basis: Option<Basis>,
    executor: &Executor,
    report: &mut Report,
) {
    if effects.is_empty() {
        return;
    }
    let request = request(nodeset, effects, basis, executor);
    let (batch, answer) = match Batch::begin(executor, nodeset, request).await {
        Ok(begun) => begun,
        Err(error) => {
            report.outcome = BatchOutcome::Unavailable(chain(&error));
            return;
        }
    };
    if matches!(answer, Answer::NeedFresh(_) | Answer::NotOwner(_)) {
        executor.bases.forget(&nodeset.uid().unwrap_or_default());
    }
    report.outcome = match answer {
        Answer::Granted(granted) => {
            info!(batch = %batch.id, ?granted, "Batch granted");
            limit_to_grant(effects, granted, report);
            perform_granted(batch, effects, report).await
        }
        Answer::Wait(wait) => {
            report.wait = Some(wait);
            BatchOutcome::Wait(wait.reason)
        }
        Answer::NeedFresh(basis) => BatchOutcome::NeedFresh(basis),
        Answer::NotOwner(_) => BatchOutcome::NotOwner,
    };
}

/// Performs the effects in their order, as far as time allows, and ends the batch.
async fn perform_granted(batch: Batch<'_>, effects: &[Effect], report: &mut Report) -> BatchOutcome {
    let (bases, uid) = (&batch.executor.bases, batch.nodeset.uid().unwrap_or_default());
    bases.forget(&uid);
    set_pod_controllers(&batch, effects, report).await;
    create_pods(&batch, effects, report).await;
    let reads = NodeReads::new(&batch);
    cordon_workers(&batch, &reads, effects, report).await;
    uncordon_workers(&batch, &reads, effects, report).await;
    let without_claims = set_claim_owners(&batch, effects, report).await;
    let unsettled = delete_pods(&batch, &reads, effects, &without_claims, report).await;
    // Without its finalizers the NodeSet is deleted, and its reservation would stay; only a forced deletion accepts that.
    if write_reservations(&batch, effects, report).await || is_force_deleted(batch.nodeset) {
        set_finalizers(&batch, effects, report).await;
    }
    delete_node_records(&batch, &reads, effects, report).await;
    settle_deletes(&batch, &reads, unsettled, report).await;
    batch.settle_patches().await;
    for Failure { object, category, message } in &report.failures {
        warn!(batch = %batch.id, object, category, error = message, "Write failed");
    }
    let certain = batch.is_certain();
    if !certain {
        warn!(batch = %batch.id, "Batch stays open until it expires: the outcome of a write is unknown");
    } else if let Some(basis) = batch.done().await {
        bases.close(&uid, basis, batch.into_results());
    }
    BatchOutcome::Performed { certain }
}

fn request(nodeset: &NodeSet, effects: &[Effect], basis: Option<Basis>, executor: &Executor) -> Begin {
    let batch = BatchId {
        replica: executor.coordination.replica.clone(),
        counter: executor.coordination.batches.fetch_add(1, Ordering::Relaxed),
    };
    let namespace = nodeset.namespace().unwrap_or_default();
    let ops = ops(effects);
    info!(%batch, namespace, nodeset = nodeset.name_any(), ?ops, "Requesting a batch");
    Begin {
        batch,
        cluster_key: ClusterKey::of(nodeset).to_string(),
        nodeset: NodeSetName { namespace: namespace.into(), name: nodeset.name_any().into() },
        uid: nodeset.uid().unwrap_or_default().into(),
        generation: nodeset.metadata.generation.unwrap_or_default(),
        basis,
        ops,
    }
}

fn ops(effects: &[Effect]) -> Ops {
    let count = |is: fn(&Effect) -> bool| {
        u32::try_from(effects.iter().filter(|effect| is(effect)).count()).unwrap_or(u32::MAX)
    };
    Ops {
        creates: count(Effect::is_create),
        deletes: count(Effect::is_delete),
        others: count(|effect| !effect.only_creates() && !effect.is_delete()),
    }
}

/// Drops the effects beyond the size limit of a batch.
fn limit_to_batch_size(effects: &mut Vec<Effect>, report: &mut Report) {
    let mut size = 0;
    let fits = |effect: &Effect| {
        // A pod that may share its Slurm node name with another counts as a create and as another write.
        size += if effect.is_create() && !effect.only_creates() { 2 } else { 1 };
        size <= OPS_PER_BATCH
    };
    let all = effects.len();
    let fitting = effects.iter().map(fits).take_while(|fits| *fits).count();
    if fitting < all {
        effects.truncate(fitting);
        report.requeue_soon();
    }
}

/// Drops the creates and deletes beyond the grant.
fn limit_to_grant(effects: &mut Vec<Effect>, granted: Granted, report: &mut Report) {
    let Granted { mut creates, mut deletes } = granted;
    let all = effects.len();
    effects.retain(|effect| {
        let left = if effect.is_create() {
            &mut creates
        } else if effect.is_delete() {
            &mut deletes
        } else {
            return true;
        };
        let is_granted = *left > 0;
        *left = left.saturating_sub(1);
        is_granted
    });
    if effects.len() < all {
        report.requeue_soon();
    }
}
