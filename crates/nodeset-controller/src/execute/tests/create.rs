//! Creates of pods, each after its PersistentVolumeClaims.

use super::*;
use crate::execute::CREATION_OF_PODS;
use rstest::rstest;
use slinky_api::labels::selector_labels;

fn claim(name: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": {} })).unwrap()
}

fn create_pods(fixture: &Fixture, count: usize) -> Vec<Effect> {
    (0..count).map(|number| fixture.create_pod(&format!("w-{number}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn pod_is_created_with_its_whole_manifest_after_its_claims() {
    let fixture = Fixture::new(&[]).await;
    let report = fixture
        .perform(vec![fixture.create_pod_with_claims("w-0", vec![claim("data-w-0"), claim("log-w-0")])])
        .await;
    assert_eq!(
        fixture.writes(),
        ["create persistentvolumeclaims ", "create persistentvolumeclaims ", "create pods "]
    );
    let pod = fixture.get::<Pod>("w-0").unwrap();
    assert_eq!(pod["spec"]["brandNew"], "kept", "fields that are newer than this build reach the API server");
    let notes: Vec<String> = report.events().into_iter().map(|event| event.note).collect();
    assert_eq!(notes, ["create Claims: data-w-0, log-w-0", "Created pod: w-0"]);
    assert_eq!(report.events()[1].related.as_ref().unwrap().uid.as_deref(), pod["metadata"]["uid"].as_str());
    assert_eq!(report.count(WriteKind::PodCreated), 1);
}

#[rstest]
#[case::in_first_group(0, 1, 0)]
#[case::in_second_group(1, 3, 2)]
#[case::in_third_group(5, 7, 6)]
#[tokio::test(start_paused = true)]
async fn slow_start_stops_after_the_group_with_a_failed_create(
    #[case] failing: usize,
    #[case] requests: usize,
    #[case] created: usize,
) {
    let fixture = Fixture::new(&[]).await;
    let mut number = 0;
    fixture.on_api_request(move |_| {
        number += 1;
        if number == failing + 1 { Fate::Refused(Failure::TooManyRequests) } else { Fate::Served }
    });
    let report = fixture.perform(create_pods(&fixture, 10)).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "create pods"), requests);
    assert_eq!((report.count(WriteKind::PodCreated), report.failures.len()), (created, 1));
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert!(report.events().iter().any(|event| event.reason == "FailedCreate"));
}

#[tokio::test(start_paused = true)]
async fn slow_start_creates_at_most_250_pods_concurrently() {
    let fixture = Fixture::with(&[], Limits { creates: 2000, deletes: 0 }, Predecessor::Settled).await;
    let (now, sizes) = (Arc::new(Mutex::new(Instant::now())), Arc::new(Mutex::new(vec![])));
    let groups = sizes.clone();
    fixture.on_api_request(move |_| {
        let mut groups = groups.lock().unwrap();
        let begun = std::mem::replace(&mut *now.lock().unwrap(), Instant::now());
        if begun != Instant::now() || groups.is_empty() {
            groups.push(0);
        }
        *groups.last_mut().unwrap() += 1;
        Fate::Late(Duration::from_millis(10))
    });
    let report = fixture.perform(create_pods(&fixture, 800)).await;
    assert_eq!(report.count(WriteKind::PodCreated), 800);
    assert_eq!(*sizes.lock().unwrap(), [1, 2, 4, 8, 16, 32, 64, 128, 250, 250, 45]);
    let event = &report.events()[0];
    assert!(event.note.starts_with("Created pods: w-0, w-1, "), "{}", event.note);
    assert!(event.note.ends_with(" and 790 more"), "{}", event.note);
}

#[rstest]
#[case::controlled_by_the_nodeset(json!({}), 1, &[])]
#[case::terminating(
    json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }), 0, &["Pod w-0 is being deleted"]
)]
#[case::orphan(json!({ "metadata": { "ownerReferences": [] } }), 0, &["Pod w-0 is controlled by another owner"])]
#[case::controlled_by_a_deleted_nodeset_of_the_same_name(
    json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "gpu", "uid": "old", "controller": true,
    }] } }),
    0,
    &["Pod w-0 is controlled by another owner"]
)]
#[tokio::test(start_paused = true)]
async fn existing_pod_counts_as_created_only_if_controlled_and_not_terminating(
    #[case] pod: Value,
    #[case] created: usize,
    #[case] waits: &[&str],
) {
    let fixture = Fixture::new(&[]).await;
    let mut labelled = json!({ "metadata": { "labels": selector_labels(&*fixture.nodeset) } });
    merge(&mut labelled, &pod);
    fixture.put_pod("w-0", &labelled);
    let report = fixture.perform(vec![fixture.create_pod("w-0"), fixture.create_pod("w-1")]).await;
    assert_eq!(
        (report.count(WriteKind::PodCreated), report.failures),
        (created + 1, vec![]),
        "an existing pod does not block the create of another"
    );
    assert_eq!(report.waits, waits);
    assert_eq!(report.requeue_after.is_some(), !waits.is_empty());
}

#[rstest]
#[case::controlled_by_the_nodeset(json!({}), 1)]
#[case::already_released(json!({ "ownerReferences": [] }), 0)]
#[tokio::test(start_paused = true)]
async fn existing_pod_without_a_selector_label_is_released_and_blocks_the_create(
    #[case] change: Value,
    #[case] released: usize,
) {
    let fixture = Fixture::new(&[]).await;
    let mut metadata = json!({ "labels": { "app.kubernetes.io/instance": "gpu" } });
    merge(&mut metadata, &change);
    fixture.put_pod("w-0", &json!({ "metadata": metadata }));
    let report = fixture.perform(vec![fixture.create_pod("w-0")]).await;
    assert_eq!((report.count(WriteKind::PodCreated), report.count(WriteKind::PodReleased)), (0, released));
    assert_eq!(report.waits, ["Pod w-0 lacks the label app.kubernetes.io/name=slurmd"]);
    assert_eq!((report.failures.len(), report.events().len()), (0, 0));
    let owners = fixture.get::<Pod>("w-0").unwrap()["metadata"]["ownerReferences"].clone();
    assert!(owners.as_array().is_none_or(Vec::is_empty), "{owners}");
}

fn pod_owner(uid: &str) -> Value {
    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "old", "uid": uid }] } })
}

#[rstest]
#[case::without_owner(json!({}), None)]
#[case::owned_by_an_existing_pod(pod_owner("alive"), None)]
#[case::terminating(
    json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"] } }),
    Some("PersistentVolumeClaim data is being deleted")
)]
#[case::owned_by_a_deleted_pod(
    pod_owner("deleted"),
    Some("PersistentVolumeClaim data will be deleted with Pod old")
)]
#[tokio::test(start_paused = true)]
async fn existing_claim_is_used_unless_it_is_about_to_be_deleted(
    #[case] existing: Value,
    #[case] waits: Option<&str>,
) {
    let fixture = Fixture::new(&[]).await;
    let mut object = json!(claim("data"));
    merge(&mut object, &existing);
    fixture.api.put::<PersistentVolumeClaim>(object);
    fixture.put_pod("old", &json!({ "metadata": { "uid": "alive" } }));
    let report = fixture.perform(vec![fixture.create_pod_with_claims("w-0", vec![claim("data")])]).await;
    assert_eq!(fixture.get::<Pod>("w-0").is_some(), waits.is_none());
    assert_eq!(report.waits, waits.into_iter().collect::<Vec<_>>());
    assert_eq!((report.failures, count_with_prefix(&fixture.writes(), "patch")), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn claim_owned_by_a_terminating_pod_blocks_the_create() {
    let fixture = Fixture::new(&[]).await;
    let terminating =
        json!({ "metadata": { "uid": "terminating", "deletionTimestamp": "2027-01-01T00:00:00Z" } });
    fixture.put_pod("old", &terminating);
    let mut object = json!(claim("data"));
    merge(&mut object, &pod_owner("terminating"));
    fixture.api.put::<PersistentVolumeClaim>(object);
    let report = fixture.perform(vec![fixture.create_pod_with_claims("w-0", vec![claim("data")])]).await;
    assert_eq!(report.waits, ["PersistentVolumeClaim data will be deleted with Pod old"]);
    assert_eq!(fixture.get::<Pod>("w-0"), None);
}

#[tokio::test(start_paused = true)]
async fn pod_is_not_created_if_the_create_of_its_claim_fails() {
    let fixture = Fixture::new(&[]).await;
    fixture.on_api_request(|call| match call.target.resource.as_str() {
        "persistentvolumeclaims" => Fate::Refused(Failure::TooManyRequests),
        _ => Fate::Served,
    });
    let report = fixture
        .perform(vec![fixture.create_pod_with_claims("w-0", vec![claim("data")]), fixture.create_pod("w-1")])
        .await;
    assert_eq!(count_with_prefix(&fixture.writes(), "create pods"), 0);
    assert_eq!(report.failures[0].object, "PersistentVolumeClaim data");
    let note = &report.events()[0].note;
    assert!(note.starts_with("create Claim: data for Pod w-0 failed: "), "{note}");
}

#[tokio::test(start_paused = true)]
async fn refused_creates_in_a_terminating_namespace_are_no_failures() {
    let fixture = Fixture::new(&[]).await;
    fixture.api.terminate_namespace("ns");
    let mut effects = create_pods(&fixture, 3);
    effects.push(fixture.create_pod_with_claims("w-9", vec![claim("data")]));
    let report = fixture.perform(effects).await;
    assert_eq!(
        (report.count(WriteKind::PodCreated), report.failures.len(), report.events().len()),
        (0, 0, 0)
    );
    assert_eq!(count_with_prefix(&fixture.writes(), "create pods"), 3);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
}

#[rstest]
#[case::timeout(Fate::Refused(Failure::Timeout), false)]
#[case::disconnect(Fate::Refused(Failure::Disconnect), false)]
#[case::applied_but_answered_with_internal_error(Fate::Misreported(Failure::InternalError), true)]
#[case::no_response(Fate::Lost, false)]
#[case::applied_after_the_request_timeout(Fate::Late(Duration::from_secs(11)), true)]
#[tokio::test(start_paused = true)]
async fn ambiguous_create_is_not_retried_and_keeps_the_batch_open(#[case] fate: Fate, #[case] created: bool) {
    let fixture = Fixture::new(&[]).await;
    fixture.on_api_request(move |_| fate);
    let report = fixture.perform(create_pods(&fixture, 3)).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "create pods"), 1);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: false });
    assert!(fixture.has_open_batch(), "an ambiguous write keeps the batch open");
    sleep(seconds(2)).await;
    assert_eq!(fixture.get::<Pod>("w-0").is_some(), created);
    assert_eq!(report.failures.len(), 1);
}

#[rstest]
#[case::quota(Failure::Forbidden, &["Pod w-0", CREATION_OF_PODS])]
#[case::overloaded(Failure::TooManyRequests, &[])]
#[case::broken(Failure::InternalError, &[])]
#[tokio::test(start_paused = true)]
async fn refused_creates_are_reported_apart_from_transient_failures(
    #[case] failure: Failure,
    #[case] refused: &[&str],
) {
    let fixture = Fixture::new(&[]).await;
    fixture.on_api_request(
        move |call| {
            if call.verb == Verb::Create { Fate::Refused(failure) } else { Fate::Served }
        },
    );
    let report = fixture.perform(vec![fixture.create_pod("w-0"), fixture.create_pod("w-1")]).await;
    assert_eq!(report.refused.keys().map(String::as_str).collect::<Vec<_>>(), refused);
    assert_eq!(report.failures.len(), 1);
}
