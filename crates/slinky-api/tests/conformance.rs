//! Compares the definitions with the conformance data, node by node.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use test_support::conformance::{Difference, assert_all_meant, deviations, directory};

/// The properties of one schema node by column.
type Node = BTreeMap<String, String>;
/// All nodes by `Kind path`.
type Nodes = BTreeMap<String, Node>;

#[test]
fn schema_nodes_and_facts_match_the_conformance_data() {
    let Some(directory) = directory() else { return };
    let expected_nodes = read_nodes(&std::fs::read_to_string(directory.join("crd-fields.tsv")).unwrap());
    let expected_facts: Value =
        serde_json::from_slice(&std::fs::read(directory.join("crd-meta.json")).unwrap()).unwrap();

    let mut nodes = Nodes::new();
    let mut facts = Map::new();
    for crd in slinky_api::crd::all().unwrap() {
        let kind = crd.spec.names.kind.clone();
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        walk(&kind, "", schema, false, &mut nodes);
        facts.insert(kind, facts_of(&crd));
    }

    let mut differences = compare_nodes(&expected_nodes, &nodes);
    let (mut expected_leaves, mut leaves) = (BTreeMap::new(), BTreeMap::new());
    flatten("", &with_columns_by_name(expected_facts), &mut expected_leaves);
    flatten("", &with_columns_by_name(Value::Object(facts)), &mut leaves);
    differences.extend(compare_leaves(&expected_leaves, &leaves));

    let deviations = deviations(include_str!("deviations.yaml"));
    assert!(expected_nodes.len() > 300, "the conformance data has too few nodes: {}", expected_nodes.len());
    assert_all_meant(&differences, &deviations);
    println!(
        "{} schema nodes and {} facts compared, {} differences, all listed as deviations",
        expected_nodes.len(),
        expected_leaves.len(),
        differences.len()
    );
}

fn read_nodes(tsv: &str) -> Nodes {
    let mut lines = tsv.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    lines
        .map(|cells| {
            let node =
                header.iter().zip(&cells).skip(2).map(|(name, cell)| ((*name).to_owned(), normal(cell)));
            (format!("{} {}", cells[0], cells[1]), node.collect())
        })
        .collect()
}

/// Normalises JSON cells, so that the order of keys does not matter.
fn normal(cell: &str) -> String {
    serde_json::from_str::<Value>(cell).map_or_else(|_| cell.to_owned(), |value| value.to_string())
}

fn walk(kind: &str, path: &str, schema: &Value, required: bool, nodes: &mut Nodes) {
    nodes.insert(format!("{kind} {path}"), describe(schema, required));
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
        walk(kind, &at(name), child, required, nodes);
    }
    if schema["items"].is_object() {
        walk(kind, &format!("{path}[]"), &schema["items"], false, nodes);
    }
    if schema["additionalProperties"].is_object() {
        walk(kind, &format!("{path}{{}}"), &schema["additionalProperties"], false, nodes);
    }
}

fn describe(schema: &Value, required: bool) -> Node {
    let text = |key: &str| schema[key].as_str().unwrap_or_default().to_owned();
    let json_of = |key: &str| schema.get(key).map(Value::to_string).unwrap_or_default();
    let mut extensions = Map::new();
    let mut constraints = Map::new();
    for (key, value) in schema.as_object().unwrap() {
        match key.strip_prefix("x-kubernetes-") {
            Some("validations") => {
                let rules = value.as_array().unwrap().iter().map(|rule| json!({ "rule": rule["rule"] }));
                extensions.insert("validations".to_owned(), rules.collect());
            }
            Some(name) => {
                extensions.insert(name.to_owned(), value.clone());
            }
            None if ["minimum", "maximum", "minLength", "maxLength", "anyOf"].contains(&key.as_str()) => {
                constraints.insert(key.clone(), whole(value));
            }
            None => {}
        }
    }
    let object =
        |map: Map<String, Value>| if map.is_empty() { String::new() } else { Value::from(map).to_string() };
    let columns = [
        ("type", text("type")),
        ("format", text("format")),
        ("required", required.to_string()),
        ("default", json_of("default")),
        ("enum", json_of("enum")),
        ("pattern", text("pattern")),
        ("nullable", schema["nullable"].as_bool().unwrap_or_default().to_string()),
        ("x-kubernetes", object(extensions)),
        ("constraints", object(constraints)),
    ];
    columns.map(|(name, cell)| (name.to_owned(), cell)).into()
}

/// Normalises `1.0` to `1`.
fn whole(value: &Value) -> Value {
    match value.as_f64() {
        Some(number) if number.fract() == 0.0 => serde_json::from_str(&format!("{number:.0}")).unwrap(),
        _ => value.clone(),
    }
}

fn compare_nodes(expected: &Nodes, found: &Nodes) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (at, node) in expected {
        let Some(ours) = found.get(at) else {
            differences.push(Difference { at: at.clone(), detail: "missing".to_owned() });
            continue;
        };
        for (column, cell) in node.iter().filter(|(column, cell)| ours[*column] != **cell) {
            let detail = format!("{:?}, expected {cell:?}", ours[column]);
            differences.push(Difference { at: format!("{at} {column}"), detail });
        }
    }
    let added = found.keys().filter(|at| !expected.contains_key(*at));
    differences.extend(added.map(|at| Difference { at: at.clone(), detail: "added".to_owned() }));
    differences
}

/// One leaf per printer column, with its name and its predecessor among the columns of the conformance data, so that an
/// added or moved column is one difference.
fn with_columns_by_name(mut facts: Value) -> Value {
    let added = ["READY", "REASON"];
    for kind in facts.as_object_mut().unwrap().values_mut() {
        let columns = &mut kind["versions"][0]["additionalPrinterColumns"];
        let mut after = Value::Null;
        let mut by_name = Map::new();
        for column in columns.as_array().unwrap() {
            by_name.insert(
                column["name"].as_str().unwrap().to_owned(),
                json!(format!("{column} after {after}")),
            );
            if !added.iter().any(|name| column["name"] == *name) || column["type"] == "integer" {
                after = column["name"].clone();
            }
        }
        *columns = Value::Object(by_name);
    }
    facts
}

/// The facts beside the schema, in the form of the conformance data.
fn facts_of(crd: &Value) -> Value {
    let version = &crd["spec"]["versions"][0];
    json!({
        "apiVersion": crd["apiVersion"],
        "conversion": crd["spec"]["conversion"],
        "group": crd["spec"]["group"],
        "name": crd["metadata"]["name"],
        "names": {
            "categories": crd["spec"]["names"].get("categories").cloned().unwrap_or(json!([])),
            "kind": crd["spec"]["names"]["kind"],
            "listKind": crd["spec"]["names"]["listKind"],
            "plural": crd["spec"]["names"]["plural"],
            "shortNames": crd["spec"]["names"]["shortNames"],
            "singular": crd["spec"]["names"]["singular"],
        },
        "preserveUnknownFields": crd["spec"]["preserveUnknownFields"],
        "scope": crd["spec"]["scope"],
        "versions": [{
            "additionalPrinterColumns": version["additionalPrinterColumns"],
            "deprecated": version.get("deprecated").cloned().unwrap_or(json!(false)),
            "name": version["name"],
            "selectableFields": version.get("selectableFields").cloned().unwrap_or(json!([])),
            "served": version["served"],
            "storage": version["storage"],
            "subresources": version["subresources"],
        }],
    })
}

fn flatten(at: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    if let Some(map) = value.as_object().filter(|map| !map.is_empty()) {
        map.iter().for_each(|(name, child)| flatten(&below(name), child, leaves));
    } else if let Some(list) = value.as_array().filter(|list| !list.is_empty()) {
        for (index, child) in list.iter().enumerate() {
            let name = child["name"].as_str().map_or_else(|| index.to_string(), str::to_owned);
            flatten(&below(&name), child, leaves);
        }
    } else {
        leaves.insert(at.to_owned(), value.clone());
    }
}

fn compare_leaves(expected: &BTreeMap<String, Value>, found: &BTreeMap<String, Value>) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (at, value) in expected {
        let ours = found.get(at);
        if ours != Some(value) {
            differences.push(Difference { at: at.clone(), detail: format!("{ours:?}, expected {value}") });
        }
    }
    let added = found.keys().filter(|at| !expected.contains_key(*at));
    differences.extend(added.map(|at| Difference { at: at.clone(), detail: "added".to_owned() }));
    differences
}
