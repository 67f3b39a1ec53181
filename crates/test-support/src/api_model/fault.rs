//! Faults that a test injects into requests.

use super::refusal::Refusal;
use std::io;
use std::time::Duration;

/// How the server treats a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is served.
    Served,
    /// Another client changes the object first, and then it is served: a write with a resourceVersion is refused.
    Overtaken,
    /// It has no effect, and the client receives this failure.
    Refused(Failure),
    /// It is performed, but the client receives this failure.
    Misreported(Failure),
    /// It has no effect, and the client receives no response.
    Lost,
    /// It is served after this delay, even if the client has given up.
    Late(Duration),
}

/// A failure as the client receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// 403, as of a quota or an admission webhook.
    Forbidden,
    /// 409, as after a concurrent write.
    Conflict,
    /// 429.
    TooManyRequests,
    /// 500.
    InternalError,
    /// 503.
    ServiceUnavailable,
    /// 504.
    Timeout,
    /// The connection breaks.
    Disconnect,
}

impl Failure {
    pub(super) fn to_refusal(self) -> Result<Refusal, io::Error> {
        let (code, reason) = match self {
            Self::Forbidden => (403, "Forbidden"),
            Self::Conflict => (409, "Conflict"),
            Self::TooManyRequests => (429, "TooManyRequests"),
            Self::InternalError => (500, "InternalError"),
            Self::ServiceUnavailable => (503, "ServiceUnavailable"),
            Self::Timeout => (504, "Timeout"),
            Self::Disconnect => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        Ok(Refusal::new(code, reason, "fault injected by the test"))
    }
}
