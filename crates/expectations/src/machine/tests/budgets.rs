//! Limits of effects in flight, shares and places.

use super::*;
use rstest::rstest;

fn creates(creates: u32) -> Ops {
    Ops { creates, ..Ops::default() }
}

fn limited(creates: u32, deletes: u32) -> Service {
    Service::new(Predecessor::Settled, Limits { creates, deletes })
}

/// Sends `Begin` as a replica does: with the basis of the `NeedFresh` answer.
fn begin_fresh(service: &mut Service, name: &str, ops: Ops) -> (Begin, Answer) {
    let request = service.fresh_request(name, ops);
    let answer = service.begin(&request);
    (request, answer)
}

#[rstest]
#[case::below_half_of_the_limit(creates(249), (249, 0))]
#[case::above_half_of_the_create_limit(creates(251), (250, 0))]
#[case::above_half_of_the_delete_limit(Ops { deletes: 126, ..Ops::default() }, (0, 125))]
#[case::kinds_are_limited_separately(Ops { creates: 9999, deletes: 9999, others: 9 }, (250, 125))]
#[case::others_count_towards_the_batch_limit(Ops { creates: 250, deletes: 125, others: 900 }, (100, 0))]
#[case::creates_take_precedence(Ops { creates: 250, deletes: 125, others: 700 }, (250, 50))]
#[case::others_are_not_cut(Ops { creates: 9, deletes: 9, others: 5000 }, (0, 0))]
#[case::empty_batch(Ops::default(), (0, 0))]
fn one_batch_is_limited(#[case] ops: Ops, #[case] (creates, deletes): (u32, u32)) {
    let mut service = Service::settled();
    assert_eq!(begin_fresh(&mut service, "gpu", ops).1, granted(creates, deletes));
}

#[test]
fn one_batch_has_at_most_a_thousand_ops() {
    let mut service = limited(1_000_000, 1_000_000);
    let ops = Ops { creates: 700, deletes: 700, others: 100 };
    assert_eq!(begin_fresh(&mut service, "gpu", ops).1, granted(700, 200));
}

/// Of 100 creates the n-th NodeSet gets at most 100/n, rounded up.
#[test]
fn shares_shrink_with_the_number_of_holders() {
    let mut service = limited(100, 0);
    let shares: Vec<Answer> =
        ["a", "b", "c"].map(|name| begin_fresh(&mut service, name, creates(100)).1).into_iter().collect();
    assert_eq!(shares, [granted(50, 0), granted(50, 0), shares[2].clone()]);
    wait(&shares[2], WaitReason::Budget);

    let mut service = limited(100, 0);
    for name in ["a", "b", "c", "d"] {
        begin_fresh(&mut service, name, creates(1));
    }
    assert_eq!(begin_fresh(&mut service, "e", creates(100)).1, granted(20, 0));
    assert_eq!(begin_fresh(&mut service, "f", creates(100)).1, granted(17, 0));
}

#[test]
fn shares_shrink_with_the_number_of_places() {
    let mut service = limited(100, 0);
    let holders = ["a", "b"].map(|name| begin_fresh(&mut service, name, creates(50)).0);
    let waiting = ["c", "d"].map(|name| begin_fresh(&mut service, name, creates(100)).0);
    service.done(&holders[0]);
    assert_eq!(service.begin(&waiting[0]), granted(34, 0), "a third: one holder and two places");
}

#[test]
fn holders_of_deletes_and_drains_do_not_shrink_shares_of_creates() {
    let mut service = limited(100, 100);
    for name in ["a", "b", "c", "d"] {
        begin_fresh(&mut service, name, DELETE);
        begin_fresh(&mut service, &format!("{name}-drains"), DRAIN);
    }
    assert_eq!(begin_fresh(&mut service, "e", creates(100)).1, granted(50, 0));
}

#[test]
fn limit_of_one_grants_one_and_limit_of_zero_grants_none() {
    assert_eq!(begin_fresh(&mut limited(1, 0), "gpu", creates(9)).1, granted(1, 0));
    wait(&begin_fresh(&mut limited(0, 0), "gpu", creates(9)).1, WaitReason::Budget);
}

/// A batch with other effects is granted with none of the kind whose budget is spent.
#[test]
fn spent_budget_does_not_block_other_effects() {
    let mut service = limited(0, 1);
    assert_eq!(begin_fresh(&mut service, "a", Ops { creates: 1, deletes: 0, others: 1 }).1, granted(0, 0));
    assert_eq!(begin_fresh(&mut service, "b", BOTH).1, granted(0, 1));
    wait(&begin_fresh(&mut service, "c", BOTH).1, WaitReason::Budget);
}

#[test]
fn places_are_served_in_order_of_arrival() {
    let mut service = limited(1, 0);
    let (holder, _) = begin_fresh(&mut service, "holder", creates(1));
    let waiting = ["a", "b", "c"].map(|name| begin_fresh(&mut service, name, creates(9)).0);
    service.done(&holder);
    for (turn, request) in waiting.iter().enumerate() {
        for later in waiting.iter().skip(turn + 1).rev() {
            wait(&service.begin(later), WaitReason::Budget);
        }
        wait(&begin_fresh(&mut service, "late", creates(1)).1, WaitReason::Budget);
        assert_eq!(service.begin(request), granted(1, 0));
        service.done(request);
    }
}

#[test]
fn one_op_is_reserved_for_each_place_ahead() {
    let mut service = limited(4, 0);
    let holders = ["p", "q", "r", "s"].map(|name| begin_fresh(&mut service, name, creates(1)).0);
    let waiting = ["a", "b", "c"].map(|name| begin_fresh(&mut service, name, creates(9)).0);
    service.done(&holders[0]);
    service.done(&holders[1]);
    // Two ops are free: the first two places are served in any order, the third is not.
    wait(&service.begin(&waiting[2]), WaitReason::Budget);
    assert_eq!(service.begin(&waiting[1]), granted(1, 0));
    assert_eq!(service.begin(&waiting[0]), granted(1, 0));
}

#[test]
fn place_is_lost_after_ten_seconds_without_a_request() {
    let mut service = limited(1, 0);
    let (holder, _) = begin_fresh(&mut service, "holder", creates(1));
    let absent = begin_fresh(&mut service, "absent", creates(1)).0;
    service.advance(secs(1));
    let present = begin_fresh(&mut service, "present", creates(1)).0;
    service.done(&holder);
    service.advance(Duration::from_millis(8999));
    wait(&service.begin(&present), WaitReason::Budget);
    service.advance(Duration::from_millis(1));
    assert_eq!(service.begin(&present), granted(1, 0));
    wait(&service.begin(&absent), WaitReason::Budget);
}

/// A NodeSet that is answered `NeedFresh` or `Wait` keeps its place.
#[test]
fn place_is_kept_by_a_request_independent_of_its_answer() {
    let mut service = limited(1, 0);
    let (holder, _) = begin_fresh(&mut service, "holder", creates(1));
    let first = begin_fresh(&mut service, "first", creates(1)).0;
    let second = begin_fresh(&mut service, "second", creates(1)).0;
    service.advance(secs(9));
    need_fresh(&service.begin(&Begin { basis: None, ..first.clone() }));
    service.begin(&second);
    service.advance(secs(9));
    service.done(&holder);
    wait(&service.begin(&second), WaitReason::Budget);
    assert_eq!(service.begin(&first), granted(1, 0));
}

#[test]
fn place_is_not_kept_by_a_request_of_another_kind() {
    let mut service = limited(1, 1);
    let (holder, _) = begin_fresh(&mut service, "holder", creates(1));
    let first = begin_fresh(&mut service, "first", creates(1)).0;
    let second = begin_fresh(&mut service, "second", creates(1)).0;
    service.advance(secs(9));
    service.done(&holder);
    wait(&service.begin(&second), WaitReason::Budget);
    service.begin(&Begin { ops: DELETE, basis: None, ..first });
    service.advance(secs(1));
    assert_eq!(service.begin(&second), granted(1, 0));
}
