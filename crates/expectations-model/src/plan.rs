//! What a replica reads, and the effects that it plans: a planner with one rule per case, level-triggered as the real one.

use crate::guard::{Guard, Guards};
use crate::world::{Effect, Kind, Landed, Node, NodeSet, Ordinals, Pod, WORKERS, Worker, World};
use expectations::Ops;

/// The NodeSet, its pods and its Slurm nodes, as one plan sees them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub nodeset: Option<NodeSet>,
    pub workers: [Worker; WORKERS],
    /// The effects that it contains.
    pub contains: Landed,
}

impl View {
    /// A live view.
    pub fn of(world: &World) -> Self {
        Self { nodeset: world.nodeset, workers: world.workers, contains: world.landed }
    }
}

/// The effects that bring the cluster closer to the spec, in order.
pub fn plan(view: &View, guards: Guards) -> Vec<Effect> {
    let Some(nodeset) = view.nodeset else { return Vec::new() };
    let wanted = nodeset.wanted();
    let mut effects = Vec::new();
    let mut pods = 0;
    for (ordinal, worker) in view.workers.iter().enumerate() {
        match worker.pod {
            Some(pod) if pod.owner != nodeset.uid => {}
            Some(pod) => {
                pods += 1;
                if wanted.contains(ordinal) {
                    keep(ordinal, pod, worker, guards, &mut effects);
                } else {
                    remove(ordinal, pod, worker, &mut effects);
                }
            }
            None if wanted.contains(ordinal) => {}
            None => effects.extend(worker.node.and_then(|node| disable_node(ordinal, node))),
        }
    }
    if nodeset.deleting && pods == 0 {
        effects.push(Effect::RemoveFinalizer(nodeset.generation));
    }
    effects.extend(creates(view, wanted, pods));
    effects
}

fn creates(view: &View, wanted: Ordinals, pods: usize) -> impl Iterator<Item = Effect> {
    let is_missing =
        move |(ordinal, worker): &(usize, &Worker)| wanted.contains(*ordinal) && worker.pod.is_none();
    let missing = view.workers.iter().enumerate().filter(is_missing);
    missing.take(wanted.count().saturating_sub(pods)).map(|(ordinal, _)| Effect::Create(ordinal))
}

fn keep(ordinal: usize, pod: Pod, worker: &Worker, guards: Guards, effects: &mut Vec<Effect>) {
    let given_up = worker.claim.filter(|claim| claim.owner == Some(pod.version.uid));
    effects.extend(given_up.map(|claim| Effect::KeepClaim(ordinal, claim.version)));
    let is_unusable = worker.node.is_some_and(|node| !node.takes_jobs());
    if pod.marked {
        let unmark = Effect::Unmark(ordinal, pod.version);
        if guards.has(Guard::UnmarkBeforeUndrain) {
            effects.extend([unmark, Effect::Undrain(ordinal)]);
        } else {
            effects.extend([Effect::Undrain(ordinal), unmark]);
        }
    } else if is_unusable {
        effects.push(Effect::Undrain(ordinal));
    }
}

fn remove(ordinal: usize, pod: Pod, worker: &Worker, effects: &mut Vec<Effect>) {
    match worker.node {
        Some(_) if !pod.marked => {
            effects.extend([Effect::Mark(ordinal, pod.version), Effect::Drain(ordinal)]);
        }
        Some(node) if !node.drained => effects.push(Effect::Drain(ordinal)),
        Some(node) if node.job => {}
        // A pod that never registered in Slurm needs neither mark nor drain.
        Some(_) | None => {
            let kept = worker.claim.filter(|claim| claim.owner.is_none());
            effects.extend(kept.map(|claim| Effect::GiveUpClaim(ordinal, claim.version, pod.version.uid)));
            effects.push(Effect::Delete(ordinal, pod.version));
        }
    }
}

/// Keeps Slurm from using the node of a worker that was removed.
fn disable_node(ordinal: usize, node: Node) -> Option<Effect> {
    match node {
        Node { down: true, .. } | Node { drained: true, job: true, .. } => None,
        Node { drained: false, .. } => Some(Effect::Drain(ordinal)),
        Node { drained: true, .. } => Some(Effect::SetDown(ordinal)),
    }
}

/// The number of effects by kind, as a batch is requested for them.
pub fn count(effects: &[Effect]) -> Ops {
    effects.iter().fold(Ops::default(), |mut ops, effect| {
        match effect.kind() {
            Kind::Create => ops.creates += 1,
            Kind::Delete => ops.deletes += 1,
            Kind::Other => ops.others += 1,
        }
        ops
    })
}

/// Whether the cluster is as the spec wants it, with nothing left to do.
pub fn is_as_wanted(world: &World) -> bool {
    let wanted = world.nodeset.map(NodeSet::wanted).unwrap_or_default();
    world.nodeset.is_none_or(|nodeset| !nodeset.deleting)
        && world.workers.iter().enumerate().all(|(ordinal, worker)| {
            let is_usable = worker.node.is_none_or(Node::takes_jobs);
            let is_unused = worker.node.is_none_or(|node| node.down || world.nodeset.is_none());
            let is_owned = worker.pod.is_some_and(|pod| world.has_nodeset(pod.owner) && !pod.marked);
            let has_claim =
                !worker.has_stale_claim() && worker.claim.is_none_or(|claim| claim.owner.is_none());
            if wanted.contains(ordinal) {
                is_owned && is_usable && has_claim
            } else {
                worker.pod.is_none() && is_unused && worker.claim.is_none()
            }
        })
}
