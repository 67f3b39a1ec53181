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

fn told(node: &NodeFacts, propagated: &[&str]) -> String {
    let propagated: Vec<_> = propagated.iter().map(|type_| (*type_).to_owned()).collect();
    node_cordoned(node, "ns", "w-0", &propagated)
}

const DEFAULT: &str = "slurm-operator: Node (node-a) was cordoned, Pod (ns/w-0) must be cordoned";
const DISK: (&str, &str, &str, &str) =
    ("DiskPressure", "True", "KubeletHasDiskPressure", "POD has insufficient ephemeral storage");
const NETWORK: (&str, &str, &str, &str) = ("NetworkUnavailable", "True", "NoRoute", "route is missing");

#[rstest]
#[case::of_ours("slurm-operator: Pod is terminating", true)]
#[case::of_ours_with_theirs_behind("slurm-operator: Pod is terminating (bad disk)", true)]
#[case::of_a_person("broken fan", false)]
#[case::without_the_blank("slurm-operator:x", false)]
#[case::in_the_middle("see slurm-operator: x", false)]
#[case::none_may_be_anybodys("", false)]
fn a_reason_is_known_by_its_beginning(#[case] reason: &str, #[case] expected: bool) {
    assert_eq!(is_ours(reason), expected);
}

#[test]
fn everything_that_is_said_is_known_again() {
    assert_eq!(pod_cordoned("ns", "w-0"), "slurm-operator: Pod (ns/w-0) was cordoned");
    assert_eq!(terminating(), "slurm-operator: Pod is terminating");
    assert_eq!(
        pending_termination("ns", "w-0"),
        "slurm-operator: Pod (ns/w-0) is pending termination for scale-in"
    );
    let said =
        [pod_cordoned("", ""), terminating(), pending_termination("", ""), told(&node(None, &[]), &[])];
    assert!(said.iter().all(|reason| is_ours(reason)), "{said:?}");
}

#[rstest]
#[case::no_reason_names_the_node(node(None, &[]), &[], DEFAULT)]
#[case::given_in_an_annotation(
    node(Some("custom maintenance window"), &[]), &[],
    "slurm-operator: custom maintenance window"
)]
#[case::annotation_wins_over_condition(node(Some("mine"), &[DISK]), &["DiskPressure"], "slurm-operator: mine")]
#[case::an_empty_annotation_hides_conditions_too(node(Some(" \n"), &[DISK]), &["DiskPressure"], "slurm-operator: unknown")]
#[case::condition(
    node(None, &[DISK]), &["DiskPressure"],
    "slurm-operator: (KubeletHasDiskPressure: POD has insufficient ephemeral storage)"
)]
#[case::conditions_in_the_order_of_the_flag(
    node(None, &[DISK, NETWORK]), &["NetworkUnavailable", "DiskPressure"],
    "slurm-operator: (NoRoute: route is missing); (KubeletHasDiskPressure: POD has insufficient ephemeral storage)"
)]
#[case::two_of_one_type_in_the_order_of_the_node(
    node(None, &[("X", "True", "B", "b"), ("X", "True", "A", "a")]), &["X"],
    "slurm-operator: (B: b); (A: a)"
)]
#[case::condition_that_is_false(node(None, &[("DiskPressure", "False", "r", "m")]), &["DiskPressure"], DEFAULT)]
#[case::condition_that_is_unknown(node(None, &[("DiskPressure", "Unknown", "r", "m")]), &["DiskPressure"], DEFAULT)]
#[case::condition_that_nobody_asked_for(node(None, &[DISK]), &["MemoryPressure"], DEFAULT)]
// Slurm's reasons have one line whoever wrote them.
#[case::condition_of_several_lines(
    node(None, &[("X", "True", "Bad", "one\ntwo\u{7}")]), &["X"],
    "slurm-operator: (Bad: one two)"
)]
fn a_cordoned_node_says_why(#[case] node: NodeFacts, #[case] propagated: &[&str], #[case] expected: &str) {
    assert_eq!(told(&node, propagated), expected);
}

#[rstest]
#[case::breaks_become_blanks("a\r\tb", "a  b")]
#[case::control_characters_vanish("bad\u{0}\u{7}reason", "badreason")]
#[case::escape_sequences_lose_their_escape("\u{1b}[31mred", "[31mred")]
#[case::ends_are_trimmed(" \n x \t", "x")]
#[case::other_scripts_stay("größe 大", "größe 大")]
fn text_of_a_node_becomes_one_line(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(one_line(text), expected);
}

#[rstest]
#[case::one_byte_each(&"a".repeat(306), &"a".repeat(256))]
#[case::characters_are_not_split(&"é".repeat(266), &"é".repeat(256))]
#[case::a_blank_at_the_cut_goes(&format!("{} {}", "a".repeat(255), "b".repeat(9)), &"a".repeat(255))]
#[case::just_fits(&"a".repeat(256), &"a".repeat(256))]
fn text_of_a_node_is_cut(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(one_line(text), expected);
}
