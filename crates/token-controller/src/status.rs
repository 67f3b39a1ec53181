//! What a Token's status says.

use crate::controller::Error;
use crate::execute::Outcome;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use operator_runtime::Classify;
use operator_runtime::error::chain;
use slinky_api::conditions::{Summary, summarise};
use slinky_api::v1beta1::{Token, TokenStatus};

/// The status after a pass. A pass that failed leaves the time of issue as it was: the old token is still there.
pub fn status(token: &Token, outcome: &Result<Outcome, Error>, now: Timestamp) -> TokenStatus {
    let mut status = token.status.clone().unwrap_or_default();
    let summary = match outcome {
        Ok(Outcome { claims: Some(claims), .. }) => {
            status.issued_at = claims.issued_at().map(Time);
            match claims.expires_at() {
                Some(expiry) if expiry <= now => {
                    Summary::Degraded("Expired", format!("the token expired at {expiry} and refresh is off"))
                }
                _ => Summary::Ready,
            }
        }
        Ok(Outcome { claims: None, .. }) => {
            Summary::Progressing("Replacing", "the immutable Secret is being replaced".to_owned())
        }
        Err(error) => Summary::Degraded(error.category(), chain(error)),
    };
    summarise(&mut status.conditions, &summary, token.metadata.generation, now);
    status
}
