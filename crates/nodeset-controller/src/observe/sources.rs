//! What observations are read from: the caches of one scope, the Slurm clusters, and a client for live reads.

use crate::cache::{ByNodeSet, LivePods, NodeCache, PodCache, SecretHashes};
use crate::pod_backoff::PodBackoff;
use crate::slurm::Clusters;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, ResourceExt};
use operator_runtime::{PerObject, RawObject};
use slinky_api::v1beta1::{Controller, NodeSet};
use std::sync::Arc;

/// What observations are read from.
pub struct Sources {
    /// All NodeSets.
    pub nodesets: Store<NodeSet>,
    /// All Controllers.
    pub controllers: Store<Controller>,
    /// The worker pods of the NodeSets that this replica owns, and maybe others.
    pub pods: PodCache,
    /// Worker pods, listed live.
    pub live_pods: LivePods,
    /// All Kubernetes nodes.
    pub nodes: NodeCache,
    /// All ControllerRevisions; those of other owners without their data.
    pub revisions: ByNodeSet<ControllerRevision>,
    /// The PersistentVolumeClaims of worker pods.
    pub claims: ByNodeSet<PersistentVolumeClaim>,
    /// All Services, among them the one that the workers of a cluster share.
    pub services: Store<RawObject<Service>>,
    /// All disruption budgets, among them the one that the workers of a cluster share.
    pub pdbs: Store<PodDisruptionBudget>,
    /// The ConfigMaps with the sshd configuration of workers.
    pub ssh_configs: Store<ConfigMap>,
    /// Hashes of the sssd.conf Secrets.
    pub secret_hashes: SecretHashes,
    /// The Slurm clusters.
    pub clusters: Clusters,
    /// For live reads.
    pub client: Client,
    /// Backoff of failing pods, per NodeSet.
    pub pod_backoff: PerObject<PodBackoff>,
    /// The DNS domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// Types of node conditions that explain a cordon.
    pub propagated_conditions: Arc<[String]>,
}

impl Sources {
    /// Whether the cache holds no NodeSet with this UID.
    pub fn is_deleted(&self, nodeset: &NodeSet) -> bool {
        let cached = self.nodesets.get(&ObjectRef::from_obj(nodeset));
        cached.is_none_or(|cached| cached.uid() != nodeset.uid())
    }

    /// Whether the cache holds no NodeSet with this name, so that state kept by name belongs to no successor either.
    pub fn is_name_free(&self, nodeset: &NodeSet) -> bool {
        self.nodesets.get(&ObjectRef::from_obj(nodeset)).is_none()
    }
}
