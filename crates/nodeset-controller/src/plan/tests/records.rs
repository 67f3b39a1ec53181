//! Records of Slurm nodes that nobody stands behind any more.

use crate::plan::fixture::Fixture;
use crate::slurm::View;
use rstest::rstest;
use serde_json::{Value, json};

/// A NodeSet that wants such records deleted, and one of them, with this changed.
fn ghost(spec: &Value, change: &Value) -> Fixture {
    let mut wanted = json!({ "scalingMode": "DaemonSet", "pruneSlurmNodeRecords": "NodeNotFound" });
    crate::plan::testing::merge(&mut wanted, spec);
    let mut node = json!({ "name": "ghost", "state": ["DOWN", "NOT_RESPONDING"], "reason": "Not responding",
        "comment": comment(&json!({})) });
    crate::plan::testing::merge(&mut node, change);
    Fixture::new(&wanted).slurm_node(node)
}

/// What the operator said of the pod behind it, with this changed.
fn comment(change: &Value) -> String {
    let mut info = json!({ "namespace": "ns", "podName": "gpu-old", "node": "gone.zone", "nodeSetName": "gpu",
        "nodeSetUID": "u" });
    crate::plan::testing::merge(&mut info, change);
    info.to_string()
}

fn forgotten(fixture: &Fixture) -> Vec<String> {
    fixture.effects().into_iter().filter(|effect| effect.starts_with("forget")).collect()
}

fn named(hostname: &str) -> Value {
    json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/hostname-override": hostname } } })
}

#[rstest]
#[case::pod_and_kubernetes_node_are_gone(ghost(&json!({}), &json!({})), true)]
#[case::its_kubernetes_node_is_another_one_now(ghost(&json!({}), &json!({})).host("gone.zone", &named("other")), true)]
#[case::another_kubernetes_node_has_its_name(ghost(&json!({}), &json!({})).host("ghost", &json!({})), true)]
#[case::its_kubernetes_node_is_there(
    ghost(&json!({}), &json!({ "comment": comment(&json!({ "node": "ghost.zone" })) })).host("ghost.zone", &json!({})), false
)]
#[case::its_kubernetes_node_is_there_by_another_name(
    ghost(&json!({}), &json!({})).host("gone.zone", &named("ghost")), false
)]
#[case::its_pod_is_there(ghost(&json!({}), &json!({})).worker("gpu-old", &json!({})), false)]
#[case::another_pod_is_that_node(
    ghost(&json!({}), &json!({})).worker("gpu-new", &json!({ "spec": { "hostname": "ghost" } })), false
)]
#[case::nobody_wants_that(ghost(&json!({ "pruneSlurmNodeRecords": "Never" }), &json!({})), false)]
#[case::with_numbers(ghost(&json!({ "scalingMode": "StatefulSet", "replicas": 0 }), &json!({})), false)]
#[case::it_may_answer(ghost(&json!({}), &json!({ "state": ["DOWN"] })), false)]
#[case::it_is_not_down(ghost(&json!({}), &json!({ "state": ["IDLE", "NOT_RESPONDING"] })), false)]
#[case::of_a_predecessor(ghost(&json!({}), &json!({ "comment": comment(&json!({ "nodeSetUID": "older" })) })), false)]
#[case::of_nobody_known(ghost(&json!({}), &json!({ "comment": comment(&json!({ "nodeSetUID": null })) })), false)]
#[case::of_a_sibling(ghost(&json!({}), &json!({ "comment": comment(&json!({ "nodeSetName": "cpu" })) })), false)]
#[case::of_another_namespace(ghost(&json!({}), &json!({ "comment": comment(&json!({ "namespace": "other" })) })), false)]
#[case::of_no_pod(ghost(&json!({}), &json!({ "comment": comment(&json!({ "podName": "" })) })), false)]
#[case::of_no_kubernetes_node(ghost(&json!({}), &json!({ "comment": comment(&json!({ "node": "" })) })), false)]
#[case::of_a_person(ghost(&json!({}), &json!({ "comment": "rack 7, ask Eva" })), false)]
#[case::without_comment(ghost(&json!({}), &json!({ "comment": "" })), false)]
#[case::while_nothing_is_known(ghost(&json!({}), &json!({})).unknown(), false)]
fn a_record_is_deleted(#[case] fixture: Fixture, #[case] expected: bool) {
    let expected: &[&str] = if expected { &["forget ghost"] } else { &[] };
    assert_eq!(forgotten(&fixture), expected);
}

#[test]
fn a_record_that_was_written_to_since_is_kept() {
    let mut fixture = ghost(&json!({}), &json!({}));
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is not known") };
    known.uncertain.insert("ghost".to_owned());
    assert_eq!(forgotten(&fixture), [""; 0]);
}
