//! Lost, late and repeated messages, ownership changes and re-created NodeSets.

use super::*;
use crate::messages::{Counters, OpenBatch, WaitingNodeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

#[test]
fn repeated_done_gets_the_basis_of_the_first_answer_until_the_number_changes() {
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
fn done_of_a_batch_that_was_not_granted_is_unknown() {
    let mut service = Service::settled();
    let requested = service.fresh_request("gpu", CREATE);
    assert_eq!(service.done(&requested), None);
    assert_eq!(service.begin(&requested), granted(1, 0));
}

#[test]
fn late_copy_of_begin_of_an_ended_batch_is_not_granted() {
    let mut service = Service::settled();
    let batch = service.open("gpu", CREATE);
    let closed = service.done(&batch);
    assert_eq!(Some(need_fresh(&service.begin(&batch))), closed);
}

#[test]
fn late_copy_of_an_unanswered_begin_opens_a_batch_that_runs_out() {
    let mut service = Service::settled();
    let lost = service.fresh_request("gpu", CREATE);
    service.advance(secs(100));
    assert_eq!(service.begin(&lost), granted(1, 0));
    let next = service.request("gpu", CREATE);
    wait(&service.begin(&next), WaitReason::OpenBatch);
    service.advance(secs(25));
    need_fresh(&service.begin(&next));
}

#[test]
fn basis_is_stale_after_a_batch_of_another_replica() {
    let mut service = Service::settled();
    let first = service.open("gpu", CREATE);
    let closed = service.done(&first);

    let of_other_replica = |request: Begin| Begin {
        batch: BatchId { replica: REPLICAS[1].into(), ..request.batch },
        cluster_key: KEYS[1].clone(),
        ..request
    };
    let other = of_other_replica(service.fresh_request("gpu", DELETE));
    assert_eq!(service.begin(&other), granted(0, 1));
    let next = Begin { basis: closed.clone(), ..service.request("gpu", CREATE) };
    wait(&service.begin(&next), WaitReason::OpenBatch);
    service.done(&other);
    assert_ne!(Some(need_fresh(&service.begin(&next))), closed);
}

#[test]
fn nodeset_whose_controller_ref_changed_has_one_record() {
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
fn recreated_nodeset_waits_for_the_writes_of_its_predecessor() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    let of_other_uid = |request: Begin| Begin { uid: "another uid".into(), ..request };
    let creates = of_other_uid(service.request("gpu", CREATE));
    let deletes = of_other_uid(service.request("gpu", DELETE));
    wait(&service.begin(&creates), WaitReason::OpenBatch);
    service.advance(secs(25));
    need_fresh(&service.begin(&creates));
    wait(&service.begin(&deletes), WaitReason::HalfOpen);
    service.advance(secs(35));
    need_fresh(&service.begin(&deletes));
}

#[test]
fn basis_of_the_previous_epoch_is_stale() {
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
fn budget_of_a_crashed_holder_returns_when_its_batch_runs_out() {
    let mut service = Service::new(Predecessor::Settled, Limits { creates: 10, deletes: 10 });
    let all = Ops { creates: 10, deletes: 10, others: 0 };
    let crashed = service.fresh_request("gpu", all);
    assert_eq!(service.begin(&crashed), granted(5, 5), "at most half of a limit");
    let other = service.fresh_request("cpu", all);
    assert_eq!(service.begin(&other), granted(5, 5), "the other half is left for other NodeSets");
    service.done(&other);
    service.advance(secs(60));
    let next = service.fresh_request("cpu", all);
    assert_eq!(service.begin(&next), granted(5, 5));
    let last = service.fresh_request("arm", all);
    assert_eq!(service.begin(&last), granted(5, 5), "the crashed holder has nothing in flight");
}

#[test]
fn status_shows_open_batches_waiting_nodesets_and_counters() {
    let mut service = Service::settled();
    let ops = Ops { creates: 3, deletes: 2, others: 1 };
    let batch = service.open("gpu", ops);
    service.begin(&batch);
    let blocked = service.request("gpu", CREATE);
    service.begin(&blocked);
    service.advance(secs(7));
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

    service.advance(secs(53));
    let status = service.machine.status(service.now);
    assert_eq!((status.open, status.waiting), (vec![], vec![]), "waiting NodeSets expire");
    assert_eq!(status.counters, Counters { ran_out: 1, ..counters });
}

/// A model checker compares states.
#[test]
fn counters_do_not_distinguish_states() {
    let mut service = Service::settled();
    let before = service.machine.clone();
    let not_owner = Begin { cluster_key: KEYS[1].clone(), ..service.request("gpu", CREATE) };
    service.begin(&not_owner);
    assert_eq!(service.machine.status(service.now).counters.not_owner, 1);
    assert_eq!(service.machine, before);
    let hash = |machine| BuildHasherDefault::<DefaultHasher>::default().hash_one(machine);
    assert_eq!(hash(&service.machine), hash(&before));
}
