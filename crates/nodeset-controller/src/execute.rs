//! Carries out what was decided. All effects pass through here: what is not granted as a batch is not sent, and what was
//! sent is not forgotten.
//!
//! The order within a batch keeps each write from being contradicted by what could go wrong with the next: the NodeSet is
//! held before anything is made for it, pods are marked before their Slurm nodes are drained, marks are off before nodes go
//! back to work, claims belong to those with whom they go before these go, and a pod is deleted right after its node was
//! seen drained.

mod basis;
mod cordon;
mod create;
mod delete;
mod grant;
mod mirror;
mod notices;
mod ownership;
mod report;
mod slurm_writes;
#[cfg(test)]
mod tests;
mod writes;

pub use basis::{Bases, Seen};
pub use mirror::mirror_pods;
pub use notices::{Notices, Subject, Topic};
pub use report::{Failure, Report, Verdict};

use crate::plan::{Effect, NodeMirror, is_force_deleted};
use crate::slurm::{ClusterKey, Clusters};
use cordon::{restore, retire};
use create::create_pods;
use delete::{Looks, delete_pods, settle_deletes};
use expectations::{
    Answer, Basis, BatchId, Begin, Clock, Expectations, Granted, NodeSetName, OPS_PER_BATCH, Ops, ReplicaId,
    Wait, WaitReason,
};
use grant::Batch;
use kube::{Client, ResourceExt};
use mirror::mirror_nodes;
use operator_runtime::error::chain;
use ownership::{claim_pods, own_claims, release};
use slinky_api::v1beta1::NodeSet;
use slurm_writes::{forget_nodes, reserve};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::{info, warn};

/// Where effects go.
pub struct Edges {
    /// Sends every request once.
    pub client: Client,
    /// The Slurm clusters.
    pub clusters: Clusters,
    /// Who is asked before anything is done.
    pub expectations: Arc<dyn Expectations>,
    /// Who asks.
    pub replica: ReplicaId,
    /// How many batches this process asked for.
    pub batches: Arc<AtomicU64>,
    /// Tells how long a batch has lasted.
    pub clock: Clock,
    /// Whether the process is about to end, and nothing more may be sent.
    pub is_stopping: Box<dyn Fn() -> bool + Send + Sync>,
    /// What the watch of pods has seen.
    pub bases: Arc<Bases>,
}

/// What one pass wants done. One at a time is performed for a NodeSet.
pub struct Work {
    /// The NodeSet that it was decided on.
    pub nodeset: Arc<NodeSet>,
    /// What to do, the most urgent first.
    pub effects: Vec<Effect>,
    /// What Slurm nodes are to be told.
    pub node_mirrors: Vec<NodeMirror>,
    /// What the view contained that it was decided on, if that is known.
    pub basis: Option<Basis>,
}

/// Does what can be done of the work of one pass.
pub async fn perform(work: Work, edges: &Edges) -> Report {
    let Work { nodeset, mut effects, node_mirrors, basis } = work;
    let mut report = Report::default();
    cut_to_size(&mut effects, &mut report);
    perform_effects(&nodeset, effects, basis, edges, &mut report).await;
    // What is planned anew tells anew what Slurm nodes should say.
    if !matches!(report.verdict, Verdict::NeedFresh(_))
        && !node_mirrors.is_empty()
        && let Some(cluster) = edges.clusters.cluster(&ClusterKey::of(&nodeset))
    {
        mirror_nodes(&node_mirrors, &cluster, &mut report).await;
    }
    report
}

/// Asks for a batch with everything; if only creates are granted at the moment, for one with these.
async fn perform_effects(
    nodeset: &NodeSet,
    mut effects: Vec<Effect>,
    basis: Option<Basis>,
    edges: &Edges,
    report: &mut Report,
) {
    let asked = effects.len();
    perform_batch(nodeset, &mut effects, basis.clone(), edges, report).await;
    if report.verdict == Verdict::Wait(WaitReason::HalfOpen) {
        effects.retain(Effect::only_creates);
        if effects.len() < asked {
            perform_batch(nodeset, &mut effects, basis, edges, report).await;
        }
    }
}

async fn perform_batch(
    nodeset: &NodeSet,
    effects: &mut Vec<Effect>,
    basis: Option<Basis>,
    edges: &Edges,
    report: &mut Report,
) {
    if effects.is_empty() {
        return;
    }
    let request = request(nodeset, effects, basis, edges);
    let (batch, answer) = match Batch::ask(edges, nodeset, request).await {
        Ok(answered) => answered,
        Err(error) => {
            report.verdict = Verdict::Unavailable(chain(&error));
            return;
        }
    };
    if matches!(answer, Answer::NeedFresh(_) | Answer::NotOwner(_)) {
        edges.bases.forget(&nodeset.uid().unwrap_or_default());
    }
    report.verdict = match answer {
        Answer::Granted(granted) => {
            info!(batch = %batch.id, ?granted, "Begins a batch");
            cut_to_grant(effects, granted, report);
            carry_out(batch, effects, report).await
        }
        Answer::Wait(Wait { after, reason }) => {
            report.leave_for(after);
            Verdict::Wait(reason)
        }
        Answer::NeedFresh(basis) => Verdict::NeedFresh(basis),
        Answer::NotOwner(_) => Verdict::NotOwner,
    };
}

/// Does all of it in its order, as far as time allows, and ends the batch.
async fn carry_out(batch: Batch<'_>, effects: &[Effect], report: &mut Report) -> Verdict {
    let (bases, uid) = (&batch.edges.bases, batch.nodeset.uid().unwrap_or_default());
    bases.forget(&uid);
    claim_pods(&batch, effects, report).await;
    create_pods(&batch, effects, report).await;
    let looks = Looks::new(&batch);
    retire(&batch, &looks, effects, report).await;
    restore(&batch, &looks, effects, report).await;
    let without_claims = own_claims(&batch, effects, report).await;
    let unsettled = delete_pods(&batch, &looks, effects, &without_claims, report).await;
    // A NodeSet that is let go is not there to see to its reservation later, unless somebody wants it gone all the same.
    if reserve(&batch, effects, report).await || is_force_deleted(batch.nodeset) {
        release(&batch, effects, report).await;
    }
    forget_nodes(&batch, &looks, effects, report).await;
    settle_deletes(&batch, &looks, unsettled, report).await;
    batch.settle_patches().await;
    for Failure { object, category, message } in &report.failures {
        warn!(batch = %batch.id, object, category, error = message, "A write failed");
    }
    let certain = batch.is_certain();
    if !certain {
        warn!(batch = %batch.id, "Leaves a batch to run out, because a write was not answered");
    } else if let Some(basis) = batch.done().await {
        bases.close(&uid, basis, batch.into_results());
    }
    Verdict::Performed { certain }
}

fn request(nodeset: &NodeSet, effects: &[Effect], basis: Option<Basis>, edges: &Edges) -> Begin {
    let batch =
        BatchId { replica: edges.replica.clone(), counter: edges.batches.fetch_add(1, Ordering::Relaxed) };
    let namespace = nodeset.namespace().unwrap_or_default();
    let ops = ops(effects);
    info!(%batch, namespace, nodeset = nodeset.name_any(), ?ops, "Asks for a batch");
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

/// Leaves out what is more than a batch may have.
fn cut_to_size(effects: &mut Vec<Effect>, report: &mut Report) {
    let mut size = 0;
    let fits = |effect: &Effect| {
        // A pod that may meet another in Slurm counts as a create and as more than that.
        size += if effect.is_create() && !effect.only_creates() { 2 } else { 1 };
        size <= OPS_PER_BATCH
    };
    let all = effects.len();
    let fitting = effects.iter().map(fits).take_while(|fits| *fits).count();
    if fitting < all {
        effects.truncate(fitting);
        report.leave();
    }
}

/// Leaves out the creates and deletes that were not granted.
fn cut_to_grant(effects: &mut Vec<Effect>, granted: Granted, report: &mut Report) {
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
        report.leave();
    }
}
