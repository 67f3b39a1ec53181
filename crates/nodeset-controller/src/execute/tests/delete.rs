//! Deletes, and what has to be seen before.

use super::*;
use rstest::rstest;

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_on_a_look_and_gently() {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    let report = world.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(world.log.lines(), ["GET nodes/", "delete pods w-0"]);
    assert_eq!(world.get::<Pod>("w-0").unwrap()["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(report.count(WriteKind::PodDeleted), 1);
    let notices = report.events();
    assert_eq!(
        (notices[0].reason.as_str(), notices[0].note.as_str()),
        ("SuccessfulDelete", "Deleted pod: w-0")
    );
    assert_eq!(notices[0].related.as_ref().unwrap().uid.as_ref(), Some(&pod.uid));
}

#[tokio::test(start_paused = true)]
async fn of_the_pods_that_ended_those_are_told_that_were_deleted() {
    let world = World::new(&[]).await;
    let effects = ["w-0", "w-1", "w-2"].map(|name| {
        let pod = world.pod(name, &json!({ "status": { "phase": "Failed" } }));
        let why = if name == "w-2" { DeleteReason::Surplus } else { DeleteReason::Failed };
        Effect::DeletePod(PodDeletion { pod, evidence: Evidence::NotNeeded, why })
    });
    world.fate(|call| match call.target.name.as_str() {
        "w-0" => Fate::Refused(Failure::InternalError),
        _ => Fate::Served,
    });
    let report = world.perform(effects.to_vec()).await;
    assert_eq!(
        (report.count(WriteKind::PodDeleted), report.deleted_failed_pods),
        (2, vec!["w-1".to_owned()])
    );
}

fn nothing(_: &World) {}

fn submit_job(world: &World) {
    world.slurm.submit_job(&["w-0"], 1, None);
}

/// Before and after the node was drained.
#[rstest]
#[case::busy(submit_job, nothing)]
#[case::gone(nothing, |world: &World| world.slurm.lose_state())]
#[case::left_out(nothing, |world: &World| world.slurm.inject(Fault::OnlyNodes(0)))]
#[case::unreachable(nothing, |world: &World| world.slurm.inject(Fault::Refused))]
#[case::silent(nothing, |world: &World| world.slurm.inject(Fault::NoAnswer { applied: false }))]
#[case::no_slurmctld(nothing, |world: &World| world.slurm.inject(Fault::ControllerDown))]
#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_is_not_seen_drained_and_idle_is_kept(
    #[case] before: fn(&World),
    #[case] after: fn(&World),
) {
    let world = World::new(&["w-0", "w-1"]).await;
    before(&world);
    let pod = world.drained("w-0").await;
    after(&world);
    let report = world.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(count(&world.writes(), "delete"), 0);
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (0, vec![]));
    assert!(report.requeue_after.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_is_not_drained_is_kept() {
    let world = World::new(&["w-0"]).await;
    let pod = world.marked("w-0");
    world.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[rstest]
#[case::absent(&["other"], nothing, true)]
#[case::registered_meanwhile(&["other"], |world: &World| world.slurm.start_slurmd("w-0"), false)]
#[case::missing_for_a_moment(&["w-0", "x", "y"], |world: &World| world.slurm.inject(Fault::OnlyNodes(0)), false)]
#[case::unreachable(&["other"], |world: &World| world.slurm.inject(Fault::Refused), false)]
#[tokio::test(start_paused = true)]
async fn a_pod_that_never_registered_goes_without_mark_if_slurm_has_no_such_node(
    #[case] nodes: &[&str],
    #[case] change: fn(&World),
    #[case] deleted: bool,
) {
    let world = World::new(nodes).await;
    let pod = world.pod("w-0", &json!({}));
    change(&world);
    world.perform(vec![delete(&pod, Evidence::Absent("w-0".to_owned()))]).await;
    assert_eq!(world.is_terminating("w-0"), deleted);
}

#[rstest]
#[case::needs_none(Evidence::NotNeeded, true)]
#[case::slurm_is_there_after_all(Evidence::SlurmNotExpected, false)]
#[tokio::test(start_paused = true)]
async fn where_no_evidence_is_needed_slurm_is_not_asked(#[case] evidence: Evidence, #[case] deleted: bool) {
    let world = World::new(&["w-0"]).await;
    let pod = world.pod("w-0", &json!({ "status": { "phase": "Failed" } }));
    let report = world.perform(vec![delete(&pod, evidence)]).await;
    assert_eq!(
        (report.count(WriteKind::PodDeleted), world.get::<Pod>("w-0").is_none()),
        (usize::from(deleted), deleted)
    );
    assert_eq!(count(&world.log.lines(), "GET"), 0);
}

#[tokio::test(start_paused = true)]
async fn where_slurm_is_not_expected_pods_are_pods_and_no_more() {
    let mut world = World::new(&["w-0"]).await;
    world.reached.restapis.apply_watcher_event(&Event::Delete(fixture::restapi()));
    sleep(seconds(120)).await;
    let pod = world.pod("w-0", &json!({}));
    world.perform(vec![delete(&pod, Evidence::SlurmNotExpected)]).await;
    assert!(world.is_terminating("w-0"));
    let other = world.pod("w-1", &json!({}));
    world.perform(vec![delete(&other, Evidence::Absent("w-1".to_owned()))]).await;
    assert!(!world.is_terminating("w-1"), "that nobody can be asked is not an answer");
}

/// Somebody changes the pod right before each of the first deletes arrives.
fn interfere(world: &World, times: usize, change: impl Fn(&mut Value, &FakeSlurm) + Send + 'static) {
    let (api, slurm, mut left) = (world.api.clone(), world.slurm.clone(), times);
    world.fate(move |call| {
        if call.verb == Verb::Delete && left > 0 {
            left -= 1;
            api.edit::<Pod>("ns", "w-0", |pod| change(pod, &slurm));
        }
        Fate::Served
    });
}

fn touch(pod: &mut Value, _: &FakeSlurm) {
    let labels = &mut pod["metadata"]["labels"];
    *labels = json!({ "touched": format!("{}x", labels["touched"].as_str().unwrap_or_default()) });
}

#[rstest]
#[case::once(1, true)]
#[case::three_times(3, true)]
#[case::again_and_again(9, false)]
#[tokio::test(start_paused = true)]
async fn a_pod_that_changed_and_is_still_marked_is_deleted_on_another_look(
    #[case] times: usize,
    #[case] deleted: bool,
) {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    interfere(&world, times, touch);
    let report = world.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(world.is_terminating("w-0"), deleted);
    assert_eq!(count(&world.log.lines(), "delete"), times.min(3) + 1);
    assert_eq!(count(&world.log.lines(), "GET nodes/"), times.min(3) + 1);
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (usize::from(deleted), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_to_replace_that_changed_is_left_to_the_next_plan() {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    interfere(&world, 1, touch);
    let removal =
        PodDeletion { pod, evidence: Evidence::Drained("w-0".to_owned()), why: DeleteReason::Outdated };
    let report = world.perform(vec![Effect::DeletePod(removal)]).await;
    assert!(!world.is_terminating("w-0"));
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (0, vec![]));
}

#[rstest]
#[case::mark_gone(|pod: &mut Value, _: &FakeSlurm| pod["metadata"]["annotations"] = json!({}))]
#[case::a_persons_now(|pod: &mut Value, _: &FakeSlurm| {
    pod["metadata"]["annotations"] = json!({ POD_CORDON: "true" });
})]
#[case::undrained_by_a_person(|pod: &mut Value, slurm: &FakeSlurm| {
    touch(pod, slurm);
    let (slurm, update) = (slurm.client(), NodeUpdate::Undrain);
    slurm.update_nodes(&["w-0"], &update).now_or_never().unwrap().unwrap();
})]
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_to_stay_after_all_is_kept(#[case] change: fn(&mut Value, &FakeSlurm)) {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    interfere(&world, 1, change);
    let report = world.perform(vec![delete_drained(&pod)]).await;
    assert!(!world.is_terminating("w-0"));
    assert_eq!((count(&world.log.lines(), "delete"), report.failures), (1, vec![]));
}

#[rstest]
#[case::still_pending(json!({ "phase": "Pending" }), true)]
#[case::failed(json!({ "phase": "Failed" }), true)]
#[case::started(json!({ "phase": "Running", "containerStatuses": [{
    "name": "slurmd", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
    "state": { "running": {} },
}] }), false)]
#[tokio::test(start_paused = true)]
async fn a_pod_whose_slurmd_started_meanwhile_needs_evidence(#[case] status: Value, #[case] deleted: bool) {
    let world = World::new(&["w-0"]).await;
    let pod = world.pod("w-0", &json!({ "status": { "phase": "Pending" } }));
    interfere(&world, 1, move |pod, slurm| {
        pod["status"] = status.clone();
        touch(pod, slurm);
    });
    let report = world.perform(vec![delete(&pod, Evidence::NotNeeded)]).await;
    assert_eq!(report.count(WriteKind::PodDeleted), usize::from(deleted));
}

#[rstest]
#[case::gone(|world: &World| world.forget::<Pod>("w-0"), false)]
#[case::going(|world: &World| drop(world.api.edit::<Pod>("ns", "w-0", |pod| {
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
})), true)]
#[case::followed_by_another(|world: &World| {
    world.api.remove::<Pod>("ns", "w-0");
    world.marked("w-0");
}, false)]
#[tokio::test(start_paused = true)]
async fn a_pod_that_went_by_itself_counts_as_deleted(#[case] change: fn(&World), #[case] terminating: bool) {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    change(&world);
    let report = world.perform(vec![delete_drained(&pod)]).await;
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (1, vec![]));
    assert_eq!(world.is_terminating("w-0"), terminating);
}

#[tokio::test(start_paused = true)]
async fn a_look_proves_nothing_after_5_seconds() {
    let names: Vec<String> = (0..48).map(|number| format!("w-{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut effects = vec![];
    for name in &names {
        effects.push(delete_drained(&world.drained(name).await));
    }
    world.fate(|call| if call.verb == Verb::Delete { Fate::Late(seconds(3)) } else { Fate::Served });
    // 16 at a time: the last 16 come after 6 s, when w-47 is at work again.
    let slurm = world.slurm.client();
    let undrain = async {
        sleep(seconds(4)).await;
        slurm.update_nodes(&["w-47"], &NodeUpdate::Undrain).await.unwrap();
    };
    let (report, ()) = futures::future::join(world.perform(effects), undrain).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 47);
    assert!(!world.is_terminating("w-47") && world.is_terminating("w-46"));
}

#[tokio::test(start_paused = true)]
async fn one_look_serves_all_deletes_and_another_all_that_lost_a_race() {
    let names: Vec<String> = (0..12).map(|number| format!("w-{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut effects = vec![];
    for name in &names {
        effects.push(delete_drained(&world.drained(name).await));
        world.api.edit::<Pod>("ns", name, |pod| touch(pod, &world.slurm));
    }
    let report = world.perform(effects).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 12);
    let looks = count(&world.log.lines(), "GET nodes/");
    assert!((2..=3).contains(&looks), "{looks} looks");
    let notes: Vec<String> = report.events().into_iter().map(|notice| notice.note).collect();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("Deleted pods: ") && notes[0].ends_with(" and 2 more"), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_not_be_deleted_keeps_no_other() {
    let world = World::new(&["w-0", "w-1"]).await;
    let effects =
        vec![delete_drained(&world.drained("w-0").await), delete_drained(&world.drained("w-1").await)];
    world.fate(|call| {
        if is(call, Verb::Delete, "w-0") { Fate::Refused(Failure::TooManyRequests) } else { Fate::Served }
    });
    let report = world.perform(effects).await;
    assert!(world.is_terminating("w-1"));
    assert_eq!(report.failures[0].object, "Pod w-0");
    let notices = report.events();
    assert_eq!((notices[1].reason.as_str(), notices[1].action.as_str()), ("FailedDelete", "Delete"));
}
