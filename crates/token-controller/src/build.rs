//! The Secret of a Token. Pure.

use crate::validate::DesiredToken;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use pod_builder::{child_metadata, merge_annotations};
use serde_json::{Value, json};
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::Token;
use std::collections::BTreeMap;

/// Builds the Secret without its data. It has the Token's labels and annotations and is collected with the Token.
pub fn build_secret(token: &Token, desired: &DesiredToken) -> Secret {
    Secret {
        metadata: child_metadata(
            token,
            &desired.secret,
            token.labels().clone(),
            merge_annotations([Some(token.annotations())]),
        ),
        // A token that is never renewed is protected from other writers, too.
        immutable: Some(!desired.refresh),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// Builds the data of the Secret.
pub fn build_data(key: &str, jwt: String) -> BTreeMap<String, ByteString> {
    BTreeMap::from([(key.to_owned(), ByteString(jwt.into_bytes()))])
}

/// Builds the merge patch that makes the Token the controller of this version of a Secret. Owners that do not control it
/// stay.
pub fn build_owner_patch(token: &Token, secret: &Secret) -> Value {
    let others = secret.owner_references().iter().filter(|owner| owner.controller != Some(true));
    let owners: Vec<_> = others.cloned().chain(controller_reference(token)).collect();
    json!({ "metadata": {
        "resourceVersion": secret.resource_version(),
        "uid": secret.uid(),
        "ownerReferences": owners,
    } })
}
