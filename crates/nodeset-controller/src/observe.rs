//! What decisions about a NodeSet depend on: one value, read before anything is decided.

mod queries;
mod read;

#[cfg(test)]
pub use queries::needs_job_records;
pub use queries::{
    is_partition_defined_elsewhere, is_partition_unwanted, is_update_scheduled, needs_reservations,
    owns_reservation,
};
pub use read::{observe, observe_live};

use crate::node_facts::Nodes;
use crate::pod_backoff::RetryTimes;
use crate::slurm::View;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use operator_runtime::references::ReferenceError;
use slinky_api::v1beta1::{Controller, NodeSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Everything that a decision about a NodeSet may depend on, besides the time.
pub struct Observed {
    /// The NodeSet.
    pub nodeset: Arc<NodeSet>,
    /// The Controller of its Slurm cluster, if it is there.
    pub controller: Option<Arc<Controller>>,
    /// All NodeSets of that Controller in the order of their names, this one included.
    pub siblings: Vec<Arc<NodeSet>>,
    /// Pods that are this NodeSet's, or could be: they have its labels, or it controls them.
    pub pods: Vec<Arc<Pod>>,
    /// Its revisions: those that it controls, and those without controller that have its labels. Besides, those of others
    /// whose names begin like theirs.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The claims of its pods, by name; read only if it has claim templates.
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    /// Kubernetes nodes, by name: all of them.
    pub nodes: Arc<Nodes>,
    /// What is known of the Slurm cluster.
    pub slurm: View,
    /// For how long that has not answered.
    pub unreachable_for: Duration,
    /// The sssd.conf of its workers, if ssh is enabled: its content's hash.
    pub sssd_conf: Result<String, Arc<ReferenceError>>,
    /// The domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// Types of conditions of Kubernetes nodes that explain a cordon.
    pub propagated_conditions: Arc<[String]>,
    /// The earliest time at which each failed pod may be replaced, by pod name.
    pub retry_times: RetryTimes,
}
