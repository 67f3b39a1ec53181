//! The Secret with the ssh host keys.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use pod_builder::component_metadata;
use slinky_api::names::ssh_host_keys;
use slinky_api::v1beta1::LoginSet;

/// Builds the Secret `<name>-ssh-host-keys` without its files, which are random. It is immutable, so that host keys are
/// not changed by accident.
pub fn build_host_keys(loginset: &LoginSet) -> Secret {
    Secret {
        metadata: component_metadata(loginset, &ssh_host_keys(&loginset.name_any()), None),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::loginset;
    use k8s_openapi::ByteString;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn host_keys() {
        let files = BTreeMap::from([("ssh_host_rsa_key".to_owned(), ByteString(b"key".to_vec()))]);
        let secret = Secret { data: Some(files), ..build_host_keys(&loginset(&json!({}))) };
        insta::assert_yaml_snapshot!(secret);
    }
}
