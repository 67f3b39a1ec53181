//! The objects of the chart slurm are those that the reference makes of the same values.
//!
//! Left out are labels with versions, key material, the bodies of vendors' scripts, empty values, the order of objects, and
//! what only `helm test` creates.

use anyhow::{Context, Result, ensure};
use e2e::report;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use test_support::conformance;

/// Labels that differ between versions.
const VERSION_LABELS: [&str; 2] = ["helm.sh/chart", "app.kubernetes.io/version"];

/// What a chart makes of values: objects by kind, namespace and name, or a refusal.
type Rendered = Result<BTreeMap<String, Value>, String>;

#[test]
fn chart_makes_the_objects_of_the_reference() -> Result<()> {
    let Some(directory) = conformance::directory() else { return Ok(()) };
    let (mut found, mut cases) = (Vec::new(), 0);
    for file in std::fs::read_dir(directory.join("charts"))? {
        let values = file?.path();
        let Some(case) = values.to_str().and_then(|path| path.strip_suffix(".values.yaml")) else { continue };
        let expected: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(format!("{case}.expected.yaml"))?)?;
        let name = values.file_name().unwrap_or_default().display().to_string();
        let differences = differences(&render(&values)?, &expected)?;
        found.extend(differences.into_iter().map(|difference| format!("{name}: {difference}")));
        cases += 1;
    }
    ensure!(cases > 10, "only {cases} cases");
    ensure!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
    report(format!("charts: {cases} cases, all as the reference"));
    Ok(())
}

fn render(values: &Path) -> Result<Rendered> {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/slurm");
    let mut template = Command::new("helm");
    template.args(["template", "slurm", "--namespace", "slurm", "--values"]).arg(values).arg(chart);
    let output = template.output().context("running helm")?;
    if !output.status.success() {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)?;
    let documents =
        documents.into_iter().filter(|document| !document.is_null() && !is_of_helm_test(document));
    let objects = documents.map(|document| {
        let object = comparable(cleaned(document));
        let part = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
        let key = [part("/kind"), part("/metadata/namespace"), part("/metadata/name")].join("/");
        (key, object)
    });
    Ok(Ok(objects.collect()))
}

/// Whether only `helm test` creates the object. The reference has no tests.
fn is_of_helm_test(object: &Value) -> bool {
    object.pointer("/metadata/annotations/helm.sh~1hook").is_some_and(|hook| hook == "test")
}

/// Without empty values and labels with versions.
fn cleaned(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(key, _)| !VERSION_LABELS.contains(&key.as_str()));
            let fields = fields.map(|(key, value)| (key, cleaned(value)));
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(cleaned).collect()),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// With placeholders for key material and scripts.
fn comparable(mut object: Value) -> Value {
    let is_key = object["immutable"] == true;
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let data = object.get_mut("data").and_then(Value::as_object_mut);
    for (name, content) in data.into_iter().flat_map(Map::iter_mut) {
        if kind == "Secret" && is_key {
            *content = json!("random");
        } else if kind == "ConfigMap" && name.contains("dcgm") {
            *content = json!("script");
        }
    }
    object
}

fn differences(rendered: &Rendered, expected: &Value) -> Result<Vec<String>> {
    let refusal = expected.get("error");
    match (rendered, refusal) {
        (Err(_), Some(_)) => return Ok(vec![]),
        (Err(error), None) => return Ok(vec![format!("refused: {error}")]),
        (Ok(_), Some(_)) => return Ok(vec!["not refused".to_owned()]),
        (Ok(_), None) => {}
    }
    let (mut actual, mut wanted) = (BTreeMap::new(), BTreeMap::new());
    for (key, object) in rendered.iter().flatten() {
        leaves(key, object, &mut actual);
    }
    for (key, object) in expected["objects"].as_object().context("objects")? {
        leaves(key, object, &mut wanted);
    }
    let missing = wanted.iter().filter(|(path, value)| actual.get(*path) != Some(value));
    let missing = missing.map(|(path, value)| format!("{path}: {:?} instead of {value:?}", actual.get(path)));
    let surplus = actual.keys().filter(|path| !wanted.contains_key(*path));
    Ok(missing.chain(surplus.map(|path| format!("{path}: the reference has none"))).collect())
}

/// Adds all scalars below a value as text, by their paths.
fn leaves(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                leaves(&format!("{path}.{key}"), value, into);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                leaves(&format!("{path}[{index}]"), item, into);
            }
        }
        Value::String(text) => drop(into.insert(path.to_owned(), text.trim_end_matches('\n').to_owned())),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            drop(into.insert(path.to_owned(), value.to_string()));
        }
    }
}

#[test]
fn values_that_mean_nothing_are_left_out() {
    let object = json!({
        "kind": "Secret", "immutable": true, "data": { "key": "abc" }, "type": "",
        "metadata": { "labels": { "helm.sh/chart": "slurm-1", "a": "b" }, "annotations": {} },
    });
    let expected = json!({
        "kind": "Secret", "immutable": true, "data": { "key": "random" }, "metadata": { "labels": { "a": "b" } },
    });
    assert_eq!(comparable(cleaned(object)), expected);
}

#[test]
fn hooks_of_helm_test_are_recognized() {
    let hook = |events| json!({ "metadata": { "annotations": { "helm.sh/hook": events } } });
    assert!(is_of_helm_test(&hook("test")));
    assert!(!is_of_helm_test(&hook("post-install,test")));
    assert!(!is_of_helm_test(&json!({ "metadata": { "annotations": {} } })));
}

#[test]
fn differences_in_both_directions_are_found() {
    let ours = Ok(BTreeMap::from([("A/n/x".to_owned(), json!({ "a": 1, "b": ["c\n"] }))]));
    let compare = |theirs| differences(&ours, &json!({ "objects": { "A/n/x": theirs } })).unwrap();
    assert!(compare(json!({ "a": 1, "b": ["c"] })).is_empty());
    assert_eq!(compare(json!({ "a": 2, "b": ["c"] })), ["A/n/x.a: Some(\"1\") instead of \"2\""]);
    assert_eq!(compare(json!({ "a": 1 })), ["A/n/x.b[0]: the reference has none"]);
    assert_eq!(differences(&ours, &json!({ "error": "" })).unwrap(), ["not refused"]);
    assert!(differences(&Err("no".to_owned()), &json!({ "error": "other words" })).unwrap().is_empty());
}
