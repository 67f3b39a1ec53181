//! Whether a node matches the node selector and required node affinity of a pod.

use crate::node_facts::NodeFacts;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// The only node field that `matchFields` supports.
const NAME_FIELD: &str = "metadata.name";

/// Result of a match, ordered: the minimum of requirements that are combined by AND, the maximum of terms combined by
/// OR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// The node does not match.
    No,
    /// The requirement is invalid.
    Unclear,
    /// The node matches.
    Yes,
}

impl From<bool> for Match {
    fn from(matches: bool) -> Self {
        if matches { Self::Yes } else { Self::No }
    }
}

/// Whether a node matches the selector and required affinity of a pod.
pub fn match_node(spec: &PodSpec, node: &NodeFacts) -> Match {
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| node.labels.get(key) == Some(value)) {
        return Match::No;
    }
    let Some(terms) = required_terms(spec) else { return Match::Yes };
    terms.iter().map(|term| match_term(term, node)).max().unwrap_or(Match::No)
}

/// The first invalid requirement in the required node affinity of a pod, as text.
pub fn invalid_requirement(spec: &PodSpec) -> Option<String> {
    let mut invalid = required_terms(spec).into_iter().flatten().flat_map(|term| {
        let labels = labels_of(term).filter(|requirement| Test::of_label(requirement).is_none());
        labels.chain(fields_of(term).filter(|requirement| Test::of_field(requirement).is_none()))
    });
    let NodeSelectorRequirement { key, operator, values } = invalid.next()?;
    Some(format!("{key:?} {operator:?} {:?}", values.as_deref().unwrap_or_default()))
}

fn required_terms(spec: &PodSpec) -> Option<&[NodeSelectorTerm]> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    Some(&affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms)
}

fn labels_of(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_expressions.iter().flatten()
}

fn fields_of(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_fields.iter().flatten()
}

/// A term without requirements matches no node, as in Kubernetes.
fn match_term(term: &NodeSelectorTerm, node: &NodeFacts) -> Match {
    let labels =
        labels_of(term).map(|requirement| (Test::of_label(requirement), node.labels.get(&requirement.key)));
    let fields = fields_of(term).map(|requirement| (Test::of_field(requirement), Some(&node.name)));
    let matches = labels.chain(fields).map(|(test, value)| match test {
        Some(test) => test.matches(value.map(String::as_str)).into(),
        None => Match::Unclear,
    });
    matches.min().unwrap_or(Match::No)
}

/// The test of a requirement on a value, or on its absence.
enum Test<'a> {
    OneOf(&'a [String]),
    NoneOf(&'a [String]),
    Present,
    Absent,
    Above(i64),
    Below(i64),
}

impl<'a> Test<'a> {
    /// `None` if Kubernetes considers the requirement invalid too.
    fn of_label(requirement: &'a NodeSelectorRequirement) -> Option<Self> {
        let values = requirement.values.as_deref().unwrap_or_default();
        match (requirement.operator.as_str(), values) {
            ("In", [_, ..]) => Some(Self::OneOf(values)),
            ("NotIn", [_, ..]) => Some(Self::NoneOf(values)),
            ("Exists", []) => Some(Self::Present),
            ("DoesNotExist", []) => Some(Self::Absent),
            ("Gt", [bound]) => bound.parse().ok().map(Self::Above),
            ("Lt", [bound]) => bound.parse().ok().map(Self::Below),
            _ => None,
        }
    }

    /// Kubernetes accepts exactly one node name.
    fn of_field(requirement: &'a NodeSelectorRequirement) -> Option<Self> {
        let values = requirement.values.as_deref().unwrap_or_default();
        match (requirement.key.as_str(), requirement.operator.as_str(), values) {
            (NAME_FIELD, "In", [_]) => Some(Self::OneOf(values)),
            (NAME_FIELD, "NotIn", [_]) => Some(Self::NoneOf(values)),
            _ => None,
        }
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let is_among = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        let number = value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::OneOf(values) => is_among(values),
            Self::NoneOf(values) => !is_among(values),
            Self::Present => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Above(bound) => number.is_some_and(|number| number > *bound),
            Self::Below(bound) => number.is_some_and(|number| number < *bound),
        }
    }
}
