//! Objects for the tests of several modules.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use slinky_api::v1beta1::Accounting;
use test_support::fixture::{object_with_spec, owner_metadata};

/// An Accounting with all required fields; `null` in `change` removes a field.
pub fn accounting(change: &Value) -> Accounting {
    let spec = json!({
        "slurmKeyRef": { "name": "auth", "key": "slurm.key" },
        "jwtKeyRef": { "name": "tokens", "key": "jwt.key" },
        "slurmdbd": { "image": "slurmdbd:26.05" },
        "storageConfig": {
            "host": "mariadb",
            "username": "slurm",
            "passwordKeyRef": { "name": "db", "key": "password" },
        },
    });
    object_with_spec(&owner_metadata("books"), &spec, change)
}

/// A Secret with one key.
pub fn secret(key: &str, value: &str) -> Secret {
    Secret { data: Some([(key.to_owned(), bytes(value))].into()), ..Secret::default() }
}

/// The bytes of a text.
pub fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}
