//! Reads everything that decisions about a Controller depend on: from caches where there are some, by name otherwise.

mod crash;
mod report;

pub use crash::CrashLoop;
pub use report::Report;

use crate::active::{ActiveDaemons, Poll};
use crate::build::{
    Configuration, Contents, Files, Reconfiguration, RefusedNodeSets, ServiceMonitor, check_name,
    mounts_user_files, wants_service_monitor,
};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::runtime::reflector::Store;
use kube::{Api, Client, ResourceExt};
use operator_runtime::apply::Object;
use operator_runtime::references::{ReferenceError, resolve_key};
use operator_runtime::{PerObject, RawObject, cached_or_live, find};
use slinky_api::labels::{APP_INSTANCE, APP_NAME, App, CONTROLLER_ACTIVE, annotations};
use slinky_api::names::{check_object_name, controller as names};
use slinky_api::v1beta1::{Accounting, Controller, NodeSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The sources of [`observe`]: the API server, caches, state of this process and settings.
pub struct Sources {
    /// Reads objects that no cache holds.
    pub client: Client,
    /// The Accountings that Controllers refer to.
    pub accountings: Store<Accounting>,
    /// The NodeSets that refer to Controllers.
    pub node_sets: Store<NodeSet>,
    /// The Services of slurmctld.
    pub services: Store<RawObject<Service>>,
    /// The ConfigMaps that this controller creates.
    pub config_maps: Store<ConfigMap>,
    /// The StatefulSets of slurmctld.
    pub stateful_sets: Store<RawObject<StatefulSet>>,
    /// The pods of slurmctld and the check pods.
    pub pods: Store<Pod>,
    /// The active daemon of each Controller with standby daemons.
    pub active_daemons: ActiveDaemons,
    /// The configuration change of each Controller that has not taken effect yet.
    pub pending: PerObject<Option<PendingChange>>,
    /// The NodeSets of each Controller that slurmctld refused, or may have refused.
    pub refusals: PerObject<RefusedNodeSets>,
    /// How long a configuration change waits for further changes.
    pub reconfigure_delay: Duration,
}

/// A configuration change that has not taken effect yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingChange {
    /// Hash of the configuration and of the pod template that would run with it.
    pub id: String,
    /// Time of the first change since the configuration in force was written.
    pub first: Timestamp,
    /// Time of the latest change.
    pub last: Timestamp,
    /// The API server's reason for rejecting the check pod, if it did.
    pub check_rejection: Option<String>,
}

/// Everything that decisions about a Controller depend on, besides the time.
pub struct Observed {
    /// The Controller.
    pub controller: Arc<Controller>,
    /// How long a configuration change waits for further changes.
    pub reconfigure_delay: Duration,
    /// The Accounting of the cluster.
    pub accounting: Option<Arc<Accounting>>,
    /// The NodeSets of the cluster, by name.
    pub node_sets: Vec<Arc<NodeSet>>,
    /// The Secret with the Slurm key.
    pub slurm_key: Result<Secret, Arc<ReferenceError>>,
    /// The Secret with the signing key.
    pub jwt_key: Result<Secret, Arc<ReferenceError>>,
    /// The public keys of other issuers, if the spec refers to any.
    pub jwks: Result<Option<ByteString>, Arc<ReferenceError>>,
    /// The ConfigMaps that the Controller refers to and that exist.
    pub config_maps: Result<BTreeMap<String, ConfigMap>, Arc<ReferenceError>>,
    /// The PersistentVolumeClaim that several daemons share.
    pub shared_claim: Result<Option<PersistentVolumeClaim>, Arc<ReferenceError>>,
    /// The Service for clients.
    pub service: Option<Arc<RawObject<Service>>>,
    /// The headless Service that gives each daemon its name.
    pub internal_service: Option<Arc<RawObject<Service>>>,
    /// The ConfigMap with the configuration in force.
    pub config: Option<Arc<ConfigMap>>,
    /// The StatefulSet.
    pub stateful_set: Option<Arc<RawObject<StatefulSet>>>,
    /// The slurmctld pods, by name.
    pub pods: Vec<Arc<Pod>>,
    /// The answers of the daemons, where there are several.
    pub poll: Poll,
    /// The ConfigMap with the files of the check pod.
    pub candidate: Option<Arc<ConfigMap>>,
    /// The check pod.
    pub check: Option<Arc<Pod>>,
    /// The configuration change that has not taken effect yet.
    pub pending: Option<PendingChange>,
    /// The NodeSets that slurmctld refused, or may have refused.
    pub refusals: RefusedNodeSets,
    /// The latest report of the active daemon's reconfigure container; read only while it is needed.
    pub report: Option<Report>,
    /// A container of a slurmctld pod that ends again and again.
    pub crash_loop: Option<CrashLoop>,
    /// The live ServiceMonitor; read only if the spec wants none.
    pub service_monitor: Result<Option<ServiceMonitor>, Arc<ReferenceError>>,
}

impl Observed {
    /// The texts of the configuration in force.
    pub fn files(&self) -> Option<&Files> {
        self.config.as_ref().and_then(|config| config.data.as_ref())
    }

    /// The user's files, as they are now. Of two with the same name the later one wins.
    pub fn user_files(&self) -> Contents {
        let mut files = Contents::new();
        for name in self.controller.spec.config_map_names() {
            let map = self.config_maps.as_ref().ok().and_then(|maps| maps.get(name));
            let texts = map.iter().flat_map(|map| map.data.iter().flatten());
            files.extend(texts.map(|(name, text)| (name.clone(), text.clone().into_bytes())));
            let bytes = map.iter().flat_map(|map| map.binary_data.iter().flatten());
            files.extend(bytes.map(|(name, bytes)| (name.clone(), bytes.0.clone())));
        }
        if let Ok(Some(jwks)) = &self.jwks {
            files.insert("jwks.json".to_owned(), jwks.0.clone());
        }
        files
    }

    /// The configuration in force.
    pub fn in_force(&self) -> Option<Configuration> {
        let user = self.user_files();
        let in_force = Configuration::of(self.config.as_ref()?, &user);
        // Without copies, pods that mount the user's files have these in force.
        let has_copies = !in_force.user.is_empty() || !self.mounts_user_files();
        Some(if has_copies { in_force } else { Configuration::new(in_force.generated, user) })
    }

    /// True if the pods mount the user's files from the user's objects, where edits reach slurmctld unchecked.
    pub fn mounts_user_files(&self) -> bool {
        self.stateful_set.as_ref().is_some_and(|set| mounts_user_files(&self.controller, set))
    }

    /// The pod that has the label of the active daemon.
    pub fn active_pod(&self) -> Option<&Arc<Pod>> {
        self.pods.iter().find(|pod| pod.labels().contains_key(CONTROLLER_ACTIVE))
    }

    /// The recorded progress of the configuration of this hash, if it is in force.
    pub fn reconfiguration(&self, hash: &str) -> Option<Reconfiguration> {
        Reconfiguration::of(self.config.as_ref()?).filter(|record| record.config == hash)
    }

    /// True if slurmctld confirmed that it runs with the configuration of this hash.
    pub fn is_confirmed(&self, hash: &str) -> bool {
        self.reconfiguration(hash).is_some_and(|record| record.awaited_since.is_none())
    }

    /// Why no check accepted the configuration of this hash, if it is in force unchecked.
    pub fn unchecked(&self, hash: &str) -> Option<&str> {
        let record = self.config.as_ref()?.annotations().get(annotations::UNCHECKED_CONFIG)?;
        record.split_once(' ').filter(|(config, _)| *config == hash).map(|(_, reason)| reason)
    }

    /// Since when slurmctld has been expected to read the configuration of this hash.
    pub fn awaited_since(&self, hash: &str) -> Option<Timestamp> {
        self.reconfiguration(hash)?.awaited_since
    }
}

/// Reads the state of one Controller. An error means that the caches lack a child and the API server did not answer.
pub async fn observe(controller: &Arc<Controller>, sources: &Sources) -> Result<Observed, kube::Error> {
    let namespace = &controller.namespace().unwrap_or_default();
    let name = controller.name_any();
    let (workload, check) = (names::workload(&name), check_name(&name));
    let spec = &controller.spec;
    let client = || sources.client.clone();
    let accounting = spec.accounting_ref.as_ref();
    let slurm_key = resolve_key(client(), namespace, "slurmKeyRef", spec.slurm_key_ref.as_ref());
    let jwt_key = resolve_key(client(), namespace, "jwtKeyRef", spec.signing_key_ref());
    let mut observed = Observed {
        controller: controller.clone(),
        reconfigure_delay: sources.reconfigure_delay,
        accounting: accounting.and_then(|accounting| find(&sources.accountings, namespace, &accounting.name)),
        node_sets: list_node_sets(controller, &sources.node_sets),
        slurm_key: slurm_key.await.map(|key| key.holder).map_err(Arc::new),
        jwt_key: jwt_key.await.map(|key| key.holder).map_err(Arc::new),
        jwks: match &spec.jwks_key_ref {
            Some(jwks) => {
                let found = resolve_key(client(), namespace, "jwksKeyRef", Some(jwks)).await;
                found.map(|jwks| Some(jwks.value)).map_err(Arc::new)
            }
            None => Ok(None),
        },
        config_maps: get_config_maps(controller, client(), namespace).await.map_err(Arc::new),
        shared_claim: get_shared_claim(controller, client(), namespace).await.map_err(Arc::new),
        service: find(&sources.services, namespace, &workload),
        internal_service: find(&sources.services, namespace, &names::internal_service(&name)),
        config: cached_or_live(&sources.config_maps, client(), namespace, &names::config(&name)).await?,
        stateful_set: cached_or_live(&sources.stateful_sets, client(), namespace, &workload).await?,
        pods: list_pods(controller, &sources.pods),
        poll: sources.active_daemons.with(controller.as_ref(), |poll| poll.clone()),
        candidate: find(&sources.config_maps, namespace, &check),
        check: find(&sources.pods, namespace, &check),
        pending: sources.pending.with(controller.as_ref(), |pending| pending.clone()),
        refusals: sources.refusals.with(controller.as_ref(), |refusals| refusals.clone()),
        report: None,
        crash_loop: None,
        service_monitor: get_service_monitor(controller, client(), namespace).await.map_err(Arc::new),
    };
    if let Some(pod) = awaited_pod(&observed) {
        observed.report = report::get_report(client(), namespace, &pod).await;
    }
    observed.crash_loop = crash::get_crash_loop(client(), namespace, &observed.pods).await;
    Ok(observed)
}

fn list_node_sets(controller: &Controller, node_sets: &Store<NodeSet>) -> Vec<Arc<NodeSet>> {
    let mut sets = node_sets.state();
    sets.retain(|set| {
        set.namespace() == controller.namespace() && set.spec.controller_ref.name == controller.name_any()
    });
    sets.sort_by_key(|set| set.name_any());
    sets
}

fn list_pods(controller: &Controller, pods: &Store<Pod>) -> Vec<Arc<Pod>> {
    let mut pods = pods.state();
    pods.retain(|pod| {
        let label = |key| pod.labels().get(key).map(String::as_str);
        pod.namespace() == controller.namespace()
            && label(APP_NAME) == Some(Controller::NAME)
            && label(APP_INSTANCE) == Some(controller.name_any().as_str())
    });
    pods.sort_by_key(|pod| pod.name_any());
    pods
}

async fn get_config_maps(
    controller: &Controller,
    client: Client,
    namespace: &str,
) -> Result<BTreeMap<String, ConfigMap>, ReferenceError> {
    let mut found = BTreeMap::new();
    let names = controller.spec.config_map_names();
    // An invalid object name is never sent: it would become part of the request path.
    for name in names.into_iter().filter(|name| check_object_name(name).is_ok()) {
        if !found.contains_key(name)
            && let Some(map) = get::<ConfigMap>(client.clone(), namespace, name).await?
        {
            found.insert(name.to_owned(), map);
        }
    }
    Ok(found)
}

async fn get_shared_claim(
    controller: &Controller,
    client: Client,
    namespace: &str,
) -> Result<Option<PersistentVolumeClaim>, ReferenceError> {
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    match persistence.existing_claim() {
        Some(claim) if controller.spec.is_highly_available() && check_object_name(claim).is_ok() => {
            get(client, namespace, claim).await
        }
        _ => Ok(None),
    }
}

/// A ServiceMonitor that the spec does not want any more. It has no cache, because its CRD may not be installed.
async fn get_service_monitor(
    controller: &Controller,
    client: Client,
    namespace: &str,
) -> Result<Option<ServiceMonitor>, ReferenceError> {
    if wants_service_monitor(controller) {
        return Ok(None);
    }
    get(client, namespace, &names::workload(&controller.name_any())).await
}

/// Gets an object by name; `None` if it does not exist, or if its kind is not installed: the API server answers that
/// with a 404 without a reason.
async fn get<K: Object>(client: Client, namespace: &str, name: &str) -> Result<Option<K>, ReferenceError> {
    const NOT_FOUND: u16 = 404;
    match Api::namespaced(client, namespace).get(name).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(None),
        Err(source) => {
            Err(ReferenceError::Unread { kind: K::kind(&()).into_owned(), name: name.to_owned(), source })
        }
    }
}

/// The pod whose reconfigure container is expected to report about the configuration in force.
fn awaited_pod(observed: &Observed) -> Option<String> {
    let hash = observed.in_force()?.hash();
    if !observed.controller.spec.inplace_reconfigure || observed.is_confirmed(&hash) {
        return None;
    }
    Some(observed.active_pod()?.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{config_map, contents, observed};
    use serde_json::json;

    fn bytes(text: &str) -> ByteString {
        ByteString(text.as_bytes().to_vec())
    }

    #[test]
    fn user_files_are_those_of_all_references() {
        let change = json!({
            "jwksKeyRef": { "name": "issuers", "key": "keys" },
            "configFileRefs": [{ "name": "b" }, { "name": "a" }],
            "prologScriptRefs": [{ "name": "c" }],
        });
        let binary =
            ConfigMap { binary_data: Some([("bin".to_owned(), bytes("01"))].into()), ..config_map(&[]) };
        let config_maps = [
            ("a".to_owned(), config_map(&[("gres.conf", "of a")])),
            ("b".to_owned(), config_map(&[("gres.conf", "of b"), ("slurm.conf", "theirs")])),
            ("c".to_owned(), binary),
            ("unreferenced".to_owned(), config_map(&[("x", "")])),
        ];
        let observed = Observed {
            config_maps: Ok(config_maps.into()),
            jwks: Ok(Some(bytes("keys"))),
            ..observed(&change)
        };
        let expected =
            [("bin", "01"), ("gres.conf", "of b"), ("jwks.json", "keys"), ("slurm.conf", "theirs")];
        assert_eq!(observed.user_files(), contents(&expected), "the later ConfigMap wins");
    }
}
