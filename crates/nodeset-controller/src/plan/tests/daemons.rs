//! One worker on each Kubernetes node that fits.

use crate::plan::fixture::Fixture;
use crate::plan::testing::minute;
use rstest::rstest;
use serde_json::{Value, json};

fn fixture() -> Fixture {
    Fixture::new(&json!({ "scalingMode": "DaemonSet" }))
}

fn on(node: &str, change: &Value) -> Value {
    let mut daemon = json!({
        "metadata": { "generateName": "gpu-", "labels": { "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet",
            "nodeset.slinky.slurm.net/pod-hostname": node } },
        "spec": { "nodeName": node, "hostname": node },
    });
    crate::plan::testing::merge(&mut daemon, change);
    daemon
}

#[test]
fn every_node_that_fits_gets_one() {
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
    let fixture = fixture().host("node-b", &json!({})).host("node-c", &tainted);
    assert_eq!(fixture.effects().len(), 2);
    assert_eq!(fixture.plan().desired, 2);
    assert_eq!(fixture.effects(), fixture.effects(), "the names are functions of the nodes");
}

#[rstest]
#[case::failed("Failed", "delete gpu-x (Failed, needless)")]
#[case::succeeded("Succeeded", "delete gpu-x (Succeeded, needless)")]
fn whoever_ended_makes_room_before_the_next_one_comes(#[case] phase: &str, #[case] expected: &str) {
    let fixture =
        fixture().worker("gpu-x", &on("node-a", &json!({ "status": { "phase": phase, "conditions": [] } })));
    assert_eq!(fixture.effects(), [expected]);
}

#[rstest]
#[case::the_older_one(false, "gpu-x")]
#[case::the_busy_one(true, "gpu-y")]
fn of_two_on_one_node_one_stays(#[case] newer_is_busy: bool, #[case] stays: &str) {
    let ready = |at: i64, state: Option<&str>| {
        let mut conditions =
            vec![json!({ "type": "Ready", "status": "True", "lastTransitionTime": minute(at) })];
        conditions.extend(state.map(|state| json!({ "type": state, "status": "True" })));
        on("node-a", &json!({ "status": { "conditions": conditions } }))
    };
    let fixture = fixture()
        .worker("gpu-x", &ready(1, None))
        .worker("gpu-y", &ready(2, newer_is_busy.then_some("SlurmNodeStateMixed")))
        .slurm("node-a", &["MIXED"], "");
    let effects = fixture.effects();
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert!(!effects[0].contains(stays), "{effects:?}");
}

/// The Slurm node is the other one's, and works on.
#[test]
fn of_two_on_one_node_the_one_that_never_started_goes_at_once() {
    let pending = json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } });
    let fixture = fixture()
        .worker("gpu-x", &on("node-a", &json!({})))
        .worker("gpu-y", &on("node-a", &pending))
        .slurm("node-a", &["MIXED"], "");
    assert_eq!(fixture.effects(), ["delete gpu-y (Unwanted, needless)"]);
}

#[test]
fn a_node_that_no_longer_fits_loses_its_worker_once_drained() {
    let fixture = Fixture::new(
        &json!({ "scalingMode": "DaemonSet", "template": { "spec": { "nodeSelector": { "a": "b" } } } }),
    )
    .worker("gpu-x", &on("node-a", &json!({})))
    .slurm("node-a", &["IDLE"], "");
    let effects = fixture.effects();
    assert!(effects[0].starts_with("mark gpu-x for scale-in and drain"), "{effects:?}");
}

#[rstest]
#[case::unreachable("node.kubernetes.io/unreachable", false)]
#[case::not_ready("node.kubernetes.io/not-ready", false)]
#[case::of_an_administrator("maintenance", true)]
fn a_node_that_is_away_for_a_moment_keeps_its_worker(#[case] taint: &str, #[case] leaves: bool) {
    let tainted = json!({ "spec": { "taints": [{ "key": taint, "effect": "NoExecute" }] } });
    let fixture = fixture().host("node-a", &tainted).worker("gpu-x", &on("node-a", &json!({}))).slurm(
        "node-a",
        &["IDLE"],
        "",
    );
    assert_eq!(!fixture.effects().is_empty(), leaves, "{:?}", fixture.effects());
    assert_eq!(fixture.plan().desired, usize::from(!leaves));
}

#[rstest]
#[case::empty(None, 0)]
#[case::with_a_worker(Some(json!({})), 1)]
#[case::whose_worker_is_on_its_way_out(Some(json!({ "metadata": { "deletionTimestamp": minute(1) } })), 0)]
fn a_node_that_takes_nobody_new_is_wanted_for_whoever_stays(
    #[case] worker: Option<Value>,
    #[case] desired: usize,
) {
    let cordoned = json!({ "spec": { "taints": [
        { "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }] } });
    let mut fixture = fixture().host("node-a", &cordoned);
    if let Some(change) = worker {
        fixture = fixture.worker("gpu-x", &on("node-a", &change));
    }
    assert_eq!(fixture.plan().desired, desired);
}

#[test]
fn another_hostname_is_another_worker() {
    let named =
        json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/hostname-override": "other" } } });
    let fixture = fixture().host("node-a", &named).worker("gpu-x", &on("node-a", &json!({}))).slurm(
        "node-a",
        &["IDLE"],
        "",
    );
    let effects = fixture.effects();
    assert!(effects[0].starts_with("mark gpu-x for update and drain"), "{effects:?}");
}

#[test]
fn a_pod_that_waits_for_a_node_that_is_gone_waits_no_longer() {
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["gone"] }] }] } } });
    let waiting = on(
        "gone",
        &json!({ "spec": { "nodeName": "", "affinity": affinity },
        "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } }),
    );
    let fixture = fixture().worker("gpu-x", &waiting).worker("gpu-y", &on("node-a", &json!({}))).slurm(
        "node-a",
        &["IDLE"],
        "",
    );
    assert_eq!(fixture.effects(), ["delete gpu-x (NodeGone, needless)"]);
}

#[test]
fn without_a_template_nobody_comes_or_goes() {
    let fixture = Fixture::new(&json!({ "scalingMode": "DaemonSet", "extraConf": "Weight10" }))
        .worker("gpu-x", &on("node-a", &json!({})))
        .slurm("node-a", &["IDLE"], "");
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[test]
fn a_node_that_does_not_fit_gets_none() {
    let fixture = Fixture::new(
        &json!({ "scalingMode": "DaemonSet", "template": { "spec": { "nodeSelector": { "a": "b" } } } }),
    );
    assert_eq!((fixture.effects(), fixture.plan().desired), (vec![], 0));
}

#[rstest]
#[case::one_that_has_ended("Failed", 1)]
#[case::one_that_still_runs("Running", 0)]
fn while_a_pod_is_on_its_way_out_the_next_one_comes_after(#[case] phase: &str, #[case] creates: usize) {
    let leaving =
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" }, "status": { "phase": phase } });
    let effects = fixture().worker("gpu-x", &on("node-a", &leaving)).effects();
    assert_eq!(
        effects.iter().filter(|effect| effect.starts_with("create gpu-n")).count(),
        creates,
        "{effects:?}"
    );
    assert_eq!(effects.len(), creates);
}
