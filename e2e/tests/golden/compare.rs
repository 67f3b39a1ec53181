//! Compares objects leaf by leaf.

use crate::case::{Case, id};
use crate::leaves::{Leaf, leaves, value_text};
use regex::Regex;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use test_support::conformance::Difference;

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| Regex::new("<[^<>\n]*>").unwrap());

/// The result of a comparison.
#[derive(Default)]
pub struct Comparison {
    /// How many leaves equal the expected ones.
    pub matched: usize,
    /// How many leaves are expected; each line of a text counts as one, a placeholder as none.
    pub expected: usize,
    /// Where the objects differ: `CASE KIND/NAME PATH: OURS`.
    pub differences: Vec<Difference>,
}

/// Compares the objects of a case.
pub fn compare(case: &Case, expected: &[Value], ours: &[Value]) -> Comparison {
    let (expected, ours) = (by_id(expected), by_id(ours));
    let mut comparison = Comparison::default();
    for (id, object) in &expected {
        let place = format!("{} {id}", case.name);
        comparison.compare_object(&place, object, ours.get(id).copied());
    }
    for (id, object) in ours.iter().filter(|(id, _)| !expected.contains_key(*id)) {
        comparison.compare_object(&format!("{} {id}", case.name), &Value::Null, Some(object));
    }
    comparison
}

/// Objects by kind and name, numbered if placeholders for random names make several equal.
fn by_id(objects: &[Value]) -> BTreeMap<String, &Value> {
    let mut named = BTreeMap::new();
    for object in objects {
        let id = id(object);
        let free = (2..).map(|number| format!("{id}#{number}"));
        let key = std::iter::once(id.clone()).chain(free).find(|key| !named.contains_key(key));
        named.insert(key.unwrap_or(id), object);
    }
    named
}

impl Comparison {
    fn compare_object(&mut self, place: &str, expected: &Value, ours: Option<&Value>) {
        let expected = if expected.is_null() { BTreeMap::new() } else { leaves(expected) };
        let Some(ours) = ours else {
            self.expected += expected.values().map(weight).sum::<usize>();
            return self.differ(format!("{place}: absent"), "an object");
        };
        let ours = leaves(ours);
        for (path, leaf) in &expected {
            self.compare_leaf(&format!("{place} {path}"), leaf, ours.get(path));
        }
        for (path, leaf) in ours.iter().filter(|(path, _)| !expected.contains_key(*path)) {
            self.differ(format!("{place} {path}: {}", rendered(leaf)), "nothing");
        }
    }

    fn compare_leaf(&mut self, place: &str, expected: &Leaf, ours: Option<&Leaf>) {
        self.expected += weight(expected);
        match (expected, ours) {
            (Leaf::Lines(expected), ours) => self.compare_lines(place, expected, ours),
            (Leaf::Value(value), Some(ours)) if matches(value, ours) => self.matched += weight(expected),
            (Leaf::Value(_), ours) => {
                let ours = ours.map_or_else(|| "absent".to_owned(), rendered);
                self.differ(format!("{place}: {ours}"), &rendered(expected));
            }
        }
    }

    fn compare_lines(&mut self, place: &str, expected: &[String], ours: Option<&Leaf>) {
        let expected = significant(expected);
        let ours = match ours {
            Some(Leaf::Lines(lines)) => significant(lines),
            Some(Leaf::Value(value)) => vec![value_text(value)],
            None => Vec::new(),
        };
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
        for change in TextDiff::from_slices(&expected, &ours).iter_all_changes() {
            match change.tag() {
                ChangeTag::Equal => self.matched += 1,
                ChangeTag::Delete => {
                    self.differ(format!("{place}: - {}", change.value()), "this line");
                }
                ChangeTag::Insert => {
                    self.differ(format!("{place}: + {}", change.value()), "no such line");
                }
            }
        }
    }

    fn differ(&mut self, at: String, expected: &str) {
        self.differences.push(Difference { at, detail: format!("expected {expected}") });
    }
}

/// How many leaves a leaf counts as.
fn weight(leaf: &Leaf) -> usize {
    match leaf {
        Leaf::Value(value) => usize::from(!value.as_str().is_some_and(is_placeholder)),
        Leaf::Lines(lines) => significant(lines).len(),
    }
}

/// The lines that are neither blank nor a comment.
fn significant(lines: &[String]) -> Vec<String> {
    let is_significant = |line: &&str| !line.is_empty() && !is_placeholder(line.trim());
    lines.iter().map(|line| line.trim_end()).filter(is_significant).map(str::to_owned).collect()
}

/// Whether the value is the expected one, with any text for placeholders.
fn matches(expected: &Value, ours: &Leaf) -> bool {
    let Leaf::Value(value) = ours else { return expected.as_str().is_some_and(is_placeholder) };
    value == expected
        || expected.as_str().is_some_and(|expected| matches_pattern(expected, &value_text(value)))
}

fn matches_pattern(expected: &str, ours: &str) -> bool {
    let fixed: Vec<String> = PLACEHOLDER.split(expected).map(regex::escape).collect();
    Regex::new(&format!("^{}$", fixed.join(".*"))).unwrap().is_match(ours)
}

fn is_placeholder(text: &str) -> bool {
    PLACEHOLDER.find(text).is_some_and(|found| found.len() == text.len())
}

fn rendered(leaf: &Leaf) -> String {
    match leaf {
        Leaf::Value(value) => value_text(value),
        Leaf::Lines(lines) => lines.join("\\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(change: &Value) -> Value {
        let mut object = json!({ "kind": "K", "metadata": { "name": "n" } });
        object.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        object
    }

    /// Matched and expected leaves besides kind and name, and the differences.
    fn compared(expected: &Value, ours: &Value) -> (usize, usize, Vec<String>) {
        let mut comparison = Comparison::default();
        comparison.compare_object("c K/n", &object(expected), Some(&object(ours)));
        let differences = comparison.differences.into_iter().map(|difference| difference.at).collect();
        (comparison.matched - 2, comparison.expected - 2, differences)
    }

    #[test]
    fn every_difference_is_reported() {
        let expected =
            json!({ "a": 1, "b": "x", "c": true, "hash": "<hash>", "also": "<hash>", "name": "n-<rand>" });
        let ours = json!({ "a": 2, "b": "x", "extra": {}, "hash": "123", "name": "n-456" });
        let differences = ["c K/n a: 2", "c K/n also: absent", "c K/n c: absent", "c K/n extra: {}"];
        assert_eq!(compared(&expected, &ours), (2, 4, differences.map(str::to_owned).to_vec()));
    }

    #[test]
    fn texts_are_compared_by_lines_without_comments() {
        let expected = json!({ "conf": "<comment>\nA=1\n\nB=2\nC=3\n" });
        let ours = json!({ "conf": "A=1\nC=3 \n<comment>\nD=4\n" });
        let differences = ["c K/n conf: - B=2", "c K/n conf: + D=4"];
        assert_eq!(compared(&expected, &ours), (2, 3, differences.map(str::to_owned).to_vec()));
    }

    #[test]
    fn changed_order_is_a_difference() {
        let list = |order: [u8; 2]| json!({ "list": order.map(|name| json!({ "name": name })) });
        assert_eq!(compared(&list([1, 2]), &list([2, 1])).2, ["c K/n list[order]: 2,1"]);
    }

    #[test]
    fn missing_object_is_one_difference_and_counts_all_its_leaves() {
        let mut comparison = Comparison::default();
        comparison.compare_object("c K/n", &object(&json!({ "a": "x\ny", "b": "<ip>" })), None);
        assert_eq!((comparison.matched, comparison.expected), (0, 4));
        assert_eq!(comparison.differences[0].at, "c K/n: absent");
    }

    #[test]
    fn objects_with_equal_names_are_numbered() {
        let objects = [object(&json!({ "a": 1 })), object(&json!({ "a": 2 }))];
        assert_eq!(by_id(&objects).into_keys().collect::<Vec<_>>(), ["K/n", "K/n#2"]);
    }
}
