//! The custom resource definitions.
//!
//! The derive of kube gives names, columns and subresources. Its schema calls every optional field nullable and
//! every root's `spec` required; the API promises neither, so the schema is generated here: a field is nullable
//! where its type says so (`extend("nullable" = true)`), and an absent field is not a `null` field.

use crate::v1beta1::{Accounting, Controller, LoginSet, NodeSet, RestApi, Token};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::{CustomResourceExt, ResourceExt};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

const CHART_TEMPLATES: &str = "charts/slurm-operator-crds/templates";
const MANIFEST: &str = "deploy/crds.yaml";

/// The definitions could not be written down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A schema that is none of Kubernetes'.
    #[error("the generated schema is not a schema of Kubernetes")]
    Schema(#[from] serde_json::Error),
    /// A value without a YAML form.
    #[error("the definition has no YAML form")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// The definitions of all kinds, in alphabetical order.
pub fn all() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    Ok(vec![
        definition::<Accounting>()?,
        definition::<Controller>()?,
        definition::<LoginSet>()?,
        definition::<NodeSet>()?,
        definition::<RestApi>()?,
        definition::<Token>()?,
    ])
}

/// The files that hold the definitions, relative to the root of the repository, with their content.
///
/// One file per kind for the chart, and all of them in one for `kubectl apply`.
pub fn files() -> Result<Vec<(String, String)>, Error> {
    let mut files = Vec::new();
    let mut all_in_one = String::new();
    for crd in all()? {
        let yaml = format!("---\n{}", serde_saphyr::to_string(&crd)?);
        all_in_one.push_str(&yaml);
        files.push((format!("{CHART_TEMPLATES}/{}.yaml", crd.name_any()), yaml));
    }
    files.push((MANIFEST.to_owned(), all_in_one));
    Ok(files)
}

fn definition<K: CustomResourceExt + JsonSchema>() -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut crd = K::crd();
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let root: JSONSchemaProps = serde_json::from_value(root_schema::<K>())?;
    for version in &mut crd.spec.versions {
        if let Some(schema) = &mut version.schema {
            schema.open_api_v3_schema = Some(root.clone());
        }
    }
    Ok(crd)
}

fn root_schema<K: JsonSchema>() -> Value {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
            settings.transforms.clear();
        })
        .with_transform(RecursiveTransform(absent_is_not_null))
        .with_transform(RecursiveTransform(words_are_an_enum))
        .into_generator();
    let mut schema = generator.into_root_schema_for::<K>();
    schema.remove("title");
    schema.remove("required");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        describe_type_and_metadata(properties);
    }
    schema.to_value()
}

/// The three fields that every object has and that `kubectl explain` should explain.
fn describe_type_and_metadata(properties: &mut Map<String, Value>) {
    let api_version = "Versioned schema of this representation of the object.";
    let kind = "The REST resource that this object represents.";
    properties.insert("apiVersion".into(), json!({ "type": "string", "description": api_version }));
    properties.insert("kind".into(), json!({ "type": "string", "description": kind }));
    properties.insert("metadata".into(), json!({ "type": "object" }));
}

/// Turns "a T or null", which is how an optional field is derived, into "a T".
fn absent_is_not_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(choices)) = schema.get("anyOf")
        && let [Value::Object(choice), null] = choices.as_slice()
        && null["type"] == "null"
    {
        let choice = choice.clone();
        schema.remove("anyOf");
        for (key, value) in choice {
            // What is written on the field (its description, its default) wins over what its type says.
            if schema.get(&key).is_none() {
                schema.insert(key, value);
            }
        }
    }
}

/// Turns "one of these documented words", which is how an enum is derived, into an enumeration: Kubernetes has
/// no other form for it, and no place for the words' descriptions.
fn words_are_an_enum(schema: &mut Schema) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let words: Option<Vec<Value>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), words.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optional_object_keeps_its_own_description_and_loses_null() {
        let mut schema: Schema = json!({
            "description": "of the field",
            "anyOf": [{ "type": "object", "description": "of the type" }, { "type": "null" }],
        })
        .try_into()
        .unwrap();
        absent_is_not_null(&mut schema);
        assert_eq!(schema.to_value(), json!({ "description": "of the field", "type": "object" }));
    }
}
