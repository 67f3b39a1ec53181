//! The definitions, installed in a real API server: nothing that a user writes is lost.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::{Context, Result};
use e2e::custom::{api, create_strictly, install_definitions, resource};
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

/// Every leaf that `part` has and `whole` has not, or has otherwise.
fn lost(path: &str, part: &Value, whole: &Value) -> Vec<String> {
    if let (Some(part), Some(whole)) = (part.as_object(), whole.as_object()) {
        let empty = Value::Null;
        return part
            .iter()
            .flat_map(|(key, value)| lost(&format!("{path}.{key}"), value, whole.get(key).unwrap_or(&empty)))
            .collect();
    }
    if part == whole { Vec::new() } else { vec![format!("{path}: {part} became {whole}")] }
}

/// Every field that the schema knows and the object does not set.
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
#[case::accounting(include_str!("../fixtures/maximal/accounting.yaml"), typed::<Accounting>)]
#[case::controller(include_str!("../fixtures/maximal/controller.yaml"), typed::<Controller>)]
#[case::loginset(include_str!("../fixtures/maximal/loginset.yaml"), typed::<LoginSet>)]
#[case::nodeset(include_str!("../fixtures/maximal/nodeset.yaml"), typed::<NodeSet>)]
#[case::restapi(include_str!("../fixtures/maximal/restapi.yaml"), typed::<RestApi>)]
#[case::token(include_str!("../fixtures/maximal/token.yaml"), typed::<Token>)]
#[tokio::test]
async fn a_maximal_object_survives_the_server_and_the_types(
    #[case] yaml: &str,
    #[case] through_types: fn(&Value) -> Value,
) -> Result<()> {
    let client = client().await?;
    let definitions = install_definitions(&client).await?;
    let namespace = TestNamespace::create(&client, "maximal").await?;
    let written = fixture(yaml);
    let kind = written["kind"].as_str().unwrap();

    let crd = definitions.iter().find(|crd| crd.spec.names.kind == kind).context("no definition")?;
    let schema = serde_json::to_value(crd)?["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    assert_eq!(unset("spec", &schema["properties"]["spec"], &written["spec"]), Vec::<String>::new());

    let api = api(&client, namespace.name(), kind);
    let stored = create_strictly(&client, &api, &serde_json::from_value(written.clone())?).await?;
    let stored = serde_json::to_value(stored)?;
    assert_eq!(lost("spec", &written["spec"], &stored["spec"]), Vec::<String>::new(), "lost by the server");

    let replaced = serde_json::from_value(through_types(&stored))?;
    let replaced = serde_json::to_value(api.replace("maximal", &PostParams::default(), &replaced).await?)?;
    assert_eq!(replaced["spec"], stored["spec"], "lost by the types");
    assert_eq!(replaced["metadata"]["generation"], 1, "the spec was changed by the types");
    namespace.delete().await
}

/// The object read as its type and written again.
fn typed<K: DeserializeOwned + serde::Serialize + Debug>(object: &Value) -> Value {
    let typed: K = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(typed).unwrap()
}

#[tokio::test]
async fn an_object_without_spec_is_accepted_and_defaults_fill_what_is_there() -> Result<()> {
    let client = client().await?;
    install_definitions(&client).await?;
    let api = api(&client, "default", "NodeSet");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut object = DynamicObject::new("empty", &resource("NodeSet"));
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
    assert_eq!(
        serde_json::to_value(typed)?["spec"],
        stored["spec"],
        "our defaults are not those of the server"
    );
    Ok(())
}
