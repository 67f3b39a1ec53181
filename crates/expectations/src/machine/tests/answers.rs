//! Every row of the table of answers, in its order.

use super::*;
use rstest::rstest;

#[test]
fn a_repeated_request_gets_the_same_grant() {
    let mut service = Service::settled();
    let ops = Ops { creates: 40, deletes: 7, others: 3 };
    let request = service.open("gpu", ops);
    service.pass(secs(30));
    assert_eq!(service.begin(&request), granted(40, 7));
    assert_eq!(service.machine.status(service.now).open.len(), 1);
}

/// The first test of all: a holder whose cluster moved gets its answer again.
#[test]
fn a_repeated_request_is_answered_before_ownership_is_asked() {
    let mut service = Service::settled();
    let request = service.open("gpu", CREATE);
    let leaves = Heartbeat { replica: REPLICAS[0].into(), leaving: true };
    service.machine.heartbeat(&leaves, service.now);
    assert_eq!(service.begin(&request), granted(1, 0));
}

#[test]
fn a_request_of_another_replica_than_the_owner_is_told_who_lives() {
    let mut service = Service::settled();
    let request = service.request("gpu", CREATE);
    let stranger = Begin { cluster_key: KEYS[1].clone(), ..request };
    let Answer::NotOwner(membership) = service.begin(&stranger) else { panic!("granted to a stranger") };
    assert_eq!(membership.live, REPLICAS.map(ReplicaId::from));
    assert_eq!((membership.lease, membership.grace), (secs(25), secs(35)));
    assert_eq!(service.machine.status(service.now).waiting, []);
}

#[test]
fn nobody_is_an_owner_before_the_first_heartbeat() {
    let mut service = Service::settled();
    for replica in REPLICAS {
        let leaves = Heartbeat { replica: replica.into(), leaving: true };
        service.machine.heartbeat(&leaves, service.now);
    }
    let request = service.request("gpu", CREATE);
    let answer = service.begin(&request);
    assert!(matches!(answer, Answer::NotOwner(_)), "{answer:?}");
}

/// Ownership comes before the open batch: the new owner of a moved cluster waits, everybody else is sent away.
#[test]
fn a_stranger_is_not_told_to_wait() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    let request = service.request("gpu", CREATE);
    let stranger = Begin { cluster_key: KEYS[1].clone(), ..request };
    let answer = service.begin(&stranger);
    assert!(matches!(answer, Answer::NotOwner(_)), "{answer:?}");
}

/// Neither basis nor UID nor the kind of effects opens a second batch.
#[rstest]
#[case::creates(CREATE, "uid of gpu")]
#[case::deletes(DELETE, "uid of gpu")]
#[case::of_a_nodeset_made_anew(CREATE, "another uid")]
fn an_open_batch_lets_nothing_in(#[case] ops: Ops, #[case] uid: &str) {
    let mut service = Service::settled();
    let open = service.open("gpu", CREATE);
    let request = service.request("gpu", ops);
    let request = Begin { basis: open.basis, uid: uid.into(), ..request };
    let after = wait(&service.begin(&request), WaitReason::OpenBatch);
    assert!((Duration::from_millis(500)..=secs(1)).contains(&after), "{after:?}");
}

#[rstest]
#[case::deletes(DELETE)]
#[case::drains(DRAIN)]
#[case::deletes_and_creates(BOTH)]
fn half_open_lets_nothing_in_but_creates(#[case] ops: Ops) {
    let mut service = Service::new(Predecessor::Unknown, Limits::default());
    service.pass(secs(50));
    let request = service.request("gpu", ops);
    let after = wait(&service.begin(&request), WaitReason::HalfOpen);
    assert!((secs(10)..=secs(15)).contains(&after), "the rest and up to 5 s: {after:?}");

    let creates = service.open("gpu", CREATE);
    assert!(service.done(&creates).is_some());
}

#[test]
fn a_request_without_basis_needs_a_fresh_view() {
    let mut service = Service::settled();
    let known = service.fresh_request("gpu", CREATE);
    let request = service.request("gpu", CREATE);
    assert_eq!(Some(need_fresh(&service.begin(&request))), known.basis, "asking changes no number");
}

#[rstest]
#[case::another_number(EPOCH, 1000)]
#[case::another_epoch("e-1", 1)]
fn a_basis_that_is_not_the_records_needs_a_fresh_view(#[case] epoch: &str, #[case] number: u64) {
    let mut service = Service::settled();
    let known = service.fresh_request("gpu", CREATE);
    assert_eq!(known.basis, Some(Basis { epoch: EPOCH.into(), number: 1 }));
    let stale = Begin { basis: Some(Basis { epoch: epoch.into(), number }), ..known.clone() };
    assert_eq!(Some(need_fresh(&service.begin(&stale))), known.basis);
}

#[test]
fn an_older_generation_than_the_last_granted_needs_a_fresh_view() {
    let mut service = Service::settled();
    let newer = Begin { generation: 5, ..service.fresh_request("gpu", CREATE) };
    assert_eq!(service.begin(&newer), granted(1, 0));
    let basis = service.done(&newer);
    let request = Begin { basis: basis.clone(), ..service.request("gpu", CREATE) };
    for generation in [1, 4] {
        assert_eq!(Some(need_fresh(&service.begin(&Begin { generation, ..request.clone() }))), basis);
    }
    assert_eq!(service.begin(&Begin { generation: 5, ..request }), granted(1, 0));
}

/// What was only asked for proves nothing: the replica may have seen a generation that no batch was planned from.
#[test]
fn a_generation_counts_when_it_is_granted() {
    let mut service = Service::settled();
    let asked = Begin { generation: 5, ..service.request("gpu", CREATE) };
    let basis = need_fresh(&service.begin(&asked));
    let request = Begin { basis: Some(basis), generation: 4, ..service.request("gpu", CREATE) };
    assert_eq!(service.begin(&request), granted(1, 0));
}

#[test]
fn another_uid_gets_a_record_of_its_own() {
    let mut service = Service::settled();
    let first = Begin { generation: 9, ..service.fresh_request("gpu", CREATE) };
    assert_eq!(service.begin(&first), granted(1, 0));
    let basis = service.done(&first);

    let anew = Begin { uid: "another uid".into(), basis: basis.clone(), ..service.request("gpu", CREATE) };
    let fresh = Some(need_fresh(&service.begin(&anew)));
    assert_ne!(fresh, basis);
    assert_eq!(service.begin(&Begin { basis: fresh, ..anew }), granted(1, 0), "generations start again");
}

#[test]
fn without_budget_a_batch_waits() {
    let mut service = Service::new(Predecessor::Settled, Limits { creates: 1, deletes: 1 });
    service.open("gpu", CREATE);
    let request = service.fresh_request("cpu", CREATE);
    let after = wait(&service.begin(&request), WaitReason::Budget);
    assert!((secs(1)..=secs(2)).contains(&after), "{after:?}");
}

/// A stale view is told so before it takes a place in the queue.
#[test]
fn a_stale_view_is_no_matter_of_budget() {
    let mut service = Service::new(Predecessor::Settled, Limits { creates: 0, deletes: 0 });
    let request = service.request("gpu", CREATE);
    need_fresh(&service.begin(&request));
}

#[test]
fn waits_differ_between_nodesets_and_not_between_askings() {
    let mut service = Service::new(Predecessor::Unknown, Limits::default());
    let mut wait_of = |name: &str| {
        let request = service.request(name, DELETE);
        wait(&service.begin(&request), WaitReason::HalfOpen)
    };
    assert_eq!(wait_of("gpu"), wait_of("gpu"));
    assert_ne!(wait_of("gpu"), wait_of("cpu"));
    let waits: Vec<Duration> = (0..100).map(|number| wait_of(&format!("n{number}"))).collect();
    assert!(waits.iter().all(|after| (secs(60)..=secs(65)).contains(after)));
    assert!(waits.iter().any(|after| *after < secs(61)) && waits.iter().any(|after| *after > secs(64)));
}

/// A replica that uses an id twice must not get two batches that one `Done` would end.
#[test]
fn the_id_of_another_nodesets_batch_opens_nothing() {
    let mut service = Service::settled();
    let first = service.open("gpu", CREATE);
    let second = Begin { batch: first.batch.clone(), ..service.fresh_request("cpu", CREATE) };
    wait(&service.begin(&second), WaitReason::OpenBatch);
    service.done(&first);
    wait(&service.begin(&second), WaitReason::OpenBatch);
}
