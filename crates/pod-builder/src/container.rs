//! A container of the operator with the user's changes.

use crate::merge::{merge, without_noise};
use crate::schema::CONTAINER;
use crate::typed::{self, TypeMismatch, read};
use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use slinky_api::Raw;

/// Merges the container that the user wrote in `field` over `base`.
///
/// Arguments add up, defaults first. A probe keeps its handler unless the user brings one. An empty name is what
/// client libraries write for no name, and changes nothing.
pub fn build_container(field: &str, base: &Container, user: &Raw<Container>) -> Result<Value, TypeMismatch> {
    let mut merged = typed::json(base);
    let Some(mut patch) = without_noise(user.as_value()) else { return Ok(merged) };
    let _: Container = read(field, &patch)?;
    if let Some(fields) = patch.as_object_mut() {
        if fields.get("name").is_some_and(|name| name == "") {
            fields.remove("name");
        }
        if let Some(Value::Array(args)) = fields.remove("args") {
            append_args(&mut merged, args);
        }
    }
    Ok(merge(merged, &patch, &CONTAINER))
}

/// Adds arguments after those that a built container has.
pub fn append_args(container: &mut Value, args: impl IntoIterator<Item = Value>) {
    extend_list(container, &["args"], args);
}

/// Adds items to the list at the end of a path of fields, which is made if it is not there.
pub(crate) fn extend_list(root: &mut Value, path: &[&str], items: impl IntoIterator<Item = Value>) {
    let Some((list, parents)) = path.split_last() else { return };
    let mut parent = root;
    for field in parents {
        let Value::Object(fields) = parent else { return };
        parent = fields.entry(*field).or_insert_with(|| json!({}));
    }
    let Value::Object(fields) = parent else { return };
    if let Value::Array(present) = fields.entry(*list).or_insert_with(|| json!([])) {
        present.extend(items);
    }
}
