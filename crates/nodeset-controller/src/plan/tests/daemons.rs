//! DaemonSet mode: one worker on each fitting Kubernetes node.

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
fn every_fitting_node_gets_one_worker() {
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
    let fixture = fixture().host("node-b", &json!({})).host("node-c", &tainted);
    assert_eq!(fixture.effects().len(), 2);
    assert_eq!(fixture.plan().desired, 2);
    assert_eq!(fixture.effects(), fixture.effects(), "pod names are a function of the nodes");
}

fn overridden(hostname: &str) -> Value {
    json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/hostname-override": hostname } } })
}

#[rstest]
#[case::invalid("my host", "cannot be used")]
#[case::of_another_node("node-b", "Kubernetes node node-b has it too")]
fn worker_stays_if_its_new_hostname_cannot_be_used(#[case] hostname: &str, #[case] expected: &str) {
    let fixture = fixture()
        .host("node-b", &json!({}))
        .worker("gpu-x", &on("node-a", &json!({})))
        .worker("gpu-y", &on("node-b", &json!({})))
        .slurm("node-a", &["IDLE"], "")
        .slurm("node-b", &["IDLE"], "")
        .host("node-a", &overridden(hostname));
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    let texts: Vec<_> = plan.obstacles.iter().map(ToString::to_string).collect();
    assert!(texts.len() == 1 && texts[0].contains(expected), "{texts:?}");
}

#[test]
fn only_one_of_two_nodes_with_the_same_hostname_gets_a_worker() {
    let fixture = fixture().host("node-b", &overridden("twin")).host("node-a", &overridden("twin"));
    assert_eq!(fixture.effects().len(), 1, "{:?}", fixture.effects());
}

#[rstest]
#[case::failed("Failed", "delete gpu-x (Failed, no evidence needed)")]
#[case::succeeded("Succeeded", "delete gpu-x (Succeeded, no evidence needed)")]
fn finished_pod_is_deleted_before_the_next_is_created(#[case] phase: &str, #[case] expected: &str) {
    let fixture =
        fixture().worker("gpu-x", &on("node-a", &json!({ "status": { "phase": phase, "conditions": [] } })));
    assert_eq!(fixture.effects(), [expected]);
}

#[rstest]
#[case::older_stays(false, "gpu-x")]
#[case::busy_stays(true, "gpu-y")]
fn one_of_two_workers_on_a_node_stays(#[case] newer_is_busy: bool, #[case] kept: &str) {
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
    assert!(!effects[0].contains(kept), "{effects:?}");
}

/// The Slurm node belongs to the other pod, and stays in service.
#[test]
fn never_started_duplicate_on_a_node_is_deleted_directly() {
    let pending = json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } });
    let fixture = fixture()
        .worker("gpu-x", &on("node-a", &json!({})))
        .worker("gpu-y", &on("node-a", &pending))
        .slurm("node-a", &["MIXED"], "");
    assert_eq!(fixture.effects(), ["delete gpu-y (Unwanted, no evidence needed)"]);
}

#[test]
fn worker_on_unfit_node_is_drained() {
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
#[case::set_by_an_administrator("maintenance", true)]
fn node_problem_taint_keeps_the_worker(#[case] taint: &str, #[case] removed: bool) {
    let tainted = json!({ "spec": { "taints": [{ "key": taint, "effect": "NoExecute" }] } });
    let fixture = fixture().host("node-a", &tainted).worker("gpu-x", &on("node-a", &json!({}))).slurm(
        "node-a",
        &["IDLE"],
        "",
    );
    assert_eq!(!fixture.effects().is_empty(), removed, "{:?}", fixture.effects());
    assert_eq!(fixture.plan().desired, usize::from(!removed));
}

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A Kubernetes node as `kubectl cordon` leaves it.
fn cordoned() -> Value {
    json!({ "spec": { "unschedulable": true, "taints": [{ "key": UNSCHEDULABLE, "effect": "NoSchedule" }] } })
}

#[rstest]
#[case::empty(None, &["create gpu-n"])]
#[case::with_a_terminating_worker(Some(json!({ "metadata": { "deletionTimestamp": minute(1) } })), &[])]
fn worker_comes_back_to_a_cordoned_node(#[case] worker: Option<Value>, #[case] expected: &[&str]) {
    let mut fixture = fixture().host("node-a", &cordoned());
    if let Some(change) = worker {
        fixture = fixture.worker("gpu-x", &on("node-a", &change));
    }
    let effects = fixture.effects();
    assert!(effects.len() == expected.len(), "{effects:?}");
    assert!(effects.iter().zip(expected).all(|(effect, start)| effect.starts_with(start)), "{effects:?}");
    assert_eq!(fixture.plan().desired, 1);
}

#[test]
fn new_pod_tolerates_the_cordon_in_daemonset_mode_only() {
    let tolerates = |fixture: &Fixture| {
        let effects = fixture.plan().effects;
        let Some(crate::plan::Effect::CreatePod(new)) = effects.first() else { panic!("{effects:?}") };
        new.pod["spec"]["tolerations"].as_array().unwrap().iter().any(|one| one["key"] == UNSCHEDULABLE)
    };
    assert!(tolerates(&fixture()));
    assert!(!tolerates(&Fixture::new(&json!({ "replicas": 1 }))));
}

#[test]
fn worker_that_came_back_to_a_cordoned_node_is_drained() {
    let fixture = fixture().host("node-a", &cordoned()).worker("gpu-x", &on("node-a", &json!({}))).slurm(
        "node-a",
        &["IDLE"],
        "",
    );
    let effects = fixture.effects();
    assert!(effects.len() == 1 && effects[0].starts_with("mark gpu-x for node and drain"), "{effects:?}");
}

#[test]
fn changed_hostname_replaces_the_worker() {
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
fn pending_pod_of_deleted_node_is_deleted() {
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["gone"] }] }] } } });
    let pending = on(
        "gone",
        &json!({ "spec": { "nodeName": "", "affinity": affinity },
        "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } }),
    );
    let fixture = fixture().worker("gpu-x", &pending).worker("gpu-y", &on("node-a", &json!({}))).slurm(
        "node-a",
        &["IDLE"],
        "",
    );
    assert_eq!(fixture.effects(), ["delete gpu-x (NodeGone, no evidence needed)"]);
}

#[test]
fn template_error_blocks_creation_and_removal() {
    let fixture = Fixture::new(&json!({ "scalingMode": "DaemonSet", "extraConf": "Weight10" }))
        .worker("gpu-x", &on("node-a", &json!({})))
        .slurm("node-a", &["IDLE"], "");
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[test]
fn unfit_node_gets_no_worker() {
    let fixture = Fixture::new(
        &json!({ "scalingMode": "DaemonSet", "template": { "spec": { "nodeSelector": { "a": "b" } } } }),
    );
    assert_eq!((fixture.effects(), fixture.plan().desired), (vec![], 0));
}

#[rstest]
#[case::finished("Failed", 1)]
#[case::running("Running", 0)]
fn next_pod_is_created_after_the_terminating_one_finished(#[case] phase: &str, #[case] creates: usize) {
    let terminating =
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" }, "status": { "phase": phase } });
    let effects = fixture().worker("gpu-x", &on("node-a", &terminating)).effects();
    assert_eq!(
        effects.iter().filter(|effect| effect.starts_with("create gpu-n")).count(),
        creates,
        "{effects:?}"
    );
    assert_eq!(effects.len(), creates);
}
