//! What the tests of several modules start from.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use slinky_api::labels::annotations::LAST_APPLIED;
use slinky_api::v1beta1::Accounting;

/// An Accounting with everything that it needs; `null` in `change` takes a field away.
pub fn accounting(change: &Value) -> Accounting {
    let mut spec = json!({
        "slurmKeyRef": { "name": "auth", "key": "slurm.key" },
        "jwtKeyRef": { "name": "tokens", "key": "jwt.key" },
        "slurmdbd": { "image": "slurmdbd:26.05" },
        "storageConfig": {
            "host": "mariadb",
            "username": "slurm",
            "passwordKeyRef": { "name": "db", "key": "password" },
        },
    });
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let metadata = json!({
        "name": "books",
        "namespace": "ns",
        "uid": "u",
        "labels": { "team": "hpc" },
        "annotations": { "note": "1", LAST_APPLIED: "{}" },
    });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// A Secret with one key.
pub fn secret(key: &str, value: &str) -> Secret {
    Secret { data: Some([(key.to_owned(), bytes(value))].into()), ..Secret::default() }
}

/// The bytes of a text.
pub fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}
