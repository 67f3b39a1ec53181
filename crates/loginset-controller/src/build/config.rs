//! The ConfigMap with `sshd_config` and root's `authorized_keys`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pod_builder::component_metadata;
use slinky_api::names::ssh_config;
use slinky_api::v1beta1::LoginSet;
use slurm_conf::{render_authorized_keys, render_login_sshd_config};
use std::collections::BTreeMap;

/// The file with the configuration of sshd.
pub const SSHD_CONFIG: &str = "sshd_config";
/// The file with the public keys that may log in as root.
pub const AUTHORIZED_KEYS: &str = "authorized_keys";

/// Builds the ConfigMap `<name>-ssh-config`.
pub fn build_config(loginset: &LoginSet) -> ConfigMap {
    let spec = &loginset.spec;
    let sshd_config = render_login_sshd_config(spec.extra_sshd_config.as_deref().unwrap_or_default());
    let authorized_keys =
        render_authorized_keys(spec.root_ssh_authorized_keys.as_deref().unwrap_or_default());
    ConfigMap {
        metadata: component_metadata(loginset, &ssh_config(&loginset.name_any()), None),
        data: Some(BTreeMap::from([
            (SSHD_CONFIG.to_owned(), sshd_config),
            (AUTHORIZED_KEYS.to_owned(), authorized_keys),
        ])),
        immutable: Some(false),
        ..ConfigMap::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::loginset;
    use serde_json::json;

    #[test]
    fn config() {
        insta::assert_yaml_snapshot!(build_config(&loginset(&json!({
            "extraSshdConfig": "LoginGraceTime 600\n",
            "rootSshAuthorizedKeys": "ssh-ed25519 AAAA admin",
        }))));
    }
}
