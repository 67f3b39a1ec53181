//! What a reconcile works with: caches, clients, and what is remembered of each NodeSet.

use crate::announce::Announced;
use crate::cache::{LivePods, NodeCache, PodCache, SecretHashes};
use crate::execute::Edges;
use crate::pod_backoff::PodBackoff;
use crate::slurm::Clusters;
use crate::status::EffectsState;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, ResourceExt};
use operator_runtime::{ObjectKey, PerObject, RawObject};
use slinky_api::v1beta1::{Controller, NodeSet};
use std::sync::Arc;
use std::time::Duration;

/// What there is, and the ways to change it.
pub struct World {
    /// The NodeSets.
    pub nodesets: Store<NodeSet>,
    /// The Controllers that they refer to.
    pub controllers: Store<Controller>,
    /// Their pods.
    pub pods: PodCache,
    /// Their pods, read live.
    pub fresh_pods: LivePods,
    /// The Kubernetes nodes.
    pub nodes: NodeCache,
    /// Their revisions, and those of others without content.
    pub revisions: Store<ControllerRevision>,
    /// The claims of their pods.
    pub claims: Store<PersistentVolumeClaim>,
    /// The Service that workers share.
    pub services: Store<RawObject<Service>>,
    /// The disruption budgets that workers share.
    pub budgets: Store<PodDisruptionBudget>,
    /// The ConfigMaps of their sshd.
    pub configs: Store<ConfigMap>,
    /// The Secrets of their sssd.
    pub secret_hashes: SecretHashes,
    /// The Slurm clusters.
    pub clusters: Clusters,
    /// For reads.
    pub client: Client,
    /// For effects.
    pub edges: Edges,
    /// What is remembered of each NodeSet.
    pub memory: PerObject<Memory>,
    /// The domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// Types of conditions of Kubernetes nodes that explain a cordon.
    pub propagated_conditions: Arc<[String]>,
}

impl World {
    /// Whether a NodeSet is gone, and not only changed.
    pub fn is_gone(&self, nodeset: &NodeSet) -> bool {
        let found = self.nodesets.get(&ObjectRef::from_obj(nodeset));
        found.is_none_or(|found| found.uid() != nodeset.uid())
    }

    /// Drops what is remembered of a NodeSet if it is gone; whether it is. What is remembered of a successor of the same
    /// name stays.
    pub fn forget_gone(&self, nodeset: &NodeSet) -> bool {
        let is_gone = self.is_gone(nodeset);
        if is_gone {
            self.edges.bases.forget(&nodeset.uid().unwrap_or_default());
            if self.nodesets.get(&ObjectRef::from_obj(nodeset)).is_none() {
                self.memory.forget(&ObjectKey::of(nodeset));
            }
        }
        is_gone
    }
}

/// What is remembered of a NodeSet.
#[derive(Default)]
pub struct Memory {
    /// Whether work for it is under way.
    pub busy: bool,
    /// What the last work came to.
    pub effects: EffectsState,
    /// When the last pass over it ended.
    pub passed: Option<Timestamp>,
    /// When its status was written last.
    pub status_written: Option<Timestamp>,
    /// What was told of it as Events and is not done yet.
    pub announced: Announced,
    /// Backoff of its failing pods.
    pub pod_backoff: PodBackoff,
}

/// What is left of a pause since then. Nobody waits for a clock that was set back.
pub fn left_of(pause: Duration, since: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let age = Duration::try_from(now.duration_since(since?)).ok()?;
    pause.checked_sub(age).filter(|left| !left.is_zero())
}
