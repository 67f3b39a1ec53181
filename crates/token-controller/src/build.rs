//! The Secret of a Token. Pure.

use crate::validate::DesiredToken;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use pod_builder::{merge_annotations, merge_labels};
use serde_json::{Value, json};
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::Token;
use std::collections::BTreeMap;

/// Builds the Secret without its data. It has the Token's labels and annotations and is collected with the Token.
pub fn build_secret(token: &Token, desired: &DesiredToken) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(desired.secret.clone()),
            namespace: token.namespace(),
            labels: Some(merge_labels([Some(token.labels())])),
            annotations: Some(merge_annotations([Some(token.annotations())])),
            owner_references: controller_reference(token).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
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

/// Builds the merge patch that makes the Token the controller of this version of a Secret.
pub fn build_owner_patch(token: &Token, secret: &Secret) -> Value {
    json!({ "metadata": {
        "resourceVersion": secret.resource_version(),
        "uid": secret.uid(),
        "ownerReferences": controller_reference(token).map(|owner| vec![owner]),
    } })
}
