//! Every plan leads to rest: carried out again and again, there is nothing left to do, and it stays so.

use super::course::{Course, is_empty};
use super::properties::{Case, case, fixture};
use crate::plan::WaitFor;
use crate::worker::Worker;
use proptest::prelude::*;

/// More than any chain of drains, replacements and returns takes.
const ROUNDS: usize = 40;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn plans_come_to_rest(
        replicas in 0usize..5, max in 0usize..3, cases in prop::collection::vec(case(), 0..5)
    ) {
        let mut course = Course::of(fixture(replicas, max, &cases));
        let plan = course.until_rest(ROUNDS).map_err(TestCaseError::fail)?;
        let lasting = |awaited| matches!(awaited, WaitFor::LostJob | WaitFor::Others);
        prop_assert!(plan.waiting.iter().all(|waiting| lasting(waiting.for_)), "{:?}", plan.waiting);
        let lost = plan.waiting.iter().filter(|waiting| waiting.for_ == WaitFor::LostJob).count();
        prop_assert!(plan.workers.len() >= replicas && plan.workers.len() <= replicas + lost);
        prop_assert!(plan.workers.iter().all(Worker::is_alive));
    }

    #[test]
    fn rest_lasts(replicas in 0usize..5, cases in prop::collection::vec(case(), 0..5)) {
        let mut course = Course::of(fixture(replicas, 1, &cases));
        course.until_rest(ROUNDS).map_err(TestCaseError::fail)?;
        let much_later = crate::plan::plan(&course.fixture.observed, crate::plan::testing::minute(100_000));
        prop_assert!(is_empty(&much_later), "{:?}", much_later.effects);
        prop_assert_eq!(much_later.requeue_after, None, "nobody has to look again");
    }

    #[test]
    fn workers_that_can_be_replaced_are(
        replicas in 1usize..5, cases in prop::collection::vec(case(), 0..5)
    ) {
        // Whoever is not ready, unknown to Slurm, or was busy there, may keep others waiting.
        let well = |case: &Case| Case { status: "ready", slurm: Some(&["IDLE"]), mirrored: None, ..case.clone() };
        let cases: Vec<_> = cases.iter().map(well).collect();
        let mut course = Course::of(fixture(replicas, 1, &cases));
        let plan = course.until_rest(ROUNDS).map_err(TestCaseError::fail)?;
        let updated = plan.workers.iter().filter(|worker| worker.hash == plan.revisions.hash).count();
        prop_assert_eq!((updated, plan.workers.len()), (replicas, replicas));
    }
}
