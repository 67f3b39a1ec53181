//! Properties of the machine under random messages, faults and timing.

use super::simulation::{Simulation, actions, usage_of};
use super::*;
use crate::machine::OPS_PER_BATCH;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// No batch is granted while a write of an earlier batch of that NodeSet may land, nor from a view that misses
    /// one; except batches that only create, granted half open. No number is used twice, and a repeated `Done` never
    /// gets another basis.
    #[test]
    fn batches_do_not_overlap_and_views_are_complete(actions in actions()) {
        let mut simulation = Simulation::new(Timing::default());
        for action in &actions {
            simulation.act(action)?;
        }
    }
}

/// The property above would hold trivially without grants.
#[test]
fn simulation_grants_many_batches() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut grants = 0;
    for _ in 0..100 {
        let mut simulation = Simulation::new(Timing::default());
        for action in actions().new_tree(&mut runner).unwrap().current() {
            simulation.act(&action).unwrap();
        }
        grants += simulation.grants;
    }
    assert!(grants > 500, "{grants} grants in 100 runs");
}

/// One step of the budget test; NodeSets are numbered.
#[derive(Clone, Debug)]
enum Step {
    Begin { nodeset: usize, ops: Ops },
    Done { nodeset: usize },
    Advance(u64),
}

const NODESETS: usize = 12;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let count = || prop_oneof![3 => 0..6_u32, 1 => Just(u32::MAX / 2)];
    let ops = (count(), count(), prop_oneof![4 => Just(0), 1 => 1..3_u32, 1 => 900..1100_u32]);
    let step = prop_oneof![
        8 => (0..NODESETS, ops).prop_map(|(nodeset, (creates, deletes, others))| {
            Step::Begin { nodeset, ops: Ops { creates, deletes, others } }
        }),
        3 => (0..NODESETS).prop_map(|nodeset| Step::Done { nodeset }),
        2 => prop::sample::select(vec![0, 1, 3, 11, 26, 61]).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #[test]
    fn budgets_are_never_exceeded(creates in 0..20_u32, deletes in 0..20_u32, steps in steps()) {
        let mut service = Service::new(Predecessor::Settled, Limits { creates, deletes });
        let mut held: Vec<Option<Begin>> = vec![None; NODESETS];
        for step in steps {
            match step {
                Step::Advance(seconds) => service.advance(secs(seconds)),
                Step::Done { nodeset } => {
                    if let Some(request) = held[nodeset].take() {
                        service.done(&request);
                    }
                }
                Step::Begin { nodeset, ops } => {
                    let request = service.request(&format!("n{nodeset}"), ops);
                    let Answer::NeedFresh(basis) = service.begin(&request) else { continue };
                    let request = Begin { basis: Some(basis), ..request };
                    if let Answer::Granted(granted) = service.begin(&request) {
                        prop_assert!(granted.creates <= ops.creates.min((creates / 2).max(1)));
                        prop_assert!(granted.deletes <= ops.deletes.min((deletes / 2).max(1)));
                        let all = granted.creates + granted.deletes + ops.others;
                        prop_assert!(all <= OPS_PER_BATCH.max(ops.others));
                        held[nodeset] = Some(request);
                    }
                }
            }
            let open = service.machine.status(service.now).open;
            let create_usage = usage_of(open.iter().map(|batch| batch.granted.creates));
            let delete_usage = usage_of(open.iter().map(|batch| batch.granted.deletes));
            prop_assert!(create_usage.0 <= creates && delete_usage.0 <= deletes, "{open:?}");
            prop_assert_eq!(service.machine.creates.usage(), create_usage);
            prop_assert_eq!(service.machine.deletes.usage(), delete_usage);
        }
    }
}

/// Many NodeSets that request one create each and end it at once, and one that always requests and holds the maximum.
struct Contention {
    service: Service,
    limit: u32,
    small: Vec<Begin>,
    large: Option<Begin>,
    served: BTreeSet<usize>,
}

impl Contention {
    fn new(limit: u32, nodesets: usize) -> Self {
        let mut service = Service::new(Predecessor::Settled, Limits { creates: limit, deletes: 0 });
        let small =
            (0..nodesets).map(|number| service.fresh_request(&format!("n{number}"), CREATE)).collect();
        Self { service, limit, small, large: None, served: BTreeSet::new() }
    }

    /// Ends the large batch of the previous round and requests the maximum again.
    fn begin_large(&mut self) {
        if let Some(held) = self.large.take() {
            self.service.done(&held);
        }
        let maximum = Ops { creates: u32::MAX, ..Ops::default() };
        let request = self.service.fresh_request("large", maximum);
        if matches!(self.service.begin(&request), Answer::Granted(_)) {
            self.large = Some(request);
        }
    }

    /// Requests one create, and checks that it is granted exactly if more ops are free than places are ahead. The batch
    /// is open until the end of the round.
    fn begin_small(&mut self, nodeset: usize) -> Result<(), TestCaseError> {
        let request = &self.small[nodeset];
        let queue = self.service.machine.creates.queue();
        let ahead = queue.iter().position(|place| **place == request.nodeset).unwrap_or(queue.len());
        let (in_flight, _) = self.service.machine.creates.usage();
        let free = usize::try_from(self.limit - in_flight).unwrap();
        let served = self.service.machine.begin(request, self.service.now) == granted(1, 0);
        prop_assert_eq!(served, free > ahead, "{} free, {} ahead", free, ahead);
        if served {
            self.served.insert(nodeset);
        }
        Ok(())
    }

    /// One second in which all NodeSets send `Begin`, in this order.
    fn round(&mut self, order: &[usize]) -> Result<(), TestCaseError> {
        self.begin_large();
        let before = self.served.clone();
        for nodeset in order.iter().filter(|nodeset| !before.contains(nodeset)) {
            self.begin_small(*nodeset)?;
        }
        for nodeset in self.served.difference(&before) {
            self.service.machine.done(&self.small[*nodeset].batch, self.service.now);
        }
        self.service.advance(secs(1));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// In any order of requests, NodeSets are served in order of their places.
    #[test]
    fn thousand_small_requests_are_served_beside_one_that_always_requests_the_maximum(
        order in Just((0..1000).collect::<Vec<usize>>()).prop_shuffle(),
        limit in prop::sample::select(vec![100, 500]),
    ) {
        let mut contention = Contention::new(limit, order.len());
        let reversed: Vec<usize> = order.iter().rev().copied().collect();
        let rounds = 2 * order.len() / usize::try_from(limit).unwrap() + 3;
        for round in 0..rounds {
            contention.round(if round % 2 == 0 { &order } else { &reversed })?;
        }
        prop_assert_eq!(contention.served.len(), order.len(), "in {} rounds", rounds);
    }

    /// With a limit of one op the order is strict.
    #[test]
    fn places_are_served_in_their_order(
        first in Just((0..40).collect::<Vec<usize>>()).prop_shuffle(),
        later in Just((0..40).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let mut contention = Contention::new(1, first.len());
        contention.round(&first)?;
        let queue: Vec<NodeSetName> = contention.service.machine.creates.queue().into_iter().cloned().collect();
        prop_assert_eq!(queue.len(), first.len());
        let mut served = Vec::new();
        // The large NodeSet takes turns as well.
        for _ in 0..2 * first.len() {
            let before = contention.served.clone();
            contention.round(&later)?;
            let new = contention.served.difference(&before);
            served.extend(new.map(|nodeset| contention.small[*nodeset].nodeset.clone()));
        }
        prop_assert_eq!(served, queue);
    }
}
