//! Writes that a plan consists of. Effects can conflict with other decisions and need a batch. Mirrors only copy
//! observed state.

use crate::worker::{Cause, PodRef};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use slurm_rest::{NodeUpdate, ReservationRequest};
use std::collections::BTreeMap;

/// One write, or a sequence of dependent writes, that needs a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Sets the finalizers of the NodeSet, to remove some.
    SetFinalizers {
        /// All remaining finalizers.
        finalizers: Vec<String>,
    },
    /// Adds owners to a pod: the NodeSet as its controller, and the Controller of its cluster.
    AdoptPod {
        /// The pod.
        pod: PodRef,
        /// The references to them.
        owners: Vec<OwnerReference>,
    },
    /// Releases a pod that the NodeSet controls but does not select.
    ReleasePod(PodRef),
    /// Creates the missing claims of a pod, then the pod.
    CreatePod(Box<NewPod>),
    /// Marks a pod, then drains its Slurm node.
    Cordon {
        /// The pod.
        pod: PodRef,
        /// Why; a mark with this cause is not rewritten.
        cause: Cause,
        /// Whether a person had cordoned it before, which the mark records.
        person: bool,
        /// The drain; `None` if the node is already drained or does not exist.
        drain: Option<Drain>,
    },
    /// Drains a Slurm node whose pod has no mark: a person cordoned it, or it is terminating.
    Drain(Drain),
    /// Removes the mark of a pod, then undrains or resumes its Slurm node.
    Uncordon {
        /// The pod.
        pod: PodRef,
        /// Whether there is a mark to remove.
        unmark: bool,
        /// Whether a person had cordoned it before: then it stays cordoned.
        person: bool,
        /// The write in Slurm.
        undo: Option<Undo>,
    },
    /// Deletes a pod.
    DeletePod(PodDeletion),
    /// Sets the owner references of a claim.
    SetClaimOwners {
        /// The claim's name.
        claim: String,
        /// Its UID.
        uid: String,
        /// Its resource version.
        version: String,
        /// All its owner references.
        owners: Vec<OwnerReference>,
        /// UID of the pod that uses it, which must not be deleted before.
        user: String,
    },
    /// Creates or updates a reservation.
    PutReservation(Box<ReservationRequest>),
    /// Changes the nodes of an active reservation.
    SetReservationNodes {
        /// The reservation.
        name: String,
        /// Its nodes.
        nodes: Vec<String>,
    },
    /// Deletes the reservation of this name.
    DeleteReservation(String),
    /// Deletes the record of a Slurm node without pod.
    DeleteNodeRecord {
        /// The node.
        node: String,
        /// The pod that ran it, for events and logs.
        pod: String,
        /// The Kubernetes node of that pod.
        host: String,
    },
}

/// A pod to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPod {
    /// Its name.
    pub name: String,
    /// The whole manifest, including the user's template.
    pub pod: Value,
    /// Whether its Slurm node has a name that only this pod can have. Otherwise two pods could share a Slurm node, and
    /// the create can conflict with other batches.
    pub names_its_node: bool,
    /// The claims that it needs.
    pub claims: Vec<PersistentVolumeClaim>,
}

/// A drain of a Slurm node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The Slurm node.
    pub node: String,
    /// The reason with prefix; empty to keep a foreign reason.
    pub reason: String,
}

/// A write that puts a Slurm node back in service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Undrains this node.
    Undrain(String),
    /// Resumes this node, which is down.
    Resume(String),
}

/// A pod to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDeletion {
    /// The version that the write is conditional on.
    pub pod: PodRef,
    /// What a live read of Slurm must show right before the delete.
    pub evidence: Evidence,
    /// Why, for events and logs.
    pub why: DeleteReason,
}

/// What a read of Slurm inside the batch must show before a pod is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing: no kubelet was to run it, or its slurmd has exited.
    NotNeeded,
    /// No RestApi is configured, still.
    NoRestApi,
    /// This node does not exist, and no slurmd at these addresses is registered under another name.
    Absent {
        /// The node.
        node: String,
        /// The addresses of the pod.
        addresses: Vec<String>,
    },
    /// This node is drained, no job holds it, and no slurmd at these addresses is registered under another name.
    Drained {
        /// The node.
        node: String,
        /// The addresses of the pod.
        addresses: Vec<String>,
    },
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    /// The NodeSet was scaled in: the only reason for which claims may be deleted too.
    Surplus,
    /// It has no place any more: the NodeSet is being deleted or changed its scaling mode, or its Kubernetes node does
    /// not fit or has another worker.
    Unwanted,
    /// It has an old revision.
    Outdated,
    /// It failed.
    Failed,
    /// It succeeded.
    Succeeded,
    /// Its Kubernetes node now requires another hostname.
    Renamed,
    /// It is healthy, and not registered in Slurm.
    Unregistered,
    /// Its Kubernetes node was deleted before it was bound.
    NodeGone,
}

/// A pod update that mirrors its Slurm node. Holds differences only.
#[derive(Clone, Debug, PartialEq)]
pub struct PodMirror {
    /// The version that the write is conditional on.
    pub pod: PodRef,
    /// Labels to set, or to remove.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set, or to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Conditions to set.
    pub conditions: Vec<PodCondition>,
    /// Types of conditions to remove.
    pub ended: Vec<String>,
}

impl PodMirror {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
            && self.annotations.is_empty()
            && self.conditions.is_empty()
            && self.ended.is_empty()
    }

    /// Drops the removals: a label, annotation or condition may protect a job that this replica does not know of.
    pub fn keep_protection(&mut self) {
        self.labels.retain(|_, value| value.is_some());
        self.annotations.retain(|_, value| value.is_some());
        self.ended.clear();
    }
}

/// A Slurm node update that mirrors its pod. Holds differences only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMirror {
    /// The node.
    pub node: String,
    /// The update.
    pub update: NodeUpdate,
}

impl Effect {
    /// Whether this creates a pod.
    pub const fn is_create(&self) -> bool {
        matches!(self, Self::CreatePod(_))
    }

    /// Whether this only creates a pod with a Slurm node of its own, which cannot conflict with another batch.
    pub fn only_creates(&self) -> bool {
        matches!(self, Self::CreatePod(new) if new.names_its_node)
    }

    /// Whether this deletes a pod.
    pub const fn is_delete(&self) -> bool {
        matches!(self, Self::DeletePod(_))
    }
}
