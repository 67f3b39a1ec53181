//! The ConfigMap with the sshd configuration of the workers.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pod_builder::{child_metadata, hash_bytes, merge_annotations, merge_labels};
use slinky_api::labels::worker_labels;
use slinky_api::names::ssh_config;
use slinky_api::v1beta1::NodeSet;
use slurm_conf::render_worker_sshd_config;
use std::collections::BTreeMap;

/// The key and file name of the sshd configuration.
pub const SSHD_CONFIG: &str = "sshd_config";

/// The ConfigMap `<name>-ssh-config`, if ssh is enabled.
pub fn build_ssh_config(nodeset: &NodeSet) -> Option<ConfigMap> {
    let content = sshd_config(nodeset)?;
    Some(ConfigMap {
        metadata: child_metadata(
            nodeset,
            &ssh_config(&nodeset.name_any()),
            merge_labels([Some(nodeset.labels()), Some(&worker_labels(nodeset))]),
            merge_annotations([Some(nodeset.annotations())]),
        ),
        data: Some(BTreeMap::from([(SSHD_CONFIG.to_owned(), content)])),
        immutable: Some(false),
        ..ConfigMap::default()
    })
}

/// The hash of `sshd_config`, or of the empty string if ssh is disabled.
pub fn sshd_config_hash(nodeset: &NodeSet) -> String {
    hash_bytes(sshd_config(nodeset).unwrap_or_default().as_bytes())
}

fn sshd_config(nodeset: &NodeSet) -> Option<String> {
    let ssh = nodeset.spec.enabled_ssh()?;
    Some(render_worker_sshd_config(ssh.extra_sshd_config.as_deref().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::nodeset;
    use serde_json::json;

    #[test]
    fn ssh_config() {
        let nodeset = nodeset(&json!({ "ssh": {
            "enabled": true,
            "extraSshdConfig": "LoginGraceTime 60\n",
            "sssdConfRef": { "name": "sssd", "key": "sssd.conf" },
        } }));
        let config = build_ssh_config(&nodeset).unwrap();
        let content = &config.data.as_ref().unwrap()[SSHD_CONFIG];
        assert_eq!(sshd_config_hash(&nodeset), hash_bytes(content.as_bytes()));
        insta::assert_yaml_snapshot!(config);
    }

    #[test]
    fn without_ssh_there_is_no_config_map_and_the_hash_is_of_the_empty_string() {
        for ssh in [json!(null), json!({ "enabled": false, "sssdConfRef": { "name": "s", "key": "k" } })] {
            let nodeset = nodeset(&json!({ "ssh": ssh }));
            assert_eq!(build_ssh_config(&nodeset), None);
            assert_eq!(sshd_config_hash(&nodeset), hash_bytes(b""));
        }
    }
}
