//! What can go wrong with a request, told apart by what the caller may conclude from it.

use crate::transport::TransportError;
use http::StatusCode;
use std::time::Duration;

/// Numbers by which Slurm names its refusals. The HTTP status of the same number differs between releases.
pub mod errno {
    /// The credential is expired, wrongly signed, or not one at all.
    pub const PROTOCOL_AUTHENTICATION: i32 = 1007;
    /// No connection to slurmctld.
    pub const CONNECTION: i32 = 1800;
    /// The token's user may not do this.
    pub const NO_PRIVILEGE: i32 = 2010;
    /// A job, or a reservation, holds the nodes.
    pub const NODES_BUSY: i32 = 2016;
    /// No node, or not every node, of this name.
    pub const INVALID_NODE_NAME: i32 = 2018;
    /// Active features that are not among the available ones.
    pub const INVALID_FEATURES: i32 = 2031;
    /// No such reservation, or something in its description is wrong.
    pub const INVALID_RESERVATION: i32 = 2053;
    /// The start of a reservation that has begun cannot be changed.
    pub const RESERVATION_STARTED: i32 = 2104;
    /// The topology does not know such a unit.
    pub const TOPOLOGY_UNAVAILABLE: i32 = 2178;
    /// A node in its state cannot change to the wanted one.
    pub const INVALID_NODE_TRANSITION: i32 = 2180;
    /// slurmctld did not answer slurmrestd in time.
    pub const SOCKET_TIMEOUT: i32 = 5004;
    /// slurmrestd itself refused the credential.
    pub const REST_AUTHENTICATION: i32 = 9008;

    /// Whether a number tells of the way between slurmrestd and slurmctld, and not of what slurmctld thinks.
    ///
    /// Slurm's own numbers begin at 1000; below are those of the operating system (104 when slurmctld dies with
    /// the request in its hands).
    pub fn is_about_the_way(number: i32) -> bool {
        matches!(number, 1..1000 | 1800..1810 | 5000..5010)
    }
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request makes no sense; it was not sent.
    #[error("not sent: {0}")]
    Invalid(String),
    /// Too many requests were under way for the whole time allowed; this one was not sent.
    #[error("not sent: other requests took all of {0:?}")]
    Busy(Duration),
    /// There is no connection to slurmrestd.
    #[error("slurmrestd cannot be reached")]
    Unreachable(#[source] TransportError),
    /// The connection broke before the answer was complete.
    #[error("slurmrestd broke off")]
    Interrupted(#[source] TransportError),
    /// No answer in time. slurmrestd goes on with the request all the same.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// slurmrestd answers, but slurmctld did not answer it. It may do so late: a slurmctld that hung for a minute
    /// was seen to carry out then what it had been asked for.
    #[error("slurmctld does not answer: {0}")]
    Unavailable(String),
    /// The token was refused. The next request carries a new one.
    #[error("token refused: {0}")]
    Unauthorized(String),
    /// slurmrestd knows this path in no version of its API that we speak.
    #[error("slurmrestd does not know {0}")]
    Unsupported(String),
    /// slurmctld says that there is no such object.
    #[error("not found: {0}")]
    NotFound(String),
    /// Slurm said no.
    #[error("refused with {status}, error {errno}: {description}")]
    Rejected {
        /// Status of the answer.
        status: StatusCode,
        /// Slurm's number, see [`errno`]; 0 if it gave none.
        errno: i32,
        /// Slurm's words.
        description: String,
    },
    /// The answer is not what the API promises, or lacks what was asked for.
    #[error("answer to {request} not understood")]
    Malformed {
        /// Method and path.
        request: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether a write may have been done, or may yet be done, although it failed.
    ///
    /// False means that nothing happens after this answer. A refused update of *several* nodes is final too, but
    /// has been done for some of them: look again.
    pub fn maybe_applied(&self) -> bool {
        match self {
            Self::Interrupted(_) | Self::Timeout(_) | Self::Unavailable(_) | Self::Malformed { .. } => true,
            // Not Slurm's word, but of something in between.
            Self::Rejected { status, errno: 0, .. } if status.is_server_error() => true,
            Self::Invalid(_)
            | Self::Busy(_)
            | Self::Unreachable(_)
            | Self::Unauthorized(_)
            | Self::Unsupported(_)
            | Self::NotFound(_)
            | Self::Rejected { .. } => false,
        }
    }

    /// Whether Slurm refused with this number.
    pub fn is_rejected_with(&self, number: i32) -> bool {
        matches!(self, Self::Rejected { errno, .. } if *errno == number)
    }

    /// A short name for metrics and events.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Busy(_) => "busy",
            Self::Unreachable(_) => "unreachable",
            Self::Interrupted(_) => "interrupted",
            Self::Timeout(_) => "timeout",
            Self::Unavailable(_) => "unavailable",
            Self::Unauthorized(_) => "unauthorized",
            Self::Unsupported(_) => "unsupported",
            Self::NotFound(_) => "not-found",
            Self::Rejected { .. } => "rejected",
            Self::Malformed { .. } => "malformed",
        }
    }
}

impl From<TransportError> for Error {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Unreachable(_) => Self::Unreachable(error),
            TransportError::Interrupted(_) => Self::Interrupted(error),
        }
    }
}
