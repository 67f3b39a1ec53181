//! The Secret of a Token.

use crate::validate::Wish;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use pod_builder::{merge_annotations, merge_labels};
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::Token;
use std::collections::BTreeMap;

/// The Secret that holds `jwt`. It carries the Token's labels and annotations and goes when the Token goes.
pub fn build_secret(token: &Token, wish: &Wish, jwt: String) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(wish.secret.clone()),
            namespace: token.namespace(),
            labels: Some(merge_labels([Some(token.labels())])),
            annotations: Some(merge_annotations([Some(token.annotations())])),
            owner_references: controller_reference(token).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(wish.key.clone(), ByteString(jwt.into_bytes()))])),
        // What is not renewed must not be changed by anybody else either.
        immutable: Some(!wish.refresh),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}
