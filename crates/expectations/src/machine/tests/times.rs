//! What time does: batches run out, half-open time ends, records are forgotten, services start and stop.

use super::*;
use rstest::rstest;

const MILLI: Duration = Duration::from_millis(1);

fn just_under(seconds: u64) -> Duration {
    secs(seconds).saturating_sub(MILLI)
}

/// Whether nothing but a fresh view is missing for a batch with these effects.
fn lets_in(service: &mut Service, ops: Ops) -> bool {
    let request = service.request("gpu", ops);
    matches!(service.begin(&request), Answer::NeedFresh(_))
}

#[rstest]
#[case::deletes(DELETE)]
#[case::drains(DRAIN)]
#[case::deletes_and_creates(BOTH)]
fn a_batch_that_does_more_than_create_blocks_everything_for_the_hold(#[case] ops: Ops) {
    let mut service = Service::settled();
    let batch = service.open("gpu", ops);
    service.pass(just_under(60));
    assert!(!lets_in(&mut service, CREATE));
    service.pass(MILLI);
    assert!(lets_in(&mut service, DELETE));
    assert_eq!(service.done(&batch), None, "ran out is unknown, never done");
}

#[test]
fn a_batch_that_only_creates_blocks_creates_for_the_lease_and_the_rest_for_the_hold() {
    let mut service = Service::settled();
    let batch = service.open("gpu", CREATE);
    service.pass(just_under(25));
    assert!(!lets_in(&mut service, CREATE));
    service.pass(MILLI);
    assert!(lets_in(&mut service, CREATE) && !lets_in(&mut service, DELETE));
    assert_eq!(service.done(&batch), None);
    service.pass(just_under(35));
    assert!(lets_in(&mut service, CREATE) && !lets_in(&mut service, DELETE));
    service.pass(MILLI);
    assert!(lets_in(&mut service, DELETE));
}

#[test]
fn a_batch_that_was_ended_leaves_nothing_behind() {
    let mut service = Service::settled();
    for ops in [CREATE, DELETE] {
        let batch = service.open("gpu", ops);
        let basis = service.done(&batch);
        let next = Begin { basis, ..service.request("gpu", DELETE) };
        assert_eq!(service.begin(&next), granted(0, 1), "the holder goes on from its own results");
        service.done(&next);
    }
}

#[rstest]
#[case::done(CREATE, secs(0), true)]
#[case::ran_out(DELETE, secs(60), false)]
#[case::ran_out_half_open(CREATE, secs(25), false)]
#[case::half_open_over(CREATE, secs(60), false)]
fn every_end_takes_a_new_number(#[case] ops: Ops, #[case] after: Duration, #[case] done: bool) {
    let mut service = Service::settled();
    let batch = service.open("gpu", ops);
    if done {
        service.done(&batch);
    }
    service.pass(after);
    let again = Begin { basis: batch.basis.clone(), ..service.request("gpu", ops) };
    assert_ne!(Some(need_fresh(&service.begin(&again))), batch.basis);
}

#[test]
fn a_view_of_half_open_time_is_stale_when_it_ends() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    service.pass(secs(25));
    let half_open = service.fresh_request("gpu", CREATE);
    service.pass(secs(35));
    assert_ne!(Some(need_fresh(&service.begin(&half_open))), half_open.basis);
}

#[test]
fn half_open_time_does_not_end_under_an_open_batch() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    service.pass(secs(50));
    let batch = service.open("gpu", CREATE);
    service.pass(secs(20));
    let closed = service.done(&batch);
    assert!(closed.is_some());
    let next = Begin { basis: closed.clone(), ..service.request("gpu", DELETE) };
    let fresh = need_fresh(&service.begin(&next));
    assert_ne!(Some(fresh), closed, "the view of the holder may miss what landed in half-open time");
    assert_eq!(service.done(&batch), None, "once the number changed, what was said is void");
}

#[test]
fn a_batch_that_ends_in_half_open_time_is_a_basis_until_that_is_over() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    service.pass(secs(30));
    let batch = service.open("gpu", CREATE);
    let closed = service.done(&batch);
    let creates = Begin { basis: closed.clone(), ..service.request("gpu", CREATE) };
    assert_eq!(service.begin(&creates), granted(1, 0));
    service.done(&creates);
    let deletes = service.request("gpu", DELETE);
    wait(&service.begin(&deletes), WaitReason::HalfOpen);
}

#[test]
fn a_batch_that_runs_out_in_half_open_time_prolongs_it() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    service.pass(secs(50));
    service.open("gpu", CREATE);
    service.pass(secs(25));
    assert!(lets_in(&mut service, CREATE));
    service.pass(just_under(35));
    assert!(!lets_in(&mut service, DELETE), "110 s have not passed");
    service.pass(MILLI);
    assert!(lets_in(&mut service, DELETE));
}

#[test]
fn an_epoch_starts_half_open_for_every_nodeset() {
    let mut service = Service::new(Predecessor::Unknown, Limits::default());
    let early = service.open("gpu", CREATE);
    let closed = service.done(&early);
    service.pass(just_under(60));
    let late = service.request("cpu", DELETE);
    wait(&service.begin(&late), WaitReason::HalfOpen);
    service.pass(MILLI);
    need_fresh(&service.begin(&late));
    let next = Begin { basis: closed.clone(), ..service.request("gpu", DELETE) };
    assert_ne!(Some(need_fresh(&service.begin(&next))), closed, "the end of the start is an end as well");
}

#[test]
fn a_settled_predecessor_leaves_nothing_to_wait_for() {
    let mut service = Service::settled();
    service.open("gpu", BOTH);
}

#[test]
fn a_stopping_service_grants_nothing_more_but_repeats_and_ends() {
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
#[case::half_open_over(CREATE, false, secs(60), true)]
fn a_stopping_service_is_settled_when_every_write_has_landed(
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
    service.pass(after);
    assert_eq!(service.machine.is_settled(service.now), settled);
}

#[test]
fn a_service_is_not_settled_before_it_stops_nor_before_its_start_is_over() {
    let mut service = Service::new(Predecessor::Unknown, Limits::default());
    service.machine.stop();
    assert!(!service.machine.is_settled(just_under(60)));
    assert!(service.machine.is_settled(secs(60)));
    assert!(!Service::settled().machine.is_settled(secs(600)));
}

#[test]
fn a_record_is_forgotten_after_ten_minutes_without_a_request() {
    let mut service = Service::settled();
    let known = service.fresh_request("gpu", CREATE);
    service.pass(just_under(600));
    assert_eq!(service.begin(&known), granted(1, 0));
    let basis = service.done(&known);

    service.pass(just_under(600));
    let asking = Begin { basis, ..service.request("gpu", CREATE) };
    assert_eq!(service.begin(&asking), granted(1, 0), "whoever asks is remembered");
    let basis = service.done(&asking);
    service.pass(secs(600));
    let next = Begin { basis: basis.clone(), ..service.request("gpu", CREATE) };
    assert_ne!(Some(need_fresh(&service.begin(&next))), basis);
    assert_eq!(service.done(&asking), None);
}

#[test]
fn a_forgotten_record_leaves_nothing_in_memory() {
    let mut service = Service::settled();
    let (batch, other) = (service.open("gpu", CREATE), service.open("cpu", DELETE));
    service.done(&batch);
    service.machine.tick(secs(1200));
    assert_eq!(service.machine.records.iter().count(), 0);
    assert_eq!(service.machine.records, service.machine.records.indexed_anew());
    assert_eq!(service.machine.done(&other.batch, secs(1200)), None);
}

/// Hold may be longer than memory; what is open or half open is never forgotten.
#[test]
fn what_is_open_or_half_open_is_not_forgotten() {
    let timing = Timing { grace: secs(10_000), ..Timing::default() };
    let mut service = Service::settled();
    service.machine.timing = timing;
    service.open("gpu", CREATE);
    service.pass(secs(10_000));
    assert!(!lets_in(&mut service, DELETE));
    service.pass(secs(25));
    assert!(lets_in(&mut service, DELETE));
}

#[test]
fn a_clock_that_goes_back_shortens_nothing() {
    let mut service = Service::settled();
    service.machine.tick(secs(100));
    service.now = secs(40);
    service.open("gpu", DELETE);
    service.now = secs(159);
    assert!(!lets_in(&mut service, CREATE));
    service.now = secs(160);
    assert!(lets_in(&mut service, CREATE));
}
