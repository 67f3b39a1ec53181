//! Error responses of the API server.

use super::store::Target;
use serde_json::{Error, Value, json};

/// An error response.
#[derive(Debug)]
pub(super) struct Refusal {
    pub code: u16,
    /// The `Status` object.
    pub body: Value,
}

impl Refusal {
    pub fn new(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": message,
        });
        Self { code, body }
    }

    fn of(target: &Target, code: u16, reason: &str, message: &str) -> Self {
        let Target { resource, name, .. } = target;
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let mut refusal = Self::new(code, reason, &format!("{resource} {name:?} {message}"));
        refusal.body["details"] = json!({"name": name, "group": group, "kind": plural});
        refusal
    }

    pub fn not_found(target: &Target) -> Self {
        Self::of(target, 404, "NotFound", "not found")
    }

    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub fn already_exists(target: &Target) -> Self {
        Self::of(target, 409, "AlreadyExists", "already exists")
    }

    pub fn conflict(target: &Target, message: &str) -> Self {
        Self::of(target, 409, "Conflict", message)
    }

    pub fn invalid(target: &Target, message: &str) -> Self {
        Self::of(target, 422, "Invalid", &format!("is invalid: {message}"))
    }

    pub fn bad_request(message: &str) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unsupported_patch() -> Self {
        Self::new(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
    }

    pub fn version_on_create() -> Self {
        Self::new(500, "", "resourceVersion should not be set on objects to be created")
    }

    pub fn namespace_terminating(target: &Target) -> Self {
        let message = format!("is forbidden: namespace {} is being terminated", target.namespace);
        let mut refusal = Self::of(target, 403, "Forbidden", &message);
        refusal.body["details"]["causes"] = json!([{"reason": "NamespaceTerminating", "message": message}]);
        refusal
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::bad_request(&error.to_string())
    }
}
