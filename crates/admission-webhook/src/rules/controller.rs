//! Rules of Controllers.

use super::{Validated, check_signing_key, mismatches, read_service, read_template, warn_of_external_ips};
use crate::verdict::Verdict;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::{Api, Client, ResourceExt};
use slinky_api::v1beta1::{Controller, Persistence};
use slurm_conf::check_new_cluster_name;
use slurm_conf::files::{is_known, is_reserved};

/// The access mode of a volume that the pods of all slurmctld daemons can mount.
const SHARED: &str = "ReadWriteMany";

/// What a Controller refers to.
#[derive(Debug, Default)]
pub struct References {
    /// The keys of each referenced ConfigMap with configuration files, or why they are unknown.
    config_files: Vec<Result<Vec<String>, String>>,
    /// The access modes of the claim that standby daemons share, or why they are unknown. `None` if there is no such claim.
    claim_modes: Option<Result<Vec<String>, String>>,
}

impl Validated for Controller {
    type References = References;

    async fn read_references(&self, client: &Client, namespace: &str) -> References {
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let mut references = References::default();
        for reference in self.spec.config_file_refs.iter().flatten() {
            let keys = config_maps.get(&reference.name).await;
            let keys = keys.map(|map| map.data.into_iter().flatten().map(|(key, _)| key).collect());
            references.config_files.push(keys.map_err(|error| message(&error)));
        }
        if let Some(claim) = shared_claim(self) {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
            references.claim_modes = match claims.get_opt(claim).await {
                Ok(None) => None,
                Ok(Some(claim)) => {
                    Some(Ok(claim.spec.and_then(|spec| spec.access_modes).unwrap_or_default()))
                }
                Err(error) => Some(Err(message(&error))),
            };
        }
        references
    }

    fn type_mismatches(&self) -> Vec<String> {
        let spec = &self.spec;
        let claim =
            spec.persistence.as_ref().map_or(Ok(()), |persistence| persistence.claim_spec().map(drop));
        mismatches([
            ("slurmctld", spec.slurmctld.read().map(drop)),
            ("reconfigure", spec.reconfigure.read().map(drop)),
            ("logfile", spec.logfile.read().map(drop)),
            ("template.spec", read_template(spec.template.as_ref())),
            ("service.spec", read_service(spec.service.as_ref())),
            ("persistence", claim),
        ])
    }

    fn check(&self, references: &References, verdict: &mut Verdict) {
        check_config_files(&references.config_files, verdict);
        warn_of_external_ips(self.spec.service.as_ref(), "controller", verdict);
        let claim = || {
            let claim = shared_claim(self).unwrap_or_default();
            format!("{}/{claim}", self.namespace().unwrap_or_default())
        };
        match &references.claim_modes {
            Some(Ok(modes)) if !modes.iter().any(|mode| mode == SHARED) => verdict.refuse(format!(
                "ha.enabled needs PersistentVolumeClaim {} to have access mode {SHARED}",
                claim()
            )),
            Some(Err(error)) => {
                verdict.refuse(format!("reading PersistentVolumeClaim {} failed: {error}", claim()));
            }
            Some(Ok(_)) | None => {}
        }
    }

    fn check_new(&self, verdict: &mut Verdict) {
        verdict.require(check_new_cluster_name(&self.cluster_name()));
    }

    fn check_change(&self, old: &Self, verdict: &mut Verdict) {
        verdict.require_unchanged("clusterName", &old.cluster_name(), &self.cluster_name());
        let slurm_key = |controller: &Self| controller.spec.slurm_key_ref.clone().unwrap_or_default().name;
        verdict.require_unchanged("slurmKeyRef", &slurm_key(old), &slurm_key(self));
        check_signing_key(old.spec.signing_key_ref(), self.spec.signing_key_ref(), verdict);
        let persistence = |controller: &Self| controller.spec.persistence.clone().unwrap_or_default();
        let (old, new) = (persistence(old), persistence(self));
        verdict.require_unchanged("persistence.enabled", &old.enabled, &new.enabled);
        if new.enabled {
            let claim = |persistence: &Persistence| persistence.existing_claim().map(str::to_owned);
            verdict.require_unchanged("persistence.existingClaim", &claim(&old), &claim(&new));
        }
    }
}

/// The claim that the daemons of a Controller with standby daemons share.
fn shared_claim(controller: &Controller) -> Option<&str> {
    let is_shared = controller.spec.ha.as_ref().is_some_and(|ha| ha.enabled);
    controller.spec.persistence.as_ref()?.existing_claim().filter(|_| is_shared)
}

fn check_config_files(config_maps: &[Result<Vec<String>, String>], verdict: &mut Verdict) {
    for files in config_maps {
        match files {
            Err(error) => verdict.refuse(error),
            Ok(files) => {
                for file in files {
                    if is_reserved(file) {
                        verdict.refuse(format!("configFileRefs: {file} is reserved: the operator writes it"));
                    } else if !is_known(file) {
                        verdict.warn(format!(
                            "configFileRefs: Slurm knows no file {file}; it is ignored unless another file includes it"
                        ));
                    }
                }
            }
        }
    }
}

/// The message of the API server, or of the client if there is none.
fn message(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        status.message.clone()
    } else {
        operator_runtime::error::chain(error)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_refusal, changed, create, object, update};
    use super::*;
    use crate::validation::verdict;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn minimal() -> Value {
        json!({ "slurmKeyRef": { "name": "a", "key": "k" }, "jwtKeyRef": { "name": "b", "key": "k" } })
    }

    fn with_claim(name: &str) -> Value {
        json!({ "persistence": { "enabled": true, "existingClaim": name }, "ha": { "enabled": true } })
    }

    #[rstest]
    #[case::derived_name(json!({}), None)]
    #[case::longest_name(json!({ "clusterName": "c".repeat(40) }), None)]
    #[case::long_name(json!({ "clusterName": "c".repeat(41) }), Some("must not exceed 40 characters"))]
    #[case::name_is_a_path(json!({ "clusterName": "a/b" }), Some("must not contain '/'"))]
    fn cluster_names_are_checked(#[case] change: Value, #[case] refusal: Option<&str>) {
        assert_refusal(create::<Controller>(&changed(&minimal(), &change)).0.as_deref(), refusal);
    }

    #[rstest]
    #[case::extra_conf(json!({ "extraConf": "A=1" }), None)]
    #[case::name(json!({ "clusterName": "other" }), Some("cannot change clusterName"))]
    #[case::derived_name_spelt_out(json!({ "clusterName": "ns_x" }), None)]
    #[case::slurm_key(json!({ "slurmKeyRef": { "name": "other", "key": "k" } }), Some("cannot change slurmKeyRef"))]
    #[case::key_in_the_slurm_key(json!({ "slurmKeyRef": { "name": "a", "key": "other" } }), None)]
    #[case::signing_key(json!({ "jwtKeyRef": { "name": "b", "key": "other" } }), Some("cannot change jwtKeyRef"))]
    #[case::signing_key_in_the_deprecated_field(json!({ "jwtKeyRef": null, "jwtHs256KeyRef": { "name": "b", "key": "k" } }), None)]
    #[case::default_persistence_spelt_out(json!({ "persistence": { "enabled": true } }), None)]
    #[case::no_persistence(json!({ "persistence": { "enabled": false } }), Some("cannot change persistence.enabled"))]
    #[case::claim(with_claim("c"), Some("cannot change persistence.existingClaim"))]
    #[case::standby_daemons(json!({ "ha": { "enabled": true } }), None)]
    fn identity_of_a_cluster_cannot_change(#[case] change: Value, #[case] refusal: Option<&str>) {
        assert_refusal(update::<Controller>(&minimal(), &changed(&minimal(), &change)).as_deref(), refusal);
    }

    #[rstest]
    #[case::no_claim(None, None)]
    #[case::shared(Some(Ok(vec!["ReadWriteOnce".to_owned(), "ReadWriteMany".to_owned()])), None)]
    #[case::not_shared(Some(Ok(vec!["ReadWriteOnce".to_owned()])), Some("needs PersistentVolumeClaim ns/c to have access mode ReadWriteMany"))]
    #[case::unknown(Some(Err("forbidden".to_owned())), Some("reading PersistentVolumeClaim ns/c failed: forbidden"))]
    fn standby_daemons_need_a_shared_claim(
        #[case] claim_modes: Option<Result<Vec<String>, String>>,
        #[case] refusal: Option<&str>,
    ) {
        let controller: Controller = object(&changed(&minimal(), &with_claim("c")));
        let references = References { claim_modes, ..References::default() };
        assert_refusal(verdict(&controller, None, &references).refusal().as_deref(), refusal);
    }

    #[test]
    fn configuration_files_are_checked_by_name() {
        let controller: Controller = object(&minimal());
        let files = ["gres.conf", "own.conf", "slurm.conf"].map(str::to_owned).to_vec();
        let config_files = vec![Err("configmaps \"a\" not found".to_owned()), Ok(files)];
        let verdict = verdict(&controller, None, &References { config_files, ..References::default() });
        assert_eq!(
            verdict.refusal().as_deref(),
            Some(
                "[configmaps \"a\" not found, configFileRefs: slurm.conf is reserved: the operator writes it]"
            )
        );
        let warnings = verdict.into_warnings();
        assert!(warnings.len() == 1 && warnings[0].contains("own.conf"), "{warnings:?}");
    }

    #[test]
    fn external_addresses_are_a_warning() {
        let service = json!({ "service": { "spec": { "externalIPs": [] } } });
        let (refusal, warnings) = create::<Controller>(&changed(&minimal(), &service));
        assert_eq!((refusal, warnings.len()), (None, 1), "{warnings:?}");
    }
}
