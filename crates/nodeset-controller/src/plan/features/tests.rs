use super::*;
use crate::plan::testing::pod;
use rstest::rstest;
use serde_json::json;

fn node(available: &[&str], active: &[&str]) -> Node {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Node { features: names(available), active_features: names(active), ..Node::default() }
}

#[rstest]
#[case::added_to_available_and_active(&["foo"], &["foo"], Some("nn-x,GPU"), &["foo", "k8s/GPU", "k8s/nn-x"], &["foo", "k8s/GPU", "k8s/nn-x"])]
#[case::removed_with_the_annotation(&["foo", "k8s/stale"], &["foo", "k8s/stale"], None, &["foo"], &["foo"])]
#[case::last_one_removed(&["k8s/stale"], &["k8s/stale"], Some(""), &[], &[])]
#[case::foreign_inactive_features_stay_inactive(
    &["foo", "mig=on", "mig=off", "k8s/old"], &["foo", "mig=on", "k8s/old"], Some("nn-a"),
    &["foo", "k8s/nn-a", "mig=off", "mig=on"], &["foo", "k8s/nn-a", "mig=on"]
)]
#[case::only_commas_are_separators(&[], &[], Some("location=us-east-2"), &["k8s/location=us-east-2"], &["k8s/location=us-east-2"])]
#[case::blanks_empty_and_duplicate_entries_are_ignored(&[], &[], Some(" a, ,a,, b ,"), &["k8s/a", "k8s/b"], &["k8s/a", "k8s/b"])]
#[case::our_inactive_features_become_active(&["k8s/a"], &[], Some("a"), &["k8s/a"], &["k8s/a"])]
fn slurm_node_gets_the_features_of_its_kubernetes_node(
    #[case] available: &[&str],
    #[case] active: &[&str],
    #[case] annotation: Option<&str>,
    #[case] expected_available: &[&str],
    #[case] expected_active: &[&str],
) {
    let (available, active) = desired_features(&node(available, active), annotation).unwrap();
    assert_eq!(available, expected_available);
    assert_eq!(active, expected_active);
    let updated = Node { features: available, active_features: active, ..Node::default() };
    assert_eq!(desired_features(&updated, annotation), None);
}

#[rstest]
#[case::no_features(&[], &[], None)]
#[case::foreign_features(&["foo", "bar"], &["foo"], None)]
#[case::in_another_order(&["k8s/b", "foo", "k8s/a"], &["k8s/b", "k8s/a"], Some("a,b"))]
fn up_to_date_features_are_not_written(
    #[case] available: &[&str],
    #[case] active: &[&str],
    #[case] annotation: Option<&str>,
) {
    assert_eq!(desired_features(&node(available, active), annotation), None);
}

fn at(topology: &str) -> Node {
    Node { topology: Some(topology.to_owned()), ..Node::default() }
}

#[rstest]
#[case::set("", Some("topo-block:b0"), None, Some("topo-block:b0"))]
#[case::changed("topo-block:b0", Some("topo-block:b1"), Some("topo-block:b0"), Some("topo-block:b1"))]
#[case::set_over_foreign_topology("default:s1", Some("default:s2"), None, Some("default:s2"))]
#[case::up_to_date("topo-block:b0", Some("topo-block:b0"), None, None)]
#[case::cleared("topo-block:b0", None, Some("topo-block:b0"), Some(""))]
#[case::cleared_by_empty_annotation("topo-block:b0", Some(""), Some("topo-block:b0"), Some(""))]
#[case::already_cleared("", None, Some("topo-block:b0"), None)]
#[case::never_ours("default:s1", None, None, None)]
#[case::never_ours_but_the_pod_has_the_key("default:s1", None, Some(""), None)]
#[case::empty_annotation_and_never_ours("default:s1", Some(""), None, None)]
fn only_our_topology_is_cleared(
    #[case] topology: &str,
    #[case] host: Option<&str>,
    #[case] recorded: Option<&str>,
    #[case] expected: Option<&str>,
) {
    assert_eq!(desired_topology(&at(topology), host, recorded).as_deref(), expected);
}

#[rstest]
#[case::set(Some("b0"), None, NodeLookup::Unknown, "b0")]
#[case::changed(Some("b1"), Some("b0"), NodeLookup::Present(&at("b0")), "b1")]
#[case::no_topology(None, None, NodeLookup::Present(&at("s1")), "")]
#[case::not_cleared_yet(None, Some("b0"), NodeLookup::Present(&at("b0")), "b0")]
#[case::slurm_unreachable(None, Some("b0"), NodeLookup::Unknown, "b0")]
#[case::cleared(None, Some("b0"), NodeLookup::Present(&at("")), "")]
#[case::node_deleted(None, Some("b0"), NodeLookup::Absent, "")]
fn recorded_topology_stays_until_slurm_cleared_it(
    #[case] host: Option<&str>,
    #[case] recorded: Option<&str>,
    #[case] slurm: NodeLookup<'_>,
    #[case] expected: &str,
) {
    assert_eq!(recorded_topology(host, recorded, slurm), expected);
}

fn full() -> PodInfo {
    let nodeset: NodeSet = serde_json::from_value(json!({
        "metadata": { "name": "gpu", "namespace": "ns", "uid": "u-1" },
        "spec": { "controllerRef": { "name": "slurm" } },
    }))
    .unwrap();
    PodInfo::of(&nodeset, &Worker::new(pod("gpu-0", &json!({}))), "node-a")
}

#[rstest]
#[case::empty(PodInfo::default(), r#"{"namespace":"","podName":"","node":""}"#)]
#[case::full(
    full(),
    r#"{"namespace":"ns","podName":"gpu-0","node":"node-a","nodeSetName":"gpu","nodeSetUID":"u-1"}"#
)]
fn comment_has_a_fixed_key_order(#[case] info: PodInfo, #[case] comment: &str) {
    assert_eq!(info.to_comment(), comment);
    assert!(info.is_in(comment));
}

#[rstest]
#[case::in_another_order(
    r#"{"nodeSetUID":"u-1","node":"node-a","podName":"gpu-0","nodeSetName":"gpu","namespace":"ns"}"#,
    true
)]
#[case::with_unknown_keys(
    r#"{"namespace":"ns","podName":"gpu-0","node":"node-a","nodeSetName":"gpu","nodeSetUID":"u-1","x":1}"#,
    true
)]
#[case::another_node(
    r#"{"namespace":"ns","podName":"gpu-0","node":"node-b","nodeSetName":"gpu","nodeSetUID":"u-1"}"#,
    false
)]
#[case::without_nodeset(r#"{"namespace":"ns","podName":"gpu-0","node":"node-a"}"#, false)]
#[case::free_text("rack 7, ask Eva", false)]
#[case::empty("", false)]
#[case::not_text(r#"{"namespace":7}"#, false)]
#[case::a_list("[]", false)]
fn comment_is_compared_by_content(#[case] comment: &str, #[case] same: bool) {
    assert_eq!(full().is_in(comment), same);
}

#[test]
fn free_text_is_not_parsed() {
    assert_eq!(PodInfo::parse("rack 7, ask Eva"), None);
}
