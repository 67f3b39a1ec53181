//! What may become of a request, other than being served.

use super::refusal::Refusal;
use std::io;
use std::time::Duration;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is served.
    Served,
    /// It has no effect, and the client hears so.
    Refused(Failure),
    /// It has its effect, and the client hears that it failed.
    Misreported(Failure),
    /// It has no effect, and the client hears nothing.
    Lost,
    /// It is served after this time, even if the client waits no longer.
    Late(Duration),
}

/// What a client hears of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// 409, as after a write of somebody else.
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
    pub(super) fn answer(self) -> Result<Refusal, io::Error> {
        let (code, reason) = match self {
            Self::Conflict => (409, "Conflict"),
            Self::TooManyRequests => (429, "TooManyRequests"),
            Self::InternalError => (500, "InternalError"),
            Self::ServiceUnavailable => (503, "ServiceUnavailable"),
            Self::Timeout => (504, "Timeout"),
            Self::Disconnect => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        Ok(Refusal::new(code, reason, "a fault of the test"))
    }
}
