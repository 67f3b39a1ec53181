use super::*;
use crate::execute::Execution;
use crate::plan::fixture::Fixture;
use crate::plan::testing::{merge, minute};
use crate::slurm::View;
use crate::status::status;
use rstest::rstest;
use serde_json::{Value, json};

/// What is told of a fixture: type, reason, action, note, and the pod that it names.
fn events(fixture: &Fixture, published: &mut Published) -> Vec<String> {
    let events = plan_events(&fixture.observed, &fixture.plan(), published).into_iter();
    let text = |event: NewEvent| {
        let pod = event.related.and_then(|pod| pod.name).map(|name| format!(" [{name}]")).unwrap_or_default();
        format!("{:?} {} {}: {}{pod}", event.type_, event.reason, event.action, event.note)
    };
    events.map(text).collect()
}

/// What a process that has just begun tells of a fixture.
fn first_events(fixture: &Fixture) -> Vec<String> {
    events(fixture, &mut Published::default())
}

fn replicas(count: i32) -> Fixture {
    Fixture::new(&json!({ "replicas": count }))
}

fn marked(by: &str) -> Value {
    let mark = json!({ "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": by });
    json!({ "metadata": { "annotations": mark } })
}

fn outdated() -> Value {
    json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } })
}

/// A worker on a Kubernetes node.
fn daemon(node: &str, change: &Value) -> Value {
    let mut daemon = json!({
        "metadata": { "labels": { "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet",
            "nodeset.slinky.slurm.net/pod-hostname": node } },
        "spec": { "nodeName": node, "hostname": node },
    });
    merge(&mut daemon, change);
    daemon
}

fn daemons() -> Fixture {
    Fixture::new(&json!({ "scalingMode": "DaemonSet" }))
}

fn ended(phase: &str) -> Fixture {
    let status = json!({ "status": { "phase": phase, "conditions": [] } });
    daemons().worker("gpu-x", &daemon("node-a", &status))
}

fn renamed() -> Fixture {
    let annotations = json!({ "nodeset.slinky.slurm.net/hostname-override": "blue" });
    daemons()
        .host("node-a", &json!({ "metadata": { "annotations": annotations } }))
        .worker("gpu-x", &daemon("node-a", &json!({})))
        .slurm("node-a", &["IDLE"], "")
}

fn cordoned() -> Fixture {
    replicas(2).workers(2).host("node-a", &json!({ "spec": { "unschedulable": true } }))
}

#[rstest]
#[case::as_wished(replicas(2).workers(2), &[])]
#[case::too_few(replicas(5).workers(2), &["Normal ScalingUp ScaleUp: Creating 3 Pod(s) to stabilize at 5 replicas"])]
#[case::far_too_few(replicas(1000).workers(2),
    &["Normal ScalingUp ScaleUp: Creating 998 Pod(s) to stabilize at 1000 replicas"])]
#[case::without_daemons(daemons().host("node-b", &json!({})), &["Normal ScalingUp ScaleUp: Creating 2 daemon Pod(s)"])]
#[case::too_many(replicas(1).workers(3), &["Normal ScalingDown ScaleDown: Deleting 2 Pod(s) to stabilize at 1 replicas"])]
#[case::never_started(replicas(0).worker("gpu-0", &json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } })),
    &["Normal ScalingDown ScaleDown: Deleting 1 Pod(s) to stabilize at 0 replicas"])]
#[case::unwanted_daemon(
    daemons().host("node-a", &json!({ "spec": { "taints": [{ "key": "k", "effect": "NoExecute" }] } }))
        .worker("gpu-x", &daemon("node-a", &json!({}))).slurm("node-a", &["IDLE"], ""),
    &["Normal ScalingDown ScaleDown: Deleting 1 daemon Pod(s)"])]
#[case::old(replicas(2).workers(2).worker("gpu-0", &outdated()).worker("gpu-1", &outdated()),
    &["Normal RollingUpdate RollingUpdate: Rolling update: replacing 1 old pod(s) with updated revision"])]
#[case::old_and_unhealthy(
    replicas(2).workers(2).worker("gpu-1", &json!({ "metadata": outdated()["metadata"], "status": { "conditions": [] } })),
    &["Normal RollingUpdate RollingUpdate: Rolling update: deleting 1 unhealthy old pod(s)"])]
#[case::old_on_delete(Fixture::new(&json!({ "replicas": 1, "updateStrategy": { "type": "OnDelete" } })).workers(1)
    .worker("gpu-0", &outdated()), &[])]
#[case::cordoned(cordoned(), &[
    "Normal NodeCordon Cordon: Cordoning Pod ns/gpu-0: Kubernetes node node-a was cordoned [gpu-0]",
    "Normal NodeCordon Cordon: Cordoning Pod ns/gpu-1: Kubernetes node node-a was cordoned [gpu-1]"])]
#[case::cordoned_before(cordoned().worker("gpu-0", &marked("node")).worker("gpu-1", &marked("node")), &[])]
#[case::failed(ended("Failed"),
    &["Warning FailedDaemonPod Info: Found failed daemon pod ns/gpu-x on node node-a, will try to kill it [gpu-x]"])]
#[case::succeeded(ended("Succeeded"),
    &["Normal SucceededDaemonPod Info: Found succeeded daemon pod ns/gpu-x on node node-a, will try to delete it [gpu-x]"])]
#[case::a_numbered_one_failed(
    replicas(1).worker("gpu-0", &json!({ "status": { "phase": "Failed", "conditions": [] } })), &[])]
#[case::renamed(renamed(),
    &["Normal HostnameMismatch Info: Recreating daemon pod ns/gpu-x: hostname changed from \"node-a\" to \"blue\" [gpu-x]"])]
#[case::unregistered(replicas(2).workers(2).without_slurm_node("gpu-1"), &[])]
#[case::unknown(replicas(0).workers(2).unknown(), &[])]
fn what_begins_is_told_once(#[case] fixture: Fixture, #[case] expected: &[&str]) {
    let mut published = Published::default();
    assert_eq!(events(&fixture, &mut published), expected);
    assert_eq!(events(&fixture, &mut published), [""; 0], "it was told");
}

#[test]
fn a_scheduled_update_has_a_name_of_its_own() {
    let strategy =
        json!({ "type": "ScheduledUpdate", "scheduledUpdate": { "startTime": minute(0), "duration": "2h" } });
    let unhealthy = json!({ "metadata": outdated()["metadata"], "status": { "conditions": [] } });
    let fixture = Fixture::new(&json!({ "replicas": 1, "updateStrategy": strategy }))
        .workers(1)
        .worker("gpu-0", &unhealthy);
    let expected =
        "Normal Scheduled Update ScheduledUpdate: Scheduled update: deleting 1 unhealthy old pod(s)";
    assert!(first_events(&fixture).contains(&expected.to_owned()), "{:?}", first_events(&fixture));
}

#[test]
fn pods_that_come_one_after_another_are_told_of_once_and_so_is_another_number() {
    let mut published = Published::default();
    assert_eq!(events(&replicas(5).workers(1), &mut published).len(), 1);
    assert_eq!(events(&replicas(5).workers(3), &mut published), [""; 0]);
    let more = ["Normal ScalingUp ScaleUp: Creating 3 Pod(s) to stabilize at 6 replicas"];
    assert_eq!(events(&replicas(6).workers(3), &mut published), more);
    assert_eq!(events(&replicas(6).workers(6), &mut published), [""; 0]);
    let again = ["Normal ScalingUp ScaleUp: Creating 1 Pod(s) to stabilize at 6 replicas"];
    assert_eq!(events(&replicas(6).workers(5), &mut published), again, "one was lost since");
}

#[test]
fn whoever_is_chosen_later_is_told_of_alone() {
    let mut published = Published::default();
    assert_eq!(events(&replicas(2).workers(3), &mut published).len(), 1);
    let later = ["Normal ScalingDown ScaleDown: Deleting 1 Pod(s) to stabilize at 1 replicas"];
    assert_eq!(events(&replicas(1).workers(3), &mut published), later);
    let marked =
        replicas(1).workers(3).worker("gpu-1", &marked("scale-in")).worker("gpu-2", &marked("scale-in"));
    assert_eq!(events(&marked, &mut published), [""; 0]);
}

#[test]
fn a_new_process_tells_of_nothing_that_is_under_way() {
    let leaving = replicas(1).workers(2).worker("gpu-1", &marked("scale-in")).slurm(
        "gpu-1",
        &["IDLE", "DRAIN"],
        "slurm-operator: x",
    );
    assert_eq!(leaving.effects(), ["delete gpu-1 (Surplus, drained)"]);
    assert_eq!(first_events(&leaving), [""; 0]);

    let coming =
        replicas(5).workers(2).view(View::not_polled_yet("Slurm has not been polled yet".to_owned()));
    let now = minute(60);
    let said = status(&coming.observed, &coming.plan(), &Execution::default(), now);
    let coming = coming.nodeset(|nodeset| nodeset.status = Some(said));
    assert_eq!(first_events(&coming), [""; 0]);
    let changed = coming.nodeset(|nodeset| nodeset.metadata.generation = Some(2));
    assert_eq!(first_events(&changed).len(), 1, "what was wished since then is news");
}

#[test]
fn many_pods_share_a_event() {
    let many = replicas(11).workers(11).host("node-a", &json!({ "spec": { "unschedulable": true } }));
    let told = first_events(&many);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with(" and 1 more: their Kubernetes nodes were cordoned"), "{told:?}");
}
