//! Cordons (mark, then drain) and uncordons (removal of the mark, then undrain or resume).

use super::*;
use rstest::rstest;

#[tokio::test(start_paused = true)]
async fn pod_is_marked_before_its_node_is_listed_and_drained_and_deletes_come_last() {
    let fixture = Fixture::new(&["w-0", "w-1"]).await;
    let effects = vec![
        delete_drained(&fixture.put_drained_pod("w-1").await),
        cordon(&fixture.put_pod("w-0", &json!({}))),
    ];
    let report = fixture.perform(effects).await;
    assert_eq!(
        fixture.log.lines(),
        [
            "patch pods w-0",
            "GET jobs/state/",
            "GET nodes/",
            "GET jobs/state/",
            "POST nodes/ w-0 DRAIN",
            "delete pods w-1"
        ]
    );
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    let done =
        [WriteKind::PodMarked, WriteKind::NodeDrained, WriteKind::PodDeleted].map(|kind| report.count(kind));
    assert_eq!(done, [1, 1, 1]);
    assert_eq!(fixture.annotation("w-0", POD_CORDON_BY).as_deref(), Some("scale-in"));
    assert!(fixture.is_terminating("w-1") && !fixture.is_terminating("w-0"));
}

#[rstest]
#[case::conflict(Fate::Refused(Failure::Conflict), 0)]
#[case::too_many_requests(Fate::Refused(Failure::TooManyRequests), 1)]
#[case::internal_error(Fate::Refused(Failure::InternalError), 1)]
#[case::no_response(Fate::Lost, 1)]
#[case::applied_but_answered_with_timeout(Fate::Misreported(Failure::Timeout), 1)]
#[tokio::test(start_paused = true)]
async fn node_is_drained_only_after_the_mark_is_acknowledged(#[case] fate: Fate, #[case] failures: usize) {
    let fixture = Fixture::new(&["w-0", "w-1"]).await;
    let pods = ["w-0", "w-1"].map(|name| fixture.put_pod(name, &json!({})));
    fixture
        .on_api_request(move |call| if is_request(call, Verb::Patch, "w-0") { fate } else { Fate::Served });
    let report = fixture.perform(pods.iter().map(cordon).collect()).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "POST nodes/ w-0"), 0);
    assert_eq!(
        count_with_prefix(&fixture.writes(), "POST nodes/ w-1 DRAIN"),
        1,
        "a failed mark does not block the drains of other pods"
    );
    assert_eq!((report.count(WriteKind::PodMarked), report.failures.len()), (1, failures));
}

#[rstest]
#[case::not_cordoned(false, "scale-in")]
#[case::cordoned_by_a_person(true, "person,scale-in")]
#[tokio::test(start_paused = true)]
async fn mark_records_its_cause_and_preserves_the_cordon_of_a_person(#[case] person: bool, #[case] by: &str) {
    let fixture = Fixture::new(&["w-0"]).await;
    let before =
        if person { json!({ "metadata": { "annotations": { POD_CORDON: "true" } } }) } else { json!({}) };
    let pod = fixture.put_pod("w-0", &before);
    fixture.perform(vec![Effect::Cordon { pod, cause: Cause::ScaleIn, person, drain: None }]).await;
    assert_eq!(fixture.annotation("w-0", POD_CORDON_BY).as_deref(), Some(by));
    let pod = reference(&fixture.get::<Pod>("w-0").unwrap());
    fixture.perform(vec![Effect::Uncordon { pod, unmark: true, person, undo: None }]).await;
    assert_eq!(fixture.annotation("w-0", POD_CORDON_BY), None);
    assert_eq!(fixture.annotation("w-0", POD_CORDON).is_some(), person, "the cordon of a person stays");
}

#[tokio::test(start_paused = true)]
async fn node_is_undrained_after_its_mark_is_removed() {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    let report = fixture.perform(vec![uncordon(&pod, true)]).await;
    assert_eq!(fixture.writes(), ["patch pods w-0", "POST nodes/ w-0 UNDRAIN"]);
    assert_eq!([report.count(WriteKind::PodUnmarked), report.count(WriteKind::NodeResumed)], [1, 1]);
}

#[rstest]
#[case::conflict(Fate::Refused(Failure::Conflict))]
#[case::internal_error(Fate::Refused(Failure::InternalError))]
#[case::no_response(Fate::Lost)]
#[case::applied_but_disconnected(Fate::Misreported(Failure::Disconnect))]
#[tokio::test(start_paused = true)]
async fn node_is_undrained_only_after_the_removal_of_the_mark_is_acknowledged(#[case] fate: Fate) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    fixture.on_api_request(move |call| if call.verb == Verb::Patch { fate } else { Fate::Served });
    fixture.perform(vec![uncordon(&pod, true)]).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "POST"), 0);
}

#[rstest]
#[case::not_cordoned(json!({}), true)]
#[case::cordoned_by_a_person(json!({ "metadata": { "annotations": { POD_CORDON: "true" } } }), false)]
#[case::marked(mark("update"), false)]
#[case::marked_and_cordoned_by_a_person(mark("person,update"), false)]
#[tokio::test(start_paused = true)]
async fn uncordon_without_a_mark_to_remove_reads_the_pod_before_the_undrain(
    #[case] pod: Value,
    #[case] undrained: bool,
) {
    let fixture = Fixture::new(&["w-0"]).await;
    fixture.drain_node("w-0").await;
    let pod = fixture.put_pod("w-0", &pod);
    fixture.perform(vec![uncordon(&pod, false)]).await;
    assert_eq!(fixture.log.lines()[0], "get pods w-0");
    assert_eq!(count_with_prefix(&fixture.writes(), "POST nodes/ w-0 UNDRAIN"), usize::from(undrained));
}

#[rstest]
#[case::deleted(|fixture: &Fixture| fixture.remove::<Pod>("w-0"))]
#[case::replaced_by_a_pod_of_the_same_name(|fixture: &Fixture| {
    fixture.api.remove::<Pod>("ns", "w-0");
    fixture.put_pod("w-0", &json!({}));
})]
#[case::terminating(|fixture: &Fixture| drop(fixture.api.edit::<Pod>("ns", "w-0", |pod| {
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
})))]
#[tokio::test(start_paused = true)]
async fn node_of_a_deleted_or_terminating_pod_is_not_undrained(#[case] change: fn(&Fixture)) {
    let fixture = Fixture::new(&["w-0"]).await;
    fixture.drain_node("w-0").await;
    let pod = fixture.put_pod("w-0", &json!({}));
    change(&fixture);
    let report = fixture.perform(vec![uncordon(&pod, false)]).await;
    assert_eq!(fixture.writes(), Vec::<String>::new());
    assert_eq!(report.failures, []);
}

#[rstest]
#[case::undrain(Undo::Undrain("w-0".to_owned()))]
#[case::resume(Undo::Resume("w-0".to_owned()))]
#[tokio::test(start_paused = true)]
async fn node_drained_by_a_person_since_the_plan_stays_drained(#[case] undo: Undo) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    let person = NodeUpdate::Drain { reason: "bad dimm".to_owned() };
    fixture.slurm.client().update_nodes(&["w-0"], &person).await.unwrap();
    fixture.log.clear();
    let report =
        fixture.perform(vec![Effect::Uncordon { pod, unmark: true, person: false, undo: Some(undo) }]).await;
    assert_eq!(fixture.writes(), ["patch pods w-0"]);
    assert!(report.requeue_after.is_some(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn only_drains_with_equal_reasons_share_a_request() {
    let fixture = Fixture::new(&["w-0", "w-1", "w-2"]).await;
    let other = Drain { node: "w-2".to_owned(), reason: "slurm-operator: other".to_owned() };
    let drains = vec![drain_of("w-0"), other, drain_of("w-1")];
    let report = fixture.perform(drains.into_iter().map(Effect::Drain).collect()).await;
    let mut writes = fixture.writes();
    writes.sort();
    assert_eq!(writes, ["POST nodes/ w-2 DRAIN", "POST nodes/ w-[0-1] DRAIN"]);
    assert_eq!(report.count(WriteKind::NodeDrained), 3);
}

#[tokio::test(start_paused = true)]
async fn request_updates_at_most_100_nodes() {
    let names: Vec<String> = (0..250).map(|number| format!("w-{number}")).collect();
    let fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let report = fixture.perform(names.iter().map(|node| Effect::Drain(drain_of(node))).collect()).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "POST"), 3);
    assert_eq!(report.count(WriteKind::NodeDrained), 250);
}

#[tokio::test(start_paused = true)]
async fn node_unknown_to_slurm_does_not_block_the_undrain_of_others() {
    let fixture = Fixture::new(&["w-0", "w-2"]).await;
    let effects = ["w-0", "w-1", "w-2"].map(|name| uncordon(&fixture.put_pod(name, &json!({})), false));
    let report = fixture.perform(effects.to_vec()).await;
    assert_eq!(fixture.writes(), ["POST nodes/ w-[0,2] UNDRAIN"]);
    assert_eq!((report.count(WriteKind::NodeResumed), report.failures.len()), (2, 0));
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
}

#[tokio::test(start_paused = true)]
async fn drain_does_not_overwrite_the_reason_of_a_person() {
    let fixture = Fixture::new(&["w-0", "w-1"]).await;
    let person = NodeUpdate::Drain { reason: "bad disk".to_owned() };
    fixture.slurm.client().update_nodes(&["w-0"], &person).await.unwrap();
    fixture.log.clear();
    let drains = ["w-0", "w-1", "unknown"].map(|node| Effect::Drain(drain_of(node)));
    let report = fixture.perform(drains.to_vec()).await;
    assert_eq!(fixture.writes(), ["POST nodes/ w-1 DRAIN"]);
    assert_eq!(report.count(WriteKind::NodeDrained), 1);
    assert_eq!(report.requeue_after, Some(seconds(1)), "the skipped nodes are planned again");
    assert_eq!(fixture.slurm.unavailable_reason("w-0").as_deref(), Some("bad disk"));
}

#[tokio::test(start_paused = true)]
async fn resume_of_a_node_that_is_not_drained_counts_as_done() {
    let fixture = Fixture::new(&["w-0", "w-1"]).await;
    fixture.drain_node("w-0").await;
    let resume = |name: &str| Effect::Uncordon {
        pod: fixture.put_pod(name, &json!({})),
        unmark: false,
        person: false,
        undo: Some(Undo::Resume(name.to_owned())),
    };
    let report = fixture.perform(vec![resume("w-0"), resume("w-1")]).await;
    assert_eq!((report.count(WriteKind::NodeResumed), report.failures), (2, vec![]));
}

#[rstest]
#[case::connection_refused(Fault::Refused, true)]
#[case::connection_lost(Fault::Lost { applied: false }, false)]
#[case::connection_lost_after_the_write(Fault::Lost { applied: true }, false)]
#[case::no_answer(Fault::NoAnswer { applied: true }, false)]
#[case::slurmctld_down(Fault::ControllerDown, false)]
#[tokio::test(start_paused = true)]
async fn slurm_write_is_never_retried_and_keeps_the_batch_open_if_ambiguous(
    #[case] fault: Fault,
    #[case] certain: bool,
) {
    let fixture = Fixture::new(&["w-0", "w-1"]).await;
    fixture.slurm.inject_on(Method::POST, "/nodes/", fault);
    let report = fixture.perform(["w-0", "w-1"].map(|node| Effect::Drain(drain_of(node))).to_vec()).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "POST"), 1);
    assert_eq!(report.failures[0].object, "Slurm node w-[0-1]");
    assert_eq!(report.outcome, BatchOutcome::Performed { certain });
    assert_eq!(fixture.has_open_batch(), !certain);
}
