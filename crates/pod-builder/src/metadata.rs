//! Labels and annotations of children, merged from layers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use slinky_api::labels::{App, Labels, annotations, common_labels};
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::Metadata;
use std::collections::BTreeMap;

/// Merges maps; for equal keys the later layer wins.
pub fn merge_labels<'a>(layers: impl IntoIterator<Item = Option<&'a BTreeMap<String, String>>>) -> Labels {
    let mut result = Labels::new();
    for layer in layers.into_iter().flatten() {
        result.extend(layer.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    result
}

/// Merges annotations, without kubectl's last-applied configuration of the parent: with it each `kubectl apply` of the
/// parent would restart the pods.
pub fn merge_annotations<'a>(
    layers: impl IntoIterator<Item = Option<&'a BTreeMap<String, String>>>,
) -> BTreeMap<String, String> {
    let mut result = merge_labels(layers);
    result.remove(annotations::LAST_APPLIED);
    // They are about the parent alone: children would be rewritten, and pods restarted, with each change.
    for own in [annotations::RESERVATION, annotations::CORDONED_PODS, annotations::ACCEPTED_CONFIG] {
        result.remove(own);
    }
    result
}

/// Metadata of a child that `owner` controls.
pub fn child_metadata<K: Resource<DynamicType = ()>>(
    owner: &K,
    name: &str,
    labels: Labels,
    annotations: BTreeMap<String, String>,
) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: owner.meta().namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: controller_reference(owner).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// Metadata of a child that has the labels and annotations of its owner, below those of the user's template.
pub fn component_metadata<K: App + Resource<DynamicType = ()>>(
    owner: &K,
    name: &str,
    template: Option<&Metadata>,
) -> ObjectMeta {
    let user = template.cloned().unwrap_or_default();
    child_metadata(
        owner,
        name,
        merge_labels([Some(owner.labels()), user.labels.as_ref(), Some(&common_labels(owner))]),
        merge_annotations([Some(owner.annotations()), user.annotations.as_ref()]),
    )
}

/// Metadata of the pods of a workload: the workload's, merged with the operator's own annotations.
pub fn pod_metadata<K: App>(
    workload: &ObjectMeta,
    ours: impl IntoIterator<Item = (&'static str, String)>,
) -> ObjectMeta {
    let mut annotations = workload.annotations.clone().unwrap_or_default();
    annotations.extend(ours.into_iter().map(|(key, value)| (key.to_owned(), value)));
    annotations.insert(annotations::DEFAULT_CONTAINER.to_owned(), K::NAME.to_owned());
    ObjectMeta {
        name: workload.name.clone(),
        namespace: workload.namespace.clone(),
        labels: workload.labels.clone(),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slinky_api::v1beta1::{LoginSet, LoginSetSpec};

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn later_layer_wins() {
        let (parent, template) = (map(&[("a", "1"), ("b", "1")]), map(&[("b", "2"), ("c", "2")]));
        let ours = map(&[("c", "3")]);
        let layers = [Some(&parent), None, Some(&template), Some(&ours)];
        assert_eq!(merge_labels(layers), map(&[("a", "1"), ("b", "2"), ("c", "3")]));
    }

    #[test]
    fn annotations_about_the_parent_alone_are_not_copied() {
        let parent = map(&[
            ("a", "1"),
            ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
            (annotations::RESERVATION, "{}"),
            (annotations::ACCEPTED_CONFIG, "0123456789ab"),
        ]);
        assert_eq!(merge_annotations([Some(&parent)]), map(&[("a", "1")]));
    }

    #[test]
    fn pods_have_the_metadata_of_the_workload_without_its_owner_and_our_annotations_win() {
        let mut owner = LoginSet::new("front", LoginSetSpec::default());
        owner.metadata.uid = Some("u".to_owned());
        let workload =
            child_metadata(&owner, "front", map(&[("l", "1")]), map(&[("a", "1"), ("hash", "user")]));
        let pods = pod_metadata::<LoginSet>(&workload, [("hash", "h".to_owned())]);
        assert_eq!((pods.name, pods.labels), (workload.name, workload.labels));
        let expected = map(&[("a", "1"), ("hash", "h"), (annotations::DEFAULT_CONTAINER, "login")]);
        assert_eq!((pods.annotations, pods.owner_references), (Some(expected), None));
    }
}
