//! Timing: batches run out, half-open time ends, records expire, services start and stop.

use super::*;
use rstest::rstest;

const MILLI: Duration = Duration::from_millis(1);

fn just_under(seconds: u64) -> Duration {
    secs(seconds).saturating_sub(MILLI)
}

/// Whether a batch with these effects would be granted from a fresh view.
fn would_grant(service: &mut Service, ops: Ops) -> bool {
    let request = service.request("gpu", ops);
    matches!(service.begin(&request), Answer::NeedFresh(_))
}

#[rstest]
#[case::deletes(DELETE)]
#[case::drains(DRAIN)]
#[case::deletes_and_creates(BOTH)]
fn batch_that_does_more_than_create_blocks_all_batches_for_hold(#[case] ops: Ops) {
    let mut service = Service::settled();
    let batch = service.open("gpu", ops);
    service.advance(just_under(60));
    assert!(!would_grant(&mut service, CREATE));
    service.advance(MILLI);
    assert!(would_grant(&mut service, DELETE));
    assert_eq!(service.done(&batch), None, "a batch that ran out is unknown, never done");
}

#[test]
fn batch_that_only_creates_blocks_creates_for_the_lease_and_others_for_hold() {
    let mut service = Service::settled();
    let batch = service.open("gpu", CREATE);
    service.advance(just_under(25));
    assert!(!would_grant(&mut service, CREATE));
    service.advance(MILLI);
    assert!(would_grant(&mut service, CREATE) && !would_grant(&mut service, DELETE));
    assert_eq!(service.done(&batch), None);
    service.advance(just_under(35));
    assert!(would_grant(&mut service, CREATE) && !would_grant(&mut service, DELETE));
    service.advance(MILLI);
    assert!(would_grant(&mut service, DELETE));
}

#[test]
fn next_batch_may_follow_done_at_once() {
    let mut service = Service::settled();
    for ops in [CREATE, DELETE] {
        let batch = service.open("gpu", ops);
        let basis = service.done(&batch);
        let next = Begin { basis, ..service.request("gpu", DELETE) };
        assert_eq!(service.begin(&next), granted(0, 1), "the holder plans from its own results");
        service.done(&next);
    }
}

#[rstest]
#[case::done(CREATE, secs(0), true)]
#[case::ran_out(DELETE, secs(60), false)]
#[case::ran_out_half_open(CREATE, secs(25), false)]
#[case::half_open_ended(CREATE, secs(60), false)]
fn every_end_assigns_a_new_number(#[case] ops: Ops, #[case] after: Duration, #[case] done: bool) {
    let mut service = Service::settled();
    let batch = service.open("gpu", ops);
    if done {
        service.done(&batch);
    }
    service.advance(after);
    let next = Begin { basis: batch.basis.clone(), ..service.request("gpu", ops) };
    assert_ne!(Some(need_fresh(&service.begin(&next))), batch.basis);
}

#[test]
fn basis_from_half_open_time_is_stale_when_it_ends() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    service.advance(secs(25));
    let half_open = service.fresh_request("gpu", CREATE);
    service.advance(secs(35));
    assert_ne!(Some(need_fresh(&service.begin(&half_open))), half_open.basis);
}

#[test]
fn half_open_time_does_not_end_while_a_batch_is_open() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    service.advance(secs(50));
    let batch = service.open("gpu", CREATE);
    service.advance(secs(20));
    let closed = service.done(&batch);
    assert!(closed.is_some());
    let next = Begin { basis: closed.clone(), ..service.request("gpu", DELETE) };
    let fresh = need_fresh(&service.begin(&next));
    assert_ne!(Some(fresh), closed, "the holder's view may miss creates that landed in half-open time");
    assert_eq!(service.done(&batch), None, "Done is unknown once the number changed");
}

#[test]
fn basis_of_done_in_half_open_time_is_valid_for_creates() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    service.advance(secs(30));
    let batch = service.open("gpu", CREATE);
    let closed = service.done(&batch);
    let creates = Begin { basis: closed.clone(), ..service.request("gpu", CREATE) };
    assert_eq!(service.begin(&creates), granted(1, 0));
    service.done(&creates);
    let deletes = service.request("gpu", DELETE);
    wait(&service.begin(&deletes), WaitReason::HalfOpen);
}

#[test]
fn batch_that_runs_out_in_half_open_time_extends_it() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    service.advance(secs(50));
    service.open("gpu", CREATE);
    service.advance(secs(25));
    assert!(would_grant(&mut service, CREATE));
    service.advance(just_under(35));
    assert!(!would_grant(&mut service, DELETE), "half open until 110 s");
    service.advance(MILLI);
    assert!(would_grant(&mut service, DELETE));
}

#[test]
fn every_nodeset_is_half_open_at_the_start_of_an_epoch() {
    let mut service = Service::new(Predecessor::Unknown, Limits::default());
    let early = service.open("gpu", CREATE);
    let closed = service.done(&early);
    service.advance(just_under(60));
    let late = service.request("cpu", DELETE);
    wait(&service.begin(&late), WaitReason::HalfOpen);
    service.advance(MILLI);
    need_fresh(&service.begin(&late));
    let next = Begin { basis: closed.clone(), ..service.request("gpu", DELETE) };
    assert_ne!(
        Some(need_fresh(&service.begin(&next))),
        closed,
        "the end of half-open time assigns a new number"
    );
}

#[test]
fn epoch_after_a_settled_predecessor_does_not_start_half_open() {
    let mut service = Service::settled();
    service.open("gpu", BOTH);
}

#[test]
fn stopping_service_repeats_grants_and_answers_done_but_grants_no_new_batch() {
    let mut service = Service::settled();
    let open = service.open("gpu", DELETE);
    let ready = service.fresh_request("cpu", CREATE);
    service.machine.stop();
    wait(&service.begin(&ready), WaitReason::Stopping);
    assert_eq!(service.begin(&open), granted(0, 1));
    assert!(service.done(&open).is_some());
}

#[rstest]
#[case::ended(DELETE, true, secs(0), true)]
#[case::open(DELETE, false, secs(59), false)]
#[case::ran_out(DELETE, false, secs(60), true)]
#[case::half_open(CREATE, false, secs(59), false)]
#[case::half_open_ended(CREATE, false, secs(60), true)]
fn stopping_service_is_settled_when_every_write_has_landed(
    #[case] ops: Ops,
    #[case] done: bool,
    #[case] after: Duration,
    #[case] settled: bool,
) {
    let mut service = Service::settled();
    let batch = service.open("gpu", ops);
    if done {
        service.done(&batch);
    }
    service.machine.stop();
    service.advance(after);
    assert_eq!(service.machine.is_settled(service.now), settled);
}

#[test]
fn service_is_not_settled_while_it_grants_or_its_epoch_is_half_open() {
    let mut service = Service::new(Predecessor::Unknown, Limits::default());
    service.machine.stop();
    assert!(!service.machine.is_settled(just_under(60)));
    assert!(service.machine.is_settled(secs(60)));
    assert!(!Service::settled().machine.is_settled(secs(600)));
}

#[test]
fn record_expires_after_ten_minutes_without_a_begin() {
    let mut service = Service::settled();
    let known = service.fresh_request("gpu", CREATE);
    service.advance(just_under(600));
    assert_eq!(service.begin(&known), granted(1, 0));
    let basis = service.done(&known);

    service.advance(just_under(600));
    let second = Begin { basis, ..service.request("gpu", CREATE) };
    assert_eq!(service.begin(&second), granted(1, 0), "Begin extends the record's lifetime");
    let basis = service.done(&second);
    service.advance(secs(600));
    let next = Begin { basis: basis.clone(), ..service.request("gpu", CREATE) };
    assert_ne!(Some(need_fresh(&service.begin(&next))), basis);
    assert_eq!(service.done(&second), None);
}

#[test]
fn expired_record_is_removed_from_all_indexes() {
    let mut service = Service::settled();
    let (batch, other) = (service.open("gpu", CREATE), service.open("cpu", DELETE));
    service.done(&batch);
    service.machine.tick(secs(1200));
    assert_eq!(service.machine.records.iter().count(), 0);
    assert_eq!(service.machine.records, service.machine.records.reindexed());
    assert_eq!(service.machine.done(&other.batch, secs(1200)), None);
}

/// Also if hold is longer than the lifetime of a record.
#[test]
fn open_or_half_open_record_does_not_expire() {
    let timing = Timing { grace: secs(10_000), ..Timing::default() };
    let mut service = Service::settled();
    service.machine.timing = timing;
    service.open("gpu", CREATE);
    service.advance(secs(10_000));
    assert!(!would_grant(&mut service, DELETE));
    service.advance(secs(25));
    assert!(would_grant(&mut service, DELETE));
}

#[test]
fn clock_that_goes_back_does_not_shorten_a_batch() {
    let mut service = Service::settled();
    service.machine.tick(secs(100));
    service.now = secs(40);
    service.open("gpu", DELETE);
    service.now = secs(159);
    assert!(!would_grant(&mut service, CREATE));
    service.now = secs(160);
    assert!(would_grant(&mut service, CREATE));
}
