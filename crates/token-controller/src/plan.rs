//! Decides what is done with the token in the Secret. Pure.

mod ownership;

use crate::build::{build_data, build_owner_patch, build_secret};
use crate::expiry::renewal_margin;
use crate::observe::Observed;
use crate::validate::DesiredToken;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use operator_runtime::{Class, Classify, ComponentError, MissingReference, WATCH_FALLBACK, secret_value};
use ownership::{Ownership, ownership};
use serde_json::Value;
use slinky_api::v1beta1::Token;
use slurm_jwt::{Claims, JwtError, SigningKey};
use std::sync::Arc;
use std::time::Duration;

/// Shortest requeue delay: a renewal that is overdue must not requeue in a tight loop.
const MIN_REQUEUE: SignedDuration = SignedDuration::from_secs(1);

/// Why the Secret is left as it is.
pub type Obstacle = operator_runtime::Obstacle<TokenObstacle>;
/// Why a reconcile failed.
pub type Error = ComponentError<TokenObstacle>;

/// The obstacles that only Tokens have. A watch reports the end of each.
#[derive(Debug, thiserror::Error)]
pub enum TokenObstacle {
    /// The signing key does not exist.
    #[error("the signing key is missing")]
    SigningKeyMissing(#[from] MissingReference),
    /// The signing key is not a valid one.
    #[error("the signing key cannot be used")]
    SigningKeyUnusable(#[from] JwtError),
    /// The Secret may not be written.
    #[error(
        "Secret {0} belongs to another owner, or holds other data than a token signed with the current key: left unchanged; \
         delete it, or name another Secret in spec.secretRef"
    )]
    SecretOccupied(String),
}

impl Classify for TokenObstacle {
    fn class(&self) -> Class {
        match self {
            Self::SigningKeyMissing(missing) => missing.class(),
            Self::SigningKeyUnusable(_) | Self::SecretOccupied(_) => Class::Waiting(WATCH_FALLBACK),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::SigningKeyMissing(_) => "SigningKeyMissing",
            Self::SigningKeyUnusable(_) => "SigningKeyUnusable",
            Self::SecretOccupied(_) => "SecretOccupied",
        }
    }
}

/// How the Secret is written, or why it is left as it is.
pub type Plan = Result<SecretWrite, Obstacle>;

/// How the Secret is written.
#[derive(Debug)]
pub struct SecretWrite {
    /// Makes the Token the controller of the Secret first.
    pub owner_patch: Option<Value>,
    /// What is written.
    pub step: Step,
}

/// One write of the Secret.
#[derive(Debug)]
pub enum Step {
    /// The Secret is applied with the token that it has.
    Keep {
        /// The Secret.
        secret: Box<Secret>,
        /// The claims of its token.
        claims: Claims,
    },
    /// The Secret is applied with a new token.
    Issue(Box<Issue>),
    /// The Secret is immutable: it is deleted, and its deletion event leads to a new one.
    Delete(Reason),
}

/// A token to be signed.
#[derive(Debug)]
pub struct Issue {
    /// The Secret, without its data.
    pub secret: Secret,
    /// The validated spec.
    pub desired: DesiredToken,
    /// The time of issue.
    pub issued_at: Timestamp,
    /// The key that signs it.
    pub signing_key: SigningKey,
    /// Why the old token is replaced.
    pub reason: Reason,
}

/// Why the token in the Secret is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The Secret has no token.
    Absent,
    /// It is signed with another key, or is not a token.
    Unverifiable,
    /// Its user or lifetime differs from the spec.
    Changed,
    /// It expires soon, or has expired.
    Due,
    /// It is valid, but in an immutable Secret, where it cannot be renewed.
    Immutable,
}

/// Decides what is done with the Secret.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let token = observed.token.as_ref();
    let desired = observed.desired.as_ref().map_err(|invalid| Obstacle::invalid(Arc::clone(invalid)))?;
    let signing_secret = observed.signing_secret.as_ref().map_err(Arc::clone)?.as_ref();
    let secret = observed.secret.as_ref().map_err(Arc::clone)?.as_ref();
    let signing_key = signing_key(desired, signing_secret).map_err(Obstacle::Specific)?;
    let relation = |secret| ownership(token, desired, secret, &signing_key, signing_secret);
    let owner_patch = match secret.map(|secret| (secret, relation(secret))) {
        None | Some((_, Ownership::Ours)) => None,
        Some((secret, Ownership::Adoptable)) => Some(build_owner_patch(token, secret)),
        Some((_, Ownership::Refused)) => {
            return Err(Obstacle::Specific(TokenObstacle::SecretOccupied(desired.secret.clone())));
        }
    };
    Ok(SecretWrite { owner_patch, step: plan_step(token, desired, signing_key, secret, now) })
}

fn signing_key(desired: &DesiredToken, secret: Option<&Secret>) -> Result<SigningKey, TokenObstacle> {
    Ok(SigningKey::new(secret_value(secret, &desired.signing_key.name, &desired.signing_key.key)?)?)
}

fn plan_step(
    token: &Token,
    desired: &DesiredToken,
    signing_key: SigningKey,
    secret: Option<&Secret>,
    now: Timestamp,
) -> Step {
    let is_immutable = secret.is_some_and(|secret| secret.immutable == Some(true));
    match check_token(secret, desired, &signing_key, now) {
        Ok(_) if is_immutable && desired.refresh => Step::Delete(Reason::Immutable),
        Ok((jwt, claims)) => {
            let data = Some(build_data(&desired.key, jwt.to_owned()));
            Step::Keep { secret: Box::new(Secret { data, ..build_secret(token, desired) }), claims }
        }
        Err(reason) if is_immutable => Step::Delete(reason),
        Err(reason) => Step::Issue(Box::new(Issue {
            secret: build_secret(token, desired),
            desired: desired.clone(),
            issued_at: now,
            signing_key,
            reason,
        })),
    }
}

/// The token in the Secret and its claims, or why it is replaced.
fn check_token<'a>(
    secret: Option<&'a Secret>,
    desired: &DesiredToken,
    key: &SigningKey,
    now: Timestamp,
) -> Result<(&'a str, Claims), Reason> {
    let value = secret.and_then(|secret| secret.data.as_ref()?.get(&desired.key)).ok_or(Reason::Absent)?;
    let jwt = std::str::from_utf8(&value.0).map_err(|_| Reason::Unverifiable)?;
    let claims = slurm_jwt::parse(jwt, key).map_err(|_| Reason::Unverifiable)?;
    let lifetime = claims.exp.zip(claims.iat).map(|(expires, issued)| expires.saturating_sub(issued));
    if claims.sun.as_deref() != Some(desired.user.as_str()) || lifetime != Some(desired.lifetime.as_secs()) {
        return Err(Reason::Changed);
    }
    // With refresh off the token is meant to expire.
    if desired.refresh && until_renewal(&claims, desired, now) <= SignedDuration::ZERO {
        return Err(Reason::Due);
    }
    Ok((jwt, claims))
}

/// The time until the token is renewed; `None` if it is not.
pub fn renewal_after(observed: &Observed, claims: &Claims, now: Timestamp) -> Option<Duration> {
    let desired = observed.desired.as_ref().ok().filter(|desired| desired.refresh)?;
    Some(until_renewal(claims, desired, now).max(MIN_REQUEUE).unsigned_abs())
}

fn until_renewal(claims: &Claims, desired: &DesiredToken, now: Timestamp) -> SignedDuration {
    let margin = renewal_margin(desired.lifetime);
    claims.expires_at().map_or(SignedDuration::ZERO, |expiry| expiry.duration_since(now) - margin)
}

#[cfg(test)]
mod fixture {
    use crate::validate::DesiredToken;
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;
    use slinky_api::v1beta1::{SecretKeySelector, Token};
    use slurm_jwt::{Claims, SigningKey};

    const ISSUED: i64 = 1_800_000_000;

    pub fn at(seconds_later: i64) -> Timestamp {
        Timestamp::from_second(ISSUED + seconds_later).unwrap()
    }

    pub fn key(bytes: &[u8]) -> SigningKey {
        SigningKey::new(bytes).unwrap()
    }

    pub fn desired() -> DesiredToken {
        DesiredToken {
            user: "alice".to_owned(),
            lifetime: SignedDuration::from_secs(1000),
            refresh: true,
            signing_key: SecretKeySelector {
                name: "auth".to_owned(),
                key: "jwt.key".to_owned(),
                optional: None,
            },
            secret: "s".to_owned(),
            key: "SLURM_JWT".to_owned(),
        }
    }

    pub fn jwt() -> String {
        slurm_jwt::mint(&Claims::new("alice", at(0), desired().lifetime), &key(b"k"))
    }

    pub fn token() -> Token {
        serde_json::from_value(
            json!({ "metadata": { "name": "t", "uid": "token" }, "spec": { "username": "" } }),
        )
        .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{at, desired, jwt, key, token};
    use super::*;
    use operator_runtime::references::ReferenceError;
    use rstest::rstest;
    use serde_json::json;

    fn secret_with(value: &str, immutable: bool) -> Secret {
        let data = build_data("SLURM_JWT", value.to_owned());
        Secret { data: Some(data), immutable: Some(immutable), ..Secret::default() }
    }

    fn step(desired: &DesiredToken, signing_key: &[u8], secret: &Secret, seconds_later: i64) -> Step {
        plan_step(&token(), desired, key(signing_key), Some(secret), at(seconds_later))
    }

    fn reason_to_issue(step: Step) -> Reason {
        let Step::Issue(issue) = step else { panic!("no token is issued: {step:?}") };
        issue.reason
    }

    #[rstest]
    #[case::fresh(0, true)]
    #[case::one_second_before_renewal(799, true)]
    #[case::at_renewal(800, false)]
    #[case::long_expired(9000, false)]
    fn token_is_renewed_when_a_fifth_of_its_lifetime_is_left(#[case] later: i64, #[case] is_kept: bool) {
        let step = step(&desired(), b"k", &secret_with(&jwt(), false), later);
        if is_kept {
            assert!(matches!(step, Step::Keep { .. }), "{step:?}");
        } else {
            assert_eq!(reason_to_issue(step), Reason::Due);
        }
    }

    #[rstest]
    #[case::user(DesiredToken { user: "bob".to_owned(), ..desired() }, Reason::Changed)]
    #[case::lifetime(DesiredToken { lifetime: SignedDuration::from_secs(60), ..desired() }, Reason::Changed)]
    #[case::key_in_the_secret(DesiredToken { key: "OTHER".to_owned(), ..desired() }, Reason::Absent)]
    fn edit_of_the_spec_issues_a_new_token(#[case] desired: DesiredToken, #[case] reason: Reason) {
        let step = step(&desired, b"k", &secret_with(&jwt(), false), 1);
        assert_eq!(reason_to_issue(step), reason);
    }

    #[rstest]
    #[case::rotated_signing_key(b"another", &jwt())]
    #[case::not_a_token(b"k", "hello")]
    #[case::empty(b"k", "")]
    fn unverifiable_token_is_replaced(#[case] signing_key: &[u8], #[case] value: &str) {
        let step = step(&desired(), signing_key, &secret_with(value, false), 1);
        assert_eq!(reason_to_issue(step), Reason::Unverifiable);
    }

    #[test]
    fn token_expires_when_refresh_is_off() {
        let desired = DesiredToken { refresh: false, ..desired() };
        let step = step(&desired, b"k", &secret_with(&jwt(), true), 9000);
        assert!(matches!(step, Step::Keep { .. }), "{step:?}");
    }

    #[rstest]
    #[case::refresh_was_switched_on(desired(), Reason::Immutable)]
    #[case::user_changed(DesiredToken { refresh: false, user: "bob".to_owned(), ..desired() }, Reason::Changed)]
    fn immutable_secret_is_deleted_to_change_its_token(
        #[case] desired: DesiredToken,
        #[case] reason: Reason,
    ) {
        let step = step(&desired, b"k", &secret_with(&jwt(), true), 1);
        assert!(matches!(step, Step::Delete(why) if why == reason), "{step:?}");
    }

    fn read(value: Value) -> Secret {
        serde_json::from_value(value).unwrap()
    }

    /// A Token whose signing key exists.
    fn observed(secret: Option<Secret>) -> Observed {
        let data = build_data("jwt.key", "k".to_owned());
        let signing_secret = Secret { data: Some(data), ..read(json!({ "metadata": { "uid": "signing" } })) };
        Observed {
            token: Arc::new(token()),
            desired: Ok(desired()),
            signing_secret: Ok(Some(signing_secret)),
            secret: Ok(secret),
        }
    }

    #[test]
    fn requeue_is_at_renewal_and_never_immediate() {
        let claims = Claims::new("alice", at(0), desired().lifetime);
        let refreshed = observed(None);
        assert_eq!(renewal_after(&refreshed, &claims, at(100)), Some(Duration::from_secs(700)));
        assert_eq!(renewal_after(&refreshed, &claims, at(900)), Some(MIN_REQUEUE.unsigned_abs()));
        let once = Observed { desired: Ok(DesiredToken { refresh: false, ..desired() }), ..observed(None) };
        assert_eq!(renewal_after(&once, &claims, at(0)), None);
    }

    #[rstest]
    #[case::own("token", "other data", Some(false))]
    #[case::of_the_signing_key("signing", "", Some(true))]
    #[case::of_another_owner("other", "", None)]
    #[case::of_the_signing_key_with_other_data("signing", "other data", None)]
    fn secret_is_owned_before_it_is_written(
        #[case] owner: &str,
        #[case] value: &str,
        #[case] is_patched: Option<bool>,
    ) {
        let owners = json!([{ "uid": "another" }, { "uid": owner, "controller": true }]);
        let secret = read(json!({ "metadata": { "resourceVersion": "7", "ownerReferences": owners } }));
        let secret = Secret { data: Some(build_data("SLURM_JWT", value.to_owned())), ..secret };
        match plan(&observed(Some(secret)), at(0)) {
            Err(obstacle) => assert_eq!((is_patched, obstacle.category()), (None, "SecretOccupied")),
            Ok(SecretWrite { owner_patch, .. }) => {
                assert_eq!(is_patched, Some(owner_patch.is_some()));
                let Some(patch) = owner_patch else { return };
                let owners = patch["metadata"]["ownerReferences"].as_array().unwrap();
                let uids: Vec<_> = owners.iter().map(|owner| &owner["uid"]).collect();
                assert_eq!(json!(uids), json!(["another", "token"]));
                assert_eq!(patch["metadata"]["resourceVersion"], "7");
            }
        }
    }

    #[rstest]
    #[case::missing_secret(Ok(None), "SigningKeyMissing")]
    #[case::missing_key(Ok(Some(Secret::default())), "SigningKeyMissing")]
    #[case::empty_key(
        Ok(Some(Secret { data: Some(build_data("jwt.key", String::new())), ..Secret::default() })),
        "SigningKeyUnusable"
    )]
    #[case::unreadable(
        Err(Arc::new(ReferenceError::from(MissingReference::Secret("auth".to_owned())))),
        "SecretMissing"
    )]
    fn nothing_is_written_without_a_signing_key(
        #[case] signing_secret: crate::observe::SecretRead,
        #[case] category: &str,
    ) {
        let obstacle = plan(&Observed { signing_secret, ..observed(None) }, at(0)).unwrap_err();
        assert_eq!(obstacle.category(), category);
    }
}
