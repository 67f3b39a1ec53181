//! Combines the decisions about one NodeSet into a plan.

use super::fit::invalid_requirement;
use super::lifecycle::{Lifecycle, LifecycleDecision};
use super::membership::{Membership, is_orphaning, membership};
use super::mirror::Mirrors;
use super::obstacle::{MAX_NODES, NodeSetObstacle};
use super::registration::UnexplainedNodes;
use super::replicas::{Place, Replicas};
use super::reservation::Schedule;
use super::update::{Allowance, Update, UpdateWaits};
use super::{
    DeletionWait, Effect, NewPod, Obstacle, Pins, Plan, PodMirror, Revisions, WaitFor, Waiting, children,
    claims, cordons, daemons, finalizers, job_state, metadata, pins, records, replicas, revision, update,
};
use crate::build::{
    BuildError, Hashes, WorkerTemplate, build_claims, build_daemon_pod, build_numbered_pod,
    build_revision_data, build_template, revision_bytes, revision_hash, sshd_config_hash,
};
use crate::node_facts::expected_hostname;
use crate::observe::Observed;
use crate::slurm::View;
use crate::worker::{Cause, Worker};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use operator_runtime::MissingReference;
use slinky_api::labels::annotations::POD_RETRY_DELAY;
use slinky_api::v1beta1::{NodeSet, ScalingMode, UpdateStrategyType};
use std::collections::BTreeSet;
use std::time::Duration;

/// Plans the changes for a NodeSet.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let nodeset = observed.nodeset.as_ref();
    // The existing workers, and the template for new ones.
    let Membership { mut workers, effects: adoptions } = membership(observed);
    job_state::update_job_state_from_slurm(&mut workers, &observed.slurm);
    let revisions = revisions(observed, &workers);
    let min_ready = SignedDuration::from_secs(nodeset.spec.min_ready_seconds.unwrap_or_default().into());
    let (template, mut obstacles) = template_and_obstacles(observed);
    // Which workers stay, which are removed, which are missing.
    let unexplained = UnexplainedNodes::new(&observed.slurm, &workers);
    let chosen = choose_replicas(
        observed,
        &workers,
        template.as_ref(),
        &revisions.hash,
        &unexplained,
        (min_ready, now),
    );
    let (replicas, mut update_waits) = chosen;
    let claims = claims::decide(observed, &workers, |worker| replicas.is_scaled_in(worker));
    let contested = claims.contested.into_iter().map(NodeSetObstacle::Contested);
    let specific = contested.chain(in_other_cluster(nodeset, &workers)).chain(invalid_replicas(nodeset));
    obstacles.extend(specific.map(Obstacle::Specific));
    // How workers are drained and deleted, where new ones run, and the reservation for an update.
    let cordoned_pods = cordons::recorded(nodeset);
    let mut lifecycle =
        decide_lifecycle(observed, &workers, &replicas, &unexplained, &cordoned_pods, (min_ready, now));
    lifecycle.waiting.append(&mut update_waits.waiting);
    let pod_spec = template.as_ref().map(WorkerTemplate::pod_spec);
    let pins = pins::pins(nodeset, &workers, &observed.nodes, pod_spec);
    let schedule =
        Schedule { observed, workers: &workers, desired: replicas.desired, hash: &revisions.hash, now };
    let mut reservation = schedule.decide();
    let unscheduled = reservation.obstacle.take().map(NodeSetObstacle::Schedule);
    obstacles.extend(unscheduled.map(Obstacle::Specific));
    // The finalizer must be set before the first pod is created: it keeps the NodeSet until its pods are deleted.
    let deletion = is_deleting(nodeset).then(|| finalizers::deletion_wait(observed, &workers));
    let cordoned = cordons::record_change(nodeset, &workers, &replicas);
    let metadata = metadata::metadata_change(observed, &reservation, cordoned);
    let lacks_finalizer = metadata.as_ref().is_some_and(|change| change.finalizers.is_some());
    let template = template.as_ref().filter(|_| !lacks_finalizer && deletion.is_none());
    let mut creates = creates(observed, template, &replicas, &revisions.hash, pins.as_ref(), &mut obstacles);
    cordons::keep_cordoned(&mut creates, &cordoned_pods);
    obstacles.extend(replicas.unusable_hostnames.into_iter().map(Obstacle::Specific));
    let removals = claims::before_deletes(lifecycle.effects, claims.effects);
    let pods = adoptions.into_iter().chain(creates).chain(removals);
    let effects = match deletion {
        None if observed.controller.is_none() => vec![],
        Some(DeletionWait::Nothing) => finalizers::remove_finalizers(observed),
        // Most important first.
        None | Some(_) => {
            let records = records::defunct_records(observed, &workers);
            pods.chain(records).chain(reservation.effects).collect()
        }
    };
    // Mirrors, and the next reconcile.
    let mirrors = Mirrors::new(observed, now);
    let mirrored: &[Worker] = if is_orphaning(observed) { &[] } else { &workers };
    let requeue_after = requeue_after(&workers, &lifecycle.waiting, &observed.slurm, min_ready, now);
    Plan {
        children: children::children(observed, &revisions),
        desired: replicas.desired,
        min_ready,
        metadata,
        pod_mirrors: pod_mirrors(&mirrors, mirrored, &effects),
        effects,
        node_mirrors: mirrors.slurm_nodes(mirrored),
        requeue_after: [requeue_after, mirrors.protect_after(mirrored)].into_iter().flatten().min(),
        waiting: lifecycle.waiting,
        useless: update_waits.useless,
        deletion,
        reservation: reservation.status,
        pins,
        obstacles,
        revisions,
        workers,
    }
}

fn is_deleting(nodeset: &NodeSet) -> bool {
    nodeset.metadata.deletion_timestamp.is_some()
}

/// The template for new workers, if it can be built, and its obstacles.
fn template_and_obstacles(observed: &Observed) -> (Option<WorkerTemplate>, Vec<Obstacle>) {
    let mut obstacles = vec![];
    let template = template(observed).map_err(|obstacle| obstacles.push(obstacle)).ok();
    let invalid = template.as_ref().and_then(|template| invalid_requirement(template.pod_spec()));
    obstacles.extend(invalid.map(NodeSetObstacle::Requirement).map(Obstacle::Specific));
    (template, obstacles)
}

/// Decides how each worker is drained, deleted or resumed.
fn decide_lifecycle(
    observed: &Observed,
    workers: &[Worker],
    replicas: &Replicas,
    unexplained: &UnexplainedNodes<'_>,
    cordoned_pods: &BTreeSet<String>,
    (min_ready, now): (SignedDuration, Timestamp),
) -> LifecycleDecision {
    let nodeset = &observed.nodeset;
    let lifecycle = Lifecycle {
        namespace: &nodeset.namespace().unwrap_or_default(),
        slurm: &observed.slurm,
        unexplained,
        cordoned_pods,
        nodes: &observed.nodes,
        propagated_conditions: &observed.propagated_conditions,
        allowance: Allowance::of(nodeset, replicas.desired),
        min_ready,
        is_scheduled: nodeset.spec.effective_update_strategy().type_ == UpdateStrategyType::ScheduledUpdate,
        had_slurm: workers.iter().any(Worker::was_registered),
        now,
    };
    lifecycle.decide(workers, replicas)
}

/// Pod mirrors, except for pods that are deleted: a write would change the resource version that the delete is
/// conditional on.
fn pod_mirrors(mirrors: &Mirrors<'_>, workers: &[Worker], effects: &[Effect]) -> Vec<PodMirror> {
    let mut deleted = BTreeSet::new();
    for effect in effects {
        if let Effect::DeletePod(deletion) = effect {
            deleted.insert(deletion.pod.uid.as_str());
        }
    }
    let mut mirrors = mirrors.pods(workers);
    mirrors.retain(|mirror| !deleted.contains(mirror.pod.uid.as_str()));
    mirrors
}

/// The template for new workers.
fn template(observed: &Observed) -> Result<WorkerTemplate, Obstacle> {
    let name = &observed.nodeset.spec.controller_ref.name;
    let controller =
        observed.controller.as_ref().ok_or_else(|| MissingReference::Controller(name.clone()))?;
    let sssd_conf = observed.sssd_conf.as_ref().map_err(|error| Obstacle::Reference(error.clone()))?;
    let hashes = Hashes { sshd_conf: sshd_config_hash(&observed.nodeset), sssd_conf: sssd_conf.clone() };
    build_template(&observed.nodeset, controller, hashes, &observed.cluster_domain).map_err(Obstacle::invalid)
}

/// The current revision, and the changes to stored ones.
fn revisions(observed: &Observed, workers: &[Worker]) -> Revisions {
    let data = build_revision_data(&observed.nodeset);
    let bytes = revision_bytes(&data);
    let in_use = workers.iter().map(|worker| worker.hash.clone()).collect();
    let hash = |collisions| revision_hash(&bytes, collisions);
    revision::decide(&observed.nodeset, &observed.revisions, &data, &in_use, hash)
}

/// The desired number of workers with ordinals; `None` if it is invalid. The API server refuses negative numbers, unless
/// its schema is older.
fn desired_replicas(nodeset: &NodeSet) -> Option<usize> {
    usize::try_from(nodeset.spec.replicas).ok().filter(|desired| *desired <= MAX_NODES)
}

fn invalid_replicas(nodeset: &NodeSet) -> Option<NodeSetObstacle> {
    let is_invalid = nodeset.spec.scaling_mode == ScalingMode::StatefulSet
        && desired_replicas(nodeset).is_none()
        && !is_deleting(nodeset);
    is_invalid.then_some(NodeSetObstacle::Replicas(nodeset.spec.replicas))
}

/// The workers that serve another cluster than the NodeSet names.
fn in_other_cluster(nodeset: &NodeSet, workers: &[Worker]) -> Option<NodeSetObstacle> {
    let mut others = workers.iter().filter_map(|worker| Some((worker, worker.other_cluster.clone()?)));
    let (first, old) = others.next()?;
    let new = nodeset.spec.controller_ref.name.clone();
    Some(NodeSetObstacle::OtherCluster { old, new, count: 1 + others.count(), pod: first.name() })
}

/// Which workers stay, are removed or are missing: first by count and placement, then by rollout.
fn choose_replicas(
    observed: &Observed,
    workers: &[Worker],
    template: Option<&WorkerTemplate>,
    hash: &str,
    unexplained: &UnexplainedNodes<'_>,
    (min_ready, now): (SignedDuration, Timestamp),
) -> (Replicas, UpdateWaits) {
    let nodeset = observed.nodeset.as_ref();
    if is_deleting(nodeset) {
        let replicas = if finalizers::is_force_deleted(nodeset) {
            replicas::delete_all(workers)
        } else {
            replicas::remove_all(workers)
        };
        return (replicas, UpdateWaits::default());
    }
    if observed.controller.is_none() {
        let replicas = Replicas { desired: workers.len(), ..Replicas::default() };
        return (replicas, UpdateWaits::default());
    }
    let mut replicas = match nodeset.spec.scaling_mode {
        ScalingMode::StatefulSet => match desired_replicas(nodeset) {
            Some(desired) => replicas::numbered(workers, desired, &observed.retry_times),
            None => return (Replicas::undecided(workers), UpdateWaits::default()),
        },
        ScalingMode::DaemonSet => {
            let spec = template.map(WorkerTemplate::pod_spec);
            daemons::daemons(workers, &observed.nodes, spec, &observed.retry_times)
        }
    };
    if template.is_some() {
        let (slurm, retry_times) = (&observed.slurm, &observed.retry_times);
        let allowance = Allowance::of(nodeset, replicas.desired);
        let update =
            Update { nodeset, workers, hash, slurm, unexplained, retry_times, allowance, min_ready, now };
        let waits = update.choose(&mut replicas);
        (replicas, waits)
    } else {
        // The number of workers does not depend on the template; node fit and outdated revisions do.
        let is_daemon_set = nodeset.spec.scaling_mode == ScalingMode::DaemonSet;
        let undecidable =
            if is_daemon_set { [Cause::Update, Cause::ScaleIn].as_slice() } else { &[Cause::Update] };
        replicas.leave_undecided(workers, undecidable);
        (replicas, UpdateWaits::default())
    }
}

/// The pods to create, none without `template`. A pod that cannot be built does not block the others.
fn creates(
    observed: &Observed,
    template: Option<&WorkerTemplate>,
    replicas: &Replicas,
    hash: &str,
    pins: Option<&Pins>,
    obstacles: &mut Vec<Obstacle>,
) -> Vec<Effect> {
    let Some(template) = template else { return vec![] };
    let built = replicas.missing.iter().map(|place| new_pod(observed, template, place, hash, pins));
    let mut creates = vec![];
    let mut failed = None;
    for result in built {
        match result {
            Ok(new) => creates.push(Effect::CreatePod(Box::new(new))),
            Err(error) => failed = Some(Obstacle::invalid(error)),
        }
    }
    obstacles.extend(failed);
    creates
}

fn new_pod(
    observed: &Observed,
    template: &WorkerTemplate,
    place: &Place,
    hash: &str,
    pins: Option<&Pins>,
) -> Result<NewPod, BuildError> {
    let nodeset: &NodeSet = &observed.nodeset;
    let (mut pod, part, names_its_node) = match place {
        Place::Ordinal(ordinal) => {
            let pin = pins.and_then(|pins| pins.get(&ordinal.to_string())).map(String::as_str);
            let pod = build_numbered_pod(template, nodeset, *ordinal, hash, pin)?;
            (pod, nodeset.padded_ordinal(*ordinal), true)
        }
        Place::Node(name) => {
            let hostname = observed.nodes.get(name).map(|node| expected_hostname(node)).unwrap_or_default();
            let pod = build_daemon_pod(template, nodeset, name, &hostname, hash)?;
            let names_its_node = name.split('.').next() == Some(hostname.as_str());
            (pod, hostname, names_its_node)
        }
    };
    let claims = build_claims(template, nodeset, &part);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if let Some(delay) = observed.retry_delays.get(&name) {
        pod["metadata"]["annotations"][POD_RETRY_DELAY] = delay.as_secs().to_string().into();
    }
    Ok(NewPod { name, pod, names_its_node, claims })
}

/// When to reconcile again although no watched object changed: a worker becomes available, its backoff ends, or it has
/// got no jobs for too long.
fn requeue_after(
    workers: &[Worker],
    waiting: &[Waiting],
    slurm: &View,
    min_ready: SignedDuration,
    now: Timestamp,
) -> Option<Duration> {
    let available = workers
        .iter()
        .filter(|worker| worker.is_healthy() && !worker.is_available(min_ready, now))
        .filter_map(|worker| worker.ready?.since.map(|since| min_ready - now.duration_since(since)));
    let retries = waiting.iter().filter_map(|waiting| match waiting.for_ {
        WaitFor::Backoff(time) => Some(time.duration_since(now)),
        WaitFor::Drain | WaitFor::Slurm | WaitFor::LostJob | WaitFor::OtherName | WaitFor::Others => None,
    });
    let next = available.chain(retries).chain(update::next_useless(workers, slurm, now)).min()?;
    Some(Duration::from_secs(1) + Duration::try_from(next).unwrap_or_default())
}
