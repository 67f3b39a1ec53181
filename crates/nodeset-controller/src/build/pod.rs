//! One worker pod: the template with a name, a hostname and node affinity.

use super::claims::volumes;
use super::error::BuildError;
use super::name::{check_dns_label, check_pod_name};
use super::pod_template::WorkerTemplate;
use kube::ResourceExt;
use pod_builder::hash_bytes;
use serde_json::{Value, json};
use slinky_api::labels;
use slinky_api::names::LONGEST_LABEL;
use slinky_api::v1beta1::NodeSet;

/// Digits of the hash in names of daemon pods: among ten thousand nodes a collision has a probability of 1 in 20,000.
const DIGITS: usize = 10;

/// The fields that differ between the pods of a template.
struct Identity<'a> {
    name: &'a str,
    hostname: &'a str,
    mode: &'static str,
    /// The padded ordinal, if it has one.
    index: Option<&'a str>,
    /// The only Kubernetes node that the pod may run on.
    node: Option<&'a str>,
}

/// The pod with this ordinal; with a `pin` it can be scheduled to that Kubernetes node only.
pub fn build_numbered_pod(
    template: &WorkerTemplate,
    nodeset: &NodeSet,
    ordinal: i32,
    hash: &str,
    pin: Option<&str>,
) -> Result<Value, BuildError> {
    let (name, hostname) = (nodeset.pod_name(ordinal), nodeset.pod_hostname(ordinal));
    check_pod_name(&name)?;
    check_dns_label("the hostname of a pod", &hostname)?;
    let identity = Identity {
        name: &name,
        hostname: &hostname,
        mode: "StatefulSet",
        index: Some(&nodeset.padded_ordinal(ordinal)),
        node: pin,
    };
    Ok(build_pod(template, nodeset, &identity, hash))
}

/// The pod for a Kubernetes node.
pub fn build_daemon_pod(
    template: &WorkerTemplate,
    nodeset: &NodeSet,
    node: &str,
    hostname: &str,
    hash: &str,
) -> Result<Value, BuildError> {
    check_dns_label(&format!("the hostname of the pod on {node}"), hostname)?;
    let name = daemon_pod_name(nodeset, node);
    let identity = Identity { name: &name, hostname, mode: "DaemonSet", index: None, node: Some(node) };
    Ok(build_pod(template, nodeset, &identity, hash))
}

/// The name of the pod for a Kubernetes node. It is deterministic, so that there are never two pods, and never ends in an
/// ordinal.
fn daemon_pod_name(nodeset: &NodeSet, node: &str) -> String {
    let owner = nodeset.name_any();
    // The hash covers the whole name of the NodeSet: long names may be cut to the same prefix.
    let hash = hash_bytes(format!("{owner}/{node}").as_bytes());
    let longest = LONGEST_LABEL - DIGITS - "-n".len();
    let owner = owner.get(..longest).unwrap_or(&owner).trim_end_matches(['-', '.']);
    format!("{owner}-n{}", &hash[..DIGITS])
}

fn build_pod(template: &WorkerTemplate, nodeset: &NodeSet, identity: &Identity<'_>, hash: &str) -> Value {
    let mut metadata = template.metadata.clone();
    metadata.name = Some(identity.name.to_owned());
    let values = [
        (labels::POD_NAME, Some(identity.name)),
        (labels::POD_HOSTNAME, Some(identity.hostname)),
        (labels::POD_INDEX, identity.index),
        (labels::SCALING_MODE, Some(identity.mode)),
        (labels::REVISION_HASH, Some(hash).filter(|hash| !hash.is_empty())),
    ];
    let values = values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    metadata.labels.get_or_insert_default().extend(values);

    let mut spec = template.spec.clone();
    spec["hostname"] = json!(identity.hostname);
    spec["volumes"] = json!(volumes(template, nodeset, identity.index.unwrap_or(identity.hostname)));
    if let Some(node) = identity.node {
        spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            required_node(node);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
}

/// Replaces the required node affinity: other requirements were checked when the node was chosen.
fn required_node(node: &str) -> Value {
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] })
}

#[cfg(test)]
mod tests;
