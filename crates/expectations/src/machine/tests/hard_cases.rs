//! Lost, late and repeated messages, and replicas that change their minds.

use super::*;
use crate::messages::{Counters, OpenBatch, WaitingNodeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

#[test]
fn a_repeated_done_gets_the_basis_of_the_first_answer_until_the_number_changes() {
    let mut service = Service::settled();
    let first = service.open("gpu", CREATE);
    let closed = service.done(&first);
    assert_eq!(service.done(&first), closed);

    let second = Begin { basis: closed.clone(), ..service.request("gpu", CREATE) };
    assert_eq!(service.begin(&second), granted(1, 0));
    assert_eq!(service.done(&first), closed, "a late copy does not end the next batch");
    assert_eq!(service.begin(&second), granted(1, 0));

    let next = service.done(&second);
    assert_ne!(next, closed);
    assert_eq!(service.done(&first), None);
    assert_eq!(service.done(&second), next);
}

#[test]
fn done_of_a_batch_that_never_was_is_unknown() {
    let mut service = Service::settled();
    let asked = service.fresh_request("gpu", CREATE);
    assert_eq!(service.done(&asked), None);
    assert_eq!(service.begin(&asked), granted(1, 0));
}

#[test]
fn a_late_copy_of_an_ended_batchs_request_opens_nothing() {
    let mut service = Service::settled();
    let batch = service.open("gpu", CREATE);
    let closed = service.done(&batch);
    assert_eq!(Some(need_fresh(&service.begin(&batch))), closed);
}

#[test]
fn a_late_copy_of_an_unanswered_request_opens_a_batch_that_runs_out() {
    let mut service = Service::settled();
    let lost = service.fresh_request("gpu", CREATE);
    service.pass(secs(100));
    assert_eq!(service.begin(&lost), granted(1, 0));
    let next = service.request("gpu", CREATE);
    wait(&service.begin(&next), WaitReason::OpenBatch);
    service.pass(secs(25));
    need_fresh(&service.begin(&next));
}

#[test]
fn a_replica_that_is_back_cannot_use_what_it_knew_before_another_held_the_nodeset() {
    let mut service = Service::settled();
    let first = service.open("gpu", CREATE);
    let closed = service.done(&first);

    let elsewhere = |request: Begin| Begin {
        batch: BatchId { replica: REPLICAS[1].into(), ..request.batch },
        cluster_key: KEYS[1].clone(),
        ..request
    };
    let other = elsewhere(service.fresh_request("gpu", DELETE));
    assert_eq!(service.begin(&other), granted(0, 1));
    let back = Begin { basis: closed.clone(), ..service.request("gpu", CREATE) };
    wait(&service.begin(&back), WaitReason::OpenBatch);
    service.done(&other);
    assert_ne!(Some(need_fresh(&service.begin(&back))), closed);
}

#[test]
fn owners_of_two_clusters_that_claim_one_nodeset_share_one_record() {
    let mut service = Service::settled();
    let old = service.fresh_request("gpu", CREATE);
    let new = Begin {
        batch: BatchId { replica: REPLICAS[1].into(), counter: 1 },
        cluster_key: KEYS[1].clone(),
        generation: 2,
        ..old.clone()
    };
    assert_eq!(service.begin(&new), granted(1, 0));
    wait(&service.begin(&old), WaitReason::OpenBatch);
    let basis = service.done(&new);
    need_fresh(&service.begin(&Begin { basis, ..old }));
}

#[test]
fn a_nodeset_made_anew_waits_for_the_writes_of_its_predecessor() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    let anew = |request: Begin| Begin { uid: "another uid".into(), ..request };
    let creates = anew(service.request("gpu", CREATE));
    let deletes = anew(service.request("gpu", DELETE));
    wait(&service.begin(&creates), WaitReason::OpenBatch);
    service.pass(secs(25));
    need_fresh(&service.begin(&creates));
    wait(&service.begin(&deletes), WaitReason::HalfOpen);
    service.pass(secs(35));
    need_fresh(&service.begin(&deletes));
}

#[test]
fn a_basis_of_the_last_epoch_is_worth_nothing() {
    let mut before = Service::settled();
    let batch = before.open("gpu", CREATE);
    let closed = before.done(&batch);

    let mut after = Service::settled();
    after.machine.epoch = "e-1".into();
    let known = after.fresh_request("gpu", CREATE);
    let stale = Begin { basis: closed.map(|basis| Basis { number: 1, ..basis }), ..known.clone() };
    assert_eq!(Some(need_fresh(&after.begin(&stale))), known.basis);
    assert_eq!(after.done(&batch), None);
}

#[test]
fn a_crashed_holders_share_returns_when_it_runs_out() {
    let mut service = Service::new(Predecessor::Settled, Limits { creates: 10, deletes: 10 });
    let all = Ops { creates: 10, deletes: 10, others: 0 };
    let crashed = service.fresh_request("gpu", all);
    assert_eq!(service.begin(&crashed), granted(5, 5), "half of a limit at most");
    let other = service.fresh_request("cpu", all);
    assert_eq!(service.begin(&other), granted(5, 5), "so that others go on");
    service.done(&other);
    service.pass(secs(60));
    let next = service.fresh_request("cpu", all);
    assert_eq!(service.begin(&next), granted(5, 5));
    let last = service.fresh_request("arm", all);
    assert_eq!(service.begin(&last), granted(5, 5), "nothing is in flight of the first one");
}

#[test]
fn the_status_shows_who_holds_who_waits_and_what_happened() {
    let mut service = Service::settled();
    let ops = Ops { creates: 3, deletes: 2, others: 1 };
    let batch = service.open("gpu", ops);
    service.begin(&batch);
    let blocked = service.request("gpu", CREATE);
    service.begin(&blocked);
    service.pass(secs(7));
    service.begin(&blocked);
    let status = service.machine.status(service.now);
    assert_eq!(status.membership, service.machine.membership());
    let open = OpenBatch {
        nodeset: nodeset("gpu"),
        batch: batch.batch.clone(),
        age: secs(7),
        granted: Granted { creates: 3, deletes: 2 },
        others: 1,
    };
    assert_eq!(status.open, [open]);
    let waiting = WaitingNodeSet { nodeset: nodeset("gpu"), reason: WaitReason::OpenBatch, age: secs(7) };
    assert_eq!(status.waiting, [waiting]);
    let counters =
        Counters { granted: 1, repeated: 1, need_fresh: 1, wait_open_batch: 2, ..Counters::default() };
    assert_eq!(status.counters, counters);

    service.pass(secs(53));
    let status = service.machine.status(service.now);
    assert_eq!((status.open, status.waiting), (vec![], vec![]), "nobody is waited for without end");
    assert_eq!(status.counters, Counters { ran_out: 1, ..counters });
}

/// A model checker looks at states, not at how often they were seen.
#[test]
fn what_was_counted_does_not_tell_states_apart() {
    let mut service = Service::settled();
    let before = service.machine.clone();
    let stranger = Begin { cluster_key: KEYS[1].clone(), ..service.request("gpu", CREATE) };
    service.begin(&stranger);
    assert_eq!(service.machine.status(service.now).counters.not_owner, 1);
    assert_eq!(service.machine, before);
    let hash = |machine| BuildHasherDefault::<DefaultHasher>::default().hash_one(machine);
    assert_eq!(hash(&service.machine), hash(&before));
}
