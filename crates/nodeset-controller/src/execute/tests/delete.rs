//! Deletes of pods, and the evidence from Slurm that each needs.

use super::*;
use crate::timing::MASS_ABSENCE_PROOF;
use rstest::rstest;

fn drained(node: &str, addresses: Vec<String>) -> Evidence {
    Evidence::Drained { node: node.to_owned(), addresses }
}

fn absent(node: &str) -> Evidence {
    Evidence::Absent { node: node.to_owned(), addresses: vec![] }
}

#[tokio::test(start_paused = true)]
async fn pod_is_deleted_with_grace_period_after_a_live_node_list() {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    let report = fixture.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(fixture.log.lines(), ["GET jobs/state/", "GET nodes/", "GET jobs/state/", "delete pods w-0"]);
    assert_eq!(fixture.get::<Pod>("w-0").unwrap()["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(report.count(WriteKind::PodDeleted), 1);
    let events = report.events();
    assert_eq!(
        (events[0].reason.as_str(), events[0].note.as_str()),
        ("SuccessfulDelete", "Deleted pod: w-0")
    );
    assert_eq!(events[0].related.as_ref().unwrap().uid.as_ref(), Some(&pod.uid));
}

#[tokio::test(start_paused = true)]
async fn pod_with_a_suspended_job_is_not_deleted() {
    let fixture = Fixture::new(&["w-0"]).await;
    let job = fixture.slurm.submit_job(&["w-0"], 1, None);
    fixture.slurm.suspend_job(job);
    let pod = fixture.put_drained_pod("w-0").await;
    let report = fixture.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 0);
    fixture.slurm.end_job(job);
    let report = fixture.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 1);
}

#[tokio::test(start_paused = true)]
async fn pod_whose_slurmd_is_registered_under_another_name_is_not_deleted() {
    let fixture = Fixture::new(&["w-1"]).await;
    sleep(MASS_ABSENCE_PROOF).await;
    fixture.slurm.start_slurmd_at("other", "10.0.0.7");
    let pod = fixture.put_pod("w-0", &json!({}));
    let at = |address: &str| Evidence::Absent { node: "w-0".to_owned(), addresses: vec![address.to_owned()] };
    let report = fixture.perform(vec![delete(&pod, at("10.0.0.7"))]).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 0);
    let report = fixture.perform(vec![delete(&pod, at("10.0.0.8"))]).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 1);
}

#[tokio::test(start_paused = true)]
async fn pod_is_not_deleted_if_the_drained_node_is_a_record_of_its_predecessor() {
    let fixture = Fixture::new(&["w-0"]).await;
    sleep(MASS_ABSENCE_PROOF).await;
    fixture.slurm.start_slurmd_at("w-0", "10.0.0.6");
    fixture.slurm.start_slurmd_at("other", "10.0.0.7");
    let pod = fixture.put_drained_pod("w-0").await;
    let at = |address: &str| drained("w-0", vec![address.to_owned()]);
    let report = fixture.perform(vec![delete(&pod, at("10.0.0.7"))]).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 0);
    let report = fixture.perform(vec![delete(&pod, at("10.0.0.6"))]).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 1);
}

#[tokio::test(start_paused = true)]
async fn report_names_the_failed_pods_whose_delete_succeeded() {
    let fixture = Fixture::new(&[]).await;
    let effects = ["w-0", "w-1", "w-2"].map(|name| {
        let pod = fixture.put_pod(name, &json!({ "status": { "phase": "Failed" } }));
        let why = if name == "w-2" { DeleteReason::Surplus } else { DeleteReason::Failed };
        Effect::DeletePod(PodDeletion { pod, evidence: Evidence::NotNeeded, why })
    });
    fixture.on_api_request(|call| match call.target.name.as_str() {
        "w-0" => Fate::Refused(Failure::InternalError),
        _ => Fate::Served,
    });
    let report = fixture.perform(effects.to_vec()).await;
    assert_eq!(
        (report.count(WriteKind::PodDeleted), report.deleted_failed_pods),
        (2, vec!["w-1".to_owned()])
    );
}

fn no_change(_: &Fixture) {}

fn submit_job(fixture: &Fixture) {
    fixture.slurm.submit_job(&["w-0"], 1, None);
}

/// `before` and `after` run before and after the drain of the node.
#[rstest]
#[case::has_a_job(submit_job, no_change)]
#[case::node_deleted(no_change, |fixture: &Fixture| fixture.slurm.lose_state())]
#[case::missing_from_a_truncated_node_list(no_change, |fixture: &Fixture| fixture.slurm.inject(Fault::OnlyNodes(0)))]
#[case::connection_refused(no_change, |fixture: &Fixture| fixture.slurm.inject(Fault::Refused))]
#[case::no_answer(no_change, |fixture: &Fixture| fixture.slurm.inject(Fault::NoAnswer { applied: false }))]
#[case::slurmctld_down(no_change, |fixture: &Fixture| fixture.slurm.inject(Fault::ControllerDown))]
#[tokio::test(start_paused = true)]
async fn pod_is_not_deleted_unless_slurm_shows_its_node_drained_without_jobs(
    #[case] before: fn(&Fixture),
    #[case] after: fn(&Fixture),
) {
    let fixture = Fixture::new(&["w-0", "w-1"]).await;
    before(&fixture);
    let pod = fixture.put_drained_pod("w-0").await;
    after(&fixture);
    let report = fixture.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "delete"), 0);
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (0, vec![]));
    assert!(report.requeue_after.is_some());
}

#[tokio::test(start_paused = true)]
async fn pod_is_not_deleted_while_its_node_is_not_drained() {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_marked_pod("w-0");
    fixture.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(fixture.writes(), Vec::<String>::new());
}

#[rstest]
#[case::absent(&["other"], no_change, true)]
#[case::registered_since_the_plan(&["other"], |fixture: &Fixture| fixture.slurm.start_slurmd("w-0"), false)]
#[case::missing_from_a_truncated_node_list(
    &["w-0", "x", "y"], |fixture: &Fixture| fixture.slurm.inject(Fault::OnlyNodes(0)), false
)]
#[case::connection_refused(&["other"], |fixture: &Fixture| fixture.slurm.inject(Fault::Refused), false)]
#[tokio::test(start_paused = true)]
async fn unmarked_pod_is_deleted_only_if_slurm_has_no_node_of_its_name(
    #[case] nodes: &[&str],
    #[case] change: fn(&Fixture),
    #[case] deleted: bool,
) {
    let fixture = Fixture::new(nodes).await;
    // Before that the node may be one that has not registered yet.
    sleep(MASS_ABSENCE_PROOF).await;
    let pod = fixture.put_pod("w-0", &json!({}));
    change(&fixture);
    fixture.perform(vec![delete(&pod, absent("w-0"))]).await;
    assert_eq!(fixture.is_terminating("w-0"), deleted);
}

#[rstest]
#[case::not_needed(Evidence::NotNeeded, true)]
#[case::restapi_exists(Evidence::NoRestApi, false)]
#[tokio::test(start_paused = true)]
async fn delete_without_a_node_as_evidence_sends_no_request_to_slurm(
    #[case] evidence: Evidence,
    #[case] deleted: bool,
) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_pod("w-0", &json!({ "status": { "phase": "Failed" } }));
    let report = fixture.perform(vec![delete(&pod, evidence)]).await;
    assert_eq!(
        (report.count(WriteKind::PodDeleted), fixture.get::<Pod>("w-0").is_none()),
        (usize::from(deleted), deleted)
    );
    assert_eq!(count_with_prefix(&fixture.log.lines(), "GET"), 0);
}

#[tokio::test(start_paused = true)]
async fn without_restapi_only_deletes_that_expect_no_slurm_are_sent() {
    let mut fixture = Fixture::new(&["w-0"]).await;
    fixture.reached.restapis.apply_watcher_event(&Event::Delete(fixture::restapi()));
    sleep(seconds(120)).await;
    let pod = fixture.put_pod("w-0", &json!({}));
    fixture.perform(vec![delete(&pod, Evidence::NoRestApi)]).await;
    assert!(fixture.is_terminating("w-0"));
    let other = fixture.put_pod("w-1", &json!({}));
    fixture.perform(vec![delete(&other, absent("w-1"))]).await;
    assert!(!fixture.is_terminating("w-1"), "without a RestApi the absence of a node cannot be proven");
}

/// Changes the pod right before each of the first deletes is served, so that they conflict.
fn change_before_delete(
    fixture: &Fixture,
    times: usize,
    change: impl Fn(&mut Value, &FakeSlurm) + Send + 'static,
) {
    let (api, slurm, mut remaining) = (fixture.api.clone(), fixture.slurm.clone(), times);
    fixture.on_api_request(move |call| {
        if call.verb == Verb::Delete && remaining > 0 {
            remaining -= 1;
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
#[case::more_often_than_retried(9, false)]
#[tokio::test(start_paused = true)]
async fn conflicting_delete_of_a_marked_pod_is_retried_3_times_on_new_evidence(
    #[case] times: usize,
    #[case] deleted: bool,
) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    change_before_delete(&fixture, times, touch);
    let report = fixture.perform(vec![delete_drained(&pod)]).await;
    assert_eq!(fixture.is_terminating("w-0"), deleted);
    assert_eq!(count_with_prefix(&fixture.log.lines(), "delete"), times.min(3) + 1);
    assert_eq!(count_with_prefix(&fixture.log.lines(), "GET nodes/"), times.min(3) + 1);
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (usize::from(deleted), vec![]));
}

#[tokio::test(start_paused = true)]
async fn conflicting_delete_of_an_outdated_pod_is_not_retried() {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    change_before_delete(&fixture, 1, touch);
    let deletion = PodDeletion { pod, evidence: drained("w-0", vec![]), why: DeleteReason::Outdated };
    let report = fixture.perform(vec![Effect::DeletePod(deletion)]).await;
    assert!(!fixture.is_terminating("w-0"));
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (0, vec![]));
}

#[rstest]
#[case::unmarked(|pod: &mut Value, _: &FakeSlurm| pod["metadata"]["annotations"] = json!({}))]
#[case::cordoned_by_a_person_only(|pod: &mut Value, _: &FakeSlurm| {
    pod["metadata"]["annotations"] = json!({ POD_CORDON: "true" });
})]
#[case::undrained_by_a_person(|pod: &mut Value, slurm: &FakeSlurm| {
    touch(pod, slurm);
    let (slurm, update) = (slurm.client(), NodeUpdate::Undrain);
    slurm.update_nodes(&["w-0"], &update).now_or_never().unwrap().unwrap();
})]
#[tokio::test(start_paused = true)]
async fn conflicting_delete_is_not_retried_if_the_pod_lost_its_mark_or_its_drain(
    #[case] change: fn(&mut Value, &FakeSlurm),
) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    change_before_delete(&fixture, 1, change);
    let report = fixture.perform(vec![delete_drained(&pod)]).await;
    assert!(!fixture.is_terminating("w-0"));
    assert_eq!((count_with_prefix(&fixture.log.lines(), "delete"), report.failures), (1, vec![]));
}

#[rstest]
#[case::pending(json!({ "phase": "Pending" }), true)]
#[case::failed(json!({ "phase": "Failed" }), true)]
#[case::slurmd_started(json!({ "phase": "Running", "containerStatuses": [{
    "name": "slurmd", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
    "state": { "running": {} },
}] }), false)]
#[tokio::test(start_paused = true)]
async fn conflicting_delete_without_evidence_is_retried_unless_slurmd_has_started(
    #[case] status: Value,
    #[case] deleted: bool,
) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod =
        fixture.put_pod("w-0", &json!({ "spec": { "nodeName": "" }, "status": { "phase": "Pending" } }));
    change_before_delete(&fixture, 1, move |pod, slurm| {
        if !status["containerStatuses"].is_null() {
            pod["spec"]["nodeName"] = json!("node-a");
        }
        pod["status"] = status.clone();
        touch(pod, slurm);
    });
    let report = fixture.perform(vec![delete(&pod, Evidence::NotNeeded)]).await;
    assert_eq!(report.count(WriteKind::PodDeleted), usize::from(deleted));
}

#[rstest]
#[case::deleted(|fixture: &Fixture| fixture.remove::<Pod>("w-0"), false)]
#[case::terminating(|fixture: &Fixture| drop(fixture.api.edit::<Pod>("ns", "w-0", |pod| {
    pod["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
})), true)]
#[case::replaced_by_a_pod_of_the_same_name(|fixture: &Fixture| {
    fixture.api.remove::<Pod>("ns", "w-0");
    fixture.put_marked_pod("w-0");
}, false)]
#[tokio::test(start_paused = true)]
async fn pod_deleted_by_another_client_counts_as_deleted(
    #[case] change: fn(&Fixture),
    #[case] terminating: bool,
) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    change(&fixture);
    let report = fixture.perform(vec![delete_drained(&pod)]).await;
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (1, vec![]));
    assert_eq!(fixture.is_terminating("w-0"), terminating);
}

#[tokio::test(start_paused = true)]
async fn node_list_is_no_evidence_after_5_seconds() {
    let names: Vec<String> = (0..48).map(|number| format!("w-{number}")).collect();
    let fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut effects = vec![];
    for name in &names {
        effects.push(delete_drained(&fixture.put_drained_pod(name).await));
    }
    fixture
        .on_api_request(|call| if call.verb == Verb::Delete { Fate::Late(seconds(3)) } else { Fate::Served });
    // Deletes run 16 at a time: the last 16 are sent after 6 s, when w-47 has been undrained.
    let slurm = fixture.slurm.client();
    let undrain = async {
        sleep(seconds(4)).await;
        slurm.update_nodes(&["w-47"], &NodeUpdate::Undrain).await.unwrap();
    };
    let (report, ()) = futures::future::join(fixture.perform(effects), undrain).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 47);
    assert!(!fixture.is_terminating("w-47") && fixture.is_terminating("w-46"));
}

#[tokio::test(start_paused = true)]
async fn deletes_share_a_node_list_and_so_do_their_retries_after_conflicts() {
    let names: Vec<String> = (0..12).map(|number| format!("w-{number}")).collect();
    let fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut effects = vec![];
    for name in &names {
        effects.push(delete_drained(&fixture.put_drained_pod(name).await));
        fixture.api.edit::<Pod>("ns", name, |pod| touch(pod, &fixture.slurm));
    }
    let report = fixture.perform(effects).await;
    assert_eq!(report.count(WriteKind::PodDeleted), 12);
    let lists = count_with_prefix(&fixture.log.lines(), "GET nodes/");
    assert!((2..=3).contains(&lists), "{lists} node lists");
    let notes: Vec<String> = report.events().into_iter().map(|event| event.note).collect();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("Deleted pods: ") && notes[0].ends_with(" and 2 more"), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_delete_does_not_block_the_deletes_of_other_pods() {
    let fixture = Fixture::new(&["w-0", "w-1"]).await;
    let effects = vec![
        delete_drained(&fixture.put_drained_pod("w-0").await),
        delete_drained(&fixture.put_drained_pod("w-1").await),
    ];
    fixture.on_api_request(|call| {
        if is_request(call, Verb::Delete, "w-0") {
            Fate::Refused(Failure::TooManyRequests)
        } else {
            Fate::Served
        }
    });
    let report = fixture.perform(effects).await;
    assert!(fixture.is_terminating("w-1"));
    assert_eq!(report.failures[0].object, "Pod w-0");
    let events = report.events();
    assert_eq!((events[1].reason.as_str(), events[1].action.as_str()), ("FailedDelete", "Delete"));
}
