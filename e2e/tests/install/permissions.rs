//! The rights of the operator's processes are those that they use, by the audit log of the API server.

use crate::fixture::OPERATOR;
use anyhow::{Context, Result, ensure};
use e2e::{audit, report};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A verb and a resource by account.
type Rights = BTreeSet<(String, String)>;

/// Rights that are not used in the tests, with the reasons for granting them.
const UNUSED: &str = include_str!("unused.yaml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unused {
    /// The components; empty for all.
    of: Vec<String>,
    rights: Vec<String>,
    reason: String,
}

/// Fails if a process of the operator was denied a request so far. While it is uninstalled, its rights end before it does.
pub fn no_request_was_denied() -> Result<()> {
    let (_, denied) = requests()?;
    ensure!(denied.is_empty(), "denied requests: {denied:#?}");
    Ok(())
}

/// Fails if a process of the operator has rights that it has not used so far.
pub async fn rights_are_those_that_are_used(client: &Client) -> Result<()> {
    let (used, _) = requests()?;
    let granted = granted(client).await?;
    let reasons: Vec<Unused> = serde_saphyr::from_str(UNUSED)?;
    let has_reason = |(account, right): &(String, String)| {
        let component = account.trim_start_matches("slurm-operator-");
        reasons.iter().any(|unused| {
            (unused.of.is_empty() || unused.of.iter().any(|of| of == component))
                && unused.rights.contains(right)
        })
    };
    let unused: Vec<_> = granted.difference(&used).filter(|right| !has_reason(right)).collect();
    ensure!(unused.is_empty(), "rights that were not used: {unused:#?}");
    let outdated = reasons.iter().flat_map(|unused| unused.rights.iter().map(move |right| (unused, right)));
    let is_granted = |(unused, right): &(&Unused, &String)| {
        granted.iter().any(|(account, granted)| {
            let component = account.trim_start_matches("slurm-operator-");
            granted == *right && (unused.of.is_empty() || unused.of.iter().any(|of| of == component))
        })
    };
    let outdated: Vec<_> = outdated
        .filter(|listed| !is_granted(listed))
        .map(|(unused, right)| (right, &unused.reason))
        .collect();
    ensure!(outdated.is_empty(), "listed as unused, but not granted: {outdated:#?}");
    report(format_args!(
        "rights: {} granted, {} of them used, {} with another reason",
        granted.len(),
        granted.intersection(&used).count(),
        granted.difference(&used).count()
    ));
    Ok(())
}

/// The rights that the accounts of the operator used, and the requests that they were denied.
fn requests() -> Result<(Rights, Vec<String>)> {
    let prefix = format!("system:serviceaccount:{OPERATOR}:");
    let (mut used, mut denied) = (Rights::new(), vec![]);
    for event in audit::events(|line| line.contains(&prefix))? {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let Some(account) = text("/user/username").strip_prefix(&prefix) else { continue };
        let Some(object) = event.get("objectRef") else { continue };
        let part = |name: &str| object[name].as_str().unwrap_or_default();
        let resource = resource(part("apiGroup"), part("resource"), part("subresource"));
        let right = |verb: &str| (account.to_owned(), format!("{verb} {resource}"));
        if text("/annotations/authorization.k8s.io~1decision") == "forbid" {
            denied.push(format!("{account}: {} {resource} {}", text("/verb"), part("name")));
        }
        used.insert(right(text("/verb")));
        // A server-side apply that creates an object.
        if event["responseStatus"]["code"] == 201 {
            used.insert(right("create"));
        }
    }
    Ok((used, denied))
}

/// Such as `pods/status`, or `nodesets.slinky.slurm.net`.
fn resource(group: &str, resource: &str, subresource: &str) -> String {
    let slash = if subresource.is_empty() { "" } else { "/" };
    let dot = if group.is_empty() { "" } else { "." };
    format!("{resource}{dot}{group}{slash}{subresource}")
}

/// The rights of the accounts of the operator.
async fn granted(client: &Client) -> Result<Rights> {
    let params = ListParams::default().labels("app.kubernetes.io/part-of=slurm-operator");
    let mut by_role = BTreeMap::new();
    for role in Api::<Role>::all(client.clone()).list(&params).await? {
        by_role.insert(("Role".to_owned(), role.name_any()), role.rules.unwrap_or_default());
    }
    for role in Api::<ClusterRole>::all(client.clone()).list(&params).await? {
        by_role.insert(("ClusterRole".to_owned(), role.name_any()), role.rules.unwrap_or_default());
    }
    let bindings = Api::<RoleBinding>::all(client.clone()).list(&params).await?;
    let cluster_bindings = Api::<ClusterRoleBinding>::all(client.clone()).list(&params).await?;
    let of_namespaces = bindings.into_iter().map(|binding| (binding.role_ref, binding.subjects));
    let of_cluster = cluster_bindings.into_iter().map(|binding| (binding.role_ref, binding.subjects));
    let mut rights = Rights::new();
    for (role, subjects) in of_namespaces.chain(of_cluster) {
        let RoleRef { kind, name, .. } = role;
        let rules = by_role.get(&(kind, name.clone())).with_context(|| format!("no role {name}"))?;
        for Subject { name: account, .. } in subjects.into_iter().flatten() {
            rights.extend(rules.iter().flat_map(rights_of).map(|right| (account.clone(), right)));
        }
    }
    ensure!(!rights.is_empty(), "no roles of the operator");
    Ok(rights)
}

fn rights_of(rule: &PolicyRule) -> Vec<String> {
    let mut rights = vec![];
    for group in rule.api_groups.iter().flatten() {
        for name in rule.resources.iter().flatten() {
            let (name, subresource) = name.split_once('/').unwrap_or((name, ""));
            let resource = resource(group, name, subresource);
            rights.extend(rule.verbs.iter().map(|verb| format!("{verb} {resource}")));
        }
    }
    rights
}
