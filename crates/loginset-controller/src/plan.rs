//! Decides the desired children of a LoginSet. Pure.

mod pod_names;

pub use pod_names::PodLabel;

use crate::build::{
    AUTHORIZED_KEYS, Hashes, SSHD_CONFIG, build_config, build_deployment, build_host_keys, build_service,
};
use crate::host_keys::{HOST_KEYS, HostKey};
use crate::observe::{Cluster, Observed};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use operator_runtime::events::{EventType, NewEvent};
use operator_runtime::{MissingReference, RawObject, apply, secret_value};
use pod_builder::{hash_bytes, hash_secret};
use pod_names::missing_labels;
use slinky_api::ownership::{Control, control_of};
use std::sync::Arc;

/// Why a child is not written. The specific obstacle is a Secret that another owner controls.
pub type Obstacle = operator_runtime::Obstacle<apply::Error>;

/// The desired children. An obstacle to one does not affect the others, except that pods need host keys.
pub struct Plan {
    /// The ConfigMap with `sshd_config`.
    pub config: ConfigMap,
    /// The Service.
    pub service: Result<RawObject<Service>, Obstacle>,
    /// What is done with the ssh host keys.
    pub host_keys: Result<HostKeys, Obstacle>,
    /// The Deployment; `None` while there are no usable host keys: its template has their hash.
    pub deployment: Result<Option<RawObject<Deployment>>, Obstacle>,
    /// The labels to add to pods.
    pub pod_labels: Vec<PodLabel>,
}

/// What is done with the ssh host keys. Existing ones are never changed: ssh clients remember their fingerprints.
#[derive(Debug)]
pub enum HostKeys {
    /// They do not exist and are created. The watch event of their Secret enqueues the LoginSet, and the next plan has
    /// the Deployment.
    Create(Box<NewHostKeys>),
    /// They exist, created by this controller or by a user, and have this hash.
    Keep(String),
    /// Their Secret is being deleted. Its deletion event enqueues the LoginSet.
    Await,
}

/// Host keys to be generated.
#[derive(Debug)]
pub struct NewHostKeys {
    /// The Secret, without its files.
    pub secret: Secret,
    /// Published if the new keys replace others.
    pub event: Option<NewEvent>,
}

/// Decides the desired children.
pub fn plan(observed: &Observed) -> Plan {
    let config = build_config(&observed.loginset);
    let host_keys = plan_host_keys(observed);
    let deployment = plan_deployment(observed, &config, host_keys.as_ref().ok());
    let service = build_service(&observed.loginset).map_err(Obstacle::invalid);
    let pod_labels = missing_labels(&observed.loginset, observed.pods.iter().map(Arc::as_ref));
    Plan { config, service, host_keys, deployment, pod_labels }
}

/// Host keys without a controller are a user's own, and are used as they are.
fn plan_host_keys(observed: &Observed) -> Result<HostKeys, Obstacle> {
    let loginset = observed.loginset.as_ref();
    let Some(secret) = observed.host_keys.as_ref().map_err(Arc::clone)? else {
        let event = observed.deployment.is_some().then(host_keys_replaced);
        return Ok(HostKeys::Create(Box::new(NewHostKeys { secret: build_host_keys(loginset), event })));
    };
    let name = secret.name_any();
    if let Control::Foreign(owner) = control_of(&secret.metadata, loginset) {
        let object = format!("Secret {}/{name}", secret.namespace().unwrap_or_default());
        let owner = Some(Box::new(owner.clone()));
        return Err(Obstacle::Specific(apply::Error::Foreign { object, owner }));
    }
    if secret.metadata.deletion_timestamp.is_some() {
        return Ok(HostKeys::Await);
    }
    for file in HOST_KEYS.iter().flat_map(HostKey::files) {
        secret_value(Some(secret), &name, file)?;
    }
    Ok(HostKeys::Keep(hash_secret(secret)))
}

/// The warning that running pods have other keys than those just created. The kubelet caches an immutable Secret until
/// no pod of its node refers to its name: a pod that starts earlier gets the old keys.
fn host_keys_replaced() -> NewEvent {
    NewEvent {
        type_: EventType::Warning,
        reason: "HostKeysReplaced".to_owned(),
        action: "Create".to_owned(),
        note: "New ssh host keys were created, but a node mounts the old ones as long as it has a pod with them: scale \
               to 0, and back when all pods are deleted"
            .to_owned(),
        related: None,
    }
}

fn plan_deployment(
    observed: &Observed,
    config: &ConfigMap,
    host_keys: Option<&HostKeys>,
) -> Result<Option<RawObject<Deployment>>, Obstacle> {
    let loginset = observed.loginset.as_ref();
    let Some(Cluster { controller, slurm_key }) = &observed.cluster else {
        return Err(MissingReference::Controller(loginset.spec.controller_ref.name.clone()).into());
    };
    // Pods could not start without either.
    let slurm_key = slurm_key.as_ref().map_err(Arc::clone)?;
    let sssd_conf = observed.sssd_conf.as_ref().map_err(Arc::clone)?;
    let Some(HostKeys::Keep(host_keys)) = host_keys else { return Ok(None) };
    // An immutable ConfigMap keeps its files.
    let live_config = observed.config.as_deref().filter(|live| live.immutable == Some(true));
    let config = live_config.unwrap_or(config);
    let keys = hash_file(config, AUTHORIZED_KEYS) + &hash_bytes(&slurm_key.value.0);
    let hashes = Hashes {
        host_keys: host_keys.clone(),
        sshd_conf: hash_file(config, SSHD_CONFIG),
        sssd_conf: hash_bytes(&sssd_conf.value.0),
        content: hash_bytes(keys.as_bytes()),
    };
    let live = observed.deployment.as_deref();
    build_deployment(loginset, controller, hashes, &observed.cluster_domain, live)
        .map(Some)
        .map_err(Obstacle::invalid)
}

fn hash_file(config: &ConfigMap, name: &str) -> String {
    let text = config.data.as_ref().and_then(|data| data.get(name));
    hash_bytes(text.map(String::as_bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{controller, loginset};
    use crate::observe::SecretKey;
    use k8s_openapi::ByteString;
    use operator_runtime::Classify;
    use operator_runtime::references::ResolvedKey;
    use rstest::rstest;
    use serde_json::{Value, json};
    use slinky_api::labels::annotations::{SSH_HOST_KEYS_HASH, SSHD_CONF_HASH, SSSD_CONF_HASH};

    fn resolved(value: &str) -> ResolvedKey<Secret> {
        ResolvedKey { holder: Secret::default(), value: ByteString(value.into()) }
    }

    fn missing(name: &str) -> SecretKey {
        Err(Arc::new(MissingReference::Secret(name.to_owned()).into()))
    }

    /// A Secret with all host keys but `without`.
    fn host_keys(metadata: Value, without: &str) -> Secret {
        let files = HOST_KEYS.iter().flat_map(HostKey::files).filter(|file| *file != without);
        let data = files.map(|file| (file.to_owned(), ByteString(b"x".to_vec()))).collect();
        Secret { metadata: serde_json::from_value(metadata).unwrap(), data: Some(data), ..Secret::default() }
    }

    /// All references resolve; there are host keys, but no other children.
    fn observed(change: impl FnOnce(&mut Observed)) -> Observed {
        let cluster = Cluster { controller: Arc::new(controller()), slurm_key: Ok(resolved("slurm")) };
        let mut observed = Observed {
            loginset: Arc::new(loginset(&json!({}))),
            cluster_domain: "cluster.test".to_owned(),
            cluster: Some(cluster),
            sssd_conf: Ok(resolved("sssd")),
            host_keys: Ok(Some(host_keys(json!({}), ""))),
            config: None,
            service: None,
            deployment: None,
            pods: vec![],
        };
        change(&mut observed);
        observed
    }

    fn plan_with(change: impl FnOnce(&mut Observed)) -> Plan {
        plan(&observed(change))
    }

    fn report<T>(step: Result<T, Obstacle>) -> (String, &'static str) {
        let obstacle = step.err().unwrap();
        (obstacle.to_string(), obstacle.category())
    }

    fn template_hash(plan: Plan, annotation: &str) -> String {
        let deployment = plan.deployment.ok().flatten().unwrap();
        deployment.as_json()["spec"]["template"]["metadata"]["annotations"][annotation]
            .as_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn deployment_has_the_hashes_of_the_files_that_its_pods_mount() {
        let hash = |annotation| template_hash(plan_with(|_| {}), annotation);
        assert_eq!(hash(SSSD_CONF_HASH), hash_bytes(b"sssd"));
        assert_eq!(hash(SSH_HOST_KEYS_HASH), hash_bytes(b"xxxxxx"));
        assert_eq!(hash(SSHD_CONF_HASH), hash_file(&build_config(&loginset(&json!({}))), SSHD_CONFIG));
    }

    #[test]
    fn immutable_config_map_is_hashed_as_it_is() {
        let plan = plan_with(|observed| {
            let mut live = build_config(&observed.loginset);
            live.data.as_mut().unwrap().insert(SSHD_CONFIG.to_owned(), "Port 2222".to_owned());
            live.immutable = Some(true);
            observed.config = Some(Arc::new(live));
        });
        assert_eq!(template_hash(plan, SSHD_CONF_HASH), hash_bytes(b"Port 2222"));
    }

    #[rstest]
    #[case::controller(|all: &mut Observed| all.cluster = None, "Controller slurm does not exist", "ControllerMissing")]
    #[case::slurm_key(
        |all: &mut Observed| all.cluster.as_mut().unwrap().slurm_key = missing("auth"),
        "Secret auth does not exist",
        "SecretMissing"
    )]
    #[case::sssd_conf(
        |all: &mut Observed| all.sssd_conf = missing("sssd"), "Secret sssd does not exist", "SecretMissing")]
    fn missing_reference_stops_only_the_deployment(
        #[case] change: fn(&mut Observed),
        #[case] message: &str,
        #[case] category: &str,
    ) {
        let plan = plan_with(change);
        assert!(plan.service.is_ok() && plan.host_keys.is_ok());
        assert_eq!(report(plan.deployment), (message.to_owned(), category));
    }

    #[test]
    fn missing_host_keys_are_created_before_the_deployment() {
        let plan = plan_with(|observed| observed.host_keys = Ok(None));
        assert!(matches!(plan.host_keys, Ok(HostKeys::Create(keys)) if keys.event.is_none()));
        assert!(matches!(plan.deployment, Ok(None)));
    }

    #[test]
    fn host_keys_created_beside_a_deployment_are_announced() {
        let plan = plan_with(|observed| {
            observed.host_keys = Ok(None);
            let spec = json!({ "selector": {}, "template": {} });
            observed.deployment = Some(Arc::new(RawObject::new(json!({ "spec": spec })).unwrap()));
        });
        let Ok(HostKeys::Create(keys)) = plan.host_keys else { panic!("not created") };
        assert_eq!(keys.event.unwrap().reason, "HostKeysReplaced");
    }

    fn plan_of_host_keys(metadata: Value, without: &str) -> Result<HostKeys, Obstacle> {
        plan_with(|observed| observed.host_keys = Ok(Some(host_keys(metadata, without)))).host_keys
    }

    fn owner(uid: &str) -> Value {
        json!([{ "apiVersion": "v1", "kind": "Other", "name": "o", "uid": uid, "controller": true }])
    }

    #[rstest]
    #[case::created_by_this_controller(owner("u"))]
    #[case::created_by_a_user(json!([]))]
    fn existing_host_keys_are_kept(#[case] owners: Value) {
        let Ok(HostKeys::Keep(hash)) = plan_of_host_keys(json!({ "ownerReferences": owners }), "") else {
            panic!("not kept")
        };
        assert_eq!(hash, hash_bytes(b"xxxxxx"));
    }

    #[test]
    fn host_keys_controlled_by_another_owner_are_not_used() {
        let metadata = json!({ "name": "n", "namespace": "ns", "ownerReferences": owner("other") });
        let (message, category) = report(plan_of_host_keys(metadata, ""));
        assert_eq!(category, "ForeignOwner");
        assert!(message.starts_with("Secret ns/n is controlled by Other o"), "{message}");
    }

    #[test]
    fn missing_host_key_file_is_named() {
        let (message, category) = report(plan_of_host_keys(json!({ "name": "n" }), "ssh_host_ecdsa_key.pub"));
        assert_eq!(
            (message.as_str(), category),
            ("Secret n has no key \"ssh_host_ecdsa_key.pub\"", "SecretKeyMissing")
        );
    }

    #[test]
    fn terminating_host_keys_are_neither_used_nor_replaced() {
        let metadata = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let plan = plan_with(|observed| observed.host_keys = Ok(Some(host_keys(metadata, ""))));
        assert!(matches!(plan.host_keys, Ok(HostKeys::Await)));
        assert!(matches!(plan.deployment, Ok(None)));
    }
}
