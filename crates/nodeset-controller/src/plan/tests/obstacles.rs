//! Missing and invalid objects: running workers stay, and the plan recovers when the obstacle is removed.

use crate::plan::fixture::Fixture;
use crate::plan::testing::merge;
use crate::plan::{NodeSetObstacle, Obstacle, Plan};
use crate::slurm::View;
use operator_runtime::MissingReference;
use operator_runtime::error::chain;
use operator_runtime::references::ReferenceError;
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::labels::{RESERVATION_FINALIZER, WORKERS_FINALIZER};
use std::sync::Arc;

fn old() -> Value {
    json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } })
}

fn marked(by: &str) -> Value {
    json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": by } } })
}

fn daemon(change: &Value) -> Value {
    let mut pod = json!({ "metadata": { "generateName": "gpu-", "labels": {
        "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet", "nodeset.slinky.slurm.net/pod-hostname": "node-a" } },
        "spec": { "nodeName": "node-a", "hostname": "node-a" } });
    merge(&mut pod, change);
    pod
}

fn texts(plan: &Plan) -> Vec<String> {
    plan.obstacles.iter().map(|obstacle| chain(obstacle)).collect()
}

fn with_reservation_finalizer(fixture: Fixture) -> Fixture {
    let finalizers = ["other", WORKERS_FINALIZER, RESERVATION_FINALIZER].map(str::to_owned).to_vec();
    fixture.nodeset(|nodeset| nodeset.metadata.finalizers = Some(finalizers))
}

/// Each fixture has effects while the Controller exists.
#[rstest]
#[case::too_few(Fixture::new(&json!({ "replicas": 5 })).workers(2))]
#[case::too_many(Fixture::new(&json!({ "replicas": 0 })).workers(2))]
#[case::outdated(Fixture::new(&json!({ "replicas": 1 })).workers(1).worker("gpu-0", &old()))]
#[case::failed(Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &json!({ "status": { "phase": "Failed" } })))]
#[case::drained_for_scale_in(Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked("scale-in"))
    .slurm("gpu-0", &["IDLE", "DRAIN"], "slurm-operator: x"))]
#[case::needed_again(Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &marked("scale-in"))
    .slurm("gpu-0", &["IDLE", "DRAIN"], "slurm-operator: x"))]
#[case::on_a_cordoned_node(Fixture::new(&json!({ "replicas": 1 })).workers(1)
    .host("node-a", &json!({ "spec": { "unschedulable": true } })))]
#[case::node_without_worker(Fixture::new(&json!({ "scalingMode": "DaemonSet" })))]
#[case::node_no_longer_fits(
    Fixture::new(&json!({ "scalingMode": "DaemonSet", "template": { "spec": { "nodeSelector": { "a": "b" } } } }))
        .worker("gpu-x", &daemon(&json!({}))).slurm("node-a", &["IDLE"], "")
)]
#[case::with_an_unused_reservation_finalizer(with_reservation_finalizer(Fixture::new(&json!({ "replicas": 1 })).workers(1)).view(View::NoRestApi))]
fn missing_controller_blocks_all_effects(#[case] mut fixture: Fixture) {
    assert!(!fixture.effects().is_empty(), "there are effects while the Controller exists");
    let controller = fixture.observed.controller.take();
    for change in [Fixture::unknown, |fixture: Fixture| fixture.view(View::NoRestApi), |fixture| fixture] {
        let plan = fixture.plan();
        assert!(plan.effects.is_empty(), "{:?}", plan.effects);
        assert_eq!(texts(&plan), ["Controller slurm does not exist"]);
        fixture = change(fixture);
    }
    fixture.observed.controller = controller;
    assert_eq!(texts(&fixture.plan()), [""; 0]);
}

#[test]
fn missing_sssd_conf_blocks_creation_and_updates() {
    let ssh = json!({ "enabled": true, "sssdConfRef": { "name": "sssd", "key": "sssd.conf" } });
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } });
    let mut fixture = Fixture::new(&json!({ "replicas": 3, "ssh": ssh, "updateStrategy": strategy }))
        .workers(2)
        .worker("gpu-1", &old());
    assert_eq!(fixture.effects().len(), 2, "{:?}", fixture.effects());
    let missing = ReferenceError::from(MissingReference::Secret("sssd".to_owned()));
    let found = std::mem::replace(&mut fixture.observed.sssd_conf, Err(Arc::new(missing)));
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert_eq!(texts(&plan), ["Secret sssd does not exist"]);
    fixture.observed.sssd_conf = found;
    assert_eq!((fixture.effects().len(), texts(&fixture.plan())), (2, vec![]));
}

/// A worker drained for replacement is neither undrained nor deleted while the template of its replacement is unknown.
#[rstest]
#[case::outdated_worker(json!({ "replicas": 1 }), "gpu-0", marked("update"), "gpu-0")]
#[case::daemon_on_a_node_that_no_longer_fits(json!({ "scalingMode": "DaemonSet",
    "template": { "spec": { "nodeSelector": { "a": "b" } } } }), "gpu-x", daemon(&marked("scale-in")), "node-a")]
fn missing_sssd_conf_leaves_marked_workers_undecided(
    #[case] mut spec: Value,
    #[case] name: &str,
    #[case] pod: Value,
    #[case] node: &str,
) {
    let ssh = json!({ "enabled": true, "sssdConfRef": { "name": "sssd", "key": "sssd.conf" } });
    merge(&mut spec, &json!({ "ssh": ssh }));
    let mut worker = pod;
    merge(&mut worker, &old());
    let mut fixture =
        Fixture::new(&spec).worker(name, &worker).slurm(node, &["IDLE", "DRAIN"], "slurm-operator: x");
    assert!(fixture.effects()[0].starts_with(&format!("delete {name}")), "{:?}", fixture.effects());
    let missing = ReferenceError::from(MissingReference::Secret("sssd".to_owned()));
    fixture.observed.sssd_conf = Err(Arc::new(missing));
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[test]
fn excessive_replicas_undrain_no_worker() {
    let fixture = |replicas: i32| {
        Fixture::new(&json!({ "replicas": replicas })).worker("gpu-0", &marked("scale-in")).slurm(
            "gpu-0",
            &["IDLE", "DRAIN"],
            "slurm-operator: x",
        )
    };
    assert!(fixture(1).effects()[0].starts_with("unmark gpu-0"), "{:?}", fixture(1).effects());
    assert!(fixture(2_000_000_000).effects().is_empty(), "{:?}", fixture(2_000_000_000).effects());
}

#[test]
fn invalid_hostname_does_not_block_other_nodes() {
    let named =
        json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/hostname-override": "my host" } } });
    let fixture = Fixture::new(&json!({ "scalingMode": "DaemonSet" }));
    let others = fixture.host("node-c", &json!({})).effects();
    assert_eq!(others.len(), 2, "{others:?}");
    let fixture = Fixture::new(&json!({ "scalingMode": "DaemonSet" }))
        .host("node-c", &json!({}))
        .host("node-b", &named);
    let plan = fixture.plan();
    assert_eq!(fixture.effects(), others);
    assert!(
        matches!(plan.obstacles.as_slice(), [Obstacle::Specific(NodeSetObstacle::Hostname { .. })]),
        "{:?}",
        plan.obstacles
    );
    assert!(texts(&plan)[0].contains("node-b"), "{:?}", texts(&plan));
}

#[test]
fn worker_of_another_cluster_is_left_as_it_is_and_reported() {
    let other = json!({ "metadata": { "labels": { "slinky.slurm.net/cluster": "before" } } });
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &other).slurm(
        "gpu-0",
        &["IDLE", "DRAIN"],
        "",
    );
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(plan.pod_mirrors.iter().all(|mirror| mirror.conditions.is_empty()), "{:?}", plan.pod_mirrors);
    assert!(plan.node_mirrors.is_empty(), "{:?}", plan.node_mirrors);
    let text = &texts(&plan)[0];
    assert!(text.contains("workers that serve before are left as they are (1, among them gpu-0)"), "{text}");
}

/// Obstacles are independent: the rest of the plan is carried out.
#[test]
fn invalid_schedule_does_not_block_creation() {
    let strategy = json!({ "type": "ScheduledUpdate", "scheduledUpdate": { "startTime": "noon" } });
    let fixture = Fixture::new(&json!({ "replicas": 2, "updateStrategy": strategy })).workers(1);
    assert_eq!(fixture.effects(), ["create gpu-1"]);
    assert!(matches!(
        fixture.plan().obstacles.as_slice(),
        [Obstacle::Specific(NodeSetObstacle::Schedule(_))]
    ));
}
