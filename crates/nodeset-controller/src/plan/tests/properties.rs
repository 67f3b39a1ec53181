//! Properties of every plan.

use crate::plan::effect::{Effect, Evidence};
use crate::plan::fixture::Fixture;
use crate::plan::{Plan, WaitFor};
use crate::slurm::{NodeLookup, View};
use crate::worker::{Cause, Worker};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// One worker: its revision, mark, phase, Slurm node, and mirrored state.
#[derive(Clone, Debug)]
pub struct Case {
    pub old: bool,
    pub mark: Option<&'static str>,
    pub status: &'static str,
    pub slurm: Option<&'static [&'static str]>,
    pub reason: &'static str,
    pub mirrored: Option<&'static str>,
    pub terminating: bool,
}

pub fn case() -> impl Strategy<Value = Case> {
    let states: Vec<Option<&'static [&'static str]>> = vec![
        None,
        Some(&["IDLE"]),
        Some(&["MIXED"]),
        Some(&["IDLE", "DRAIN"]),
        Some(&["ALLOCATED", "DRAIN"]),
        Some(&["DOWN"]),
        Some(&["DOWN", "DRAIN"]),
    ];
    (
        any::<bool>(),
        select(vec![None, Some("scale-in"), Some("update"), Some("node"), Some("")]),
        select(vec!["ready", "ready", "ready", "unready", "pending", "failed"]),
        select(states),
        select(vec!["", "slurm-operator: x", "disk"]),
        select(vec![None, Some("Idle"), Some("Mixed")]),
        proptest::bool::weighted(0.1),
    )
        .prop_map(|(old, mark, status, slurm, reason, mirrored, terminating)| Case {
            old,
            mark,
            status,
            slurm,
            reason,
            mirrored,
            terminating,
        })
}

pub fn pod(case: &Case) -> Value {
    let mut change = json!({ "metadata": {}, "status": {} });
    if case.old {
        change["metadata"]["labels"] = json!({ "controller.kubernetes.io/hash": "old" });
    }
    if let Some(by) = case.mark {
        change["metadata"]["annotations"] = json!({ "nodeset.slinky.slurm.net/pod-cordon": "true",
            "nodeset.slinky.slurm.net/pod-cordon-by": if by.is_empty() { Value::Null } else { json!(by) } });
    }
    if case.terminating {
        change["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    }
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2023-03-28T00:00:00Z" });
    let mut conditions = if case.status == "ready" { vec![ready] } else { vec![] };
    conditions.extend(
        case.mirrored.map(|state| json!({ "type": format!("SlurmNodeState{state}"), "status": "True" })),
    );
    change["status"]["conditions"] = json!(conditions);
    match case.status {
        "pending" => {
            change["status"]["phase"] = json!("Pending");
            change["status"]["containerStatuses"] = json!([]);
        }
        "failed" => change["status"]["phase"] = json!("Failed"),
        _ => {}
    }
    change
}

pub fn fixture(replicas: usize, max_unavailable: usize, cases: &[Case]) -> Fixture {
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": max_unavailable } });
    let mut fixture = Fixture::new(&json!({ "replicas": replicas, "updateStrategy": strategy }));
    for (ordinal, case) in cases.iter().enumerate() {
        let name = format!("gpu-{ordinal}");
        fixture = fixture.worker(&name, &pod(case));
        if let Some(states) = case.slurm {
            fixture = fixture.slurm(&name, states, case.reason);
        }
    }
    fixture
}

fn worker<'a>(plan: &'a Plan, name: &str) -> &'a Worker {
    plan.workers.iter().find(|worker| worker.name() == name).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn pods_never_exceed_replicas(replicas in 0usize..6, cases in prop::collection::vec(case(), 0..6)) {
        let plan = fixture(replicas, 1, &cases).plan();
        let creates = plan.effects.iter().filter(|effect| effect.is_create()).count();
        prop_assert!(creates == 0 || plan.workers.len() + creates <= replicas);
    }

    #[test]
    fn pod_with_job_is_never_deleted(replicas in 0usize..6, cases in prop::collection::vec(case(), 0..6)) {
        let fixture = fixture(replicas, 1, &cases);
        let plan = fixture.plan();
        for effect in &plan.effects {
            let Effect::DeletePod(deletion) = effect else { continue };
            let worker = worker(&plan, &deletion.pod.name);
            match (&deletion.evidence, fixture.observed.slurm.lookup(&worker.slurm_name)) {
                (Evidence::Drained { .. }, NodeLookup::Present(node)) => {
                    prop_assert!(node.is_drained());
                    prop_assert!(matches!(worker.cordon, crate::worker::Cordon::Ours(_)), "the worker has no mark");
                }
                (Evidence::Absent { .. }, NodeLookup::Absent) => prop_assert!(!worker.was_busy()),
                (Evidence::NotNeeded, _) => prop_assert!(worker.is_finished() || !worker.started),
                (evidence, lookup) => prop_assert!(false, "{evidence:?} with {lookup:?}"),
            }
        }
    }

    #[test]
    fn update_respects_max_unavailable(
        replicas in 1usize..6, max in 0usize..4, cases in prop::collection::vec(case(), 0..6)
    ) {
        let plan = fixture(replicas, max, &cases).plan();
        let now = crate::plan::testing::minute(60);
        let is_serving = |worker: &Worker| worker.is_alive() && worker.is_available(jiff::SignedDuration::ZERO, now);
        let available = plan.workers.iter().filter(|worker| is_serving(worker)).count();
        let deleted = |why: fn(&crate::plan::DeleteReason) -> bool| plan.effects.iter().filter(|effect| {
            matches!(effect, Effect::DeletePod(deletion) if why(&deletion.why) && is_serving(worker(&plan, &deletion.pod.name)))
        }).count();
        let updated = deleted(|why| matches!(why, crate::plan::DeleteReason::Outdated | crate::plan::DeleteReason::Unregistered));
        let all = deleted(|_| true);
        prop_assert!(updated == 0 || available - all >= replicas.saturating_sub(max.min(replicas)));
    }

    #[test]
    fn foreign_drain_is_never_undone(replicas in 0usize..6, cases in prop::collection::vec(case(), 0..6)) {
        let fixture = fixture(replicas, 1, &cases);
        let plan = fixture.plan();
        for effect in &plan.effects {
            if let Effect::Uncordon { undo: Some(undo), .. } = effect {
                let (crate::plan::Undo::Undrain(name) | crate::plan::Undo::Resume(name)) = undo;
                let NodeLookup::Present(node) = fixture.observed.slurm.lookup(name) else { panic!("the node is not present") };
                prop_assert!(node.reason.starts_with("slurm-operator: "), "{node:?}");
            }
            if let Effect::Cordon { drain: Some(drain), .. } | Effect::Drain(drain) = effect {
                let NodeLookup::Present(node) = fixture.observed.slurm.lookup(&drain.node) else { panic!("the node is not present") };
                prop_assert!(node.reason != "disk" || drain.reason.is_empty(), "{node:?}");
            }
        }
    }

    #[test]
    fn unreachable_slurm_protects_started_workers(
        replicas in 0usize..6, cases in prop::collection::vec(case(), 0..6)
    ) {
        let plan = fixture(replicas, 1, &cases).unknown().plan();
        for effect in &plan.effects {
            if let Effect::DeletePod(deletion) = effect {
                let worker = worker(&plan, &deletion.pod.name);
                prop_assert!(worker.is_finished() || (!worker.started && !worker.was_registered()));
            } else {
                prop_assert!(effect.is_create(), "{effect:?}");
            }
        }
        for mirror in &plan.pod_mirrors {
            prop_assert!(mirror.ended.is_empty());
            prop_assert!(!mirror.labels.contains_key(slinky_api::labels::POD_PROTECT));
        }
    }

    #[test]
    fn plan_is_independent_of_pod_order(
        replicas in 0usize..6, cases in prop::collection::vec(case(), 0..6), seed in any::<u64>()
    ) {
        let mut fixture = fixture(replicas, 1, &cases);
        let before = fixture.effects();
        let count = fixture.observed.pods.len().max(1);
        fixture.observed.pods.rotate_left(usize::try_from(seed % 7).unwrap() % count);
        prop_assert_eq!(before, fixture.effects());
    }

    #[test]
    fn every_surplus_worker_is_removed_or_waits(
        replicas in 0usize..6, cases in prop::collection::vec(case(), 0..6)
    ) {
        let plan = fixture(replicas, 1, &cases).plan();
        let alive = plan.workers.iter().filter(|worker| worker.is_alive()).count();
        let removed = plan.effects.iter().filter(|effect| matches!(effect,
            Effect::Cordon { cause: Cause::ScaleIn, .. })
            || matches!(effect, Effect::DeletePod(deletion) if deletion.why == crate::plan::DeleteReason::Surplus)).count();
        let waiting = plan.waiting.iter().filter(|waiting| !matches!(waiting.for_, WaitFor::Backoff(_))).count();
        prop_assert!(removed + waiting >= alive.saturating_sub(replicas));
    }
}

#[test]
fn unreachable_slurm_is_unknown_not_absent() {
    assert_eq!(View::unreachable(String::new()).lookup("any"), NodeLookup::Unknown);
}
