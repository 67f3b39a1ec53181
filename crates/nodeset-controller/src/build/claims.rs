//! PersistentVolumeClaims from `volumeClaimTemplates`. They outlive their pods.

use super::error::BuildError;
use super::name::check_dns_label;
use super::pod_template::WorkerTemplate;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use pod_builder::{merge_labels, read};
use serde_json::{Value, json};
use slinky_api::labels::selector_labels;
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeSet;

const FIELD: &str = "volumeClaimTemplates";

/// The claim templates of a NodeSet, with checked and unique names.
pub fn claim_templates(nodeset: &NodeSet) -> Result<Vec<PersistentVolumeClaim>, BuildError> {
    let written = nodeset.spec.volume_claim_templates.as_value();
    let list: Vec<Value> = if written.is_null() { vec![] } else { read(FIELD, written)? };
    let mut names = BTreeSet::new();
    let mut templates = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        let field = format!("{FIELD}[{index}]");
        let template: PersistentVolumeClaim = read(&field, item)?;
        let (what, name) = (format!("{field}.metadata.name"), template.name_any());
        // It is also the name of a volume.
        check_dns_label(&what, &name)?;
        if !names.insert(name.clone()) {
            return Err(BuildError::Name { what, name, problem: "another template has this name" });
        }
        templates.push(template);
    }
    Ok(templates)
}

/// The claims of one pod; `pod` is its padded ordinal, or its hostname with scaling mode DaemonSet.
pub fn build_claims(template: &WorkerTemplate, nodeset: &NodeSet, pod: &str) -> Vec<PersistentVolumeClaim> {
    let selector = selector_labels(nodeset);
    let claims = template.claims().iter();
    claims
        .map(|claim| PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(nodeset.claim_name(&claim.name_any(), pod)),
                namespace: nodeset.namespace(),
                labels: Some(merge_labels([Some(claim.labels()), Some(&selector)])),
                annotations: claim.metadata.annotations.clone(),
                finalizers: claim.metadata.finalizers.clone(),
                ..ObjectMeta::default()
            },
            spec: claim.spec.clone(),
            status: None,
        })
        .collect()
}

/// The volumes of one pod: those of its claims, then those of the template with other names.
pub(super) fn volumes(template: &WorkerTemplate, nodeset: &NodeSet, pod: &str) -> Vec<Value> {
    let names: BTreeSet<String> = template.claims().iter().map(ResourceExt::name_any).collect();
    let claimed = template.claims().iter().map(|claim| {
        let name = claim.name_any();
        let claim = nodeset.claim_name(&name, pod);
        json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } })
    });
    let common = template.spec["volumes"].as_array().into_iter().flatten();
    let common = common.filter(|volume| !volume["name"].as_str().is_some_and(|name| names.contains(name)));
    claimed.chain(common.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{nodeset, template};
    use rstest::rstest;

    fn claim(name: &str) -> Value {
        json!({
            "metadata": { "name": name, "labels": { "vol": name, "app.kubernetes.io/name": "theirs" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        })
    }

    fn with_claims(claims: &Value) -> NodeSet {
        nodeset(&json!({ "volumeClaimTemplates": claims }))
    }

    #[rstest]
    #[case::numbered("0", "datadir-gpu-0")]
    #[case::padded("007", "datadir-gpu-007")]
    #[case::daemon("node-1", "datadir-gpu-node-1")]
    fn claim_name_has_template_nodeset_and_pod(#[case] pod: &str, #[case] name: &str) {
        let nodeset = with_claims(&json!([claim("datadir")]));
        let claims = build_claims(&template(&nodeset), &nodeset, pod);
        assert_eq!(claims.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [name]);
        let volumes = volumes(&template(&nodeset), &nodeset, pod);
        assert_eq!(volumes[0], json!({ "name": "datadir", "persistentVolumeClaim": { "claimName": name } }));
    }

    #[test]
    fn claim_is_its_template_with_selector_labels() {
        let mut written = claim("data");
        written["status"] = json!({ "phase": "Bound" });
        written["metadata"]["annotations"] = json!({ "a": "1" });
        written["metadata"]["uid"] = json!("copied by mistake");
        let nodeset = with_claims(&json!([written]));
        let claims = build_claims(&template(&nodeset), &nodeset, "0");
        insta::assert_yaml_snapshot!(claims[0]);
    }

    #[test]
    fn claim_volumes_come_first_and_replace_template_volumes() {
        let nodeset = nodeset(&json!({
            "volumeClaimTemplates": [claim("z"), claim("a")],
            "template": { "spec": { "volumes": [{ "name": "a", "emptyDir": {} }, { "name": "m", "emptyDir": {} }] } },
        }));
        let volumes = volumes(&template(&nodeset), &nodeset, "0");
        let names: Vec<_> = volumes.iter().map(|volume| volume["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["z", "a", "m", "slurm-etc", "slurm-logfile"]);
        assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], "a-gpu-0");
    }

    #[rstest]
    #[case::not_a_list(json!({ "data": {} }), "volumeClaimTemplates cannot be read")]
    #[case::not_a_claim(json!([5]), "volumeClaimTemplates[0] cannot be read")]
    #[case::ill_typed(
        json!([claim("a"), { "metadata": { "name": "b" }, "spec": { "accessModes": "ReadWriteOnce" } }]),
        "volumeClaimTemplates[1].spec.accessModes cannot be read"
    )]
    #[case::no_name(json!([{ "spec": {} }]), r#"volumeClaimTemplates[0].metadata.name cannot be "": "#)]
    #[case::invalid_volume_name(json!([claim("a.b")]), r#"volumeClaimTemplates[0].metadata.name cannot be "a.b": "#)]
    #[case::duplicate_name(
        json!([claim("a"), claim("a")]),
        r#"volumeClaimTemplates[1].metadata.name cannot be "a": another template has this name"#
    )]
    fn error_names_the_invalid_claim_template(#[case] claims: Value, #[case] message: &str) {
        let error = claim_templates(&with_claims(&claims)).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }

    #[rstest]
    #[case::absent(Value::Null)]
    #[case::empty(json!([]))]
    fn missing_templates_are_no_error(#[case] claims: Value) {
        assert!(claim_templates(&with_claims(&claims)).unwrap().is_empty());
    }
}
