//! What holds whatever happens.

use super::reference::{World, actions, used};
use super::*;
use crate::machine::OPS_PER_BATCH;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// No batch is granted while an earlier one of that NodeSet may have effects, nor from a view that misses any;
    /// what only creates, half open, excepted. No number is used twice, and no answer to an end is taken back.
    #[test]
    fn batches_are_kept_apart_and_views_are_complete(actions in actions()) {
        let mut world = World::new(Timing::default());
        for action in &actions {
            world.act(action)?;
        }
    }
}

/// The checker would be worth nothing if nothing were granted.
#[test]
fn the_world_of_the_checker_is_a_busy_one() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut grants = 0;
    for _ in 0..100 {
        let mut world = World::new(Timing::default());
        for action in actions().new_tree(&mut runner).unwrap().current() {
            world.act(&action).unwrap();
        }
        grants += world.grants;
    }
    assert!(grants > 500, "{grants} grants in 100 runs");
}

/// What an asker does at one moment.
#[derive(Clone, Debug)]
enum Move {
    Ask { asker: usize, ops: Ops },
    End { asker: usize },
    Pass(u64),
}

const ASKERS: usize = 12;

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let count = || prop_oneof![3 => 0..6_u32, 1 => Just(u32::MAX / 2)];
    let ops = (count(), count(), prop_oneof![4 => Just(0), 1 => 1..3_u32, 1 => 900..1100_u32]);
    let one = prop_oneof![
        8 => (0..ASKERS, ops).prop_map(|(asker, (creates, deletes, others))| {
            Move::Ask { asker, ops: Ops { creates, deletes, others } }
        }),
        3 => (0..ASKERS).prop_map(|asker| Move::End { asker }),
        2 => prop::sample::select(vec![0, 1, 3, 11, 26, 61]).prop_map(Move::Pass),
    ];
    prop::collection::vec(one, 1..150)
}

proptest! {
    #[test]
    fn budgets_are_never_exceeded(creates in 0..20_u32, deletes in 0..20_u32, moves in moves()) {
        let mut service = Service::new(Predecessor::Settled, Limits { creates, deletes });
        let mut held: Vec<Option<Begin>> = vec![None; ASKERS];
        for one in moves {
            match one {
                Move::Pass(seconds) => service.pass(secs(seconds)),
                Move::End { asker } => {
                    if let Some(request) = held[asker].take() {
                        service.done(&request);
                    }
                }
                Move::Ask { asker, ops } => {
                    let request = service.request(&format!("n{asker}"), ops);
                    let Answer::NeedFresh(basis) = service.begin(&request) else { continue };
                    let request = Begin { basis: Some(basis), ..request };
                    if let Answer::Granted(granted) = service.begin(&request) {
                        prop_assert!(granted.creates <= ops.creates.min((creates / 2).max(1)));
                        prop_assert!(granted.deletes <= ops.deletes.min((deletes / 2).max(1)));
                        let all = granted.creates + granted.deletes + ops.others;
                        prop_assert!(all <= OPS_PER_BATCH.max(ops.others));
                        held[asker] = Some(request);
                    }
                }
            }
            let open = service.machine.status(service.now).open;
            let (created, deleted) = (
                used(open.iter().map(|batch| batch.granted.creates)),
                used(open.iter().map(|batch| batch.granted.deletes)),
            );
            prop_assert!(created.0 <= creates && deleted.0 <= deletes, "{open:?}");
            prop_assert_eq!((service.machine.creates.used(), service.machine.deletes.used()), (created, deleted));
        }
    }
}

/// NodeSets that want one create each and end it at once, while one always wants everything and holds on to it.
struct Crowd {
    service: Service,
    limit: u32,
    modest: Vec<Begin>,
    greedy: Option<Begin>,
    served: BTreeSet<usize>,
}

impl Crowd {
    fn new(limit: u32, askers: usize) -> Self {
        let mut service = Service::new(Predecessor::Settled, Limits { creates: limit, deletes: 0 });
        let modest = (0..askers).map(|asker| service.fresh_request(&format!("n{asker}"), CREATE)).collect();
        Self { service, limit, modest, greedy: None, served: BTreeSet::new() }
    }

    /// Takes what there is to take, and ends what it took in the round before.
    fn greedy_asks(&mut self) {
        if let Some(held) = self.greedy.take() {
            self.service.done(&held);
        }
        let everything = Ops { creates: u32::MAX, ..Ops::default() };
        let request = self.service.fresh_request("greedy", everything);
        if matches!(self.service.begin(&request), Answer::Granted(_)) {
            self.greedy = Some(request);
        }
    }

    /// Asks for one, and checks that the rule of places decided. The holder keeps it until the end of the round.
    fn modest_asks(&mut self, asker: usize) -> Result<(), TestCaseError> {
        let request = &self.modest[asker];
        let queue = self.service.machine.creates.queue();
        let ahead = queue.iter().position(|place| **place == request.nodeset).unwrap_or(queue.len());
        let (in_flight, _) = self.service.machine.creates.used();
        let free = usize::try_from(self.limit - in_flight).unwrap();
        let served = self.service.machine.begin(request, self.service.now) == granted(1, 0);
        prop_assert_eq!(served, free > ahead, "{} free, {} ahead", free, ahead);
        if served {
            self.served.insert(asker);
        }
        Ok(())
    }

    /// One second in which all ask in some order.
    fn round(&mut self, order: &[usize]) -> Result<(), TestCaseError> {
        self.greedy_asks();
        let before = self.served.clone();
        for asker in order.iter().filter(|asker| !before.contains(asker)) {
            self.modest_asks(*asker)?;
        }
        for asker in self.served.difference(&before) {
            self.service.machine.done(&self.modest[*asker].batch, self.service.now);
        }
        self.service.pass(secs(1));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// The order of asking changes nothing: whoever came first is served first, and the greedy starves nobody.
    #[test]
    fn a_thousand_askers_are_served_beside_one_that_wants_everything(
        order in Just((0..1000).collect::<Vec<usize>>()).prop_shuffle(),
        limit in prop::sample::select(vec![100, 500]),
    ) {
        let mut crowd = Crowd::new(limit, order.len());
        let in_reverse: Vec<usize> = order.iter().rev().copied().collect();
        let rounds = 2 * order.len() / usize::try_from(limit).unwrap() + 3;
        for round in 0..rounds {
            crowd.round(if round % 2 == 0 { &order } else { &in_reverse })?;
        }
        prop_assert_eq!(crowd.served.len(), order.len(), "in {} rounds", rounds);
    }

    /// With one op to share the order is strict.
    #[test]
    fn turns_are_taken_in_the_order_of_places(
        first in Just((0..40).collect::<Vec<usize>>()).prop_shuffle(),
        then in Just((0..40).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let mut crowd = Crowd::new(1, first.len());
        crowd.round(&first)?;
        let queue: Vec<NodeSetName> = crowd.service.machine.creates.queue().into_iter().cloned().collect();
        prop_assert_eq!(queue.len(), first.len());
        let mut turns = Vec::new();
        // The greedy one gets its turn as well.
        for _ in 0..2 * first.len() {
            let before = crowd.served.clone();
            crowd.round(&then)?;
            turns.extend(crowd.served.difference(&before).map(|asker| crowd.modest[*asker].nodeset.clone()));
        }
        prop_assert_eq!(turns, queue);
    }
}
