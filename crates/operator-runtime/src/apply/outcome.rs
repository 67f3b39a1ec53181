//! What a write came to.

use crate::error::{Class, Classify};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Why an object was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not ours.
    #[error("{object} is controlled by {}, not by us: left alone", describe_owner(owner.as_deref()))]
    Foreign {
        /// Kind, namespace and name of the object.
        object: String,
        /// Who controls it, if anybody.
        owner: Option<Box<OwnerReference>>,
    },
    /// The API server refused or did not answer.
    #[error("cannot {verb} {object}")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// Kind, namespace and name of the object.
        object: String,
        /// What the server said.
        #[source]
        source: kube::Error,
    },
    /// The object does not become JSON.
    #[error("cannot serialise {object}")]
    Serialise {
        /// Kind, namespace and name of the object.
        object: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl Classify for Error {
    fn class(&self) -> Class {
        Class::Transient
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Foreign { .. } => "ForeignOwner",
            Self::Api { source, .. } => source.category(),
            Self::Serialise { .. } => "NotSerialisable",
        }
    }
}

/// What became of an apply.
#[derive(Debug)]
pub enum Applied<K> {
    /// The object is new.
    Created(K),
    /// The object was applied.
    Changed(K),
    /// The object is as wanted; nothing was sent.
    Unchanged,
    /// The object is being deleted; nothing was sent.
    Terminating,
    /// The object is immutable; nothing was sent.
    Immutable,
}

/// What became of a create.
#[derive(Debug)]
pub enum Created<K> {
    /// The object is new.
    New(K),
    /// The object was there, under the same controller.
    Existing(K),
    /// The object was there and is being deleted: its name is not free yet.
    Terminating,
}

/// What became of a delete.
#[derive(Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The deletion was asked for, now or before.
    Requested,
    /// The object is gone.
    Gone,
    /// The object is not the version that was decided on; nothing was deleted.
    Changed,
}

/// What became of a status.
#[derive(Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// It was written.
    Written,
    /// It was as wanted; nothing was sent.
    Unchanged,
    /// The object is gone, or its spec is newer than the status; whoever handles the new spec writes it.
    Outdated,
}

fn describe_owner(owner: Option<&OwnerReference>) -> String {
    owner.map_or_else(
        || "nobody".to_owned(),
        |owner| format!("{} {} (UID {})", owner.kind, owner.name, owner.uid),
    )
}
