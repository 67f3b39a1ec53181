//! The golden cases: the objects that a user applies, and the expected objects.

use anyhow::{Context, Result};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// One case.
pub struct Case {
    /// The name of its directory.
    pub name: String,
    /// The namespace of all its objects.
    pub namespace: String,
    /// The objects that a user applies, in this order.
    pub input: Vec<Value>,
    /// The expected objects, normalised.
    pub expected: Vec<Value>,
    input_text: String,
}

impl Case {
    fn load(directory: &Path) -> Result<Self> {
        let read = |file: &str| {
            let path = directory.join(file);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        Self::parse(&name, read("input.yaml")?, &read("expected.yaml")?)
    }

    /// Reads the two files of a case.
    pub fn parse(case: &str, input_text: String, expected: &str) -> Result<Self> {
        let input = documents(&input_text)?;
        let namespace = input.iter().find(|object| kind(object) == "Namespace");
        let namespace = name(namespace.context("no Namespace in the input")?).to_owned();
        Ok(Self { name: case.to_owned(), namespace, input, expected: documents(expected)?, input_text })
    }

    /// Kind and name of the objects that the user applies.
    pub fn input_ids(&self) -> BTreeSet<String> {
        self.input.iter().map(id).collect()
    }

    /// Whether the user sets this node port.
    pub fn sets_node_port(&self, port: &Value) -> bool {
        Regex::new(&format!(r"nodePort: {port}\b")).unwrap().is_match(&self.input_text)
    }
}

/// All cases of a directory, by name.
pub fn load_all(directory: &Path) -> Result<Vec<Case>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut directories: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    directories.sort();
    directories.iter().map(|directory| Case::load(directory)).collect()
}

fn documents(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// An object's kind.
pub fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

/// An object's name.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Kind and name of an object, for reports.
pub fn id(object: &Value) -> String {
    format!("{}/{}", kind(object), name(object))
}

/// The kinds of an object's owners.
pub fn owner_kinds(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten().map(kind)
}
