//! What the watch has to show before the next batch is planned from the cache.

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

fn ending(uid: &str) -> Pod {
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
#[case::both(vec![Event::Apply(pod("a", "5")), Event::Delete(pod("b", "7"))], true)]
#[case::in_any_order(vec![Event::Apply(ending("b")), Event::Apply(pod("a", "5"))], true)]
#[case::overtaken_by_others(
    vec![Event::Apply(pod("a", "5")), Event::Apply(pod("a", "8")), Event::Delete(pod("b", "7"))], true
)]
#[case::another_version(vec![Event::Apply(pod("a", "6")), Event::Delete(pod("b", "7"))], false)]
#[case::another_pod(vec![Event::Apply(pod("c", "5")), Event::Delete(pod("b", "7"))], false)]
#[case::a_pod_that_still_lives(vec![Event::Apply(pod("a", "5")), Event::Apply(pod("b", "7"))], false)]
#[case::part_of_a_list(vec![Event::Init, Event::InitApply(pod("a", "5"))], false)]
#[case::a_list(vec![Event::Init, Event::InitDone], true)]
#[case::the_end_of_an_earlier_list(vec![Event::InitDone], false)]
#[tokio::test(start_paused = true)]
async fn every_result_has_to_come_through_the_stream(#[case] events: Vec<Event<Pod>>, #[case] seen: bool) {
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
#[case::a_moment_before(0, true)]
#[case::just_remembered(30, true)]
#[case::forgotten(31, false)]
#[tokio::test(start_paused = true)]
async fn an_event_may_come_before_the_answer_to_its_write(#[case] before: u64, #[case] seen: bool) {
    let bases = Bases::default();
    bases.observe(&Event::Apply(pod("a", "5")));
    bases.observe(&Event::Delete(pod("b", "7")));
    sleep(seconds(before)).await;
    bases.observe(&Event::Apply(pod("c", "8")));
    bases.close("u", basis(1), results());
    assert_eq!(bases.seen("u") == SeenByCache::Everything(basis(1)), seen);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_began_before_the_end_of_the_batch_shows_nothing() {
    let bases = Bases::default();
    bases.observe(&Event::Init);
    bases.close("u", basis(1), results());
    bases.observe(&Event::InitDone);
    assert_eq!(bases.seen("u"), SeenByCache::Waiting(seconds(10)));
}

#[tokio::test(start_paused = true)]
async fn after_10_seconds_nobody_waits_for_the_stream() {
    let bases = Bases::default();
    bases.close("u", basis(1), results());
    sleep(seconds(9)).await;
    assert_eq!(bases.seen("u"), SeenByCache::Waiting(seconds(1)));
    sleep(seconds(1)).await;
    assert_eq!(bases.seen("u"), SeenByCache::Unknown);
}

#[tokio::test(start_paused = true)]
async fn each_nodeset_has_its_own_last_batch() {
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

/// What the watch would have to show after each kind of effect.
#[rstest]
#[case::create(|world: &World, _: PodRef| world.new_pod("w-1"), true)]
#[case::mark(|_: &World, pod: PodRef| retire(&pod), true)]
#[case::unmark(|_: &World, pod: PodRef| restore(&pod, true), true)]
#[case::delete(|_: &World, pod: PodRef| delete(&pod, Evidence::NotNeeded), true)]
#[case::disown(|_: &World, pod: PodRef| Effect::ReleasePod(pod), true)]
#[case::drain_alone(|_: &World, _: PodRef| Effect::Drain(drain_of("w-0")), false)]
#[case::a_mark_that_was_there(
    |_: &World, pod: PodRef| Effect::Cordon { pod, cause: Cause::Update, person: false, drain: None }, false
)]
#[case::a_pod_that_was_there(|world: &World, _: PodRef| world.new_pod("w-0"), false)]
#[tokio::test(start_paused = true)]
async fn the_results_of_a_batch_are_waited_for(
    #[case] effect: fn(&World, PodRef) -> Effect,
    #[case] shows: bool,
) {
    let world = World::new(&["w-0"]).await;
    let pod = world.pod("w-0", &mark("update"));
    let mut cache = LaggingCache::<Pod>::new(&world.api);
    let report = world.perform(vec![effect(&world, pod)]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    let before = world.executor.bases.seen("u");
    for event in cache.deliver(usize::MAX) {
        world.executor.bases.observe(&event);
    }
    let after = world.executor.bases.seen("u");
    assert_eq!(
        (before != SeenByCache::Unknown, matches!(after, SeenByCache::Everything(_))),
        (shows, shows),
        "{before:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_there_may_be_news_to_the_cache() {
    let world = World::new(&[]).await;
    world.pod("w-0", &json!({}));
    world.perform(vec![world.new_pod("w-0"), world.new_pod("w-1")]).await;
    assert_eq!(world.executor.bases.seen("u"), SeenByCache::Unknown, "everything has to be read live");
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_was_done_and_not_told_leaves_no_trace() {
    let world = World::new(&["w-0"]).await;
    let pod = world.pod("w-0", &json!({}));
    world.misreport_once(Verb::Patch);
    let report = world.perform(vec![retire(&pod), world.new_pod("w-1")]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert_eq!(world.executor.bases.seen("u"), SeenByCache::Unknown, "everything has to be read live");
}
