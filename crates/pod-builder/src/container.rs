//! A container of the operator, merged with the user's overrides.

use crate::merge::{merge, without_empty};
use crate::schema::CONTAINER;
use crate::typed::{self, TypeMismatch, read};
use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use slinky_api::Raw;

/// Merges the container that the user wrote in `field` over `base`.
///
/// The user's arguments are appended to the default ones. A probe keeps its handler unless the user sets one. An empty
/// name is ignored: client libraries write it for no name.
pub fn build_container(field: &str, base: &Container, user: &Raw<Container>) -> Result<Value, TypeMismatch> {
    let mut merged = typed::json(base);
    let Some(mut patch) = without_empty(user.as_value()) else { return Ok(merged) };
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

/// Appends arguments to those of a built container.
pub fn append_args(container: &mut Value, args: impl IntoIterator<Item = Value>) {
    extend_list(container, &["args"], args);
}

/// Appends items to the list at a path of fields, which is created if absent.
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
