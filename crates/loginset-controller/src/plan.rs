//! Decides what the children of a LoginSet should be.

use crate::build::{build_config, build_service, hash_host_keys};
use crate::host_keys::{HOST_KEYS, HostKey};
use crate::observe::References;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use operator_runtime::references::ReferenceError;
use operator_runtime::{Class, Classify, MissingReference, RawObject, apply, secret_value};
use pod_builder::{BuildError, hash_bytes};
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::{Controller, LoginSet};
use std::error::Error;
use std::sync::Arc;

/// What the children should be, each on its own.
pub struct Plan {
    /// What becomes of the ssh host keys.
    pub host_keys: Result<HostKeys, Obstacle>,
    /// The ConfigMap with `sshd_config`.
    pub config: ConfigMap,
    /// The Service.
    pub service: Result<RawObject<Service>, Obstacle>,
    /// What the Deployment is made from, besides its own host keys and configuration.
    pub surroundings: Result<Surroundings, Obstacle>,
}

/// What becomes of the ssh host keys. Those that exist are never changed: people have seen their fingerprints.
pub enum HostKeys {
    /// There are none.
    Make,
    /// Those that there are do, whoever made them. This is their hash.
    Keep(String),
    /// These are being deleted. Their end wakes us.
    Await,
}

/// What is around the pods.
pub struct Surroundings {
    /// The Controller of the Slurm cluster.
    pub controller: Arc<Controller>,
    /// Hash of sssd.conf.
    pub sssd_conf: String,
    /// Hash of the key of its daemons.
    pub slurm_key: String,
}

/// Why a child is not made. What runs goes on as it is.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// Something that it needs cannot be had.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// Somebody else has the name.
    #[error(transparent)]
    Occupied(#[from] apply::Error),
    /// There is no making ssh host keys.
    #[error("no ssh host keys could be made")]
    Generate(#[source] Box<dyn Error + Send + Sync>),
    /// It cannot be built; only an edit helps.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl Classify for Obstacle {
    fn class(&self) -> Class {
        match self {
            Self::Reference(error) => error.class(),
            Self::Occupied(error) => error.class(),
            Self::Generate(_) => Class::Transient,
            Self::Build(_) => Class::Invalid,
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Reference(error) => error.category(),
            Self::Occupied(error) => error.category(),
            Self::Generate(_) => "HostKeysNotMade",
            Self::Build(_) => "InvalidSpec",
        }
    }
}

/// Decides.
pub fn plan(loginset: &LoginSet, references: References) -> Plan {
    let References { cluster, sssd_conf, host_keys } = references;
    let no_controller = || MissingReference::Controller(loginset.spec.controller_ref.name.clone());
    let surroundings = cluster.ok_or_else(no_controller).map_err(ReferenceError::from).and_then(|cluster| {
        // Without it the pods could not start.
        let slurm_key = cluster.slurm_key?.value.0;
        let sssd_conf = hash_bytes(&sssd_conf?.value.0);
        Ok(Surroundings { controller: cluster.controller, sssd_conf, slurm_key: hash_bytes(&slurm_key) })
    });
    Plan {
        host_keys: host_keys.map_err(Obstacle::from).and_then(|found| judge(loginset, found)),
        config: build_config(loginset),
        service: build_service(loginset).map_err(Obstacle::from),
        surroundings: surroundings.map_err(Obstacle::from),
    }
}

/// What to do with the host keys that were found. Those that nobody controls are somebody's own, brought from elsewhere.
fn judge(loginset: &LoginSet, found: Option<Secret>) -> Result<HostKeys, Obstacle> {
    let Some(secret) = found else { return Ok(HostKeys::Make) };
    let name = secret.name_any();
    if let Control::Foreign(owner) = control_of(&secret.metadata, loginset) {
        let object = format!("Secret {}/{name}", secret.namespace().unwrap_or_default());
        return Err(apply::Error::Foreign { object, owner: Some(Box::new(owner.clone())) }.into());
    }
    if secret.metadata.deletion_timestamp.is_some() {
        return Ok(HostKeys::Await);
    }
    for file in HOST_KEYS.iter().flat_map(HostKey::files) {
        secret_value(Some(&secret), &name, file).map_err(ReferenceError::from)?;
    }
    Ok(HostKeys::Keep(hash_host_keys(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{controller, loginset};
    use crate::observe::{Cluster, SecretKey};
    use k8s_openapi::ByteString;
    use operator_runtime::references::ResolvedKey;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn found(value: &str) -> ResolvedKey<Secret> {
        ResolvedKey { holder: Secret::default(), value: ByteString(value.into()) }
    }

    /// With everything there but what `change` takes away.
    fn decide(change: impl FnOnce(&mut References)) -> Plan {
        let cluster = Cluster { controller: Arc::new(controller()), slurm_key: Ok(found("slurm")) };
        let mut references =
            References { cluster: Some(cluster), sssd_conf: Ok(found("sssd")), host_keys: Ok(None) };
        change(&mut references);
        plan(&loginset(&json!({})), references)
    }

    fn told<T>(step: Result<T, Obstacle>) -> (String, &'static str) {
        let obstacle = step.err().unwrap();
        (obstacle.to_string(), obstacle.category())
    }

    #[test]
    fn with_everything_there_everything_is_made() {
        let plan = decide(|_| {});
        assert!(plan.service.is_ok() && matches!(plan.host_keys, Ok(HostKeys::Make)));
        assert_eq!(plan.surroundings.ok().unwrap().sssd_conf, hash_bytes(b"sssd"));
    }

    #[rstest]
    #[case::controller(|all: &mut References| all.cluster = None, "Controller slurm does not exist", "ControllerMissing")]
    #[case::slurm_key(
        |all: &mut References| all.cluster.as_mut().unwrap().slurm_key = missing("auth"),
        "Secret auth does not exist",
        "SecretMissing"
    )]
    #[case::sssd_conf(
        |all: &mut References| all.sssd_conf = missing("sssd"), "Secret sssd does not exist", "SecretMissing")]
    fn what_is_missing_stops_the_deployment_alone(
        #[case] change: fn(&mut References),
        #[case] message: &str,
        #[case] category: &str,
    ) {
        let plan = decide(change);
        assert!(plan.service.is_ok() && plan.host_keys.is_ok());
        assert_eq!(told(plan.surroundings), (message.to_owned(), category));
    }

    fn missing(name: &str) -> SecretKey {
        Err(MissingReference::Secret(name.to_owned()).into())
    }

    fn judge_host_keys(metadata: Value, without: &str) -> Result<HostKeys, Obstacle> {
        let files = HOST_KEYS.iter().flat_map(HostKey::files).filter(|file| *file != without);
        let data = files.map(|file| (file.to_owned(), ByteString(b"x".to_vec()))).collect();
        let metadata = serde_json::from_value(metadata).unwrap();
        judge(&loginset(&json!({})), Some(Secret { metadata, data: Some(data), ..Secret::default() }))
    }

    fn owner(uid: &str) -> Value {
        json!([{ "apiVersion": "v1", "kind": "Other", "name": "o", "uid": uid, "controller": true }])
    }

    #[rstest]
    #[case::made_by_us(owner("u"))]
    #[case::brought_from_elsewhere(json!([]))]
    fn host_keys_that_exist_are_kept(#[case] owners: Value) {
        let Ok(HostKeys::Keep(hash)) = judge_host_keys(json!({ "ownerReferences": owners }), "") else {
            panic!("not kept")
        };
        assert_eq!(hash, hash_bytes(b"xxxxxx"));
    }

    #[test]
    fn host_keys_of_somebody_else_are_not_used() {
        let metadata = json!({ "name": "n", "namespace": "ns", "ownerReferences": owner("other") });
        let (message, category) = told(judge_host_keys(metadata, ""));
        assert_eq!(category, "ForeignOwner");
        assert!(message.starts_with("Secret ns/n is controlled by Other o"), "{message}");
    }

    #[test]
    fn a_host_key_that_is_missing_is_named() {
        let (message, category) = told(judge_host_keys(json!({ "name": "n" }), "ssh_host_ecdsa_key.pub"));
        assert_eq!(
            (message.as_str(), category),
            ("Secret n has no key \"ssh_host_ecdsa_key.pub\"", "SecretKeyMissing")
        );
    }

    #[test]
    fn host_keys_that_are_being_deleted_are_neither_used_nor_replaced() {
        let metadata = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert!(matches!(judge_host_keys(metadata, ""), Ok(HostKeys::Await)));
    }
}
