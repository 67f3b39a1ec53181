use super::*;
use crate::execute::Execution;
use crate::plan::fixture::Fixture;
use crate::plan::testing::{merge, minute};
use crate::slurm::View;
use crate::status::status;
use rstest::rstest;
use serde_json::{Value, json};

/// The Events of a fixture: type, reason, action, note, and the related pod.
fn events(fixture: &Fixture, published: &mut Published) -> Vec<String> {
    let events = plan_events(&fixture.observed, &fixture.plan(), published).into_iter();
    let text = |event: NewEvent| {
        let pod = event.related.and_then(|pod| pod.name).map(|name| format!(" [{name}]")).unwrap_or_default();
        format!("{:?} {} {}: {}{pod}", event.type_, event.reason, event.action, event.note)
    };
    events.map(text).collect()
}

/// The Events that a new process publishes.
fn first_events(fixture: &Fixture) -> Vec<String> {
    events(fixture, &mut Published::default())
}

fn replicas(count: i32) -> Fixture {
    Fixture::new(&json!({ "replicas": count }))
}

/// Change of a pod: marked by the operator for this cause.
fn marked(by: &str) -> Value {
    let mark = json!({ "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": by });
    json!({ "metadata": { "annotations": mark } })
}

fn outdated() -> Value {
    json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } })
}

/// A DaemonSet-mode worker on a Kubernetes node.
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

fn daemon_in_phase(phase: &str) -> Fixture {
    let status = json!({ "status": { "phase": phase, "conditions": [] } });
    daemons().worker("gpu-x", &daemon("node-a", &status))
}

fn daemon_with_new_hostname() -> Fixture {
    let annotations = json!({ "nodeset.slinky.slurm.net/hostname-override": "blue" });
    daemons()
        .host("node-a", &json!({ "metadata": { "annotations": annotations } }))
        .worker("gpu-x", &daemon("node-a", &json!({})))
        .slurm("node-a", &["IDLE"], "")
}

fn kubernetes_node_cordoned() -> Fixture {
    replicas(2).workers(2).host("node-a", &json!({ "spec": { "unschedulable": true } }))
}

#[rstest]
#[case::as_desired(replicas(2).workers(2), &[])]
#[case::missing_workers(replicas(5).workers(2), &["Normal ScalingUp ScaleUp: Creating 3 Pod(s) to stabilize at 5 replicas"])]
#[case::more_missing_workers_than_one_plan_creates(replicas(1000).workers(2),
    &["Normal ScalingUp ScaleUp: Creating 998 Pod(s) to stabilize at 1000 replicas"])]
#[case::missing_daemons(daemons().host("node-b", &json!({})), &["Normal ScalingUp ScaleUp: Creating 2 daemon Pod(s)"])]
#[case::surplus_workers(replicas(1).workers(3), &["Normal ScalingDown ScaleDown: Deleting 2 Pod(s) to stabilize at 1 replicas"])]
#[case::surplus_worker_that_never_started(
    replicas(0).worker("gpu-0", &json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } })),
    &["Normal ScalingDown ScaleDown: Deleting 1 Pod(s) to stabilize at 0 replicas"])]
#[case::daemon_on_a_tainted_node(
    daemons().host("node-a", &json!({ "spec": { "taints": [{ "key": "k", "effect": "NoExecute" }] } }))
        .worker("gpu-x", &daemon("node-a", &json!({}))).slurm("node-a", &["IDLE"], ""),
    &["Normal ScalingDown ScaleDown: Deleting 1 daemon Pod(s)"])]
#[case::outdated_workers(replicas(2).workers(2).worker("gpu-0", &outdated()).worker("gpu-1", &outdated()),
    &["Normal RollingUpdate RollingUpdate: Rolling update: replacing 1 old pod(s) with updated revision"])]
#[case::unhealthy_outdated_worker(
    replicas(2).workers(2).worker("gpu-1", &json!({ "metadata": outdated()["metadata"], "status": { "conditions": [] } })),
    &["Normal RollingUpdate RollingUpdate: Rolling update: deleting 1 unhealthy old pod(s)"])]
#[case::outdated_worker_with_on_delete(
    Fixture::new(&json!({ "replicas": 1, "updateStrategy": { "type": "OnDelete" } })).workers(1)
    .worker("gpu-0", &outdated()), &[])]
#[case::kubernetes_node_cordoned(kubernetes_node_cordoned(), &[
    "Normal NodeCordon Cordon: Cordoning Pods ns/gpu-0, ns/gpu-1: their Kubernetes nodes were cordoned"])]
#[case::kubernetes_node_cordoned_and_workers_marked(
    kubernetes_node_cordoned().worker("gpu-0", &marked("node")).worker("gpu-1", &marked("node")), &[])]
#[case::failed_daemon(daemon_in_phase("Failed"),
    &["Warning FailedDaemonPod Info: Found failed daemon pod ns/gpu-x on node node-a, will try to kill it [gpu-x]"])]
#[case::succeeded_daemon(daemon_in_phase("Succeeded"),
    &["Normal SucceededDaemonPod Info: Found succeeded daemon pod ns/gpu-x on node node-a, will try to delete it [gpu-x]"])]
#[case::failed_worker_with_ordinal(
    replicas(1).worker("gpu-0", &json!({ "status": { "phase": "Failed", "conditions": [] } })), &[])]
#[case::hostname_of_a_daemon_changed(daemon_with_new_hostname(),
    &["Normal HostnameMismatch Info: Recreating daemon pod ns/gpu-x: hostname changed from \"node-a\" to \"blue\" [gpu-x]"])]
#[case::worker_not_registered(replicas(2).workers(2).without_slurm_node("gpu-1"), &[])]
#[case::surplus_workers_while_slurm_is_unreachable(replicas(0).workers(2).unknown(), &[])]
fn started_operation_is_published_once(#[case] fixture: Fixture, #[case] expected: &[&str]) {
    let mut published = Published::default();
    assert_eq!(events(&fixture, &mut published), expected);
    assert_eq!(events(&fixture, &mut published), [""; 0], "published before");
}

#[test]
fn scheduled_update_is_published_with_its_own_reason() {
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
fn scale_up_is_published_once_per_desired_number() {
    let mut published = Published::default();
    assert_eq!(events(&replicas(5).workers(1), &mut published).len(), 1);
    assert_eq!(events(&replicas(5).workers(3), &mut published), [""; 0]);
    let scaled_up = ["Normal ScalingUp ScaleUp: Creating 3 Pod(s) to stabilize at 6 replicas"];
    assert_eq!(events(&replicas(6).workers(3), &mut published), scaled_up);
    assert_eq!(events(&replicas(6).workers(6), &mut published), [""; 0]);
    let after_loss = ["Normal ScalingUp ScaleUp: Creating 1 Pod(s) to stabilize at 6 replicas"];
    assert_eq!(events(&replicas(6).workers(5), &mut published), after_loss, "a worker was lost since");
}

#[test]
fn scale_down_event_counts_newly_selected_pods_only() {
    let mut published = Published::default();
    assert_eq!(events(&replicas(2).workers(3), &mut published).len(), 1);
    let later = ["Normal ScalingDown ScaleDown: Deleting 1 Pod(s) to stabilize at 1 replicas"];
    assert_eq!(events(&replicas(1).workers(3), &mut published), later);
    let marked =
        replicas(1).workers(3).worker("gpu-1", &marked("scale-in")).worker("gpu-2", &marked("scale-in"));
    assert_eq!(events(&marked, &mut published), [""; 0]);
}

#[test]
fn new_process_does_not_publish_operations_of_its_predecessor() {
    let removing = replicas(1).workers(2).worker("gpu-1", &marked("scale-in")).slurm(
        "gpu-1",
        &["IDLE", "DRAIN"],
        "slurm-operator: x",
    );
    assert_eq!(removing.effects(), ["delete gpu-1 (Surplus, drained)"]);
    assert_eq!(first_events(&removing), [""; 0]);

    let creating =
        replicas(5).workers(2).view(View::not_polled_yet("Slurm has not been polled yet".to_owned()));
    let now = minute(60);
    let status = status(&creating.observed, &creating.plan(), &Execution::default(), now);
    let creating = creating.nodeset(|nodeset| nodeset.status = Some(status));
    assert_eq!(first_events(&creating), [""; 0]);
    let changed = creating.nodeset(|nodeset| nodeset.metadata.generation = Some(2));
    assert_eq!(first_events(&changed).len(), 1, "a new generation starts a new operation");
}

#[test]
fn events_of_more_than_ten_pods_are_condensed() {
    let many = replicas(11).workers(11).host("node-a", &json!({ "spec": { "unschedulable": true } }));
    let published = first_events(&many);
    assert_eq!(published.len(), 1, "{published:?}");
    assert!(published[0].ends_with(" and 1 more: their Kubernetes nodes were cordoned"), "{published:?}");
}
