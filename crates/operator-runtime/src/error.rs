//! What a failed reconcile means for the next one. Every controller's error type answers two questions: when is it
//! worth trying again, and under which name is it counted and shown.

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

/// When a failed reconcile is worth repeating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Only an edit of the object can help: wait for one.
    Invalid,
    /// Something that is expected to come is not there yet: look again after this time.
    Waiting(Duration),
    /// A fault that may pass: try again with growing delays.
    Transient,
}

/// An error that knows its class. Implementations match every variant, so that a new one cannot be forgotten.
pub trait Classify: Error {
    /// When to try again.
    fn class(&self) -> Class;

    /// A fixed name in `PascalCase`: the `reason` label of metrics and the reason of Events.
    fn category(&self) -> &'static str;

    /// When to look at the object again at the latest, although it failed: there may be other things to do for it.
    fn requeue_after(&self) -> Option<Duration> {
        None
    }
}

/// How the API server refuses to apply a field that it does not know. It calls that a fault of its own, without a reason.
const UNKNOWN_FIELD: &str = "field not declared in schema";

/// An answer of the API server never says that only an edit helps: quotas, webhooks and foreign objects change too.
impl Classify for kube::Error {
    fn class(&self) -> Class {
        Class::Transient
    }

    fn category(&self) -> &'static str {
        let Self::Api(status) = self else { return "ApiUnreachable" };
        if status.is_conflict() {
            "Conflict"
        } else if status.is_not_found() {
            "NotFound"
        } else if status.is_forbidden() {
            "Forbidden"
        } else if status.is_invalid() {
            "Rejected"
        } else if status.message.contains(UNKNOWN_FIELD) {
            "InvalidSpec"
        } else {
            "ApiError"
        }
    }
}

/// The error and its causes in one line. A cause that its parent already quotes is not repeated: `kube` writes the
/// source's text into its own.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = own_text(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = own_text(cause);
        if !text.contains(&cause_text) {
            // Writing into a String cannot fail.
            let _ = write!(text, ": {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// What an error says by itself. `kube` adds the whole answer of the API server in its Rust form; message and reason will do.
fn own_text(error: &(dyn Error + 'static)) -> String {
    let text = match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.to_string(),
        _ => error.to_string(),
    };
    // An answer without a reason ends where the reason would be.
    text.trim_end_matches(": ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Classify, chain};
    use kube::core::Status;
    use rstest::rstest;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner: {0}")]
    struct Inner(#[source] std::io::Error);

    #[test]
    fn chain_names_every_cause_once() {
        let error = Outer(Inner(std::io::Error::other("disk on fire")));
        assert_eq!(chain(&error), "outer: inner: disk on fire");
    }

    #[test]
    fn chain_shows_the_servers_message_alone() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot apply")]
        struct Apply(#[source] kube::Error);
        let status = Status::failure("quota exceeded", "Forbidden").with_code(403);
        assert_eq!(
            chain(&Apply(kube::Error::Api(Box::new(status)))),
            "cannot apply: quota exceeded: Forbidden"
        );
    }

    #[test]
    fn a_field_that_the_server_does_not_know_is_named() {
        let status = Status::failure(".spec.x: field not declared in schema", "").with_code(500);
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(error.category(), "InvalidSpec");
        assert_eq!(chain(&error), ".spec.x: field not declared in schema");
    }

    #[rstest]
    #[case::conflict(409, "Conflict", "Conflict")]
    #[case::gone(404, "NotFound", "NotFound")]
    #[case::forbidden(403, "Forbidden", "Forbidden")]
    #[case::rejected(422, "Invalid", "Rejected")]
    #[case::server_fault(500, "InternalError", "ApiError")]
    fn api_errors_are_told_apart(#[case] code: u16, #[case] reason: &str, #[case] category: &str) {
        let error = kube::Error::Api(Box::new(Status::failure("x", reason).with_code(code)));
        assert_eq!(error.category(), category);
    }
}
