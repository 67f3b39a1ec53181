use super::*;
use k8s_openapi::api::core::v1::Node;
use rstest::rstest;
use serde_json::{Value, json};

const COMES: Fit = Fit { run: true, stay: true };
const STAYS: Fit = Fit { run: false, stay: true };
const GOES: Fit = Fit { run: false, stay: false };

fn spec(change: &Value) -> PodSpec {
    let mut spec = json!({ "containers": [] });
    for (key, value) in change.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn required(terms: &Value) -> Value {
    json!({ "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
    } } })
}

fn node(change: &Value) -> NodeFacts {
    let mut node = json!({
        "metadata": { "name": "node-a", "labels": { "type": "staging", "cores": "16", "zone": "b", "flag": "" } },
    });
    for (key, value) in change.as_object().unwrap() {
        node[key] = value.clone();
    }
    NodeFacts::new(&serde_json::from_value::<Node>(node).unwrap(), &["DiskPressure".to_owned()])
}

fn tainted(taints: &Value) -> NodeFacts {
    node(&json!({ "spec": { "taints": taints } }))
}

#[rstest]
#[case::nothing_asked_for(json!({}), COMES)]
#[case::all_labels_there(json!({ "nodeSelector": { "type": "staging", "zone": "b" } }), COMES)]
#[case::another_value(json!({ "nodeSelector": { "type": "production" } }), GOES)]
#[case::no_such_label(json!({ "nodeSelector": { "none": "" } }), GOES)]
#[case::an_empty_value_is_a_value(json!({ "nodeSelector": { "flag": "" } }), COMES)]
#[case::empty_selector(json!({ "nodeSelector": {} }), COMES)]
fn a_node_has_all_labels_that_are_selected(#[case] asked: Value, #[case] expected: Fit) {
    assert_eq!(fit(&spec(&asked), &node(&json!({}))), expected);
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!([{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }])
}

#[rstest]
#[case::in_one(expression("type", "In", &["production", "staging"]), COMES)]
#[case::in_none(expression("type", "In", &["production"]), GOES)]
#[case::in_without_label(expression("none", "In", &["x"]), GOES)]
#[case::not_in(expression("type", "NotIn", &["production"]), COMES)]
#[case::not_in_one(expression("type", "NotIn", &["staging"]), GOES)]
#[case::not_in_without_label(expression("none", "NotIn", &["x"]), COMES)]
#[case::exists(expression("flag", "Exists", &[]), COMES)]
#[case::exists_not(expression("none", "Exists", &[]), GOES)]
#[case::absent(expression("none", "DoesNotExist", &[]), COMES)]
#[case::absent_not(expression("flag", "DoesNotExist", &[]), GOES)]
#[case::more(expression("cores", "Gt", &["15"]), COMES)]
#[case::more_is_not_as_many(expression("cores", "Gt", &["16"]), GOES)]
#[case::less(expression("cores", "Lt", &["17"]), COMES)]
#[case::less_is_not_as_many(expression("cores", "Lt", &["16"]), GOES)]
#[case::more_than_no_number(expression("type", "Gt", &["1"]), GOES)]
#[case::more_than_nothing(expression("none", "Lt", &["1"]), GOES)]
#[case::this_node(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-a"] }] }]), COMES)]
#[case::that_node(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-b"] }] }]), GOES)]
#[case::not_this_node(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": ["node-a"] }] }]), GOES)]
#[case::not_that_node(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": ["node-b"] }] }]), COMES)]
#[case::one_term_is_enough(json!([
    { "matchExpressions": [{ "key": "type", "operator": "In", "values": ["production"] }] },
    { "matchExpressions": [{ "key": "zone", "operator": "Exists" }] },
]), COMES)]
#[case::all_of_a_term_must_hold(json!([{
    "matchExpressions": [{ "key": "zone", "operator": "Exists" }],
    "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-b"] }],
}]), GOES)]
#[case::an_empty_term_matches_nothing(json!([{}]), GOES)]
#[case::no_terms_match_nothing(json!([]), GOES)]
fn a_node_meets_the_affinity_that_is_required(#[case] terms: Value, #[case] expected: Fit) {
    let spec = spec(&required(&terms));
    assert_eq!(fit(&spec, &node(&json!({}))), expected);
    assert_eq!(unreadable_requirement(&spec), None);
}

/// Who wrote it meant something, so nobody leaves for it, and nobody comes who might have to leave again.
#[rstest]
#[case::operator(expression("type", "Near", &["x"]), STAYS, r#""type" "Near" ["x"]"#)]
#[case::in_nothing(expression("type", "In", &[]), STAYS, r#""type" "In" []"#)]
#[case::exists_with_values(expression("type", "Exists", &["x"]), STAYS, r#""type" "Exists" ["x"]"#)]
#[case::no_number(expression("cores", "Gt", &["many"]), STAYS, r#""cores" "Gt" ["many"]"#)]
#[case::two_bounds(expression("cores", "Lt", &["1", "2"]), STAYS, r#""cores" "Lt" ["1", "2"]"#)]
#[case::field(
    json!([{ "matchFields": [{ "key": "spec.unschedulable", "operator": "In", "values": ["false"] }] }]),
    STAYS, r#""spec.unschedulable" "In" ["false"]"#
)]
#[case::two_names(
    json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-a", "node-b"] }] }]),
    STAYS, r#""metadata.name" "In" ["node-a", "node-b"]"#
)]
#[case::beside_a_term_that_holds(json!([
    { "matchExpressions": [{ "key": "type", "operator": "Near" }] },
    { "matchExpressions": [{ "key": "zone", "operator": "Exists" }] },
]), COMES, r#""type" "Near" []"#)]
#[case::beside_a_requirement_that_does_not(json!([{ "matchExpressions": [
    { "key": "type", "operator": "Near" },
    { "key": "none", "operator": "Exists" },
] }]), GOES, r#""type" "Near" []"#)]
fn what_cannot_be_read_is_told_and_makes_nobody_leave(
    #[case] terms: Value,
    #[case] expected: Fit,
    #[case] unreadable: &str,
) {
    let spec = spec(&required(&terms));
    assert_eq!(fit(&spec, &node(&json!({}))), expected);
    assert_eq!(unreadable_requirement(&spec).as_deref(), Some(unreadable));
}

#[rstest]
#[case::schedule(json!([{ "key": "gpu", "effect": "NoSchedule" }]), json!([]), STAYS)]
#[case::execute(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([]), GOES)]
#[case::prefer(json!([{ "key": "gpu", "effect": "PreferNoSchedule" }]), json!([]), COMES)]
#[case::unknown_effect(json!([{ "key": "gpu", "effect": "Shun" }]), json!([]), COMES)]
#[case::exists(json!([{ "key": "gpu", "value": "a", "effect": "NoExecute" }]), json!([{ "key": "gpu", "operator": "Exists" }]), COMES)]
#[case::exists_for_all_keys(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "operator": "Exists" }]), COMES)]
#[case::no_key_needs_exists(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "operator": "Equal" }]), GOES)]
#[case::equal(json!([{ "key": "gpu", "value": "a", "effect": "NoExecute" }]), json!([{ "key": "gpu", "operator": "Equal", "value": "a" }]), COMES)]
#[case::equal_by_default(json!([{ "key": "gpu", "value": "a", "effect": "NoExecute" }]), json!([{ "key": "gpu", "value": "a" }]), COMES)]
#[case::no_value_is_an_empty_value(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "key": "gpu", "value": "" }]), COMES)]
#[case::unequal(json!([{ "key": "gpu", "value": "b", "effect": "NoExecute" }]), json!([{ "key": "gpu", "value": "a" }]), GOES)]
#[case::another_key(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "key": "fpga", "operator": "Exists" }]), GOES)]
#[case::another_effect(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }]), GOES)]
#[case::unknown_operator(json!([{ "key": "gpu", "value": "5", "effect": "NoExecute" }]), json!([{ "key": "gpu", "operator": "Lt", "value": "9" }]), GOES)]
#[case::one_of_two(
    json!([{ "key": "gpu", "effect": "NoExecute" }, { "key": "fpga", "effect": "NoSchedule" }]),
    json!([{ "key": "gpu", "operator": "Exists" }]),
    STAYS
)]
#[case::for_a_time(
    json!([{ "key": "gpu", "effect": "NoExecute" }]),
    json!([{ "key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 }]),
    STAYS
)]
#[case::for_a_time_and_for_ever(
    json!([{ "key": "gpu", "effect": "NoExecute" }]),
    json!([{ "key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 }, { "operator": "Exists" }]),
    COMES
)]
fn a_taint_needs_a_toleration(#[case] taints: Value, #[case] tolerations: Value, #[case] expected: Fit) {
    assert_eq!(fit(&spec(&json!({ "tolerations": tolerations })), &tainted(&taints)), expected);
}

#[rstest]
#[case::not_ready("node.kubernetes.io/not-ready", "NoExecute", json!([]), STAYS)]
#[case::unreachable("node.kubernetes.io/unreachable", "NoExecute", json!([]), STAYS)]
#[case::not_ready_before_the_grace_time("node.kubernetes.io/not-ready", "NoSchedule", json!([]), STAYS)]
#[case::unreachable_before_the_grace_time("node.kubernetes.io/unreachable", "NoSchedule", json!([]), STAYS)]
#[case::cordoned("node.kubernetes.io/unschedulable", "NoSchedule", json!([]), STAYS)]
#[case::the_pods_own_time(
    "node.kubernetes.io/not-ready", "NoExecute",
    json!([{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5 }]), STAYS
)]
#[case::the_pod_does_not_mind(
    "node.kubernetes.io/unreachable", "NoExecute",
    json!([{ "key": "node.kubernetes.io/unreachable", "operator": "Exists" }]), COMES
)]
#[case::out_of_service("node.kubernetes.io/out-of-service", "NoExecute", json!([]), GOES)]
fn a_node_in_trouble_takes_nobody_new_and_keeps_whom_it_has(
    #[case] key: &str,
    #[case] effect: &str,
    #[case] tolerations: Value,
    #[case] expected: Fit,
) {
    let node = tainted(&json!([{ "key": key, "effect": effect }]));
    assert_eq!(fit(&spec(&json!({ "tolerations": tolerations })), &node), expected);
}

#[test]
fn a_node_is_closed_by_its_taint_and_not_by_the_flag() {
    let node = node(&json!({ "spec": { "unschedulable": true } }));
    assert!(node.unschedulable);
    assert_eq!(fit(&spec(&json!({})), &node), COMES);
}

#[test]
fn the_wrong_node_is_left_even_where_every_taint_is_tolerated() {
    let asked =
        json!({ "nodeSelector": { "type": "production" }, "tolerations": [{ "operator": "Exists" }] });
    assert_eq!(fit(&spec(&asked), &node(&json!({}))), GOES);
}
