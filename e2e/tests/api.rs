//! The CRDs in a real API server: schemas and types keep every field that a user writes.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::{Context, Result};
use e2e::crds::{api_resource, create_strict, dynamic_api, install_crds};
use e2e::{TestNamespace, client};
use kube::api::{DynamicObject, PostParams};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slinky_api::v1beta1::{Accounting, Controller, LoginSet, NodeSet, RestApi, Token};
use std::fmt::Debug;

fn fixture(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Every leaf of `written` that is missing in `stored` or has another value there.
fn lost(path: &str, written: &Value, stored: &Value) -> Vec<String> {
    if let (Some(written), Some(stored)) = (written.as_object(), stored.as_object()) {
        let empty = Value::Null;
        return written
            .iter()
            .flat_map(|(key, value)| lost(&format!("{path}.{key}"), value, stored.get(key).unwrap_or(&empty)))
            .collect();
    }
    if written == stored { Vec::new() } else { vec![format!("{path}: {written} became {stored}")] }
}

/// Every field of the schema that the object does not set.
fn unset(path: &str, schema: &Value, object: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut missing: Vec<String> = properties
        .flat_map(|(name, child)| {
            let path = format!("{path}.{name}");
            object.get(name).map_or_else(|| vec![path.clone()], |value| unset(&path, child, value))
        })
        .collect();
    if let Some(items) = object.as_array() {
        missing.extend(items.iter().flat_map(|item| unset(&format!("{path}[]"), &schema["items"], item)));
    }
    missing
}

#[rstest]
#[case::accounting(include_str!("../fixtures/maximal/accounting.yaml"), round_trip::<Accounting>)]
#[case::controller(include_str!("../fixtures/maximal/controller.yaml"), round_trip::<Controller>)]
#[case::loginset(include_str!("../fixtures/maximal/loginset.yaml"), round_trip::<LoginSet>)]
#[case::nodeset(include_str!("../fixtures/maximal/nodeset.yaml"), round_trip::<NodeSet>)]
#[case::restapi(include_str!("../fixtures/maximal/restapi.yaml"), round_trip::<RestApi>)]
#[case::token(include_str!("../fixtures/maximal/token.yaml"), round_trip::<Token>)]
#[tokio::test]
async fn object_with_all_fields_is_kept_by_the_server_and_by_the_types(
    #[case] yaml: &str,
    #[case] round_trip: fn(&Value) -> Value,
) -> Result<()> {
    let client = client().await?;
    let crds = install_crds(&client).await?;
    let namespace = TestNamespace::create(&client, "maximal").await?;
    let written = fixture(yaml);
    let kind = written["kind"].as_str().unwrap();

    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).context("no CRD")?;
    let schema = serde_json::to_value(crd)?["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    assert_eq!(unset("spec", &schema["properties"]["spec"], &written["spec"]), Vec::<String>::new());

    let api = dynamic_api(&client, namespace.name(), kind);
    let stored = create_strict(&client, &api, &serde_json::from_value(written.clone())?).await?;
    let stored = serde_json::to_value(stored)?;
    assert_eq!(lost("spec", &written["spec"], &stored["spec"]), Vec::<String>::new(), "lost by the server");

    let replaced = serde_json::from_value(round_trip(&stored))?;
    let replaced = serde_json::to_value(api.replace("maximal", &PostParams::default(), &replaced).await?)?;
    assert_eq!(replaced["spec"], stored["spec"], "lost by the types");
    assert_eq!(replaced["metadata"]["generation"], 1, "the spec was changed by the types");
    namespace.delete().await
}

/// The object deserialized as its type and serialized again.
fn round_trip<K: DeserializeOwned + serde::Serialize + Debug>(object: &Value) -> Value {
    let typed: K = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(typed).unwrap()
}

#[tokio::test]
async fn object_without_spec_is_accepted_and_defaults_of_types_equal_those_of_the_schema() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    let api = dynamic_api(&client, "default", "NodeSet");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut object = DynamicObject::new("empty", &api_resource("NodeSet"));
    object.data = json!({});
    api.create(&dry_run, &object).await?;

    object.data = json!({ "spec": { "controllerRef": {}, "updateStrategy": { "rollingUpdate": {} } } });
    let stored = serde_json::to_value(api.create(&dry_run, &object).await?)?;
    let typed: NodeSet = serde_json::from_value(json!({
        "apiVersion": stored["apiVersion"],
        "kind": stored["kind"],
        "metadata": stored["metadata"],
        "spec": object.data["spec"],
    }))?;
    assert_eq!(serde_json::to_value(typed)?["spec"], stored["spec"], "defaults of types and schema differ");
    Ok(())
}
