//! The answers of `Begin`, in the order in which the machine checks them.

use super::*;
use rstest::rstest;

#[test]
fn repeated_begin_gets_the_same_grant() {
    let mut service = Service::settled();
    let ops = Ops { creates: 40, deletes: 7, others: 3 };
    let request = service.open("gpu", ops);
    service.advance(secs(30));
    assert_eq!(service.begin(&request), granted(40, 7));
    assert_eq!(service.machine.status(service.now).open.len(), 1);
}

/// A holder whose cluster moved meanwhile gets its grant again.
#[test]
fn repeated_begin_is_answered_before_ownership_is_checked() {
    let mut service = Service::settled();
    let request = service.open("gpu", CREATE);
    let leaves = Heartbeat { replica: REPLICAS[0].into(), leaving: true };
    service.machine.heartbeat(&leaves, service.now);
    assert_eq!(service.begin(&request), granted(1, 0));
}

#[test]
fn begin_of_a_replica_that_is_not_the_owner_gets_the_membership() {
    let mut service = Service::settled();
    let request = service.request("gpu", CREATE);
    let not_owner = Begin { cluster_key: KEYS[1].clone(), ..request };
    let Answer::NotOwner(membership) = service.begin(&not_owner) else {
        panic!("granted to another replica")
    };
    assert_eq!(membership.live, REPLICAS.map(ReplicaId::from));
    assert_eq!((membership.lease, membership.grace), (secs(25), secs(35)));
    assert_eq!(service.machine.status(service.now).waiting, []);
}

#[test]
fn no_replica_is_an_owner_without_live_replicas() {
    let mut service = Service::settled();
    for replica in REPLICAS {
        let leaves = Heartbeat { replica: replica.into(), leaving: true };
        service.machine.heartbeat(&leaves, service.now);
    }
    let request = service.request("gpu", CREATE);
    let answer = service.begin(&request);
    assert!(matches!(answer, Answer::NotOwner(_)), "{answer:?}");
}

/// The new owner of a moved cluster waits for the open batch, other replicas drop the work.
#[test]
fn ownership_is_checked_before_the_open_batch() {
    let mut service = Service::settled();
    service.open("gpu", CREATE);
    let request = service.request("gpu", CREATE);
    let not_owner = Begin { cluster_key: KEYS[1].clone(), ..request };
    let answer = service.begin(&not_owner);
    assert!(matches!(answer, Answer::NotOwner(_)), "{answer:?}");
}

/// Independent of basis, UID and kind of effects.
#[rstest]
#[case::creates(CREATE, "uid of gpu")]
#[case::deletes(DELETE, "uid of gpu")]
#[case::recreated_nodeset(CREATE, "another uid")]
fn open_batch_blocks_every_other_batch(#[case] ops: Ops, #[case] uid: &str) {
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
fn half_open_nodeset_is_granted_only_creates(#[case] ops: Ops) {
    let mut service = Service::new(Predecessor::Unknown, Limits::default());
    service.advance(secs(50));
    let request = service.request("gpu", ops);
    let after = wait(&service.begin(&request), WaitReason::HalfOpen);
    assert!((secs(10)..=secs(15)).contains(&after), "10 s of half-open time and up to 5 s: {after:?}");

    let creates = service.open("gpu", CREATE);
    assert!(service.done(&creates).is_some());
}

#[test]
fn begin_without_basis_needs_a_fresh_view() {
    let mut service = Service::settled();
    let known = service.fresh_request("gpu", CREATE);
    let request = service.request("gpu", CREATE);
    assert_eq!(Some(need_fresh(&service.begin(&request))), known.basis, "Begin does not change the number");
}

#[rstest]
#[case::another_number(EPOCH, 1000)]
#[case::another_epoch("e-1", 1)]
fn begin_with_another_basis_than_the_records_needs_a_fresh_view(#[case] epoch: &str, #[case] number: u64) {
    let mut service = Service::settled();
    let known = service.fresh_request("gpu", CREATE);
    assert_eq!(known.basis, Some(Basis { epoch: EPOCH.into(), number: 1 }));
    let stale = Begin { basis: Some(Basis { epoch: epoch.into(), number }), ..known.clone() };
    assert_eq!(Some(need_fresh(&service.begin(&stale))), known.basis);
}

#[test]
fn generation_below_the_last_granted_one_needs_a_fresh_view() {
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

/// A request that was not granted had no effects, so older generations remain valid.
#[test]
fn generation_is_stored_when_it_is_granted_not_when_requested() {
    let mut service = Service::settled();
    let requested = Begin { generation: 5, ..service.request("gpu", CREATE) };
    let basis = need_fresh(&service.begin(&requested));
    let request = Begin { basis: Some(basis), generation: 4, ..service.request("gpu", CREATE) };
    assert_eq!(service.begin(&request), granted(1, 0));
}

#[test]
fn recreated_nodeset_gets_a_new_number_and_generation() {
    let mut service = Service::settled();
    let first = Begin { generation: 9, ..service.fresh_request("gpu", CREATE) };
    assert_eq!(service.begin(&first), granted(1, 0));
    let basis = service.done(&first);

    let recreated =
        Begin { uid: "another uid".into(), basis: basis.clone(), ..service.request("gpu", CREATE) };
    let fresh = Some(need_fresh(&service.begin(&recreated)));
    assert_ne!(fresh, basis);
    assert_eq!(
        service.begin(&Begin { basis: fresh, ..recreated }),
        granted(1, 0),
        "generations restart at 1"
    );
}

#[test]
fn batch_without_budget_waits() {
    let mut service = Service::new(Predecessor::Settled, Limits { creates: 1, deletes: 1 });
    service.open("gpu", CREATE);
    let request = service.fresh_request("cpu", CREATE);
    let after = wait(&service.begin(&request), WaitReason::Budget);
    assert!((secs(1)..=secs(2)).contains(&after), "{after:?}");
}

/// A request from a stale view does not take a place in the queue.
#[test]
fn basis_is_checked_before_the_budget() {
    let mut service = Service::new(Predecessor::Settled, Limits { creates: 0, deletes: 0 });
    let request = service.request("gpu", CREATE);
    need_fresh(&service.begin(&request));
}

#[test]
fn wait_is_spread_over_nodesets_and_constant_for_one() {
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
fn batch_id_of_another_nodeset_is_not_granted() {
    let mut service = Service::settled();
    let first = service.open("gpu", CREATE);
    let second = Begin { batch: first.batch.clone(), ..service.fresh_request("cpu", CREATE) };
    wait(&service.begin(&second), WaitReason::OpenBatch);
    service.done(&first);
    wait(&service.begin(&second), WaitReason::OpenBatch);
}
