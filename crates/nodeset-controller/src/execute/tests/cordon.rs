//! Marks and drains, and back.

use super::*;
use rstest::rstest;

#[tokio::test(start_paused = true)]
async fn a_pod_is_marked_then_its_node_drained_after_a_look_and_others_deleted() {
    let world = World::new(&["w-0", "w-1"]).await;
    let effects = vec![delete_drained(&world.drained("w-1").await), retire(&world.pod("w-0", &json!({})))];
    let report = world.perform(effects).await;
    assert_eq!(
        world.log.lines(),
        ["patch pods w-0", "GET nodes/", "POST nodes/ w-0 DRAIN", "delete pods w-1"]
    );
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    let done =
        [WriteKind::PodMarked, WriteKind::NodeDrained, WriteKind::PodDeleted].map(|deed| report.count(deed));
    assert_eq!(done, [1, 1, 1]);
    assert_eq!(world.annotation("w-0", POD_CORDON_BY).as_deref(), Some("scale-in"));
    assert!(world.is_terminating("w-1") && !world.is_terminating("w-0"));
}

#[rstest]
#[case::changed_meanwhile(Fate::Refused(Failure::Conflict), 0)]
#[case::too_busy(Fate::Refused(Failure::TooManyRequests), 1)]
#[case::failing(Fate::Refused(Failure::InternalError), 1)]
#[case::silent(Fate::Lost, 1)]
#[case::done_and_not_told(Fate::Misreported(Failure::Timeout), 1)]
#[tokio::test(start_paused = true)]
async fn without_an_answer_that_the_mark_is_there_nothing_is_drained(
    #[case] fate: Fate,
    #[case] failures: usize,
) {
    let world = World::new(&["w-0", "w-1"]).await;
    let pods = ["w-0", "w-1"].map(|name| world.pod(name, &json!({})));
    world.fate(move |call| if is(call, Verb::Patch, "w-0") { fate } else { Fate::Served });
    let report = world.perform(pods.iter().map(retire).collect()).await;
    assert_eq!(count(&world.writes(), "POST nodes/ w-0"), 0);
    assert_eq!(count(&world.writes(), "POST nodes/ w-1 DRAIN"), 1, "the others go on");
    assert_eq!((report.count(WriteKind::PodMarked), report.failures.len()), (1, failures));
}

#[rstest]
#[case::ours(false, "scale-in")]
#[case::a_person_came_first(true, "person,scale-in")]
#[tokio::test(start_paused = true)]
async fn the_mark_says_why_and_does_not_hide_a_person(#[case] person: bool, #[case] by: &str) {
    let world = World::new(&["w-0"]).await;
    let before =
        if person { json!({ "metadata": { "annotations": { POD_CORDON: "true" } } }) } else { json!({}) };
    let pod = world.pod("w-0", &before);
    world.perform(vec![Effect::Cordon { pod, cause: Cause::ScaleIn, person, drain: None }]).await;
    assert_eq!(world.annotation("w-0", POD_CORDON_BY).as_deref(), Some(by));
    let pod = reference(&world.get::<Pod>("w-0").unwrap());
    world.perform(vec![Effect::Uncordon { pod, unmark: true, person, undo: None }]).await;
    assert_eq!(world.annotation("w-0", POD_CORDON_BY), None);
    assert_eq!(world.annotation("w-0", POD_CORDON).is_some(), person, "what a person did stays");
}

#[tokio::test(start_paused = true)]
async fn a_node_goes_back_to_work_when_the_mark_is_off() {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    let report = world.perform(vec![restore(&pod, true)]).await;
    assert_eq!(world.writes(), ["patch pods w-0", "POST nodes/ w-0 UNDRAIN"]);
    assert_eq!([report.count(WriteKind::PodUnmarked), report.count(WriteKind::NodeResumed)], [1, 1]);
}

#[rstest]
#[case::changed_meanwhile(Fate::Refused(Failure::Conflict))]
#[case::failing(Fate::Refused(Failure::InternalError))]
#[case::silent(Fate::Lost)]
#[case::done_and_not_told(Fate::Misreported(Failure::Disconnect))]
#[tokio::test(start_paused = true)]
async fn without_an_answer_that_the_mark_is_off_nothing_goes_back_to_work(#[case] fate: Fate) {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    world.fate(move |call| if call.verb == Verb::Patch { fate } else { Fate::Served });
    world.perform(vec![restore(&pod, true)]).await;
    assert_eq!(count(&world.writes(), "POST"), 0);
}

#[rstest]
#[case::has_no_mark(json!({}), true)]
#[case::a_person_cordoned_it(json!({ "metadata": { "annotations": { POD_CORDON: "true" } } }), false)]
#[case::has_a_mark(mark("update"), false)]
#[case::has_a_mark_on_top_of_a_person(mark("person,update"), false)]
#[tokio::test(start_paused = true)]
async fn where_no_mark_has_to_go_the_pod_is_read(#[case] pod: Value, #[case] works: bool) {
    let world = World::new(&["w-0"]).await;
    world.drain("w-0").await;
    let pod = world.pod("w-0", &pod);
    world.perform(vec![restore(&pod, false)]).await;
    assert_eq!(world.log.lines()[0], "get pods w-0");
    assert_eq!(count(&world.writes(), "POST nodes/ w-0 UNDRAIN"), usize::from(works));
}

#[rstest]
#[case::gone(|world: &World| world.forget::<Pod>("w-0"))]
#[case::another_of_the_same_name(|world: &World| {
    world.api.remove::<Pod>("ns", "w-0");
    world.pod("w-0", &json!({}));
})]
#[case::ending(|world: &World| drop(world.api.edit::<Pod>("ns", "w-0", |pod| {
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
})))]
#[tokio::test(start_paused = true)]
async fn the_node_of_a_pod_that_does_not_stay_is_left_alone(#[case] change: fn(&World)) {
    let world = World::new(&["w-0"]).await;
    world.drain("w-0").await;
    let pod = world.pod("w-0", &json!({}));
    change(&world);
    let report = world.perform(vec![restore(&pod, false)]).await;
    assert_eq!(world.writes(), Vec::<String>::new());
    assert_eq!(report.failures, []);
}

#[rstest]
#[case::undrained(Undo::Undrain("w-0".to_owned()))]
#[case::resumed(Undo::Resume("w-0".to_owned()))]
#[tokio::test(start_paused = true)]
async fn whoever_drained_a_node_since_it_was_looked_at_keeps_it(#[case] undo: Undo) {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    let person = NodeUpdate::Drain { reason: "bad dimm".to_owned() };
    world.slurm.client().update_nodes(&["w-0"], &person).await.unwrap();
    world.log.0.lock().unwrap().clear();
    let report =
        world.perform(vec![Effect::Uncordon { pod, unmark: true, person: false, undo: Some(undo) }]).await;
    assert_eq!(world.writes(), ["patch pods w-0"]);
    assert!(report.requeue_after.is_some(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn equal_drains_share_a_request_and_different_ones_do_not() {
    let world = World::new(&["w-0", "w-1", "w-2"]).await;
    let other = Drain { node: "w-2".to_owned(), reason: "slurm-operator: other".to_owned() };
    let drains = vec![drain_of("w-0"), other, drain_of("w-1")];
    let report = world.perform(drains.into_iter().map(Effect::Drain).collect()).await;
    let mut writes = world.writes();
    writes.sort();
    assert_eq!(writes, ["POST nodes/ w-2 DRAIN", "POST nodes/ w-[0-1] DRAIN"]);
    assert_eq!(report.count(WriteKind::NodeDrained), 3);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_nodes_share_a_request_at_most() {
    let names: Vec<String> = (0..250).map(|number| format!("w-{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let report = world.perform(names.iter().map(|node| Effect::Drain(drain_of(node))).collect()).await;
    assert_eq!(count(&world.writes(), "POST"), 3);
    assert_eq!(report.count(WriteKind::NodeDrained), 250);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_slurm_does_not_know_keeps_no_other_from_going_back_to_work() {
    let world = World::new(&["w-0", "w-2"]).await;
    let effects = ["w-0", "w-1", "w-2"].map(|name| restore(&world.pod(name, &json!({})), false));
    let report = world.perform(effects.to_vec()).await;
    assert_eq!(world.writes(), ["POST nodes/ w-[0,2] UNDRAIN"]);
    assert_eq!((report.count(WriteKind::NodeResumed), report.failures.len()), (2, 0));
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
}

#[tokio::test(start_paused = true)]
async fn whoever_drained_a_node_a_moment_before_us_keeps_the_last_word() {
    let world = World::new(&["w-0", "w-1"]).await;
    let person = NodeUpdate::Drain { reason: "bad disk".to_owned() };
    world.slurm.client().update_nodes(&["w-0"], &person).await.unwrap();
    world.log.0.lock().unwrap().clear();
    let drains = ["w-0", "w-1", "unknown"].map(|node| Effect::Drain(drain_of(node)));
    let report = world.perform(drains.to_vec()).await;
    assert_eq!(world.writes(), ["POST nodes/ w-1 DRAIN"]);
    assert_eq!(report.count(WriteKind::NodeDrained), 1);
    assert_eq!(report.requeue_after, Some(seconds(1)), "the others are looked at again");
    assert_eq!(world.slurm.unavailable_reason("w-0").as_deref(), Some("bad disk"));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_at_work_already_need_no_resume() {
    let world = World::new(&["w-0", "w-1"]).await;
    world.drain("w-0").await;
    let resume = |name: &str| Effect::Uncordon {
        pod: world.pod(name, &json!({})),
        unmark: false,
        person: false,
        undo: Some(Undo::Resume(name.to_owned())),
    };
    let report = world.perform(vec![resume("w-0"), resume("w-1")]).await;
    assert_eq!((report.count(WriteKind::NodeResumed), report.failures), (2, vec![]));
}

#[rstest]
#[case::refused(Fault::Refused, true)]
#[case::lost(Fault::Lost { applied: false }, false)]
#[case::lost_and_done(Fault::Lost { applied: true }, false)]
#[case::silent(Fault::NoAnswer { applied: true }, false)]
#[case::controller_down(Fault::ControllerDown, false)]
#[tokio::test(start_paused = true)]
async fn a_write_to_slurm_is_sent_once_and_only_its_answer_ends_the_batch(
    #[case] fault: Fault,
    #[case] certain: bool,
) {
    let world = World::new(&["w-0", "w-1"]).await;
    world.slurm.inject_on(Method::POST, "/nodes/", fault);
    let report = world.perform(["w-0", "w-1"].map(|node| Effect::Drain(drain_of(node))).to_vec()).await;
    assert_eq!(count(&world.writes(), "POST"), 1);
    assert_eq!(report.failures[0].object, "Slurm node w-[0-1]");
    assert_eq!(report.outcome, BatchOutcome::Performed { certain });
    assert_eq!(world.has_open_batch(), !certain);
}
