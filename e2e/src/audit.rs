//! Reads the audit log of the API server.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;

/// The requests of one binary about objects in one namespace, in order, without watches.
pub fn requests(user_agent: &str, namespace: &str) -> Result<Vec<String>> {
    let directory = std::env::var_os("SLURM_OPERATOR_CLUSTER_DIR")
        .context("SLURM_OPERATOR_CLUSTER_DIR is not set: not inside `cargo xtask cluster exec`")?;
    let log = PathBuf::from(directory).join("audit.log");
    let log = std::fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    // The last line may be incomplete. Lines of other clients are not parsed, for speed.
    let lines = log.lines().filter(|line| line.contains(namespace) && line.contains(user_agent));
    let requests = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_selected = |request: &Value| {
        request["userAgent"] == user_agent
            && request["objectRef"]["namespace"] == namespace
            && request["verb"] != "watch"
    };
    Ok(requests.filter(is_selected).map(|request| describe(&request)).collect())
}

/// Verb, resource and name.
fn describe(request: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &request["objectRef"];
    let parts = [&request["verb"], &object["resource"], &object["name"], &object["subresource"]];
    parts.map(text).join(" ").trim_end().to_owned()
}
