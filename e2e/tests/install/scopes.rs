//! Parts of the operator, and several operators in one cluster.

use crate::fixture::{create_namespace, create_restricted_namespace, kubectl, kubectl_with_input, prepare};
use anyhow::{Result, ensure};
use e2e::helm::Release;
use e2e::slurm_cluster::STARTED;
use e2e::{audit, client, eventually, report};
use serde_json::json;
use std::collections::BTreeSet;

const COMPONENTS: [&str; 8] =
    ["controller", "nodeset", "loginset", "accounting", "restapi", "token", "expectations", "webhook"];

#[tokio::test]
async fn every_component_can_be_installed_alone() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    for component in COMPONENTS {
        let namespace = format!("alone-{component}");
        create_restricted_namespace(&client, &namespace).await?;
        let release = Release::of_component(component, &namespace)?.with_tested_images()?;
        // Helm waits until the pods are ready, and the chart of the webhook until it answers.
        release.install()?;
        let pods = kubectl(&["get", "pods", "--namespace", &namespace, "--output=name"])?;
        ensure!(pods.contains(&format!("slurm-operator-{component}")), "{component}: {pods}");
        release.uninstall()?;
        kubectl(&["delete", "namespace", &namespace])?;
    }
    report(format_args!("installation: {} charts of components, each alone", COMPONENTS.len()));
    Ok(())
}

/// The Token controllers of two operators, each for a namespace of its own.
#[tokio::test]
async fn operators_of_two_namespaces_do_not_meet() -> Result<()> {
    let client = client().await?;
    prepare(&client).await?;
    let tenants = ["one", "other"];
    let mut releases = vec![];
    for tenant in tenants {
        create_namespace(&client, &format!("slurm-{tenant}"), json!({})).await?;
        create_restricted_namespace(&client, &format!("operator-{tenant}")).await?;
        let release = Release::new("slurm-operator", "slurm-operator", &format!("operator-{tenant}"));
        let release = release.with_tested_images()?.with_values(&json!({
            "fullnameOverride": tenant, "small": true, "global": { "namespaces": format!("slurm-{tenant}") },
        }))?;
        release.install()?;
        releases.push(release);
    }
    for tenant in tenants {
        create_token(tenant)?;
        let namespace = format!("slurm-{tenant}");
        let secret = async || kubectl(&["get", "secret", "--namespace", &namespace, "user-jwt-slurm"]);
        eventually("a Secret with a token", STARTED, secret, |_| true).await?;
        let invalid = kubectl_with_input(
            &["create", "--namespace", &namespace, "--filename", "-"],
            r#"{"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "metadata": {"name": "invalid"},
                "spec": {"controllerRef": {"name": "slurm"}, "extraConf": "nope"}}"#,
        );
        let denied = invalid.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(denied.contains("invalid extraConf"), "in {namespace}: {denied}");
    }
    for tenant in tenants {
        let callers = callers(&format!("slurm-{tenant}"))?;
        let own = format!("system:serviceaccount:operator-{tenant}:");
        ensure!(!callers.is_empty(), "no requests of the operator of {tenant}");
        ensure!(callers.iter().all(|caller| caller.starts_with(&own)), "slurm-{tenant}: {callers:?}");
    }
    let denied =
        audit::events(|line| line.contains(":operator-o") && line.contains(r#""decision":"forbid""#))?;
    ensure!(denied.is_empty(), "denied requests: {denied:#?}");
    for (release, tenant) in releases.iter().zip(tenants) {
        kubectl(&["delete", "namespace", &format!("slurm-{tenant}")])?;
        release.uninstall()?;
    }
    report("installation: two operators, each with requests in its own namespace only");
    Ok(())
}

fn create_token(tenant: &str) -> Result<()> {
    let objects = json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "jwt" },
          "stringData": { "jwt.key": "a key that protects nothing, long enough to be one" } },
        { "apiVersion": "slinky.slurm.net/v1beta1", "kind": "Token", "metadata": { "name": "user" },
          "spec": { "username": "slurm", "jwtKeyRef": { "name": "jwt", "key": "jwt.key" } } },
    ]});
    let namespace = format!("slurm-{tenant}");
    kubectl_with_input(&["apply", "--namespace", &namespace, "--filename", "-"], &objects.to_string())
        .map(drop)
}

/// The accounts of operators that sent requests about objects in a namespace.
fn callers(namespace: &str) -> Result<BTreeSet<String>> {
    let events =
        audit::events(|line| line.contains(namespace) && line.contains("system:serviceaccount:operator-"))?;
    let in_namespace = events.iter().filter(|event| event["objectRef"]["namespace"] == namespace);
    Ok(in_namespace.filter_map(|event| Some(event["user"]["username"].as_str()?.to_owned())).collect())
}
