//! Revisions of a NodeSet: the fields that pods are built from, in a canonical form with a stable hash.
//!
//! The bytes are those of Kubernetes' Go types, with HTML characters escaped: running pods have a label with their hash,
//! including pods that another version of the operator created.

mod canonical;

use canonical::{container, pod_spec};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use pod_builder::{child_metadata, merge_annotations, merge_labels};
use serde_json::{Map, Value, json};
use slinky_api::labels::{Labels, REVISION_HASH, selector_labels};
use slinky_api::v1beta1::{Metadata, NodeSet, SecretKeySelector, Ssh};

/// Longest prefix of a revision's name, before a dash and the hash.
const LONGEST_PREFIX: usize = 223;
/// Characters of hashes: without vowels they form no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The fields that pods are built from. Only a change of these replaces pods.
pub fn build_revision_data(nodeset: &NodeSet) -> Value {
    let spec = &nodeset.spec;
    let template = spec.template.clone().unwrap_or_default();
    let mut data = json!({
        "ordinalPadding": spec.ordinal_padding,
        "oversubscribeNode": spec.oversubscribe_node,
        "slurmd": replacing(container(spec.slurmd.as_value())),
        "template": replacing(Map::from_iter([
            ("metadata".to_owned(), metadata(template.metadata)),
            ("spec".to_owned(), pod_spec(template.spec.as_value())),
        ])),
    });
    if !canonical::is_empty(spec.logfile.as_value()) {
        data["logfile"] = replacing(container(spec.logfile.as_value()));
    }
    if let Some(text) = spec.extra_conf.as_deref().filter(|text| !text.is_empty()) {
        data["extraConf"] = json!(text);
    }
    if let Some(ssh) = spec.ssh.as_ref().filter(|ssh| **ssh != Ssh::default()) {
        data["ssh"] = replacing(ssh_fields(ssh));
    }
    json!({ "spec": data })
}

/// Marks an object for a strategic merge patch, so that a rollback replaces it as a whole.
fn replacing(mut fields: Map<String, Value>) -> Value {
    fields.insert("$patch".to_owned(), json!("replace"));
    Value::Object(fields)
}

fn metadata(metadata: Option<Metadata>) -> Value {
    let Metadata { labels, annotations } = metadata.unwrap_or_default();
    let fields = [("labels", labels), ("annotations", annotations)];
    let fields = fields.into_iter().filter_map(|(key, map)| Some((key, map.filter(|map| !map.is_empty())?)));
    fields.map(|(key, map)| (key.to_owned(), json!(map))).collect::<Map<_, _>>().into()
}

fn ssh_fields(ssh: &Ssh) -> Map<String, Value> {
    let mut fields = Map::from_iter([("enabled".to_owned(), json!(ssh.enabled))]);
    if let Some(text) = ssh.extra_sshd_config.as_deref().filter(|text| !text.is_empty()) {
        fields.insert("extraSshdConfig".to_owned(), json!(text));
    }
    let sssd = &ssh.sssd_conf_ref;
    if *sssd != SecretKeySelector::default() {
        let mut reference = json!(sssd);
        if let Some(fields) = reference.as_object_mut().filter(|_| sssd.name.is_empty()) {
            fields.remove("name");
        }
        fields.insert("sssdConfRef".to_owned(), reference);
    }
    fields
}

/// The bytes that are hashed.
pub fn revision_bytes(data: &Value) -> String {
    // These characters occur only inside JSON strings, where an escape is equivalent.
    data.to_string().chars().fold(String::new(), |mut bytes, character| {
        match character {
            '<' => bytes.push_str("\\u003c"),
            '>' => bytes.push_str("\\u003e"),
            '&' => bytes.push_str("\\u0026"),
            '\u{2028}' => bytes.push_str("\\u2028"),
            '\u{2029}' => bytes.push_str("\\u2029"),
            other => bytes.push(other),
        }
        bytes
    })
}

/// The hash of a revision. `collision_count` changes it after a collision.
pub fn revision_hash(bytes: &str, collision_count: i32) -> String {
    let number = fnv(bytes.bytes().chain(collision_count.to_string().bytes())).to_string();
    let letters = number.bytes().map(|byte| ALPHABET[usize::from(byte) % ALPHABET.len()]);
    letters.map(char::from).collect()
}

/// 32-bit FNV-1.
fn fnv(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}

/// The name of the ControllerRevision with this hash.
pub fn revision_name(nodeset: &NodeSet, hash: &str) -> String {
    let owner = nodeset.name_any();
    format!("{}-{hash}", owner.get(..LONGEST_PREFIX).unwrap_or(&owner))
}

/// The ControllerRevision.
pub fn build_revision(nodeset: &NodeSet, data: Value, hash: &str, number: i64) -> ControllerRevision {
    let user = nodeset.spec.template.as_ref().and_then(|template| template.metadata.as_ref());
    let ours = Labels::from([(REVISION_HASH.to_owned(), hash.to_owned())]);
    let labels = merge_labels([
        user.and_then(|user| user.labels.as_ref()),
        Some(&selector_labels(nodeset)),
        Some(&ours),
    ]);
    ControllerRevision {
        metadata: child_metadata(
            nodeset,
            &revision_name(nodeset, hash),
            labels,
            merge_annotations([Some(nodeset.annotations())]),
        ),
        data: Some(RawExtension(data)),
        revision: number,
    }
}

#[cfg(test)]
mod tests;
