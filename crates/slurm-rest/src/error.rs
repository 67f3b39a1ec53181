//! Request errors, distinguished by what the caller may conclude from them.

use crate::transport::TransportError;
use http::StatusCode;
use std::time::Duration;

/// Slurm's error numbers. The HTTP status that comes with a number differs between Slurm releases.
pub mod errno {
    /// The token is expired, signed with another key, or malformed.
    pub const PROTOCOL_AUTHENTICATION: i32 = 1007;
    /// No connection to slurmctld.
    pub const CONNECTION: i32 = 1800;
    /// The token's user lacks the privilege.
    pub const NO_PRIVILEGE: i32 = 2010;
    /// A job or a reservation uses the nodes.
    pub const NODES_BUSY: i32 = 2016;
    /// `ESLURM_INVALID_JOB_ID`: no such job.
    pub const INVALID_JOB_ID: i32 = 2017;
    /// At least one of the nodes does not exist.
    pub const INVALID_NODE_NAME: i32 = 2018;
    /// Active features that are not among the available ones.
    pub const INVALID_FEATURES: i32 = 2031;
    /// The reservation does not exist, or its description is invalid.
    pub const INVALID_RESERVATION: i32 = 2053;
    /// The start of a reservation that has begun cannot be changed.
    pub const RESERVATION_STARTED: i32 = 2104;
    /// The topology has no such unit.
    pub const TOPOLOGY_UNAVAILABLE: i32 = 2178;
    /// The node cannot change from its state to the requested one.
    pub const INVALID_NODE_TRANSITION: i32 = 2180;
    /// slurmctld did not answer slurmrestd in time.
    pub const SOCKET_TIMEOUT: i32 = 5004;
    /// slurmrestd itself rejected the token.
    pub const REST_AUTHENTICATION: i32 = 9008;

    /// Whether a number means that the connection from slurmrestd to slurmctld failed, rather than that slurmctld
    /// rejected the request.
    ///
    /// Slurm's own numbers begin at 1000; those below are the operating system's (104 when slurmctld dies while it
    /// handles the request).
    pub fn is_connection_error(number: i32) -> bool {
        matches!(number, 1..1000 | 1800..1810 | 5000..5010)
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is invalid; it was not sent.
    #[error("not sent: {0}")]
    Invalid(String),
    /// The limit of concurrent requests was exhausted until the timeout; the request was not sent.
    #[error("not sent: no free request slot within {0:?}")]
    Busy(Duration),
    /// The connection to slurmrestd failed.
    #[error("slurmrestd cannot be reached")]
    Unreachable(#[source] TransportError),
    /// The connection broke before the answer was complete.
    #[error("slurmrestd closed the connection before the answer was complete")]
    Interrupted(#[source] TransportError),
    /// No answer within the timeout. slurmrestd continues with the request nevertheless.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// slurmrestd answered, but slurmctld did not answer slurmrestd. It may act late: a slurmctld that hung for a
    /// minute was observed to execute the request afterwards.
    #[error("slurmctld does not answer: {0}")]
    Unavailable(String),
    /// Slurm rejected the token. The next request uses a new one.
    #[error("token refused: {0}")]
    Unauthorized(String),
    /// slurmrestd serves this path in none of the API versions that we support.
    #[error("slurmrestd does not serve {0} in a supported API version")]
    Unsupported(String),
    /// slurmctld has no such object.
    #[error("not found: {0}")]
    NotFound(String),
    /// Slurm rejected the request.
    #[error("refused with {status}, error {errno}: {description}")]
    Rejected {
        /// Status of the answer.
        status: StatusCode,
        /// Slurm's number, see [`errno`]; 0 if it gave none.
        errno: i32,
        /// Slurm's message.
        description: String,
    },
    /// The answer does not conform to the API, or lacks a required field.
    #[error("the answer to {request} is malformed")]
    Malformed {
        /// Method and path.
        request: String,
        /// The decoding error.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether a failed write may have been applied, or may still be applied later.
    ///
    /// False means that Slurm applies nothing after this answer. A rejected update of *several* nodes is final too, but
    /// may have changed some of them: list the nodes again.
    pub fn maybe_applied(&self) -> bool {
        match self {
            Self::Interrupted(_) | Self::Timeout(_) | Self::Unavailable(_) | Self::Malformed { .. } => true,
            // Without a Slurm error number the answer may come from a proxy.
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

    /// Whether Slurm rejected the request with this number.
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
