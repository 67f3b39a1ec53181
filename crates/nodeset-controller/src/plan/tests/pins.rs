//! Pins of ordinals to Kubernetes nodes.

use crate::plan::fixture::Fixture;
use crate::plan::{Effect, Pins};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::v1beta1::NodeSetStatus;

/// Two Kubernetes nodes, and pins from the status.
fn pinned(spec: &Value, before: &Value) -> Fixture {
    let mut full_spec = json!({ "replicas": 2, "pinToNode": true });
    crate::plan::testing::merge(&mut full_spec, spec);
    let before: Pins = serde_json::from_value(before.clone()).unwrap();
    let labelled = json!({ "metadata": { "labels": { "rack": "b" } } });
    Fixture::new(&full_spec).host("node-b", &labelled).nodeset(|nodeset| {
        nodeset.status = Some(NodeSetStatus { ordinal_to_node: Some(before), ..NodeSetStatus::default() });
    })
}

fn on(node: &str) -> Value {
    json!({ "spec": { "nodeName": node } })
}

/// Recreated and not scheduled yet.
fn pending() -> Value {
    json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } })
}

fn selecting(rack: &str) -> Value {
    json!({ "template": { "spec": { "nodeSelector": { "rack": rack } } } })
}

#[rstest]
#[case::pinned_to_its_current_node(pinned(&json!({}), &json!({})).worker("gpu-0", &on("node-b")), json!({ "0": "node-b" }))]
#[case::keyed_by_unpadded_ordinal(
    pinned(&json!({ "ordinalPadding": 3 }), &json!({})).worker("gpu-007", &on("node-b")), json!({ "7": "node-b" })
)]
#[case::moved_to_its_current_node(
    pinned(&json!({}), &json!({ "0": "node-a" })).worker("gpu-0", &on("node-b")), json!({ "0": "node-b" })
)]
#[case::unpinned_while_pending(
    pinned(&json!({}), &json!({})).worker("gpu-0", &json!({ "status": { "phase": "Pending", "conditions": [] } })), json!({})
)]
#[case::kept_when_recreated(
    pinned(&json!({}), &json!({ "0": "node-b" })).worker("gpu-0", &pending()), json!({ "0": "node-b" })
)]
#[case::dropped_with_deleted_node(
    pinned(&json!({}), &json!({ "0": "node-c" })).worker("gpu-0", &pending()), json!({})
)]
#[case::dropped_when_node_no_longer_fits(
    pinned(&selecting("c"), &json!({ "0": "node-b" })).worker("gpu-0", &pending()), json!({})
)]
#[case::kept_while_node_fits(
    pinned(&selecting("b"), &json!({ "0": "node-b" })).worker("gpu-0", &pending()), json!({ "0": "node-b" })
)]
#[case::dropped_when_another_ordinal_runs_there(
    pinned(&json!({}), &json!({ "0": "node-b" })).worker("gpu-0", &pending()).worker("gpu-1", &on("node-b")),
    json!({ "1": "node-b" })
)]
#[case::kept_beside_another_ordinal_with_oversubscription(
    pinned(&json!({ "oversubscribeNode": true }), &json!({ "0": "node-b" })).worker("gpu-0", &pending())
        .worker("gpu-1", &on("node-b")),
    json!({ "0": "node-b", "1": "node-b" })
)]
fn ordinal_is_pinned_to_the_node_it_runs_on(#[case] fixture: Fixture, #[case] expected: Value) {
    assert_eq!(json!(fixture.plan().pins), expected);
}

#[rstest]
#[case::pinning_is_off(json!({ "pinToNode": false }))]
#[case::daemon_set_mode(json!({ "scalingMode": "DaemonSet" }))]
fn no_pins_without_pinning_or_ordinals(#[case] spec: Value) {
    let fixture = pinned(&spec, &json!({ "0": "node-b" })).worker("gpu-0", &on("node-b"));
    assert_eq!(fixture.plan().pins, None);
}

/// Without template the fit of nodes is unknown.
#[test]
fn pins_stay_while_the_controller_is_missing() {
    let mut fixture = pinned(&json!({}), &json!({ "0": "node-b", "1": "gone" }));
    fixture.observed.controller = None;
    assert_eq!(json!(fixture.plan().pins), json!({ "0": "node-b", "1": "gone" }));
}

#[test]
fn pinned_worker_gets_affinity_to_its_node() {
    let plan = pinned(&json!({}), &json!({ "1": "node-b" })).plan();
    let affinity = plan.effects.iter().map(|effect| {
        let Effect::CreatePod(new) = effect else { panic!("{effect:?}") };
        new.pod["spec"]["affinity"]["nodeAffinity"].clone()
    });
    let on_b = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-b"] }] }] } });
    assert_eq!(affinity.collect::<Vec<_>>(), [Value::Null, on_b]);
}
