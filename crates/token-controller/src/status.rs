//! Builds the status of a Token. Pure.

use crate::execute::Outcome;
use crate::expiry::Expiry;
use crate::observe::Observed;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use operator_runtime::Classify;
use operator_runtime::error::chain;
use slinky_api::conditions::{self, EXPIRING, Summary, summarise};
use slinky_api::v1beta1::TokenStatus;

/// The status after a reconcile. A failed reconcile does not change the time of issue: the Secret holds the old token.
pub fn status(
    observed: &Observed,
    outcome: &Outcome,
    expiry: Option<&Expiry>,
    now: Timestamp,
) -> TokenStatus {
    let token = &observed.token;
    let mut status = token.status.clone().unwrap_or_default();
    if let Ok(Some(claims)) = outcome {
        status.issued_at = claims.issued_at().map(Time);
    }
    let generation = token.metadata.generation;
    summarise(&mut status.conditions, &summary(outcome, now), generation, now);
    match expiry {
        Some(expiry) => conditions::set(&mut status.conditions, expiry.condition(now), generation, now),
        // A Secret that could not be read still holds its token.
        None if observed.secret.is_err() => {}
        None => conditions::remove(&mut status.conditions, EXPIRING),
    }
    status
}

fn summary(outcome: &Outcome, now: Timestamp) -> Summary {
    let claims = match outcome {
        Ok(Some(claims)) => claims,
        Ok(None) => {
            return Summary::Progressing("Replacing", "the immutable Secret is being replaced".to_owned());
        }
        Err(error) => return Summary::Degraded(error.category(), chain(error)),
    };
    match claims.expires_at() {
        Some(expiry) if expiry <= now => {
            Summary::Degraded("Expired", format!("the token expired at {expiry} and refresh is off"))
        }
        Some(expiry) => Summary::Ready(format!("the Secret holds a token that is valid until {expiry}")),
        None => Summary::Ready("the Secret holds a token that does not expire".to_owned()),
    }
}
