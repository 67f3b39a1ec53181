//! What a plan is made of. Effects are writes that another decision could contradict: they go into a batch. Mirrors only
//! repeat what was observed.

use crate::worker::{Cause, PodRef};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use slurm_rest::{NodeUpdate, ReservationRequest};
use std::collections::BTreeMap;

/// One write, or several of which each needs the one before, that nobody else may contradict at the same time.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Lets the NodeSet go, or takes back one reason to keep it.
    SetFinalizers {
        /// All finalizers that are left.
        finalizers: Vec<String>,
    },
    /// Makes the NodeSet the controller of a pod that has none.
    AdoptPod(PodRef),
    /// Gives up a pod that is not ours by its labels or name.
    ReleasePod(PodRef),
    /// Makes a pod, and before it the claims that it lacks.
    CreatePod(Box<NewPod>),
    /// Marks a pod, then drains its Slurm node.
    Cordon {
        /// The pod.
        pod: PodRef,
        /// Why; the mark stays as it is if it says so already.
        cause: Cause,
        /// Whether a person had cordoned it before, which the mark must not hide.
        person: bool,
        /// The drain; `None` if the node is drained, or there is none.
        drain: Option<Drain>,
    },
    /// Drains a Slurm node whose pod carries no mark of ours: a person cordoned it, or it is ending.
    Drain(Drain),
    /// Takes the mark off a pod, then puts its Slurm node back to work.
    Uncordon {
        /// The pod.
        pod: PodRef,
        /// Whether there is a mark to take off.
        unmark: bool,
        /// Whether a person had cordoned it before: then it stays cordoned.
        person: bool,
        /// What to undo in Slurm.
        undo: Option<Undo>,
    },
    /// Deletes a pod.
    DeletePod(PodDeletion),
    /// Gives a claim its owners.
    SetClaimOwners {
        /// The claim's name.
        claim: String,
        /// Its identity.
        uid: String,
        /// Its version.
        version: String,
        /// All owners that it then has.
        owners: Vec<OwnerReference>,
    },
    /// Makes or changes a reservation.
    PutReservation(Box<ReservationRequest>),
    /// Changes the nodes of a reservation that has begun.
    SetReservationNodes {
        /// The reservation.
        name: String,
        /// Its nodes.
        nodes: Vec<String>,
    },
    /// Deletes the reservation of this name.
    DeleteReservation(String),
    /// Deletes the record of a Slurm node that no pod stands behind.
    DeleteNodeRecord {
        /// The node.
        node: String,
        /// The pod that it once was, for people.
        pod: String,
        /// The Kubernetes node of that pod.
        host: String,
    },
}

/// A pod to make.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPod {
    /// Its name.
    pub name: String,
    /// All of it, what the user wrote included.
    pub pod: Value,
    /// Whether its Slurm node is named by its own name. Where it is not, two pods could meet in Slurm, and making one is
    /// more than a create.
    pub names_its_node: bool,
    /// The claims that it needs.
    pub claims: Vec<PersistentVolumeClaim>,
}

/// A drain to order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The Slurm node.
    pub node: String,
    /// Why, prefix included; empty to keep the reason of somebody else.
    pub reason: String,
}

/// Something of ours to take back in Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Ends the drain of this node.
    Undrain(String),
    /// Puts this node, which is down, back to work.
    Resume(String),
}

/// A pod to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDeletion {
    /// Exactly this version.
    pub pod: PodRef,
    /// What has to be seen right before.
    pub evidence: Evidence,
    /// Why, for people.
    pub why: DeleteReason,
}

/// What has to be seen in Slurm, in a read made inside the batch, before a pod is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing: its slurmd never started, or has ended.
    NotNeeded,
    /// That Slurm still is not expected.
    SlurmNotExpected,
    /// That there is no such node.
    Absent(String),
    /// That this node is drained and has no job.
    Drained(String),
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    /// The NodeSet was made smaller. The only way to go that may take claims along.
    Surplus,
    /// It has no place any more: the NodeSet is being deleted or has another scaling mode, or its Kubernetes node does not
    /// fit or has another worker.
    Unwanted,
    /// It has an old template.
    Outdated,
    /// It failed.
    Failed,
    /// It ended.
    Succeeded,
    /// Its hostname should be another one.
    Renamed,
    /// It is healthy, and Slurm has no such node.
    Unregistered,
    /// Its Kubernetes node is gone before it was bound to it.
    NodeGone,
}

/// What a pod should say of its Slurm node, where it says something else.
#[derive(Clone, Debug, PartialEq)]
pub struct PodMirror {
    /// Exactly this version.
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

/// What a Slurm node should say of its pod, where it says something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMirror {
    /// The node.
    pub node: String,
    /// What to tell.
    pub update: NodeUpdate,
}

impl Effect {
    /// Whether this makes a pod.
    pub const fn is_create(&self) -> bool {
        matches!(self, Self::CreatePod(_))
    }

    /// Whether this makes a pod, and nothing else that two batches could disagree about.
    pub fn only_creates(&self) -> bool {
        matches!(self, Self::CreatePod(new) if new.names_its_node)
    }

    /// Whether this deletes a pod.
    pub const fn is_delete(&self) -> bool {
        matches!(self, Self::DeletePod(_))
    }
}
