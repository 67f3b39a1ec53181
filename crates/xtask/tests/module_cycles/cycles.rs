//! Cycles in the references between modules.

use crate::crate_modules::Reference;
use std::collections::{BTreeMap, BTreeSet};

/// One text for each set of modules that can all reach each other, with the references between them.
pub fn describe(references: &BTreeSet<Reference>) -> Vec<String> {
    let mut targets: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for reference in references {
        targets.entry(&reference.from).or_default().insert(&reference.to);
    }
    let mut components: BTreeSet<BTreeSet<&str>> = BTreeSet::new();
    for module in targets.keys() {
        let reached = reachable(&targets, module);
        let component: BTreeSet<&str> =
            reached.into_iter().filter(|other| reachable(&targets, other).contains(module)).collect();
        components.insert(component);
    }
    components
        .iter()
        .filter(|component| !component.is_empty())
        .map(|modules| text(modules, references))
        .collect()
}

/// The modules that references lead to from this one, which is among them only if it is part of a cycle.
fn reachable<'a>(targets: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(module) = pending.pop() {
        let next = targets.get(module).into_iter().flatten();
        pending.extend(next.filter(|module| reached.insert(**module)));
    }
    reached
}

fn text(modules: &BTreeSet<&str>, references: &BTreeSet<Reference>) -> String {
    let is_inside = |reference: &&Reference| {
        [&reference.from, &reference.to].iter().all(|end| modules.contains(end.as_str()))
    };
    let lines = references.iter().filter(is_inside);
    let lines = lines.map(|Reference { from, to, place }| format!("\n    {from} -> {to} ({place})"));
    let names: Vec<&str> = modules.iter().copied().collect();
    format!("{}{}", names.join(", "), lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::describe;
    use crate::crate_modules::Reference;

    fn cycles(references: &[(&str, &str)]) -> Vec<String> {
        let reference = |(from, to): &(&str, &str)| Reference {
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            place: format!("{from}.rs:1"),
        };
        describe(&references.iter().map(reference).collect())
    }

    #[test]
    fn references_in_one_direction_are_no_cycle() {
        assert!(cycles(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
    }

    #[test]
    fn each_cycle_is_described_by_its_own_references() {
        let found =
            cycles(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("x", "a")]);
        let [first, second] = &found[..] else { panic!("{found:?}") };
        assert_eq!(first, "a, b, c\n    a -> b (a.rs:1)\n    b -> c (b.rs:1)\n    c -> a (c.rs:1)");
        assert_eq!(second, "d, e\n    d -> e (d.rs:1)\n    e -> d (e.rs:1)");
    }
}
