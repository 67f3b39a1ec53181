use super::*;
use k8s_openapi::api::core::v1::Node;
use rstest::rstest;
use serde_json::{Value, json};

const RUNS: Fit = Fit { run: true, stay: true };
const STAYS: Fit = Fit { run: false, stay: true };
const UNFIT: Fit = Fit { run: false, stay: false };

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
#[case::no_selector(json!({}), RUNS)]
#[case::all_labels_present(json!({ "nodeSelector": { "type": "staging", "zone": "b" } }), RUNS)]
#[case::different_value(json!({ "nodeSelector": { "type": "production" } }), UNFIT)]
#[case::missing_label(json!({ "nodeSelector": { "none": "" } }), UNFIT)]
#[case::empty_value(json!({ "nodeSelector": { "flag": "" } }), RUNS)]
#[case::empty_selector(json!({ "nodeSelector": {} }), RUNS)]
fn node_must_have_all_selected_labels(#[case] selector: Value, #[case] expected: Fit) {
    assert_eq!(fit(&spec(&selector), &node(&json!({}))), expected);
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!([{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }])
}

#[rstest]
#[case::in_matches(expression("type", "In", &["production", "staging"]), RUNS)]
#[case::in_does_not_match(expression("type", "In", &["production"]), UNFIT)]
#[case::in_without_label(expression("none", "In", &["x"]), UNFIT)]
#[case::not_in(expression("type", "NotIn", &["production"]), RUNS)]
#[case::not_in_excludes(expression("type", "NotIn", &["staging"]), UNFIT)]
#[case::not_in_without_label(expression("none", "NotIn", &["x"]), RUNS)]
#[case::exists(expression("flag", "Exists", &[]), RUNS)]
#[case::exists_without_label(expression("none", "Exists", &[]), UNFIT)]
#[case::does_not_exist(expression("none", "DoesNotExist", &[]), RUNS)]
#[case::does_not_exist_with_label(expression("flag", "DoesNotExist", &[]), UNFIT)]
#[case::gt(expression("cores", "Gt", &["15"]), RUNS)]
#[case::gt_is_strict(expression("cores", "Gt", &["16"]), UNFIT)]
#[case::lt(expression("cores", "Lt", &["17"]), RUNS)]
#[case::lt_is_strict(expression("cores", "Lt", &["16"]), UNFIT)]
#[case::gt_of_text(expression("type", "Gt", &["1"]), UNFIT)]
#[case::lt_without_label(expression("none", "Lt", &["1"]), UNFIT)]
#[case::name_matches(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-a"] }] }]), RUNS)]
#[case::name_does_not_match(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-b"] }] }]), UNFIT)]
#[case::name_excluded(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": ["node-a"] }] }]), UNFIT)]
#[case::other_name_excluded(json!([{ "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": ["node-b"] }] }]), RUNS)]
#[case::terms_are_alternatives(json!([
    { "matchExpressions": [{ "key": "type", "operator": "In", "values": ["production"] }] },
    { "matchExpressions": [{ "key": "zone", "operator": "Exists" }] },
]), RUNS)]
#[case::requirements_of_a_term_are_combined(json!([{
    "matchExpressions": [{ "key": "zone", "operator": "Exists" }],
    "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-b"] }],
}]), UNFIT)]
#[case::empty_term_matches_nothing(json!([{}]), UNFIT)]
#[case::no_terms_match_nothing(json!([]), UNFIT)]
fn node_must_match_the_required_affinity(#[case] terms: Value, #[case] expected: Fit) {
    let spec = spec(&required(&terms));
    assert_eq!(fit(&spec, &node(&json!({}))), expected);
    assert_eq!(invalid_requirement(&spec), None);
}

/// The intent is unknown: existing pods stay, and no new pod is created that might have to be removed again.
#[rstest]
#[case::unknown_operator(expression("type", "Near", &["x"]), STAYS, r#""type" "Near" ["x"]"#)]
#[case::in_without_values(expression("type", "In", &[]), STAYS, r#""type" "In" []"#)]
#[case::exists_with_values(expression("type", "Exists", &["x"]), STAYS, r#""type" "Exists" ["x"]"#)]
#[case::bound_is_text(expression("cores", "Gt", &["many"]), STAYS, r#""cores" "Gt" ["many"]"#)]
#[case::two_bounds(expression("cores", "Lt", &["1", "2"]), STAYS, r#""cores" "Lt" ["1", "2"]"#)]
#[case::unknown_field(
    json!([{ "matchFields": [{ "key": "spec.unschedulable", "operator": "In", "values": ["false"] }] }]),
    STAYS, r#""spec.unschedulable" "In" ["false"]"#
)]
#[case::two_names(
    json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-a", "node-b"] }] }]),
    STAYS, r#""metadata.name" "In" ["node-a", "node-b"]"#
)]
#[case::beside_a_matching_term(json!([
    { "matchExpressions": [{ "key": "type", "operator": "Near" }] },
    { "matchExpressions": [{ "key": "zone", "operator": "Exists" }] },
]), RUNS, r#""type" "Near" []"#)]
#[case::beside_an_unmet_requirement(json!([{ "matchExpressions": [
    { "key": "type", "operator": "Near" },
    { "key": "none", "operator": "Exists" },
] }]), UNFIT, r#""type" "Near" []"#)]
fn invalid_requirement_is_reported_and_keeps_existing_pods(
    #[case] terms: Value,
    #[case] expected: Fit,
    #[case] invalid: &str,
) {
    let spec = spec(&required(&terms));
    assert_eq!(fit(&spec, &node(&json!({}))), expected);
    assert_eq!(invalid_requirement(&spec).as_deref(), Some(invalid));
}

#[rstest]
#[case::no_schedule(json!([{ "key": "gpu", "effect": "NoSchedule" }]), json!([]), STAYS)]
#[case::no_execute(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([]), UNFIT)]
#[case::prefer_no_schedule(json!([{ "key": "gpu", "effect": "PreferNoSchedule" }]), json!([]), RUNS)]
#[case::unknown_effect(json!([{ "key": "gpu", "effect": "Shun" }]), json!([]), RUNS)]
#[case::exists(json!([{ "key": "gpu", "value": "a", "effect": "NoExecute" }]), json!([{ "key": "gpu", "operator": "Exists" }]), RUNS)]
#[case::exists_for_all_keys(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "operator": "Exists" }]), RUNS)]
#[case::no_key_needs_exists(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "operator": "Equal" }]), UNFIT)]
#[case::equal(json!([{ "key": "gpu", "value": "a", "effect": "NoExecute" }]), json!([{ "key": "gpu", "operator": "Equal", "value": "a" }]), RUNS)]
#[case::equal_by_default(json!([{ "key": "gpu", "value": "a", "effect": "NoExecute" }]), json!([{ "key": "gpu", "value": "a" }]), RUNS)]
#[case::no_value_is_an_empty_value(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "key": "gpu", "value": "" }]), RUNS)]
#[case::unequal(json!([{ "key": "gpu", "value": "b", "effect": "NoExecute" }]), json!([{ "key": "gpu", "value": "a" }]), UNFIT)]
#[case::another_key(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "key": "fpga", "operator": "Exists" }]), UNFIT)]
#[case::another_effect(json!([{ "key": "gpu", "effect": "NoExecute" }]), json!([{ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }]), UNFIT)]
#[case::unknown_operator(json!([{ "key": "gpu", "value": "5", "effect": "NoExecute" }]), json!([{ "key": "gpu", "operator": "Lt", "value": "9" }]), UNFIT)]
#[case::one_of_two(
    json!([{ "key": "gpu", "effect": "NoExecute" }, { "key": "fpga", "effect": "NoSchedule" }]),
    json!([{ "key": "gpu", "operator": "Exists" }]),
    STAYS
)]
#[case::with_toleration_seconds(
    json!([{ "key": "gpu", "effect": "NoExecute" }]),
    json!([{ "key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 }]),
    STAYS
)]
#[case::with_and_without_toleration_seconds(
    json!([{ "key": "gpu", "effect": "NoExecute" }]),
    json!([{ "key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 }, { "operator": "Exists" }]),
    RUNS
)]
fn taint_requires_a_toleration(#[case] taints: Value, #[case] tolerations: Value, #[case] expected: Fit) {
    assert_eq!(fit(&spec(&json!({ "tolerations": tolerations })), &tainted(&taints)), expected);
}

#[rstest]
#[case::not_ready("node.kubernetes.io/not-ready", "NoExecute", json!([]), STAYS)]
#[case::unreachable("node.kubernetes.io/unreachable", "NoExecute", json!([]), STAYS)]
#[case::not_ready_no_schedule("node.kubernetes.io/not-ready", "NoSchedule", json!([]), STAYS)]
#[case::unreachable_no_schedule("node.kubernetes.io/unreachable", "NoSchedule", json!([]), STAYS)]
#[case::cordoned("node.kubernetes.io/unschedulable", "NoSchedule", json!([]), STAYS)]
#[case::tolerated_for_a_time(
    "node.kubernetes.io/not-ready", "NoExecute",
    json!([{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5 }]), STAYS
)]
#[case::tolerated(
    "node.kubernetes.io/unreachable", "NoExecute",
    json!([{ "key": "node.kubernetes.io/unreachable", "operator": "Exists" }]), RUNS
)]
#[case::out_of_service("node.kubernetes.io/out-of-service", "NoExecute", json!([]), UNFIT)]
fn node_problem_taint_blocks_new_pods_and_keeps_existing_ones(
    #[case] key: &str,
    #[case] effect: &str,
    #[case] tolerations: Value,
    #[case] expected: Fit,
) {
    let node = tainted(&json!([{ "key": key, "effect": effect }]));
    assert_eq!(fit(&spec(&json!({ "tolerations": tolerations })), &node), expected);
}

#[test]
fn unschedulable_flag_alone_does_not_block_pods() {
    let node = node(&json!({ "spec": { "unschedulable": true } }));
    assert!(node.unschedulable);
    assert_eq!(fit(&spec(&json!({})), &node), RUNS);
}

#[test]
fn tolerations_do_not_override_the_node_selector() {
    let selector =
        json!({ "nodeSelector": { "type": "production" }, "tolerations": [{ "operator": "Exists" }] });
    assert_eq!(fit(&spec(&selector), &node(&json!({}))), UNFIT);
}
