//! The namespaces of another operator, which was removed and left its objects: the golden data. No worker is restarted.

use crate::case::{Case, id, kind, load_all, name};
use crate::fixture::{kubectl, kubectl_with_input, operator, prepare};
use anyhow::{Context, Result, ensure};
use e2e::crds::install_service_monitor_crd;
use e2e::slurm_cluster::STARTED;
use e2e::{client, eventually, report};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use test_support::conformance;

/// Placeholders, and what stands for them.
static PLACEHOLDERS: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
    let replace = |pattern: &str, text| (Regex::new(pattern).unwrap(), text);
    [
        replace("<hash>", "6c8f7d9b54"),
        replace("<rand>", "7f9cd"),
        replace("<comment>", "#"),
        replace("<(script: [^>]*|secret:[0-9]+)>", "true"),
    ]
});

/// The API group of the custom resources.
const CUSTOM: &str = "slinky.slurm.net/";

#[tokio::test]
async fn workers_of_another_operator_run_on() -> Result<()> {
    let Some(directory) = conformance::directory() else { return Ok(()) };
    let client = client().await?;
    prepare(&client).await?;
    install_service_monitor_crd(&client).await?;
    let mut cases = load_all(&directory.join("golden"))?;
    // Pods on nodes that this cluster does not have would be deleted by Kubernetes.
    cases.retain(|case| case.expected.iter().all(|object| object["spec"]["nodeName"].is_null()));
    for case in &cases {
        leave(case)?;
    }
    let before = workers(&cases)?;
    ensure!(before.len() > 5, "too few workers to be a test: {before:#?}");
    operator()?.install()?;
    for case in &cases {
        let observed = async || observed_generations(case);
        eventually("resources with conditions", STARTED, observed, |missing: &Vec<String>| {
            missing.is_empty()
        })
        .await
        .with_context(|| case.name.clone())?;
        ensure_current_revision(case)?;
    }
    let after = workers(&cases)?;
    ensure!(after == before, "the workers were {before:#?} and are {after:#?}");
    report(format_args!("takeover: {} cases, {} workers, 0 replaced", cases.len(), after.len()));
    let namespaces: Vec<_> = cases.iter().map(|case| case.namespace.as_str()).collect();
    kubectl(&[&["delete", "namespaces"], &namespaces[..]].concat())?;
    operator()?.uninstall()
}

/// Fails if workers have another revision than their NodeSet: they would be replaced later.
fn ensure_current_revision(case: &Case) -> Result<()> {
    let list = kubectl(&["get", "--namespace", &case.namespace, "--output=json", "nodesets"])?;
    let list: Value = serde_json::from_str(&list)?;
    for nodeset in list["items"].as_array().into_iter().flatten() {
        let status = &nodeset["status"];
        ensure!(status["updatedReplicas"] == status["replicas"], "{}: {status:#}", case.name);
    }
    Ok(())
}

/// Creates the objects of a user, and those that the other operator made of them.
fn leave(case: &Case) -> Result<()> {
    apply(&case.input).with_context(|| case.name.clone())?;
    let get = ["get", "--namespace", &case.namespace, "--output=json"];
    let kinds = "controllers,nodesets,loginsets,accountings,restapis,tokens,secrets";
    let owners: Value = serde_json::from_str(&kubectl(&[&get[..], &[kinds]].concat())?)?;
    let owners: BTreeMap<String, Value> = owners["items"]
        .as_array()
        .context("a list")?
        .iter()
        .map(|owner| (id(owner), owner["metadata"]["uid"].clone()))
        .collect();
    let is_child = |object: &&Value| {
        !object["apiVersion"].as_str().unwrap_or_default().starts_with(CUSTOM) && !is_token(object)
    };
    let children: Vec<_> = case.expected.iter().filter(is_child).map(|child| live(child, &owners)).collect();
    if children.is_empty() { Ok(()) } else { create(&children).with_context(|| case.name.clone()) }
}

/// Secrets with tokens are shown as claims, without a signature.
fn is_token(object: &Value) -> bool {
    let data = object["data"].as_object();
    kind(object) == "Secret" && data.into_iter().flatten().any(|(_, value)| value.is_object())
}

/// An object as the other operator creates it.
fn live(child: &Value, owners: &BTreeMap<String, Value>) -> Value {
    let mut text = without_values_of_the_server(child.clone()).to_string();
    for (placeholder, replacement) in PLACEHOLDERS.iter() {
        text = placeholder.replace_all(&text, *replacement).into_owned();
    }
    let mut object: Value = serde_json::from_str(&text).unwrap_or_default();
    let references = object["metadata"]["ownerReferences"].as_array_mut();
    for reference in references.into_iter().flatten() {
        let uid = owners.get(&format!(
            "{}/{}",
            reference["kind"].as_str().unwrap_or_default(),
            reference["name"].as_str().unwrap_or_default()
        ));
        reference["uid"] = uid.cloned().unwrap_or_default();
    }
    if kind(&object) == "Secret" {
        object["stringData"] = object["data"].take();
    }
    object
}

/// Without addresses and ports that the API server chose.
fn without_values_of_the_server(value: Value) -> Value {
    let is_chosen = |value: &Value| value == "<ip>" || value == "<rand>";
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !is_chosen(value));
            Value::Object(fields.map(|(key, value)| (key, without_values_of_the_server(value))).collect())
        }
        Value::Array(items) => {
            let items = items.into_iter().filter(|item| !is_chosen(item));
            Value::Array(items.map(without_values_of_the_server).collect())
        }
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    }
}

fn apply(objects: &[Value]) -> Result<()> {
    let apply = ["apply", "--server-side", "--filename", "-"];
    kubectl_with_input(&apply, &documents(objects)).map(drop)
}

/// Creates objects with the field manager of the other operator.
fn create(objects: &[Value]) -> Result<()> {
    let create = ["create", "--field-manager=manager", "--filename", "-"];
    kubectl_with_input(&create, &documents(objects)).map(drop)
}

/// As documents, not as a list: kubectl would validate the items of a list itself, without the defaults of the API server.
fn documents(objects: &[Value]) -> String {
    objects.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")
}

/// The UIDs of the worker pods by namespace and name.
fn workers(cases: &[Case]) -> Result<BTreeMap<String, String>> {
    let mut workers = BTreeMap::new();
    for case in cases {
        let get = ["get", "pods", "--namespace", &case.namespace, "--selector=app.kubernetes.io/name=slurmd"];
        let pods: Value = serde_json::from_str(&kubectl(&[&get[..], &["--output=json"]].concat())?)?;
        for pod in pods["items"].as_array().into_iter().flatten() {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            workers.insert(format!("{}/{}", case.namespace, name(pod)), uid.to_owned());
        }
    }
    Ok(workers)
}

/// The custom resources of a case whose current generation has no condition yet.
fn observed_generations(case: &Case) -> Result<Vec<String>> {
    let kinds = "controllers,nodesets,loginsets,accountings,restapis,tokens";
    let get = ["get", "--namespace", &case.namespace, "--output=json", kinds];
    let list: Value = serde_json::from_str(&kubectl(&get)?)?;
    let is_unobserved = |object: &&Value| {
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        !conditions.any(|condition| condition["observedGeneration"] == object["metadata"]["generation"])
    };
    Ok(list["items"].as_array().into_iter().flatten().filter(is_unobserved).map(id).collect())
}
