//! Results of writes.

use crate::error::{Class, Classify};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Why an object was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another object controls it, or none does.
    #[error("{object} is controlled by {}, not by the expected owner: left unchanged", describe_owner(owner.as_deref()))]
    Foreign {
        /// Kind, namespace and name of the object.
        object: String,
        /// The object that controls it, if any.
        owner: Option<Box<OwnerReference>>,
    },
    /// No object controls it, but it was not made for the owner of the desired object either.
    #[error(
        "{object} exists and does not belong to this resource, as it lacks {mark}: left unchanged; delete it, rename one of \
         the two, or add {mark} to have it adopted"
    )]
    NameConflict {
        /// Kind, namespace and name of the object.
        object: String,
        /// What an object of this owner would have.
        mark: String,
    },
    /// The API server rejected the request or did not answer.
    #[error("cannot {verb} {object}")]
    Api {
        /// The operation.
        verb: &'static str,
        /// Kind, namespace and name of the object.
        object: String,
        /// The error of the client.
        #[source]
        source: kube::Error,
    },
    /// The object cannot be serialised to JSON.
    #[error("cannot serialise {object}")]
    Serialise {
        /// Kind, namespace and name of the object.
        object: String,
        /// The error of the serialiser.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether the object changed since it was read.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source: kube::Error::Api(status), .. } if status.is_conflict())
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        Class::Transient
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Foreign { .. } => "ForeignOwner",
            Self::NameConflict { .. } => "NameConflict",
            Self::Api { source, .. } => source.category(),
            Self::Serialise { .. } => "NotSerialisable",
        }
    }
}

/// The result of an apply.
#[derive(Debug)]
pub enum Applied<K> {
    /// The object was created.
    Created(K),
    /// The object was applied.
    Changed(K),
    /// The object is as desired; nothing was sent.
    Unchanged,
    /// The object or its owner is being deleted; nothing was sent.
    Terminating,
    /// The object is immutable; nothing was sent.
    Immutable,
}

/// The result of a create.
#[derive(Debug)]
pub enum Created<K> {
    /// The object was created.
    New(K),
    /// The object exists under the same controller.
    Existing(K),
    /// An object of this name is being deleted; the name is not free yet.
    Terminating,
}

/// The result of a delete.
#[derive(Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The deletion was requested, now or earlier.
    Requested,
    /// The object does not exist.
    Gone,
    /// A precondition failed: the object is not the version that was decided on.
    Changed,
}

/// The result of a status write.
#[derive(Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// It was written.
    Written,
    /// It is as desired; nothing was sent.
    Unchanged,
    /// The object was deleted, or its spec is newer than the status; the reconcile of the new spec writes the status.
    Outdated,
}

fn describe_owner(owner: Option<&OwnerReference>) -> String {
    owner.map_or_else(
        || "no object".to_owned(),
        |owner| format!("{} {} (UID {})", owner.kind, owner.name, owner.uid),
    )
}
