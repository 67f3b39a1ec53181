//! Repeatedly executed plans converge: in the end there is nothing left to do, and it stays so.

use super::cluster_model::{ClusterModel, is_empty};
use super::properties::{Case, case, fixture};
use crate::plan::WaitFor;
use crate::worker::Worker;
use proptest::prelude::*;

/// More rounds than any sequence of drains, replacements and undrains takes.
const ROUNDS: usize = 40;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn plans_converge(
        replicas in 0usize..5, max in 0usize..3, cases in prop::collection::vec(case(), 0..5)
    ) {
        let mut model = ClusterModel::of(fixture(replicas, max, &cases));
        let plan = model.converge(ROUNDS).map_err(TestCaseError::fail)?;
        let lasting = |awaited| matches!(awaited, WaitFor::LostJob | WaitFor::Others);
        prop_assert!(plan.waiting.iter().all(|waiting| lasting(waiting.for_)), "{:?}", plan.waiting);
        let lost = plan.waiting.iter().filter(|waiting| waiting.for_ == WaitFor::LostJob).count();
        prop_assert!(plan.workers.len() >= replicas && plan.workers.len() <= replicas + lost);
        prop_assert!(plan.workers.iter().all(Worker::is_alive));
    }

    #[test]
    fn converged_state_is_stable(replicas in 0usize..5, cases in prop::collection::vec(case(), 0..5)) {
        let mut model = ClusterModel::of(fixture(replicas, 1, &cases));
        model.converge(ROUNDS).map_err(TestCaseError::fail)?;
        let much_later = crate::plan::plan(&model.fixture.observed, crate::plan::testing::minute(100_000));
        prop_assert!(is_empty(&much_later), "{:?}", much_later.effects);
        prop_assert_eq!(much_later.requeue_after, None, "no requeue is needed");
    }

    #[test]
    fn outdated_workers_are_replaced(
        replicas in 1usize..5, cases in prop::collection::vec(case(), 0..5)
    ) {
        // A worker that is not ready, unregistered, cordoned or drained by a person, or was busy may block the update of others.
        let healthy = |case: &Case| Case {
            status: "ready",
            slurm: Some(&["IDLE"]),
            mirrored: None,
            mark: case.mark.filter(|cause| !cause.is_empty()),
            reason: "",
            ..case.clone()
        };
        let cases: Vec<_> = cases.iter().map(healthy).collect();
        let mut model = ClusterModel::of(fixture(replicas, 1, &cases));
        let plan = model.converge(ROUNDS).map_err(TestCaseError::fail)?;
        let updated = plan.workers.iter().filter(|worker| worker.hash == plan.revisions.hash).count();
        prop_assert_eq!((updated, plan.workers.len()), (replicas, replicas));
    }
}
