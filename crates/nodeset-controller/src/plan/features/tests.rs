use super::*;
use crate::plan::testing::pod;
use rstest::rstest;
use serde_json::json;

fn node(available: &[&str], active: &[&str]) -> Node {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Node { features: names(available), active_features: names(active), ..Node::default() }
}

#[rstest]
#[case::added_to_both(&["foo"], &["foo"], Some("nn-x,GPU"), &["foo", "k8s/GPU", "k8s/nn-x"], &["foo", "k8s/GPU", "k8s/nn-x"])]
#[case::ours_go_with_the_annotation(&["foo", "k8s/stale"], &["foo", "k8s/stale"], None, &["foo"], &["foo"])]
#[case::the_last_one_goes_too(&["k8s/stale"], &["k8s/stale"], Some(""), &[], &[])]
#[case::what_others_made_inactive_stays_inactive(
    &["foo", "mig=on", "mig=off", "k8s/old"], &["foo", "mig=on", "k8s/old"], Some("nn-a"),
    &["foo", "k8s/nn-a", "mig=off", "mig=on"], &["foo", "k8s/nn-a", "mig=on"]
)]
#[case::only_commas_separate(&[], &[], Some("location=us-east-2"), &["k8s/location=us-east-2"], &["k8s/location=us-east-2"])]
#[case::blanks_empties_and_repetitions_say_nothing(&[], &[], Some(" a, ,a,, b ,"), &["k8s/a", "k8s/b"], &["k8s/a", "k8s/b"])]
#[case::inactive_ours_become_active(&["k8s/a"], &[], Some("a"), &["k8s/a"], &["k8s/a"])]
fn features_of_the_kubernetes_node_are_features_of_the_slurm_node(
    #[case] available: &[&str],
    #[case] active: &[&str],
    #[case] annotation: Option<&str>,
    #[case] wanted_available: &[&str],
    #[case] wanted_active: &[&str],
) {
    let (available, active) = desired_features(&node(available, active), annotation).unwrap();
    assert_eq!(available, wanted_available);
    assert_eq!(active, wanted_active);
    let reached = Node { features: available, active_features: active, ..Node::default() };
    assert_eq!(desired_features(&reached, annotation), None);
}

#[rstest]
#[case::nothing_anywhere(&[], &[], None)]
#[case::features_of_others(&["foo", "bar"], &["foo"], None)]
#[case::in_another_order(&["k8s/b", "foo", "k8s/a"], &["k8s/b", "k8s/a"], Some("a,b"))]
fn nothing_is_written_where_nothing_differs(
    #[case] available: &[&str],
    #[case] active: &[&str],
    #[case] annotation: Option<&str>,
) {
    assert_eq!(desired_features(&node(available, active), annotation), None);
}

fn at(topology: &str) -> Node {
    Node { topology: topology.to_owned(), ..Node::default() }
}

#[rstest]
#[case::given("", Some("topo-block:b0"), None, Some("topo-block:b0"))]
#[case::changed("topo-block:b0", Some("topo-block:b1"), Some("topo-block:b0"), Some("topo-block:b1"))]
#[case::given_over_that_of_others("default:s1", Some("default:s2"), None, Some("default:s2"))]
#[case::already_so("topo-block:b0", Some("topo-block:b0"), None, None)]
#[case::taken_back("topo-block:b0", None, Some("topo-block:b0"), Some(""))]
#[case::taken_back_by_emptying("topo-block:b0", Some(""), Some("topo-block:b0"), Some(""))]
#[case::taken_back_already("", None, Some("topo-block:b0"), None)]
#[case::never_ours("default:s1", None, None, None)]
#[case::never_ours_but_the_pod_has_the_key("default:s1", None, Some(""), None)]
#[case::emptied_and_never_ours("default:s1", Some(""), None, None)]
fn only_a_topology_of_ours_is_taken_back(
    #[case] topology: &str,
    #[case] host: Option<&str>,
    #[case] told: Option<&str>,
    #[case] expected: Option<&str>,
) {
    assert_eq!(desired_topology(&at(topology), host, told).as_deref(), expected);
}

#[rstest]
#[case::given(Some("b0"), None, NodeLookup::Unknown, "b0")]
#[case::changed(Some("b1"), Some("b0"), NodeLookup::Present(&at("b0")), "b1")]
#[case::nothing_to_say(None, None, NodeLookup::Present(&at("s1")), "")]
#[case::not_taken_back_yet(None, Some("b0"), NodeLookup::Present(&at("b0")), "b0")]
#[case::nobody_knows(None, Some("b0"), NodeLookup::Unknown, "b0")]
#[case::taken_back(None, Some("b0"), NodeLookup::Present(&at("")), "")]
#[case::gone_with_the_node(None, Some("b0"), NodeLookup::Absent, "")]
fn a_pod_remembers_its_topology_until_slurm_has_forgotten_it(
    #[case] host: Option<&str>,
    #[case] told: Option<&str>,
    #[case] slurm: NodeLookup<'_>,
    #[case] expected: &str,
) {
    assert_eq!(told_topology(host, told, slurm), expected);
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
fn a_comment_has_its_keys_in_one_order(#[case] info: PodInfo, #[case] comment: &str) {
    assert_eq!(info.to_comment(), comment);
    assert!(info.is_in(comment));
}

#[rstest]
#[case::in_another_order(
    r#"{"nodeSetUID":"u-1","node":"node-a","podName":"gpu-0","nodeSetName":"gpu","namespace":"ns"}"#,
    true
)]
#[case::with_more(
    r#"{"namespace":"ns","podName":"gpu-0","node":"node-a","nodeSetName":"gpu","nodeSetUID":"u-1","x":1}"#,
    true
)]
#[case::of_another_node(
    r#"{"namespace":"ns","podName":"gpu-0","node":"node-b","nodeSetName":"gpu","nodeSetUID":"u-1"}"#,
    false
)]
#[case::without_nodeset(r#"{"namespace":"ns","podName":"gpu-0","node":"node-a"}"#, false)]
#[case::words("rack 7, ask Eva", false)]
#[case::nothing("", false)]
#[case::not_text(r#"{"namespace":7}"#, false)]
#[case::a_list("[]", false)]
fn a_comment_is_compared_by_meaning(#[case] comment: &str, #[case] same: bool) {
    assert_eq!(full().is_in(comment), same);
}

#[test]
fn words_of_a_person_are_no_record() {
    assert_eq!(PodInfo::parse("rack 7, ask Eva"), None);
}
