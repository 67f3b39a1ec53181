//! The custom resource definitions.
//!
//! kube's derive provides names, columns and subresources. Its schema makes every optional field nullable and every
//! root's `spec` required; the API does neither, so the schema is generated here: only fields with
//! `extend("nullable" = true)` are nullable.

use crate::v1beta1::{Accounting, Controller, LoginSet, NodeSet, RestApi, Token};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps,
};
use kube::{CustomResourceExt, ResourceExt};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

const CHART_TEMPLATES: &str = "charts/slurm-operator/charts/slurm-operator-crds/templates";
const MANIFEST: &str = "deploy/crds.yaml";

/// Keeps a definition, and so all resources of its kind, when the chart is uninstalled.
const KEEP: &str = "
  {{- if .Values.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
spec:
";

/// Why the definitions cannot be generated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The schema is not a Kubernetes schema.
    #[error("the generated schema is not a Kubernetes schema")]
    Schema(#[from] serde_json::Error),
    /// The definition cannot be serialized.
    #[error("serializing the definition as YAML failed")]
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

/// Path, relative to the root of the repository, and content of each generated file.
///
/// One file per kind for the chart, and one with all kinds for `kubectl apply`.
pub fn files() -> Result<Vec<(String, String)>, Error> {
    let mut files = Vec::new();
    let mut all_in_one = String::new();
    for crd in all()? {
        let yaml = format!("---\n{}", serde_saphyr::to_string(&crd)?);
        all_in_one.push_str(&yaml);
        let template = yaml.replacen("\nspec:\n", KEEP, 1);
        files.push((format!("{CHART_TEMPLATES}/{}.yaml", crd.name_any()), template));
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
        add_common_columns(version.additional_printer_columns.get_or_insert_default());
    }
    Ok(crd)
}

/// Adds the columns of every kind: READY, unless the kind has its own, REASON and AGE.
fn add_common_columns(columns: &mut Vec<CustomResourceColumnDefinition>) {
    let ready = |field: &str| format!(r#".status.conditions[?(@.type=="Ready")].{field}"#);
    for (name, type_, json_path, priority) in [
        ("READY", "string", ready("status"), None),
        ("REASON", "string", ready("reason"), Some(1)),
        ("AGE", "date", ".metadata.creationTimestamp".to_owned(), None),
    ] {
        if columns.iter().all(|column| column.name != name) {
            let (name, type_) = (name.to_owned(), type_.to_owned());
            columns.push(CustomResourceColumnDefinition {
                name,
                type_,
                json_path,
                priority,
                ..Default::default()
            });
        }
    }
}

fn root_schema<K: JsonSchema>() -> Value {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
            settings.transforms.clear();
        })
        .with_transform(RecursiveTransform(remove_null))
        .with_transform(RecursiveTransform(one_of_to_enum))
        .into_generator();
    let mut schema = generator.into_root_schema_for::<K>();
    schema.remove("title");
    schema.remove("required");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        describe_type_and_metadata(properties);
    }
    schema.to_value()
}

/// Adds `apiVersion`, `kind` and `metadata`, which `kubectl explain` shows.
fn describe_type_and_metadata(properties: &mut Map<String, Value>) {
    let api_version = "Versioned schema of this representation of the object.";
    let kind = "The REST resource that this object represents.";
    properties.insert("apiVersion".into(), json!({ "type": "string", "description": api_version }));
    properties.insert("kind".into(), json!({ "type": "string", "description": kind }));
    properties.insert("metadata".into(), json!({ "type": "object" }));
}

/// Turns "a T or null", which the derive generates for an optional field, into "a T".
fn remove_null(schema: &mut Schema) {
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
            // Description and default of the field take precedence over those of its type.
            if schema.get(&key).is_none() {
                schema.insert(key, value);
            }
        }
    }
}

/// Turns `oneOf` constants, which the derive generates for an enum, into `enum`: Kubernetes supports no other form, and
/// no descriptions of the variants.
fn one_of_to_enum(schema: &mut Schema) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let variants: Option<Vec<Value>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    if let Some(variants) = variants {
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), variants.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_object_is_not_nullable_and_keeps_the_description_of_the_field() {
        let mut schema: Schema = json!({
            "description": "of the field",
            "anyOf": [{ "type": "object", "description": "of the type" }, { "type": "null" }],
        })
        .try_into()
        .unwrap();
        remove_null(&mut schema);
        assert_eq!(schema.to_value(), json!({ "description": "of the field", "type": "object" }));
    }
}
