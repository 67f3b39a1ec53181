//! Validates creates and updates of one kind: reads what the rules need, and applies them.

use crate::review::{Answer, Request, allow, decided, deny};
use crate::rules::Validated;
use crate::verdict::Verdict;
use axum::http::StatusCode;
use kube::Client;
use kube::core::DynamicObject;
use kube::core::admission::Operation;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit of all reads for one request: less than the API server waits for the webhook.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Decides on a request.
pub async fn validate<K: Validated>(client: Client, request: Request) -> Answer {
    match request.operation {
        Operation::Create | Operation::Update => {}
        Operation::Delete | Operation::Connect => return allow(&request),
    }
    let (new, old) = match (read::<K>(request.object.as_ref()), read::<K>(request.old_object.as_ref())) {
        (Ok(Some(new)), old) => (new, old.ok().flatten()),
        (Ok(None), _) => return invalid(&request, "the request has no object".to_owned()),
        (Err(error), _) => return invalid(&request, error),
    };
    // A deletion is never held up: the removal of a finalizer is an update.
    if new.meta().deletion_timestamp.is_some() {
        return allow(&request);
    }
    // What was stored before a rule existed can still get labels, annotations and finalizers.
    if old.as_ref().is_some_and(|old| old.spec() == new.spec()) {
        return allow(&request);
    }
    let mismatches = new.type_mismatches();
    if !mismatches.is_empty() {
        return invalid(&request, mismatches.join(", "));
    }
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let Ok(references) = timeout(READ_LIMIT, new.read_references(&client, namespace)).await else {
        let problem = format!("reading referenced objects took longer than {} s", READ_LIMIT.as_secs());
        return deny(&request, StatusCode::GATEWAY_TIMEOUT, "Timeout", problem);
    };
    decided(&request, verdict(&new, old.as_ref(), &references))
}

/// Applies all rules of a kind. `old` is absent for a create.
pub fn verdict<K: Validated>(new: &K, old: Option<&K>, references: &K::References) -> Verdict {
    let mut verdict = Verdict::default();
    new.check(references, &mut verdict);
    match old {
        None => new.check_new(&mut verdict),
        Some(old) => new.check_change(old, &mut verdict),
    }
    verdict
}

fn read<K: Validated>(object: Option<&DynamicObject>) -> Result<Option<K>, String> {
    let Some(object) = object else { return Ok(None) };
    object.clone().try_parse().map(Some).map_err(|error| error.to_string())
}

fn invalid(request: &Request, problem: String) -> Answer {
    deny(request, StatusCode::BAD_REQUEST, "BadRequest", problem)
}
