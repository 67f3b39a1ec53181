//! The watch events that have to arrive before the next batch may be planned from the cache.

use super::*;
use crate::execute::SeenByCache;
use crate::execute::basis::Results;
use rstest::rstest;
use test_support::api_model::LaggingCache;

fn basis(number: u64) -> Basis {
    Basis { epoch: Epoch::from("e"), number }
}

fn pod(uid: &str, version: &str) -> Pod {
    let metadata = json!({ "name": "w-0", "uid": uid, "resourceVersion": version });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn terminating_pod(uid: &str) -> Pod {
    let mut pod = pod(uid, "9");
    pod.metadata.deletion_timestamp = serde_json::from_value(json!("2027-01-01T00:00:00Z")).unwrap();
    pod
}

/// A batch that wrote version 5 of pod `a`, and deleted pod `b`.
fn results() -> Results {
    let mut results = Results::default();
    results.written("a", "5");
    results.deleted("b");
    results
}

#[rstest]
#[case::all_results(vec![Event::Apply(pod("a", "5")), Event::Delete(pod("b", "7"))], true)]
#[case::in_any_order(vec![Event::Apply(terminating_pod("b")), Event::Apply(pod("a", "5"))], true)]
#[case::followed_by_a_later_version(
    vec![Event::Apply(pod("a", "5")), Event::Apply(pod("a", "8")), Event::Delete(pod("b", "7"))], true
)]
#[case::another_version(vec![Event::Apply(pod("a", "6")), Event::Delete(pod("b", "7"))], false)]
#[case::another_pod(vec![Event::Apply(pod("c", "5")), Event::Delete(pod("b", "7"))], false)]
#[case::pod_not_terminating(vec![Event::Apply(pod("a", "5")), Event::Apply(pod("b", "7"))], false)]
#[case::incomplete_relist(vec![Event::Init, Event::InitApply(pod("a", "5"))], false)]
#[case::complete_relist(vec![Event::Init, Event::InitDone], true)]
#[case::end_of_an_earlier_relist(vec![Event::InitDone], false)]
#[tokio::test(start_paused = true)]
async fn cache_has_caught_up_after_the_watch_delivered_every_result(
    #[case] events: Vec<Event<Pod>>,
    #[case] seen: bool,
) {
    let bases = Bases::default();
    bases.close("u", basis(1), results());
    assert_eq!(bases.seen("u"), SeenByCache::Waiting(seconds(10)));
    for event in &events {
        bases.observe(event);
    }
    let expected = if seen { SeenByCache::Everything(basis(1)) } else { SeenByCache::Waiting(seconds(10)) };
    assert_eq!(bases.seen("u"), expected);
}

#[rstest]
#[case::immediately_before(0, true)]
#[case::within_the_kept_time(30, true)]
#[case::after_the_kept_time(31, false)]
#[tokio::test(start_paused = true)]
async fn watch_event_may_arrive_up_to_30_seconds_before_the_answer_to_its_write(
    #[case] before: u64,
    #[case] seen: bool,
) {
    let bases = Bases::default();
    bases.observe(&Event::Apply(pod("a", "5")));
    bases.observe(&Event::Delete(pod("b", "7")));
    sleep(seconds(before)).await;
    bases.observe(&Event::Apply(pod("c", "8")));
    bases.close("u", basis(1), results());
    assert_eq!(bases.seen("u") == SeenByCache::Everything(basis(1)), seen);
}

#[tokio::test(start_paused = true)]
async fn relist_that_started_before_the_batch_closed_proves_nothing() {
    let bases = Bases::default();
    bases.observe(&Event::Init);
    bases.close("u", basis(1), results());
    bases.observe(&Event::InitDone);
    assert_eq!(bases.seen("u"), SeenByCache::Waiting(seconds(10)));
}

#[tokio::test(start_paused = true)]
async fn wait_for_the_watch_ends_after_10_seconds() {
    let bases = Bases::default();
    bases.close("u", basis(1), results());
    sleep(seconds(9)).await;
    assert_eq!(bases.seen("u"), SeenByCache::Waiting(seconds(1)));
    sleep(seconds(1)).await;
    assert_eq!(bases.seen("u"), SeenByCache::Unknown);
}

#[tokio::test(start_paused = true)]
async fn last_batch_is_tracked_per_nodeset() {
    let bases = Bases::default();
    let mut other = Results::default();
    other.written("c", "5");
    bases.close("u", basis(1), results());
    bases.close("v", basis(2), other);
    bases.observe(&Event::Apply(pod("c", "5")));
    assert_eq!(
        (bases.seen("u"), bases.seen("v")),
        (SeenByCache::Waiting(seconds(10)), SeenByCache::Everything(basis(2)))
    );
    bases.forget("v");
    assert_eq!(bases.seen("v"), SeenByCache::Unknown);
    bases.close("u", basis(3), results());
    bases.observe(&Event::Init);
    bases.observe(&Event::InitDone);
    assert_eq!(bases.seen("u"), SeenByCache::Everything(basis(3)));
}

/// `delivered` is whether the effect has a result that the watch delivers.
#[rstest]
#[case::create(|fixture: &Fixture, _: PodRef| fixture.create_pod("w-1"), true)]
#[case::cordon(|_: &Fixture, pod: PodRef| cordon(&pod), true)]
#[case::uncordon(|_: &Fixture, pod: PodRef| uncordon(&pod, true), true)]
#[case::delete(|_: &Fixture, pod: PodRef| delete(&pod, Evidence::NotNeeded), true)]
#[case::release(|_: &Fixture, pod: PodRef| Effect::ReleasePod(pod), true)]
#[case::drain_without_mark(|_: &Fixture, _: PodRef| Effect::Drain(drain_of("w-0")), false)]
#[case::mark_that_exists(
    |_: &Fixture, pod: PodRef| Effect::Cordon { pod, cause: Cause::Update, person: false, drain: None }, false
)]
#[case::create_of_an_existing_pod(|fixture: &Fixture, _: PodRef| fixture.create_pod("w-0"), false)]
#[tokio::test(start_paused = true)]
async fn batch_is_seen_after_the_watch_delivered_its_results(
    #[case] effect: fn(&Fixture, PodRef) -> Effect,
    #[case] delivered: bool,
) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_pod("w-0", &mark("update"));
    let mut cache = LaggingCache::<Pod>::new(&fixture.api);
    let report = fixture.perform(vec![effect(&fixture, pod)]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    let before = fixture.executor.bases.seen("u");
    for event in cache.deliver(usize::MAX) {
        fixture.executor.bases.observe(&event);
    }
    let after = fixture.executor.bases.seen("u");
    assert_eq!(
        (before != SeenByCache::Unknown, matches!(after, SeenByCache::Everything(_))),
        (delivered, delivered),
        "{before:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn create_of_an_existing_pod_requires_a_live_read() {
    let fixture = Fixture::new(&[]).await;
    fixture.put_pod("w-0", &json!({}));
    fixture.perform(vec![fixture.create_pod("w-0"), fixture.create_pod("w-1")]).await;
    assert_eq!(
        fixture.executor.bases.seen("u"),
        SeenByCache::Unknown,
        "the next plan has to read everything live"
    );
}

#[tokio::test(start_paused = true)]
async fn patch_whose_answer_was_lost_requires_a_live_read() {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_pod("w-0", &json!({}));
    fixture.misreport_once(Verb::Patch);
    let report = fixture.perform(vec![cordon(&pod), fixture.create_pod("w-1")]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert_eq!(
        fixture.executor.bases.seen("u"),
        SeenByCache::Unknown,
        "the next plan has to read everything live"
    );
}

#[tokio::test(start_paused = true)]
async fn recreated_nodeset_does_not_inherit_the_basis_of_its_predecessor() {
    let mut fixture = Fixture::new(&[]).await;
    fixture.perform(vec![fixture.create_pod("w-0")]).await;
    assert!(matches!(fixture.executor.bases.seen("u"), SeenByCache::Waiting(_)));
    let mut successor = NodeSet::clone(&fixture.nodeset);
    successor.metadata.uid = Some("new".to_owned());
    fixture.nodeset = Arc::new(successor);
    assert_eq!(fixture.executor.bases.seen("new"), SeenByCache::Unknown);
    let report = fixture.perform_on(None, vec![fixture.create_pod("w-1")]).await;
    assert!(matches!(report.outcome, BatchOutcome::NeedFresh(_)), "{:?}", report.outcome);
}
