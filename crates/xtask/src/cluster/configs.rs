//! The configuration files of the components. Pure, except for `write`.

use super::layout::{DOMAIN, Layout, NODE_ADDRESS};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;

/// Writes all of them.
pub fn write(layout: &Layout) -> Result<()> {
    let files = [("audit-policy.json", format!("{:#}", audit_policy())), ("resolv.conf", resolv_conf())];
    for (file, text) in files {
        let path = layout.config(file);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Who did what to which object, once per request.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    })
}

fn resolv_conf() -> String {
    format!("nameserver {NODE_ADDRESS}\nsearch default.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\noptions ndots:5\n")
}
