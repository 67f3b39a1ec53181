//! What a Controller depends on: from caches where there are some, by name where there are none.

use crate::build::{Files, check_name};
use crate::controller::Context;
use crate::rollout::Pending;
use crate::status::{confirmed, report_of};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::api::LogParams;
use kube::{Api, Client, ResourceExt};
use operator_runtime::apply::Object;
use operator_runtime::references::{ReferenceError, resolve_key};
use operator_runtime::{RawObject, cached_or_live, find};
use pod_builder::hash_files;
use slinky_api::labels::{APP_INSTANCE, APP_NAME, App, CONTROLLER_ACTIVE};
use slinky_api::names::{self, check_object_name};
use slinky_api::v1beta1::{Accounting, Controller, NodeSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How many lines of a reconfigure container's log are looked at: it writes one for each change and each failure.
const LOG_LINES: i64 = 50;
/// How long a kubelet may take to give it out; one whose node is gone takes for ever.
const LOG_PATIENCE: Duration = Duration::from_secs(3);

/// What there is.
pub struct Observed {
    /// The Accounting of the cluster.
    pub accounting: Option<Arc<Accounting>>,
    /// The NodeSets of the cluster, by name.
    pub node_sets: Vec<Arc<NodeSet>>,
    /// The Secret with the Slurm key.
    pub slurm_key: Result<Secret, Arc<ReferenceError>>,
    /// The Secret with the signing key.
    pub jwt_key: Result<Secret, Arc<ReferenceError>>,
    /// The public keys of other issuers, if any are wanted.
    pub jwks: Result<Option<ByteString>, Arc<ReferenceError>>,
    /// The ConfigMaps that the Controller refers to and that are there.
    pub config_maps: Result<BTreeMap<String, ConfigMap>, Arc<ReferenceError>>,
    /// The claim that several daemons share.
    pub shared_claim: Result<Option<PersistentVolumeClaim>, Arc<ReferenceError>>,
    /// The Service for clients.
    pub service: Option<Arc<RawObject<Service>>>,
    /// The Service that names each daemon.
    pub internal_service: Option<Arc<RawObject<Service>>>,
    /// The configuration in force.
    pub config: Option<Arc<ConfigMap>>,
    /// The StatefulSet.
    pub stateful_set: Option<Arc<RawObject<StatefulSet>>>,
    /// The slurmctld pods, by name.
    pub pods: Vec<Arc<Pod>>,
    /// The ordinal of the active daemon, where there are several and somebody can tell.
    pub active: Option<i32>,
    /// The files that are checked.
    pub candidate: Option<Arc<ConfigMap>>,
    /// The pod that checks them.
    pub check: Option<Arc<Pod>>,
    /// The change that is waiting.
    pub pending: Option<Pending>,
    /// What the reconfigure container of the active daemon says.
    pub report: Option<Report>,
}

/// The last word of a reconfigure container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// slurmctld runs with this configuration.
    Took(String),
    /// slurmctld refused this configuration.
    Refused {
        /// The configuration.
        config: String,
        /// What was said.
        reason: String,
    },
}

impl Observed {
    /// The configuration files in force.
    pub fn files(&self) -> Option<&Files> {
        self.config.as_ref().and_then(|config| config.data.as_ref())
    }

    /// What slurmctld's directory holds if the generated files are these; keys are not counted.
    pub fn etc(&self, controller: &Controller, files: &Files) -> BTreeMap<String, Vec<u8>> {
        let mut etc: BTreeMap<String, Vec<u8>> =
            files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes())).collect();
        for name in controller.spec.config_map_names() {
            let map = self.config_maps.as_ref().ok().and_then(|maps| maps.get(name));
            let texts = map.iter().flat_map(|map| map.data.iter().flatten());
            etc.extend(texts.map(|(name, text)| (name.clone(), text.clone().into_bytes())));
            let bytes = map.iter().flat_map(|map| map.binary_data.iter().flatten());
            etc.extend(bytes.map(|(name, bytes)| (name.clone(), bytes.0.clone())));
        }
        if let Ok(Some(jwks)) = &self.jwks {
            etc.insert("jwks.json".to_owned(), jwks.0.clone());
        }
        etc.retain(|name, _| !has_key_suffix(name));
        etc
    }

    /// The pod of the active daemon, as far as one is known.
    pub fn active_pod(&self) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| pod.labels().contains_key(CONTROLLER_ACTIVE))
    }
}

fn has_key_suffix(name: &str) -> bool {
    std::path::Path::new(name).extension().is_some_and(|extension| extension == "key")
}

/// Looks around.
pub async fn observe(controller: &Controller, context: &Context) -> Result<Observed, kube::Error> {
    let namespace = &controller.namespace().unwrap_or_default();
    let name = controller.name_any();
    let (workload, check) = (names::controller::workload(&name), check_name(&name));
    let spec = &controller.spec;
    let client = || context.scope.client();
    let accounting = spec.accounting_ref.as_ref();
    let slurm_key = resolve_key(client(), namespace, "slurmKeyRef", spec.slurm_key_ref.as_ref());
    let jwt_key = resolve_key(client(), namespace, "jwtKeyRef", spec.signing_key_ref());
    let mut observed = Observed {
        accounting: accounting.and_then(|accounting| find(&context.accountings, namespace, &accounting.name)),
        node_sets: node_sets_of(controller, context),
        slurm_key: slurm_key.await.map(|key| key.holder).map_err(Arc::new),
        jwt_key: jwt_key.await.map(|key| key.holder).map_err(Arc::new),
        jwks: match &spec.jwks_key_ref {
            Some(jwks) => {
                let found = resolve_key(client(), namespace, "jwksKeyRef", Some(jwks)).await;
                found.map(|jwks| Some(jwks.value)).map_err(Arc::new)
            }
            None => Ok(None),
        },
        config_maps: config_maps_of(controller, client(), namespace).await.map_err(Arc::new),
        shared_claim: shared_claim_of(controller, client(), namespace).await.map_err(Arc::new),
        service: find(&context.services, namespace, &workload),
        internal_service: find(&context.services, namespace, &names::controller::internal_service(&name)),
        config: cached_or_live(&context.config_maps, client(), namespace, &names::controller::config(&name))
            .await?,
        stateful_set: cached_or_live(&context.stateful_sets, client(), namespace, &workload).await?,
        pods: pods_of(controller, context),
        active: context.actives.with(controller, |active| *active),
        candidate: find(&context.config_maps, namespace, &check),
        check: find(&context.pods, namespace, &check),
        pending: context.pending.with(controller, |pending| pending.clone()),
        report: None,
    };
    observed.report = report(controller, &observed, client(), namespace).await;
    Ok(observed)
}

fn node_sets_of(controller: &Controller, context: &Context) -> Vec<Arc<NodeSet>> {
    let mut sets = context.node_sets.state();
    sets.retain(|set| {
        set.namespace() == controller.namespace() && set.spec.controller_ref.name == controller.name_any()
    });
    sets.sort_by_key(|set| set.name_any());
    sets
}

fn pods_of(controller: &Controller, context: &Context) -> Vec<Arc<Pod>> {
    let mut pods = context.pods.state();
    pods.retain(|pod| {
        let label = |key| pod.labels().get(key).map(String::as_str);
        pod.namespace() == controller.namespace()
            && label(APP_NAME) == Some(Controller::NAME)
            && label(APP_INSTANCE) == Some(controller.name_any().as_str())
    });
    pods.sort_by_key(|pod| pod.name_any());
    pods
}

async fn config_maps_of(
    controller: &Controller,
    client: Client,
    namespace: &str,
) -> Result<BTreeMap<String, ConfigMap>, ReferenceError> {
    let mut found = BTreeMap::new();
    let names = controller.spec.config_map_names();
    // A name that no object can have is never sent: it would be part of a path.
    for name in names.into_iter().filter(|name| check_object_name(name).is_ok()) {
        if !found.contains_key(name)
            && let Some(map) = read(client.clone(), namespace, name).await?
        {
            found.insert(name.to_owned(), map);
        }
    }
    Ok(found)
}

async fn shared_claim_of(
    controller: &Controller,
    client: Client,
    namespace: &str,
) -> Result<Option<PersistentVolumeClaim>, ReferenceError> {
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    match persistence.existing_claim() {
        Some(claim) if controller.spec.is_highly_available() && check_object_name(claim).is_ok() => {
            read(client, namespace, claim).await
        }
        _ => Ok(None),
    }
}

async fn read<K: Object>(client: Client, namespace: &str, name: &str) -> Result<Option<K>, ReferenceError> {
    let found = Api::namespaced(client, namespace).get_opt(name).await;
    found.map_err(|source| ReferenceError::Unread {
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        source,
    })
}

/// Reads the log of the reconfigure container, only while it is not known what became of the configuration in force.
async fn report(
    controller: &Controller,
    observed: &Observed,
    client: Client,
    namespace: &str,
) -> Option<Report> {
    let config = hash_files(&observed.etc(controller, observed.files()?));
    if !controller.spec.inplace_reconfigure || confirmed(controller, &config) {
        return None;
    }
    let pod = observed.active_pod()?.name_any();
    let parameters = LogParams {
        container: Some("reconfigure".to_owned()),
        tail_lines: Some(LOG_LINES),
        ..LogParams::default()
    };
    // Without a log nobody can tell; that is not an error of the configuration.
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let log = tokio::time::timeout(LOG_PATIENCE, pods.logs(&pod, &parameters)).await.ok()?.ok()?;
    report_of(&log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{config_map, controller, observed, texts};
    use serde_json::json;

    fn bytes(text: &str) -> ByteString {
        ByteString(text.as_bytes().to_vec())
    }

    #[test]
    fn the_directory_is_what_the_volume_mounts() {
        let controller = controller(&json!({
            "jwksKeyRef": { "name": "issuers", "key": "keys" },
            "configFileRefs": [{ "name": "b" }, { "name": "a" }],
            "prologScriptRefs": [{ "name": "c" }],
        }));
        let binary =
            ConfigMap { binary_data: Some([("bin".to_owned(), bytes("01"))].into()), ..config_map(&[]) };
        let config_maps = [
            ("a".to_owned(), config_map(&[("gres.conf", "of a"), ("slurm.key", "a key")])),
            ("b".to_owned(), config_map(&[("gres.conf", "of b"), ("slurm.conf", "theirs")])),
            ("c".to_owned(), binary),
            ("not-meant".to_owned(), config_map(&[("x", "")])),
        ];
        let observed =
            Observed { config_maps: Ok(config_maps.into()), jwks: Ok(Some(bytes("keys"))), ..observed() };
        let etc = observed.etc(&controller, &texts(&[("slurm.conf", "ours"), ("cgroup.conf", "ours")]));
        let seen: Vec<_> =
            etc.iter().map(|(name, text)| (name.as_str(), str::from_utf8(text).unwrap())).collect();
        // Of two files with one name that of the later ConfigMap is there. Keys are nobody's business.
        let expected = [
            ("bin", "01"),
            ("cgroup.conf", "ours"),
            ("gres.conf", "of b"),
            ("jwks.json", "keys"),
            ("slurm.conf", "theirs"),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_configuration_has_the_name_that_the_reconfigure_container_gives_it() {
        let etc =
            observed().etc(&controller(&json!({})), &texts(&[("slurm.conf", "A=1\n"), ("cgroup.conf", "")]));
        // printf 'A=1\n' > slurm.conf; : > cgroup.conf; sha256sum cgroup.conf slurm.conf | sha256sum
        assert_eq!(hash_files(&etc), "944488fac3f915fbcb7a540c23d2a790f3e8b6681c54503ec216de6246971b4f");
    }
}
