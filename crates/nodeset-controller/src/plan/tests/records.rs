//! Records of Slurm nodes without pod and Kubernetes node.

use crate::plan::fixture::Fixture;
use crate::slurm::View;
use rstest::rstest;
use serde_json::{Value, json};

/// A NodeSet that prunes node records, and a defunct record, with this changed.
fn with_record(spec: &Value, change: &Value) -> Fixture {
    let mut full_spec = json!({ "scalingMode": "DaemonSet", "pruneSlurmNodeRecords": "NodeNotFound" });
    crate::plan::testing::merge(&mut full_spec, spec);
    let mut node = json!({ "name": "ghost", "state": ["DOWN", "NOT_RESPONDING"], "reason": "Not responding",
        "comment": comment(&json!({})) });
    crate::plan::testing::merge(&mut node, change);
    Fixture::new(&full_spec).slurm_node(node)
}

/// The comment that the operator sets, with this changed.
fn comment(change: &Value) -> String {
    let mut info = json!({ "namespace": "ns", "podName": "gpu-old", "node": "gone.zone", "nodeSetName": "gpu",
        "nodeSetUID": "u" });
    crate::plan::testing::merge(&mut info, change);
    info.to_string()
}

fn deleted_records(fixture: &Fixture) -> Vec<String> {
    fixture.effects().into_iter().filter(|effect| effect.starts_with("delete record")).collect()
}

fn with_hostname(hostname: &str) -> Value {
    json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/hostname-override": hostname } } })
}

#[rstest]
#[case::pod_and_kubernetes_node_deleted(with_record(&json!({}), &json!({})), true)]
#[case::kubernetes_node_has_another_hostname(with_record(&json!({}), &json!({})).host("gone.zone", &with_hostname("other")), true)]
#[case::another_kubernetes_node_has_its_hostname(with_record(&json!({}), &json!({})).host("ghost", &json!({})), true)]
#[case::kubernetes_node_exists(
    with_record(&json!({}), &json!({ "comment": comment(&json!({ "node": "ghost.zone" })) })).host("ghost.zone", &json!({})), false
)]
#[case::kubernetes_node_exists_with_hostname_override(
    with_record(&json!({}), &json!({})).host("gone.zone", &with_hostname("ghost")), false
)]
#[case::pod_exists(with_record(&json!({}), &json!({})).worker("gpu-old", &json!({})), false)]
#[case::another_pod_runs_this_node(
    with_record(&json!({}), &json!({})).worker("gpu-new", &json!({ "spec": { "hostname": "ghost" } })), false
)]
#[case::pruning_is_off(with_record(&json!({ "pruneSlurmNodeRecords": "Never" }), &json!({})), false)]
#[case::statefulset_mode(with_record(&json!({ "scalingMode": "StatefulSet", "replicas": 0 }), &json!({})), false)]
#[case::may_respond(with_record(&json!({}), &json!({ "state": ["DOWN"] })), false)]
#[case::not_down(with_record(&json!({}), &json!({ "state": ["IDLE", "NOT_RESPONDING"] })), false)]
#[case::of_a_predecessor(with_record(&json!({}), &json!({ "comment": comment(&json!({ "nodeSetUID": "older" })) })), false)]
#[case::without_nodeset_uid(with_record(&json!({}), &json!({ "comment": comment(&json!({ "nodeSetUID": null })) })), false)]
#[case::of_a_sibling(with_record(&json!({}), &json!({ "comment": comment(&json!({ "nodeSetName": "cpu" })) })), false)]
#[case::of_another_namespace(with_record(&json!({}), &json!({ "comment": comment(&json!({ "namespace": "other" })) })), false)]
#[case::without_pod(with_record(&json!({}), &json!({ "comment": comment(&json!({ "podName": "" })) })), false)]
#[case::without_kubernetes_node(with_record(&json!({}), &json!({ "comment": comment(&json!({ "node": "" })) })), false)]
#[case::comment_by_a_person(with_record(&json!({}), &json!({ "comment": "rack 7, ask Eva" })), false)]
#[case::without_comment(with_record(&json!({}), &json!({ "comment": "" })), false)]
#[case::slurm_unreachable(with_record(&json!({}), &json!({})).unknown(), false)]
fn record_is_deleted_when_pod_and_kubernetes_node_are_deleted(
    #[case] fixture: Fixture,
    #[case] expected: bool,
) {
    let expected: &[&str] = if expected { &["delete record ghost"] } else { &[] };
    assert_eq!(deleted_records(&fixture), expected);
}

#[test]
fn record_written_to_since_the_snapshot_is_kept() {
    let mut fixture = with_record(&json!({}), &json!({}));
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is unreachable") };
    known.uncertain.insert("ghost".to_owned());
    assert_eq!(deleted_records(&fixture), [""; 0]);
}
