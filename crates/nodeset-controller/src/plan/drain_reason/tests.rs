use super::*;
use crate::node_facts::NodeCondition;
use rstest::rstest;

fn node(reason: Option<&str>, conditions: &[(&str, &str, &str, &str)]) -> NodeFacts {
    let condition = |(type_, status, reason, message): &(&str, &str, &str, &str)| NodeCondition {
        type_: (*type_).to_owned(),
        status: (*status).to_owned(),
        reason: (*reason).to_owned(),
        message: (*message).to_owned(),
    };
    NodeFacts {
        name: "node-a".to_owned(),
        annotations: reason
            .map(|reason| (NODE_CORDON_REASON.to_owned(), reason.to_owned()))
            .into_iter()
            .collect(),
        conditions: conditions.iter().map(condition).collect(),
        unschedulable: true,
        ..NodeFacts::default()
    }
}

fn reason_of(node: &NodeFacts, propagated: &[&str]) -> String {
    let propagated: Vec<_> = propagated.iter().map(|type_| (*type_).to_owned()).collect();
    node_cordoned(node, "ns", "w-0", &propagated)
}

const DEFAULT: &str = "slurm-operator: Node (node-a) was cordoned, Pod (ns/w-0) must be cordoned";
const DISK: (&str, &str, &str, &str) =
    ("DiskPressure", "True", "KubeletHasDiskPressure", "POD has insufficient ephemeral storage");
const NETWORK: (&str, &str, &str, &str) = ("NetworkUnavailable", "True", "NoRoute", "route is missing");

#[rstest]
#[case::ours("slurm-operator: Pod is terminating", true)]
#[case::ours_with_appended_text("slurm-operator: Pod is terminating (bad disk)", true)]
#[case::by_a_person("broken fan", false)]
#[case::without_the_blank("slurm-operator:x", false)]
#[case::in_the_middle("see slurm-operator: x", false)]
#[case::empty("", false)]
fn our_reasons_are_recognized_by_prefix(#[case] reason: &str, #[case] expected: bool) {
    assert_eq!(is_ours(reason), expected);
}

#[test]
fn every_reason_has_our_prefix() {
    assert_eq!(pod_cordoned("ns", "w-0"), "slurm-operator: Pod (ns/w-0) was cordoned");
    assert_eq!(terminating(), "slurm-operator: Pod is terminating");
    assert_eq!(
        pending_termination("ns", "w-0"),
        "slurm-operator: Pod (ns/w-0) is pending termination for scale-in"
    );
    let reasons =
        [pod_cordoned("", ""), terminating(), pending_termination("", ""), reason_of(&node(None, &[]), &[])];
    assert!(reasons.iter().all(|reason| is_ours(reason)), "{reasons:?}");
}

#[rstest]
#[case::default_names_the_node(node(None, &[]), &[], DEFAULT)]
#[case::from_the_annotation(
    node(Some("custom maintenance window"), &[]), &[],
    "slurm-operator: custom maintenance window"
)]
#[case::annotation_takes_precedence(node(Some("mine"), &[DISK]), &["DiskPressure"], "slurm-operator: mine")]
#[case::empty_annotation_takes_precedence_too(node(Some(" \n"), &[DISK]), &["DiskPressure"], "slurm-operator: unknown")]
#[case::condition(
    node(None, &[DISK]), &["DiskPressure"],
    "slurm-operator: (KubeletHasDiskPressure: POD has insufficient ephemeral storage)"
)]
#[case::conditions_in_flag_order(
    node(None, &[DISK, NETWORK]), &["NetworkUnavailable", "DiskPressure"],
    "slurm-operator: (NoRoute: route is missing); (KubeletHasDiskPressure: POD has insufficient ephemeral storage)"
)]
#[case::same_type_in_node_order(
    node(None, &[("X", "True", "B", "b"), ("X", "True", "A", "a")]), &["X"],
    "slurm-operator: (B: b); (A: a)"
)]
#[case::false_condition(node(None, &[("DiskPressure", "False", "r", "m")]), &["DiskPressure"], DEFAULT)]
#[case::unknown_condition(node(None, &[("DiskPressure", "Unknown", "r", "m")]), &["DiskPressure"], DEFAULT)]
#[case::unpropagated_condition(node(None, &[DISK]), &["MemoryPressure"], DEFAULT)]
// Reasons in Slurm have one line.
#[case::multi_line_condition(
    node(None, &[("X", "True", "Bad", "one\ntwo\u{7}")]), &["X"],
    "slurm-operator: (Bad: one two)"
)]
fn reason_comes_from_annotation_or_conditions(
    #[case] node: NodeFacts,
    #[case] propagated: &[&str],
    #[case] expected: &str,
) {
    assert_eq!(reason_of(&node, propagated), expected);
}

#[rstest]
#[case::line_breaks_become_blanks("a\r\tb", "a  b")]
#[case::control_characters_are_removed("bad\u{0}\u{7}reason", "badreason")]
#[case::escape_characters_are_removed("\u{1b}[31mred", "[31mred")]
#[case::ends_are_trimmed(" \n x \t", "x")]
#[case::non_ascii_stays("größe 大", "größe 大")]
fn node_text_becomes_one_line(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(one_line(text), expected);
}

#[rstest]
#[case::one_byte_each(&"a".repeat(306), &"a".repeat(256))]
#[case::characters_are_not_split(&"é".repeat(266), &"é".repeat(256))]
#[case::trailing_blank_is_trimmed(&format!("{} {}", "a".repeat(255), "b".repeat(9)), &"a".repeat(255))]
#[case::just_fits(&"a".repeat(256), &"a".repeat(256))]
fn node_text_is_limited_to_256_characters(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(one_line(text), expected);
}
