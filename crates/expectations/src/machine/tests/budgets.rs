//! What may be in flight, and whose turn it is.

use super::*;
use rstest::rstest;

fn creates(creates: u32) -> Ops {
    Ops { creates, ..Ops::default() }
}

fn limited(creates: u32, deletes: u32) -> Service {
    Service::new(Predecessor::Settled, Limits { creates, deletes })
}

/// Asks as a replica does: with the basis of the first answer.
fn ask(service: &mut Service, name: &str, ops: Ops) -> (Begin, Answer) {
    let request = service.fresh_request(name, ops);
    let answer = service.begin(&request);
    (request, answer)
}

#[rstest]
#[case::all_of_little(creates(249), (249, 0))]
#[case::half_of_the_creates(creates(251), (250, 0))]
#[case::half_of_the_deletes(Ops { deletes: 126, ..Ops::default() }, (0, 125))]
#[case::each_kind_by_itself(Ops { creates: 9999, deletes: 9999, others: 9 }, (250, 125))]
#[case::others_count_towards_a_batch(Ops { creates: 250, deletes: 125, others: 900 }, (100, 0))]
#[case::creates_come_first(Ops { creates: 250, deletes: 125, others: 700 }, (250, 50))]
#[case::others_are_not_cut(Ops { creates: 9, deletes: 9, others: 5000 }, (0, 0))]
#[case::nothing(Ops::default(), (0, 0))]
fn one_batch_gets_so_much(#[case] ops: Ops, #[case] (creates, deletes): (u32, u32)) {
    let mut service = Service::settled();
    assert_eq!(ask(&mut service, "gpu", ops).1, granted(creates, deletes));
}

#[test]
fn one_batch_has_a_thousand_ops_however_high_the_limits_are() {
    let mut service = limited(1_000_000, 1_000_000);
    let ops = Ops { creates: 700, deletes: 700, others: 100 };
    assert_eq!(ask(&mut service, "gpu", ops).1, granted(700, 200));
}

/// 100 creates: the n-th asker gets a share of 100/n, rounded up, of what is left.
#[test]
fn shares_shrink_with_the_number_of_those_who_hold_something() {
    let mut service = limited(100, 0);
    let shares: Vec<Answer> =
        ["a", "b", "c"].map(|name| ask(&mut service, name, creates(100)).1).into_iter().collect();
    assert_eq!(shares, [granted(50, 0), granted(50, 0), shares[2].clone()]);
    wait(&shares[2], WaitReason::Budget);

    let mut service = limited(100, 0);
    for name in ["a", "b", "c", "d"] {
        ask(&mut service, name, creates(1));
    }
    assert_eq!(ask(&mut service, "e", creates(100)).1, granted(20, 0));
    assert_eq!(ask(&mut service, "f", creates(100)).1, granted(17, 0));
}

#[test]
fn shares_leave_room_for_those_who_wait() {
    let mut service = limited(100, 0);
    let holders = ["a", "b"].map(|name| ask(&mut service, name, creates(50)).0);
    let waiting = ["c", "d"].map(|name| ask(&mut service, name, creates(100)).0);
    service.done(&holders[0]);
    assert_eq!(service.begin(&waiting[0]), granted(34, 0), "a third: one holds, two wait");
}

#[test]
fn holders_of_one_kind_take_no_share_of_the_other() {
    let mut service = limited(100, 100);
    for name in ["a", "b", "c", "d"] {
        ask(&mut service, name, DELETE);
        ask(&mut service, &format!("{name}-drains"), DRAIN);
    }
    assert_eq!(ask(&mut service, "e", creates(100)).1, granted(50, 0));
}

#[test]
fn the_smallest_limit_still_serves_one_and_no_limit_serves_nobody() {
    assert_eq!(ask(&mut limited(1, 0), "gpu", creates(9)).1, granted(1, 0));
    wait(&ask(&mut limited(0, 0), "gpu", creates(9)).1, WaitReason::Budget);
}

/// With other work to do a batch is granted all the same, with nothing of the kind that is spent.
#[test]
fn a_spent_budget_does_not_hold_up_other_work() {
    let mut service = limited(0, 1);
    assert_eq!(ask(&mut service, "a", Ops { creates: 1, deletes: 0, others: 1 }).1, granted(0, 0));
    assert_eq!(ask(&mut service, "b", BOTH).1, granted(0, 1));
    wait(&ask(&mut service, "c", BOTH).1, WaitReason::Budget);
}

#[test]
fn places_are_served_first_come_first_served() {
    let mut service = limited(1, 0);
    let (holder, _) = ask(&mut service, "holder", creates(1));
    let waiting = ["a", "b", "c"].map(|name| ask(&mut service, name, creates(9)).0);
    service.done(&holder);
    for (turn, request) in waiting.iter().enumerate() {
        for behind in waiting.iter().skip(turn + 1).rev() {
            wait(&service.begin(behind), WaitReason::Budget);
        }
        wait(&ask(&mut service, "late", creates(1)).1, WaitReason::Budget);
        assert_eq!(service.begin(request), granted(1, 0));
        service.done(request);
    }
}

#[test]
fn one_op_is_kept_for_each_place_ahead() {
    let mut service = limited(4, 0);
    let holders = ["p", "q", "r", "s"].map(|name| ask(&mut service, name, creates(1)).0);
    let waiting = ["a", "b", "c"].map(|name| ask(&mut service, name, creates(9)).0);
    service.done(&holders[0]);
    service.done(&holders[1]);
    // Two are free, so the first two may go in any order, and the third may not.
    wait(&service.begin(&waiting[2]), WaitReason::Budget);
    assert_eq!(service.begin(&waiting[1]), granted(1, 0));
    assert_eq!(service.begin(&waiting[0]), granted(1, 0));
}

#[test]
fn a_place_is_lost_when_nobody_asks_for_it_for_ten_seconds() {
    let mut service = limited(1, 0);
    let (holder, _) = ask(&mut service, "holder", creates(1));
    let gone = ask(&mut service, "gone", creates(1)).0;
    service.pass(secs(1));
    let stays = ask(&mut service, "stays", creates(1)).0;
    service.done(&holder);
    service.pass(Duration::from_millis(8999));
    wait(&service.begin(&stays), WaitReason::Budget);
    service.pass(Duration::from_millis(1));
    assert_eq!(service.begin(&stays), granted(1, 0));
    wait(&service.begin(&gone), WaitReason::Budget);
}

/// Whoever has to read again, or is blocked by a batch, has not given up.
#[test]
fn a_place_is_kept_by_asking_whatever_the_answer() {
    let mut service = limited(1, 0);
    let (holder, _) = ask(&mut service, "holder", creates(1));
    let first = ask(&mut service, "first", creates(1)).0;
    let second = ask(&mut service, "second", creates(1)).0;
    service.pass(secs(9));
    need_fresh(&service.begin(&Begin { basis: None, ..first.clone() }));
    service.begin(&second);
    service.pass(secs(9));
    service.done(&holder);
    wait(&service.begin(&second), WaitReason::Budget);
    assert_eq!(service.begin(&first), granted(1, 0));
}

#[test]
fn asking_for_something_else_keeps_no_place() {
    let mut service = limited(1, 1);
    let (holder, _) = ask(&mut service, "holder", creates(1));
    let first = ask(&mut service, "first", creates(1)).0;
    let second = ask(&mut service, "second", creates(1)).0;
    service.pass(secs(9));
    service.done(&holder);
    wait(&service.begin(&second), WaitReason::Budget);
    service.begin(&Begin { ops: DELETE, basis: None, ..first });
    service.pass(secs(1));
    assert_eq!(service.begin(&second), granted(1, 0));
}
