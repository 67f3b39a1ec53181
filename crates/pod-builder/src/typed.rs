//! Between the typed view of Kubernetes objects and their JSON.
//!
//! What users write into pod templates stays JSON, so that fields which this build does not know survive. Before it
//! is used it must fit its type; if not, the error names the field.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A field whose content does not fit its type.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be read")]
pub struct TypeMismatch {
    /// Where it is, beginning with the field of the custom resource.
    pub path: String,
    #[source]
    source: serde_json::Error,
}

/// Reads JSON as a `T`. `root` names it in the error.
pub fn read<T: DeserializeOwned>(root: &str, value: &Value) -> Result<T, TypeMismatch> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { root.to_owned() } else { format!("{root}.{path}") };
        TypeMismatch { path, source: error.into_inner() }
    })
}

/// The JSON of a Kubernetes type, which always has one: its maps have text as keys.
pub(crate) fn json(typed: &impl Serialize) -> Value {
    serde_json::to_value(typed).unwrap_or_default()
}
