//! Reads the audit log of the API server.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;

/// The requests of one binary about objects in one namespace, in order, without watches.
pub fn requests(user_agent: &str, namespace: &str) -> Result<Vec<String>> {
    let events = events(|line| line.contains(namespace) && line.contains(user_agent))?;
    let is_selected = |request: &&Value| {
        request["userAgent"] == user_agent
            && request["objectRef"]["namespace"] == namespace
            && request["verb"] != "watch"
    };
    Ok(events.iter().filter(is_selected).map(describe).collect())
}

/// The entries of the log, in order. Lines for which `is_selected` does not hold are not parsed, for speed.
pub fn events(is_selected: impl Fn(&str) -> bool) -> Result<Vec<Value>> {
    let directory = std::env::var_os("SLURM_OPERATOR_CLUSTER_DIR")
        .context("SLURM_OPERATOR_CLUSTER_DIR is not set: not inside `cargo xtask cluster exec`")?;
    let log = PathBuf::from(directory).join("audit.log");
    let log = std::fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    // The last line may be incomplete.
    let lines = log.lines().filter(|line| is_selected(line));
    Ok(lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Verb, resource and name.
fn describe(request: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &request["objectRef"];
    let parts = [&request["verb"], &object["resource"], &object["name"], &object["subresource"]];
    parts.map(text).join(" ").trim_end().to_owned()
}
