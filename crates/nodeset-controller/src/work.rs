//! What is done for a NodeSet in the background, one thing at a time: the effects of a plan, made anew from a live view
//! where the cache is not known to be complete, and what Slurm is told of pods.

use crate::execute::{Report, Seen, Verdict, Work, perform};
use crate::observe::{Observed, observe_live};
use crate::plan::{Effect, NodeMirror, Plan, plan};
use crate::status::EffectsState;
use crate::world::World;
use expectations::{Basis, WaitReason};
use jiff::Timestamp;
use kube::ResourceExt;
use slinky_api::v1beta1::NodeSet;
use std::sync::Arc;
use std::time::Duration;

/// How often a view is read live in a row before it is left to the next pass.
const LIVE_VIEWS: usize = 2;

/// What a plan wants done in the background.
pub struct Order {
    /// The NodeSet as it was when that was planned.
    pub nodeset: Arc<NodeSet>,
    /// Writes that need a batch.
    pub effects: Vec<Effect>,
    /// What Slurm nodes should say.
    pub node_mirrors: Vec<NodeMirror>,
}

/// When an order may be carried out.
pub enum Readiness {
    /// Now, on this basis, if any.
    Now(Option<Basis>),
    /// When the cache has caught up, or after this time.
    Later(Duration),
}

impl Order {
    /// What is to be done in the background after this plan; `None` if nothing is.
    pub fn of(observed: &Observed, plan: &Plan) -> Option<Self> {
        let wanted = !(plan.effects.is_empty() && plan.node_mirrors.is_empty());
        wanted.then(|| Self {
            nodeset: observed.nodeset.clone(),
            effects: plan.effects.clone(),
            node_mirrors: plan.node_mirrors.clone(),
        })
    }
}

/// Whether a plan that is about to be made from the cache may be carried out. Ask before the cache is read.
pub fn readiness(nodeset: &NodeSet, world: &World) -> Readiness {
    match world.edges.bases.seen(&nodeset.uid().unwrap_or_default()) {
        Seen::Everything(basis) => Readiness::Now(Some(basis)),
        Seen::Waiting(left) => Readiness::Later(left),
        Seen::Unknown => Readiness::Now(None),
    }
}

/// Carries out an order. `clock` tells the time for plans that are made anew.
pub async fn carry_out(
    order: Order,
    basis: Option<Basis>,
    world: &World,
    clock: &(dyn Fn() -> Timestamp + Send + Sync),
) -> Report {
    let nodeset = order.nodeset.clone();
    let mut work =
        Work { nodeset: order.nodeset, effects: order.effects, node_mirrors: order.node_mirrors, basis };
    let mut views = 0;
    loop {
        let mut report = perform(work, &world.edges).await;
        if let Verdict::NeedFresh(basis) = report.verdict.clone() {
            let anew =
                if views < LIVE_VIEWS { plan_anew(&nodeset, basis, world, clock).await } else { Ok(None) };
            views += 1;
            match anew {
                Ok(Some(anew)) => {
                    work = anew;
                    continue;
                }
                // The next pass sees to it.
                Ok(None) => report.leave(),
                Err(error) => report.miss_view(&error),
            }
        }
        if views > 0 && report.verdict == Verdict::Idle {
            report.verdict = Verdict::Overtaken;
        }
        remember(&nodeset, &report, world, clock());
        return report;
    }
}

/// What is to be done as a live view has it; `None` if the NodeSet is gone.
async fn plan_anew(
    nodeset: &NodeSet,
    basis: Basis,
    world: &World,
    clock: &(dyn Fn() -> Timestamp + Send + Sync),
) -> Result<Option<Work>, Arc<kube::Error>> {
    let Some(observed) = observe_live(nodeset, world).await? else { return Ok(None) };
    let plan = plan(&observed, clock());
    let nodeset = observed.nodeset;
    Ok(Some(Work { nodeset, effects: plan.effects, node_mirrors: plan.node_mirrors, basis: Some(basis) }))
}

/// Keeps what the next pass should know.
fn remember(nodeset: &NodeSet, report: &Report, world: &World, now: Timestamp) {
    if world.is_gone(nodeset) {
        return;
    }
    world.memory.with(nodeset, |memory| {
        memory.effects = state_of(report);
        for pod in &report.cleared {
            memory.pod_backoff.record_failure(pod, now);
        }
    });
}

/// What the status says of a report.
fn state_of(report: &Report) -> EffectsState {
    let errors = report.failures.iter();
    let mut errors: Vec<_> = errors
        .map(|failure| (failure.category, format!("{}: {}", failure.object, failure.message)))
        .collect();
    let waiting = match &report.verdict {
        Verdict::Wait(reason) => Some(in_words(*reason).to_owned()),
        Verdict::NeedFresh(_) => Some("a live view of the workers".to_owned()),
        Verdict::Overtaken => Some("the watch of pods to catch up".to_owned()),
        Verdict::Unavailable(why) => {
            errors.push(("ExpectationsUnavailable", why.clone()));
            None
        }
        Verdict::Idle | Verdict::Performed { .. } | Verdict::NotOwner => report.waits.first().cloned(),
    };
    EffectsState { errors, waiting }
}

/// What stands in the way of a batch, for people.
const fn in_words(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::OpenBatch => "an earlier batch of writes has not ended",
        WaitReason::HalfOpen => "writes of an earlier batch, or of an earlier process, may still land",
        WaitReason::Budget => "as many pods are being made and deleted as is allowed",
        WaitReason::Stopping => "the expectations service is stopping",
    }
}

#[cfg(test)]
mod tests;
