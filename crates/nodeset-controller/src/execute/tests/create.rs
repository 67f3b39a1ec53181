//! Creates: pods, and their claims first.

use super::*;
use rstest::rstest;
use slinky_api::labels::selector_labels;

fn claim(name: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": {} })).unwrap()
}

fn news(world: &World, count: usize) -> Vec<Effect> {
    (0..count).map(|number| world.new_pod(&format!("w-{number}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_made_as_it_is_after_its_claims() {
    let world = World::new(&[]).await;
    let report =
        world.perform(vec![world.new_pod_with("w-0", vec![claim("data-w-0"), claim("log-w-0")])]).await;
    assert_eq!(
        world.writes(),
        ["create persistentvolumeclaims ", "create persistentvolumeclaims ", "create pods "]
    );
    let pod = world.get::<Pod>("w-0").unwrap();
    assert_eq!(pod["spec"]["brandNew"], "kept", "fields that are newer than this build reach the API server");
    let notes: Vec<String> = report.events().into_iter().map(|notice| notice.note).collect();
    assert_eq!(
        notes,
        ["create Claim: data-w-0 Pod w-0", "create Claim: log-w-0 Pod w-0", "Created pod: w-0"]
    );
    assert_eq!(report.events()[2].related.as_ref().unwrap().uid.as_deref(), pod["metadata"]["uid"].as_str());
    assert_eq!(report.count(WriteKind::PodCreated), 1);
}

#[rstest]
#[case::first_of_all(0, 1, 0)]
#[case::second_group(1, 3, 2)]
#[case::third_group(5, 7, 6)]
#[tokio::test(start_paused = true)]
async fn after_a_failure_later_groups_are_left_out(
    #[case] broken: usize,
    #[case] calls: usize,
    #[case] created: usize,
) {
    let world = World::new(&[]).await;
    let mut number = 0;
    world.fate(move |_| {
        number += 1;
        if number == broken + 1 { Fate::Refused(Failure::TooManyRequests) } else { Fate::Served }
    });
    let report = world.perform(news(&world, 10)).await;
    assert_eq!(count(&world.writes(), "create pods"), calls);
    assert_eq!((report.count(WriteKind::PodCreated), report.failures.len()), (created, 1));
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert!(report.events().iter().any(|notice| notice.reason == "FailedCreate"));
}

#[tokio::test(start_paused = true)]
async fn never_more_than_250_pods_are_made_at_once() {
    let world = World::with(&[], Limits { creates: 2000, deletes: 0 }, Predecessor::Settled).await;
    let (now, most) = (Arc::new(Mutex::new(Instant::now())), Arc::new(Mutex::new(vec![])));
    let groups = most.clone();
    world.fate(move |_| {
        let mut groups = groups.lock().unwrap();
        let begun = std::mem::replace(&mut *now.lock().unwrap(), Instant::now());
        if begun != Instant::now() || groups.is_empty() {
            groups.push(0);
        }
        *groups.last_mut().unwrap() += 1;
        Fate::Late(Duration::from_millis(10))
    });
    let report = world.perform(news(&world, 800)).await;
    assert_eq!(report.count(WriteKind::PodCreated), 800);
    assert_eq!(*most.lock().unwrap(), [1, 2, 4, 8, 16, 32, 64, 128, 250, 250, 45]);
    let notice = &report.events()[0];
    assert!(notice.note.starts_with("Created pods: w-0, w-1, "), "{}", notice.note);
    assert!(notice.note.ends_with(" and 790 more"), "{}", notice.note);
}

#[rstest]
#[case::ours(json!({}), 1, &[])]
#[case::ours_and_ending(
    json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }), 0, &["Pod w-0 is being deleted"]
)]
#[case::of_nobody(json!({ "metadata": { "ownerReferences": [] } }), 0, &["Pod w-0 is controlled by another owner"])]
#[case::of_our_predecessor(
    json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "gpu", "uid": "old", "controller": true,
    }] } }),
    0,
    &["Pod w-0 is controlled by another owner"]
)]
#[tokio::test(start_paused = true)]
async fn a_pod_of_that_name_is_taken_or_waited_for(
    #[case] pod: Value,
    #[case] created: usize,
    #[case] waits: &[&str],
) {
    let world = World::new(&[]).await;
    let mut labelled = json!({ "metadata": { "labels": selector_labels(&*world.nodeset) } });
    merge(&mut labelled, &pod);
    world.pod("w-0", &labelled);
    let report = world.perform(vec![world.new_pod("w-0"), world.new_pod("w-1")]).await;
    assert_eq!(
        (report.count(WriteKind::PodCreated), report.failures),
        (created + 1, vec![]),
        "the other one is made"
    );
    assert_eq!(report.waits, waits);
    assert_eq!(report.requeue_after.is_some(), !waits.is_empty());
}

#[rstest]
#[case::ours(json!({}), 1)]
#[case::of_nobody_since(json!({ "ownerReferences": [] }), 0)]
#[tokio::test(start_paused = true)]
async fn a_pod_that_a_person_set_aside_is_given_up_and_waited_for(
    #[case] change: Value,
    #[case] disowned: usize,
) {
    let world = World::new(&[]).await;
    let mut set_aside = json!({ "labels": { "app.kubernetes.io/instance": "gpu" } });
    merge(&mut set_aside, &change);
    world.pod("w-0", &json!({ "metadata": set_aside }));
    let report = world.perform(vec![world.new_pod("w-0")]).await;
    assert_eq!((report.count(WriteKind::PodCreated), report.count(WriteKind::PodReleased)), (0, disowned));
    assert_eq!(report.waits, ["Pod w-0 lacks the label app.kubernetes.io/name=slurmd"]);
    assert_eq!((report.failures.len(), report.events().len()), (0, 0));
    let owners = world.get::<Pod>("w-0").unwrap()["metadata"]["ownerReferences"].clone();
    assert!(owners.as_array().is_none_or(Vec::is_empty), "{owners}");
}

fn pod_owner(uid: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "old", "uid": uid }] } })
}

#[rstest]
#[case::nobodys(json!({}), None)]
#[case::of_a_pod_that_stays(pod_owner("alive"), None)]
#[case::ending(
    json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"] } }),
    Some("PersistentVolumeClaim data is being deleted")
)]
#[case::of_a_pod_that_is_gone(
    pod_owner("gone"),
    Some("PersistentVolumeClaim data will be deleted with Pod old")
)]
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_there_is_used_unless_it_is_on_its_way_out(
    #[case] there: Value,
    #[case] waits: Option<&str>,
) {
    let world = World::new(&[]).await;
    let mut object = json!(claim("data"));
    merge(&mut object, &there);
    world.api.put::<PersistentVolumeClaim>(object);
    world.pod("old", &json!({ "metadata": { "uid": "alive" } }));
    let report = world.perform(vec![world.new_pod_with("w-0", vec![claim("data")])]).await;
    assert_eq!(world.get::<Pod>("w-0").is_some(), waits.is_none());
    assert_eq!(report.waits, waits.into_iter().collect::<Vec<_>>());
    assert_eq!((report.failures, count(&world.writes(), "patch")), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_pod_that_is_ending_is_waited_for() {
    let world = World::new(&[]).await;
    let ending = json!({ "metadata": { "uid": "ending", "deletionTimestamp": "2027-01-01T00:00:00Z" } });
    world.pod("old", &ending);
    let mut object = json!(claim("data"));
    merge(&mut object, &pod_owner("ending"));
    world.api.put::<PersistentVolumeClaim>(object);
    let report = world.perform(vec![world.new_pod_with("w-0", vec![claim("data")])]).await;
    assert_eq!(report.waits, ["PersistentVolumeClaim data will be deleted with Pod old"]);
    assert_eq!(world.get::<Pod>("w-0"), None);
}

#[tokio::test(start_paused = true)]
async fn without_its_claim_a_pod_is_not_made() {
    let world = World::new(&[]).await;
    world.fate(|call| match call.target.resource.as_str() {
        "persistentvolumeclaims" => Fate::Refused(Failure::TooManyRequests),
        _ => Fate::Served,
    });
    let report =
        world.perform(vec![world.new_pod_with("w-0", vec![claim("data")]), world.new_pod("w-1")]).await;
    assert_eq!(count(&world.writes(), "create pods"), 0);
    assert_eq!(report.failures[0].object, "PersistentVolumeClaim data");
    let note = &report.events()[0].note;
    assert!(note.starts_with("create Claim: data for Pod w-0 failed: "), "{note}");
}

#[tokio::test(start_paused = true)]
async fn in_a_namespace_that_is_going_nothing_is_made_and_nothing_fails() {
    let world = World::new(&[]).await;
    world.api.terminate_namespace("ns");
    let mut effects = news(&world, 3);
    effects.push(world.new_pod_with("w-9", vec![claim("data")]));
    let report = world.perform(effects).await;
    assert_eq!(
        (report.count(WriteKind::PodCreated), report.failures.len(), report.events().len()),
        (0, 0, 0)
    );
    assert_eq!(count(&world.writes(), "create pods"), 3);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
}

#[rstest]
#[case::nothing_done(Fate::Refused(Failure::Timeout), false)]
#[case::connection_lost(Fate::Refused(Failure::Disconnect), false)]
#[case::done_and_not_told(Fate::Misreported(Failure::InternalError), true)]
#[case::silent(Fate::Lost, false)]
#[case::done_too_late(Fate::Late(Duration::from_secs(11)), true)]
#[tokio::test(start_paused = true)]
async fn a_create_without_answer_is_not_repeated_and_leaves_the_batch_open(
    #[case] fate: Fate,
    #[case] made: bool,
) {
    let world = World::new(&[]).await;
    world.fate(move |_| fate);
    let report = world.perform(news(&world, 3)).await;
    assert_eq!(count(&world.writes(), "create pods"), 1);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: false });
    assert!(world.has_open_batch(), "what may still land keeps others away");
    sleep(seconds(2)).await;
    assert_eq!(world.get::<Pod>("w-0").is_some(), made);
    assert_eq!(report.failures.len(), 1);
}
