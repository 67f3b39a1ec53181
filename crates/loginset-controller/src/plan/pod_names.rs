//! Decides which login pods get the label with their name. Pure.
//!
//! The Deployment cannot set it: all of its pods have the labels of one template.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use slinky_api::labels::LOGIN_POD_NAME;
use slinky_api::ownership::controller_of;
use slinky_api::v1beta1::LoginSet;

/// The label by which a Deployment distinguishes the pods of its `ReplicaSet`s, whose names end in it.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// A label to add to a pod.
#[derive(Debug, PartialEq)]
pub struct PodLabel {
    /// The pod's name.
    pub pod: String,
    /// The merge patch of its metadata, for this pod only and not for one that replaced it.
    pub patch: Value,
}

/// The labels that pods of a LoginSet lack.
pub fn missing_labels<'a>(
    loginset: &LoginSet,
    pods: impl IntoIterator<Item = &'a PartialObjectMeta<Pod>>,
) -> Vec<PodLabel> {
    let lacks_label = |pod: &&PartialObjectMeta<Pod>| {
        is_pod_of(loginset, pod)
            && pod.metadata.deletion_timestamp.is_none()
            && pod.labels().get(LOGIN_POD_NAME) != Some(&pod.name_any())
    };
    let label = |pod: &PartialObjectMeta<Pod>| {
        let labels = json!({ LOGIN_POD_NAME: pod.name_any() });
        PodLabel { pod: pod.name_any(), patch: json!({ "metadata": { "uid": pod.uid(), "labels": labels } }) }
    };
    pods.into_iter().filter(lacks_label).map(label).collect()
}

/// Whether the Deployment of a LoginSet created a pod.
fn is_pod_of(loginset: &LoginSet, pod: &PartialObjectMeta<Pod>) -> bool {
    let Some(hash) = pod.labels().get(TEMPLATE_HASH) else { return false };
    let replica_set = format!("{}-{hash}", loginset.name_any());
    let is_its_owner = controller_of(&pod.metadata)
        .is_some_and(|owner| owner.kind == "ReplicaSet" && owner.name == replica_set);
    is_its_owner && pod.namespace() == loginset.namespace()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::loginset;
    use rstest::rstest;

    fn pod(name: &str, owner: &str, change: &Value) -> PartialObjectMeta<Pod> {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "r", "controller": true });
        let mut metadata = json!({ "name": name, "namespace": "ns", "uid": "u", "ownerReferences": [owner],
            "labels": { "pod-template-hash": "5d" } });
        for (field, value) in change.as_object().unwrap() {
            metadata[field] = value.clone();
        }
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[rstest]
    #[case::new(pod("front-5d-x", "front-5d", &json!({})), true)]
    #[case::label_of_another_pod(
        pod("front-5d-x", "front-5d", &json!({ "labels": { "pod-template-hash": "5d", LOGIN_POD_NAME: "front-5d-y" } })),
        true
    )]
    #[case::labelled(
        pod("front-5d-x", "front-5d", &json!({ "labels": { "pod-template-hash": "5d", LOGIN_POD_NAME: "front-5d-x" } })),
        false
    )]
    #[case::terminating(
        pod("front-5d-x", "front-5d", &json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })), false)]
    #[case::of_a_loginset_with_a_longer_name(pod("front-b-5d-x", "front-b-5d", &json!({})), false)]
    #[case::of_no_deployment(pod("front-5d-x", "front-5d", &json!({ "ownerReferences": [] })), false)]
    #[case::of_another_namespace(pod("front-5d-x", "front-5d", &json!({ "namespace": "other" })), false)]
    fn pods_of_the_deployment_are_labelled_with_their_name(
        #[case] pod: PartialObjectMeta<Pod>,
        #[case] is_labelled: bool,
    ) {
        let patch = json!({ "metadata": { "uid": "u", "labels": { LOGIN_POD_NAME: "front-5d-x" } } });
        let expected = is_labelled.then(|| PodLabel { pod: "front-5d-x".to_owned(), patch });
        assert_eq!(missing_labels(&loginset(&json!({})), [&pod]), Vec::from_iter(expected));
    }
}
