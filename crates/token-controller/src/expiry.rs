//! Decides when the expiry of a token is reported. Pure.
//!
//! A token that is renewed in time is not reported, however short its lifetime is.

use crate::observe::Observed;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use operator_runtime::events::{EventType, NewEvent};
use slinky_api::conditions::{self, AS_EXPECTED, ConditionStatus, ConditionUpdate, EXPIRING};
use slinky_api::ownership::is_controlled_by;
use slinky_api::v1beta1::Token;
use slurm_jwt::Claims;
use std::time::Duration;

/// A token is renewed when its lifetime divided by this is left: one fifth.
const RENEWAL_DIVISOR: i32 = 5;
/// The expiry of a token that is not renewed is reported this long before.
const NOTICE: SignedDuration = SignedDuration::from_hours(1);

/// How long before its expiry a token is renewed.
pub fn renewal_margin(lifetime: SignedDuration) -> SignedDuration {
    lifetime / RENEWAL_DIVISOR
}

/// The expiry of the token in a Secret.
#[derive(Debug, PartialEq, Eq)]
pub struct Expiry {
    /// When the token expires.
    expires_at: Timestamp,
    /// When that is reported. With refresh on the token is renewed before, unless renewals fail.
    reported_at: Timestamp,
    /// Whether it is renewed.
    is_renewed: bool,
}

impl Expiry {
    /// The expiry of a token; `None` if it does not expire.
    pub fn of(token: &Token, claims: &Claims) -> Option<Self> {
        let expires_at = claims.expires_at()?;
        let is_renewed = token.spec.refresh;
        let lifetime = claims.issued_at().map(|issued_at| expires_at.duration_since(issued_at));
        let margin = lifetime.filter(|_| is_renewed).map_or(NOTICE, renewal_margin).min(NOTICE);
        Some(Self { expires_at, reported_at: expires_at.checked_sub(margin).ok()?, is_renewed })
    }

    /// The time until the condition changes.
    pub fn until_change(&self, now: Timestamp) -> Option<Duration> {
        let next = [self.reported_at, self.expires_at].into_iter().find(|time| *time > now)?;
        Some(next.duration_since(now).unsigned_abs())
    }

    /// The condition [`EXPIRING`].
    pub fn condition(&self, now: Timestamp) -> ConditionUpdate {
        let Self { expires_at, reported_at, is_renewed } = self;
        let cause = if *is_renewed { "it was not renewed" } else { "refresh is off" };
        let (holds, reason, message) = if *expires_at <= now {
            (true, "Expired", format!("the token expired at {expires_at}: {cause}"))
        } else if *reported_at <= now {
            let reason = if *is_renewed { "RenewalFailed" } else { "RefreshOff" };
            (true, reason, format!("the token expires at {expires_at}: {cause}"))
        } else {
            (false, AS_EXPECTED, "the token does not expire within an hour, or is renewed before".to_owned())
        };
        ConditionUpdate { type_: EXPIRING, status: holds.into(), reason, message }
    }
}

/// The claims of the token that the Secret of a Token holds, unverified: its expiry is reported even if
/// the signing key is missing.
pub fn unverified_claims(observed: &Observed) -> Option<Claims> {
    let secret = observed.secret.as_ref().ok()?.as_ref()?;
    let is_ours = is_controlled_by(&secret.metadata, observed.token.as_ref());
    let value = secret.data.as_ref()?.get(observed.token.spec.secret_key()).filter(|_| is_ours)?;
    slurm_jwt::parse_unverified(str::from_utf8(&value.0).ok()?).ok()
}

/// The Event about a token that began to expire, or has expired since the status `before`.
pub fn expiry_event(before: &[Condition], after: &[Condition]) -> Option<NewEvent> {
    let is_expiring = |condition: &&Condition| condition.status == ConditionStatus::True.as_str();
    let condition = conditions::find(after, EXPIRING).filter(is_expiring)?;
    let reported = conditions::find(before, EXPIRING).filter(is_expiring);
    let is_new = reported.is_none_or(|reported| reported.reason != condition.reason);
    is_new.then(|| NewEvent {
        type_: EventType::Warning,
        reason: EXPIRING.to_owned(),
        action: "Renew".to_owned(),
        note: condition.message.clone(),
        related: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn expiry(refresh: bool, lifetime: i64) -> Expiry {
        let spec = json!({ "username": "", "refresh": refresh });
        let token = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        let claims = Claims::new("alice", Timestamp::UNIX_EPOCH, SignedDuration::from_secs(lifetime));
        Expiry::of(&token, &claims).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[rstest]
    #[case::long_before(false, 7200, 3599, "AsExpected", Some(1))]
    #[case::an_hour_before(false, 7200, 3600, "RefreshOff", Some(3600))]
    #[case::short_lifetime(false, 900, 0, "RefreshOff", Some(900))]
    #[case::expired(false, 7200, 7200, "Expired", None)]
    #[case::renewal_is_not_due(true, 900, 719, "AsExpected", Some(1))]
    #[case::renewal_is_overdue(true, 900, 720, "RenewalFailed", Some(180))]
    #[case::renewal_failed_but_expiry_is_far(true, 86_400, 80_000, "AsExpected", Some(2800))]
    #[case::renewal_failed_an_hour_before_expiry(true, 86_400, 82_800, "RenewalFailed", Some(3600))]
    #[case::renewal_failed_until_expiry(true, 900, 900, "Expired", None)]
    fn expiry_is_reported_within_the_hour_unless_a_renewal_comes_first(
        #[case] refresh: bool,
        #[case] lifetime: i64,
        #[case] now: i64,
        #[case] reason: &str,
        #[case] until_change: Option<u64>,
    ) {
        let expiry = expiry(refresh, lifetime);
        let condition = expiry.condition(at(now));
        assert_eq!(condition.reason, reason);
        assert_eq!(condition.status == ConditionStatus::True, reason != AS_EXPECTED);
        assert_eq!(expiry.until_change(at(now)), until_change.map(Duration::from_secs));
    }

    #[test]
    fn event_is_published_when_the_expiry_is_near_and_when_the_token_has_expired() {
        let conditions = |now: i64| {
            let mut conditions = Vec::new();
            conditions::set(&mut conditions, expiry(false, 7200).condition(at(now)), None, at(now));
            conditions
        };
        let notes = |before: i64, after: i64| {
            expiry_event(&conditions(before), &conditions(after)).map(|event| event.note)
        };
        assert_eq!(notes(0, 1), None);
        let note = "the token expires at 1970-01-01T02:00:00Z: refresh is off";
        assert_eq!(notes(0, 3600).as_deref(), Some(note));
        assert_eq!(notes(3600, 3700), None, "the same state");
        let note = "the token expired at 1970-01-01T02:00:00Z: refresh is off";
        assert_eq!(notes(3700, 7200).as_deref(), Some(note));
        assert_eq!(notes(3700, 0), None, "the token was renewed");
    }
}
