//! The Secret with the ssh host keys.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use pod_builder::{child_metadata, hash_values, merge_annotations, merge_labels};
use slinky_api::labels::common_labels;
use slinky_api::names::ssh_host_keys;
use slinky_api::v1beta1::LoginSet;
use std::collections::BTreeMap;

/// The Secret `<name>-ssh-host-keys`, with these files. Nobody can change it, not even by accident.
pub fn build_host_keys(loginset: &LoginSet, files: BTreeMap<String, ByteString>) -> Secret {
    Secret {
        metadata: child_metadata(
            loginset,
            &ssh_host_keys(&loginset.name_any()),
            merge_labels([Some(loginset.labels()), Some(&common_labels(loginset))]),
            merge_annotations([Some(loginset.annotations())]),
        ),
        data: Some(files),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// The hash of the host keys in a Secret.
pub fn hash_host_keys(secret: Secret) -> String {
    let files = secret.data.unwrap_or_default().into_iter().map(|(file, content)| (file, content.0));
    hash_values(&files.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::loginset;
    use serde_json::json;

    #[test]
    fn host_keys() {
        let files = BTreeMap::from([("ssh_host_rsa_key".to_owned(), ByteString(b"key".to_vec()))]);
        insta::assert_yaml_snapshot!(build_host_keys(&loginset(&json!({})), files));
    }
}
