//! Numbers that keep to the Kubernetes node that they ran on.

use crate::plan::fixture::Fixture;
use crate::plan::{Effect, Pins};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::v1beta1::NodeSetStatus;

/// Two Kubernetes nodes, and what the status says of numbers that keep to them.
fn pinned(spec: &Value, before: &Value) -> Fixture {
    let mut wanted = json!({ "replicas": 2, "pinToNode": true });
    crate::plan::testing::merge(&mut wanted, spec);
    let before: Pins = serde_json::from_value(before.clone()).unwrap();
    let labelled = json!({ "metadata": { "labels": { "rack": "b" } } });
    Fixture::new(&wanted).host("node-b", &labelled).nodeset(|nodeset| {
        nodeset.status = Some(NodeSetStatus { ordinal_to_node: Some(before), ..NodeSetStatus::default() });
    })
}

fn on(node: &str) -> Value {
    json!({ "spec": { "nodeName": node } })
}

/// Made anew and waiting for a place.
fn waiting() -> Value {
    json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } })
}

fn wanting(rack: &str) -> Value {
    json!({ "template": { "spec": { "nodeSelector": { "rack": rack } } } })
}

#[rstest]
#[case::where_it_runs(pinned(&json!({}), &json!({})).worker("gpu-0", &on("node-b")), json!({ "0": "node-b" }))]
#[case::by_its_number_without_padding(
    pinned(&json!({ "ordinalPadding": 3 }), &json!({})).worker("gpu-007", &on("node-b")), json!({ "7": "node-b" })
)]
#[case::where_it_runs_now(
    pinned(&json!({}), &json!({ "0": "node-a" })).worker("gpu-0", &on("node-b")), json!({ "0": "node-b" })
)]
#[case::not_before_it_runs(
    pinned(&json!({}), &json!({})).worker("gpu-0", &json!({ "status": { "phase": "Pending", "conditions": [] } })), json!({})
)]
#[case::as_before_when_it_is_made_anew(
    pinned(&json!({}), &json!({ "0": "node-b" })).worker("gpu-0", &waiting()), json!({ "0": "node-b" })
)]
#[case::not_on_a_node_that_is_gone(
    pinned(&json!({}), &json!({ "0": "node-c" })).worker("gpu-0", &waiting()), json!({})
)]
#[case::not_on_a_node_that_no_longer_fits(
    pinned(&wanting("c"), &json!({ "0": "node-b" })).worker("gpu-0", &waiting()), json!({})
)]
#[case::on_a_node_that_fits(
    pinned(&wanting("b"), &json!({ "0": "node-b" })).worker("gpu-0", &waiting()), json!({ "0": "node-b" })
)]
#[case::not_where_another_one_runs(
    pinned(&json!({}), &json!({ "0": "node-b" })).worker("gpu-0", &waiting()).worker("gpu-1", &on("node-b")),
    json!({ "1": "node-b" })
)]
#[case::where_another_one_runs_if_there_is_room(
    pinned(&json!({ "oversubscribeNode": true }), &json!({ "0": "node-b" })).worker("gpu-0", &waiting())
        .worker("gpu-1", &on("node-b")),
    json!({ "0": "node-b", "1": "node-b" })
)]
fn a_number_keeps_to_its_node(#[case] fixture: Fixture, #[case] expected: Value) {
    assert_eq!(json!(fixture.plan().pins), expected);
}

#[rstest]
#[case::nobody_wants_them(json!({ "pinToNode": false }))]
#[case::without_numbers(json!({ "scalingMode": "DaemonSet" }))]
fn there_are_no_pins_where(#[case] spec: Value) {
    let fixture = pinned(&spec, &json!({ "0": "node-b" })).worker("gpu-0", &on("node-b"));
    assert_eq!(fixture.plan().pins, None);
}

/// Nobody can tell what fits, so nothing is forgotten.
#[test]
fn pins_stay_while_the_controller_is_away() {
    let mut fixture = pinned(&json!({}), &json!({ "0": "node-b", "1": "gone" }));
    fixture.observed.controller = None;
    assert_eq!(json!(fixture.plan().pins), json!({ "0": "node-b", "1": "gone" }));
}

#[test]
fn a_pinned_worker_is_made_for_its_node_and_the_others_for_any() {
    let plan = pinned(&json!({}), &json!({ "1": "node-b" })).plan();
    let affinity = plan.effects.iter().map(|effect| {
        let Effect::CreatePod(new) = effect else { panic!("{effect:?}") };
        new.pod["spec"]["affinity"]["nodeAffinity"].clone()
    });
    let on_b = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-b"] }] }] } });
    assert_eq!(affinity.collect::<Vec<_>>(), [Value::Null, on_b]);
}
