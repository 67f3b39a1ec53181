//! Reads everything that decisions about a NodeSet depend on into one value, [`Observed`], before anything is decided.

mod queries;
mod read;
mod sources;

#[cfg(test)]
pub use queries::needs_job_records;
pub use queries::{
    is_partition_defined_elsewhere, is_partition_unwanted, is_update_scheduled, needs_reservations,
    owns_reservation,
};
pub use read::{observe, observe_live};
pub use sources::Sources;

use crate::node_facts::Nodes;
use crate::pod_backoff::{RetryDelays, RetryTimes};
use crate::slurm::View;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use operator_runtime::RawObject;
use operator_runtime::references::ReferenceError;
use slinky_api::conditions::PROGRESSING;
use slinky_api::v1beta1::{Controller, NodeSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Everything that a decision about a NodeSet may depend on, besides the time.
pub struct Observed {
    /// The NodeSet.
    pub nodeset: Arc<NodeSet>,
    /// The Controller of its Slurm cluster; `None` if it does not exist.
    pub controller: Option<Arc<Controller>>,
    /// All NodeSets of that Controller in the order of their names, this one included.
    pub siblings: Vec<Arc<NodeSet>>,
    /// Pods that have its labels or its controller reference.
    pub pods: Vec<Arc<Pod>>,
    /// Its revisions: those that it controls, and orphans with its labels. Besides, revisions of other owners whose name
    /// has the same prefix, because a new name must differ from theirs.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The PersistentVolumeClaims of its pods, by name; empty without claim templates.
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// The Service that the workers of the cluster share.
    pub service: Option<Arc<RawObject<Service>>>,
    /// The disruption budget that the workers of the cluster share.
    pub pdb: Option<Arc<PodDisruptionBudget>>,
    /// The ConfigMap with the sshd configuration.
    pub ssh_config: Option<Arc<ConfigMap>>,
    /// All Kubernetes nodes, by name.
    pub nodes: Arc<Nodes>,
    /// The Slurm cluster.
    pub slurm: View,
    /// Time since the last successful list of Slurm nodes.
    pub unreachable_for: Duration,
    /// Hash of the sssd.conf of its workers; that of an empty file without ssh.
    pub sssd_conf: Result<String, Arc<ReferenceError>>,
    /// The DNS domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// Types of node conditions that explain a cordon.
    pub propagated_conditions: Arc<[String]>,
    /// The earliest time at which each failed pod may be replaced, by pod name.
    pub retry_times: RetryTimes,
    /// How long after its creation each pod that replaces a failed one may be replaced, by pod name.
    pub retry_delays: RetryDelays,
}

/// Reason of the `SlurmReachable` condition before the first answer of Slurm was due.
pub const NOT_POLLED_YET: &str = "NotAskedYet";
/// Reason of the Progressing condition while worker pods are created.
pub const CREATING: &str = "Creating";

impl Observed {
    /// Whether the status shows that the creation of worker pods for this generation was announced already.
    pub fn is_creating(&self) -> bool {
        let conditions = self.nodeset.status.iter().flat_map(|status| &status.conditions);
        let mut progressing = conditions.filter(|condition| condition.type_ == PROGRESSING);
        progressing.any(|condition| {
            condition.reason == CREATING && condition.observed_generation == self.nodeset.metadata.generation
        })
    }
}
