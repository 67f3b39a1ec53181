//! The Service by which clients reach a component.

use crate::error::BuildError;
use crate::metadata::{child_metadata, merge_annotations, merge_labels};
use crate::service::{ComponentPort, build_service_spec};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use slinky_api::labels::{App, Labels, common_labels};
use slinky_api::v1beta1::ServiceTemplate;

/// Input of [`build_component_service`].
pub struct ComponentService<'a> {
    /// Name of the Service.
    pub name: &'a str,
    /// Its port unless the user chose another. It leads to the container port of the component's name.
    pub default_port: i32,
    /// Labels of the pods behind it.
    pub selector: Labels,
    /// The user's part.
    pub template: Option<&'a ServiceTemplate>,
    /// Whether the owner's labels and annotations are copied to the Service, below those of the template.
    pub inherits_metadata: bool,
}

/// Builds the Service of a component, which `owner` controls.
pub fn build_component_service<K>(owner: &K, service: &ComponentService<'_>) -> Result<Value, BuildError>
where
    K: App + Resource<DynamicType = ()>,
{
    let template = service.template.cloned().unwrap_or_default();
    let user = template.metadata.clone().unwrap_or_default();
    let (labels, annotations) = (owner.labels(), owner.annotations());
    let port = ComponentPort { name: K::NAME, default: service.default_port };
    let metadata = child_metadata(
        owner,
        service.name,
        merge_labels([
            service.inherits_metadata.then_some(labels),
            user.labels.as_ref(),
            Some(&common_labels(owner)),
        ]),
        merge_annotations([service.inherits_metadata.then_some(annotations), user.annotations.as_ref()]),
    );
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": build_service_spec(&template, port, &service.selector)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use slinky_api::labels::selector_labels;
    use slinky_api::v1beta1::LoginSet;

    #[rstest]
    #[case::inherited(true, json!({ "team": "hpc", "tier": "user" }), json!({ "note": "owner" }))]
    #[case::not_inherited(false, json!({ "tier": "user" }), json!({}))]
    fn the_template_overrides_inherited_metadata(
        #[case] inherits_metadata: bool,
        #[case] mut labels: Value,
        #[case] annotations: Value,
    ) {
        let owner: LoginSet = serde_json::from_value(json!({
            "metadata": {
                "name": "front", "namespace": "ns", "uid": "u",
                "labels": { "team": "hpc", "tier": "owner" },
                "annotations": { "note": "owner" },
            },
            "spec": {
                "controllerRef": { "name": "slurm" },
                "sssdConfRef": { "name": "sssd", "key": "sssd.conf" },
                "service": { "metadata": { "labels": { "tier": "user" } } },
            },
        }))
        .unwrap();
        for (key, value) in common_labels(&owner) {
            labels[key] = json!(value);
        }
        let service = ComponentService {
            name: "front",
            default_port: 22,
            selector: selector_labels(&owner),
            template: owner.spec.service.as_ref(),
            inherits_metadata,
        };
        let built = build_component_service(&owner, &service).unwrap();
        assert_eq!(
            (&built["metadata"]["labels"], &built["metadata"]["annotations"]),
            (&labels, &annotations)
        );
        assert_eq!(built["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(built["spec"]["ports"][0]["port"], 22);
    }
}
