//! Classes of reconcile errors. The error type of every controller defines when to retry, and the reason in metrics and
//! Events.

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

/// When to retry a failed reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Only an edit of the object can help: do not requeue.
    Invalid,
    /// A dependency is not there yet: requeue after this time.
    Waiting(Duration),
    /// A fault that may pass: requeue with backoff.
    Transient,
}

/// Requeue delay of an obstacle whose end a watch reports: it only matters if the watch event is lost.
pub const WATCH_FALLBACK: Duration = Duration::from_mins(5);

/// An error with a class. Implementations match without a wildcard, so that no variant is forgotten.
pub trait Classify: Error {
    /// When to retry.
    fn class(&self) -> Class;

    /// A fixed name in `PascalCase`: the `reason` label of metrics and the reason of Events.
    fn category(&self) -> &'static str;

    /// The longest time until the next reconcile despite the error, if the object has other work that is due.
    fn requeue_after(&self) -> Option<Duration> {
        None
    }
}

/// The error of a reconcile whose object has other work that is due.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct Requeued<E: Classify + 'static> {
    /// Why the reconcile failed.
    source: E,
    /// When to reconcile again even so.
    requeue_after: Option<Duration>,
}

impl<E: Classify> Requeued<E> {
    /// A failed reconcile that is repeated after this time, if the class of its error does not say sooner.
    pub fn new(source: impl Into<E>, requeue_after: Option<Duration>) -> Self {
        Self { source: source.into(), requeue_after }
    }
}

impl<E: Classify> Classify for Requeued<E> {
    fn class(&self) -> Class {
        self.source.class()
    }

    fn category(&self) -> &'static str {
        self.source.category()
    }

    fn requeue_after(&self) -> Option<Duration> {
        self.requeue_after
    }
}

/// Part of the API server's message when it rejects the apply of an unknown field. The status is 500 without a reason.
const UNKNOWN_FIELD: &str = "field not declared in schema";

/// Always transient: quotas, webhooks and objects of other owners may change without an edit of the object.
impl Classify for kube::Error {
    fn class(&self) -> Class {
        Class::Transient
    }

    fn category(&self) -> &'static str {
        let Self::Api(status) = self else { return "ApiUnreachable" };
        match status {
            status if status.is_conflict() => "Conflict",
            status if status.is_not_found() => "NotFound",
            status if status.is_forbidden() => "Forbidden",
            status if status.is_invalid() => "Rejected",
            status if status.message.contains(UNKNOWN_FIELD) => "InvalidSpec",
            _ => "ApiError",
        }
    }
}

/// The error and its causes in one line. A cause that its parent quotes is not repeated: `kube` includes the text of
/// the source in its own.
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

/// The text of an error without its causes. `kube` would add the debug form of the API server's whole Status.
fn own_text(error: &(dyn Error + 'static)) -> String {
    let text = match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.to_string(),
        _ => error.to_string(),
    };
    // A Status without a reason ends in a separator.
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
    fn chain_contains_every_cause_once() {
        let error = Outer(Inner(std::io::Error::other("disk on fire")));
        assert_eq!(chain(&error), "outer: inner: disk on fire");
    }

    #[test]
    fn chain_contains_only_message_and_reason_of_a_status() {
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
    fn unknown_field_is_an_invalid_spec() {
        let status = Status::failure(".spec.x: field not declared in schema", "").with_code(500);
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(error.category(), "InvalidSpec");
        assert_eq!(chain(&error), ".spec.x: field not declared in schema");
    }

    #[rstest]
    #[case::conflict(409, "Conflict", "Conflict")]
    #[case::not_found(404, "NotFound", "NotFound")]
    #[case::forbidden(403, "Forbidden", "Forbidden")]
    #[case::rejected(422, "Invalid", "Rejected")]
    #[case::internal_error(500, "InternalError", "ApiError")]
    fn category_of_an_api_error_follows_its_reason(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] category: &str,
    ) {
        let error = kube::Error::Api(Box::new(Status::failure("x", reason).with_code(code)));
        assert_eq!(error.category(), category);
    }
}
