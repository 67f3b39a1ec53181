//! Secrets that are read by name when a reconcile needs them, and are never cached.

use crate::references::ReferenceError;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use std::sync::Arc;

/// Reads a Secret; `None` if it does not exist.
pub async fn get_secret(
    client: Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Secret>, Arc<ReferenceError>> {
    let found = Api::<Secret>::namespaced(client, namespace).get_opt(name).await;
    found.map_err(|source| {
        Arc::new(ReferenceError::Unread { kind: "Secret".to_owned(), name: name.to_owned(), source })
    })
}
