//! Decides what becomes of the token in the Secret.

use crate::observe::Observed;
use crate::validate::Wish;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, ResourceExt};
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::Token;
use slurm_jwt::{Claims, SigningKey};

/// A token is renewed when this part of its life is left.
const RENEWAL_SHARE: i32 = 5;
/// Below this a plan would chase its own clock.
const SHORTEST_WAIT: SignedDuration = SignedDuration::from_secs(1);

/// What to do with the Secret.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// The token is good: the Secret keeps it, whatever else about the Secret has to be put right.
    Keep {
        /// The token.
        jwt: String,
        /// What it says.
        claims: Claims,
    },
    /// A new token is due, for this reason.
    Issue(Reason),
    /// The Secret cannot be changed any more: it has to go first, for this reason.
    Remove(Reason),
}

/// Why the token in the Secret does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none.
    Absent,
    /// It was signed with another key, or is no token.
    Unverifiable,
    /// It says other things than the Token does.
    Changed,
    /// Its time is over, or nearly so.
    Due,
    /// It is good, but in a Secret that cannot be renewed.
    Immutable,
}

/// How a Secret that exists stands to the Token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is the Token's, or can become it.
    Ours,
    /// It is controlled by the signing key's Secret, as the operator that we may replace left it.
    Inherited,
    /// It is somebody else's, or holds what a Token has no right to take along when it goes.
    Refused,
}

/// Tells whether the Token may write a Secret.
pub fn claim(token: &Token, wish: &Wish, secret: &Secret, signing: Option<&Secret>) -> Claim {
    match control_of(secret.meta(), token) {
        Control::Ours => Claim::Ours,
        Control::Foreign(owner) if signing.and_then(ResourceExt::uid).is_some_and(|uid| uid == owner.uid) => {
            Claim::Inherited
        }
        Control::Foreign(_) => Claim::Refused,
        Control::Orphan => {
            let holds_more = secret.data.iter().flatten().any(|(key, _)| *key != wish.key);
            if holds_more { Claim::Refused } else { Claim::Ours }
        }
    }
}

/// Decides, from what is in the Secret and what the Token wants.
pub fn plan(wish: &Wish, key: &SigningKey, observed: &Observed, now: Timestamp) -> Plan {
    let Some(secret) = &observed.secret else { return Plan::Issue(Reason::Absent) };
    let is_immutable = secret.immutable == Some(true);
    let found = secret.data.as_ref().and_then(|data| data.get(&wish.key));
    match judge(found.map(|bytes| bytes.0.as_slice()), wish, key, now) {
        Ok(_) if is_immutable && wish.refresh => Plan::Remove(Reason::Immutable),
        Ok((jwt, claims)) => Plan::Keep { jwt: jwt.to_owned(), claims },
        Err(reason) if is_immutable => Plan::Remove(reason),
        Err(reason) => Plan::Issue(reason),
    }
}

/// The token and its claims, or why it does not do.
fn judge<'a>(
    found: Option<&'a [u8]>,
    wish: &Wish,
    key: &SigningKey,
    now: Timestamp,
) -> Result<(&'a str, Claims), Reason> {
    let jwt = std::str::from_utf8(found.ok_or(Reason::Absent)?).map_err(|_| Reason::Unverifiable)?;
    let claims = slurm_jwt::parse(jwt, key).map_err(|_| Reason::Unverifiable)?;
    let lifetime = claims.exp.zip(claims.iat).map(|(expires, issued)| expires.saturating_sub(issued));
    if claims.sun.as_deref() != Some(wish.user.as_str()) || lifetime != Some(wish.lifetime.as_secs()) {
        return Err(Reason::Changed);
    }
    // A token that is issued once and for all may end: that is what its owner asked for.
    if wish.refresh && until_renewal(&claims, wish, now) <= SignedDuration::ZERO {
        return Err(Reason::Due);
    }
    Ok((jwt, claims))
}

/// When to look at a token again; never if it is not renewed.
pub fn wait(claims: &Claims, wish: &Wish, now: Timestamp) -> Option<SignedDuration> {
    wish.refresh.then(|| until_renewal(claims, wish, now).max(SHORTEST_WAIT))
}

fn until_renewal(claims: &Claims, wish: &Wish, now: Timestamp) -> SignedDuration {
    let margin = wish.lifetime / RENEWAL_SHARE;
    claims.expires_at().map_or(SignedDuration::ZERO, |expiry| expiry.duration_since(now) - margin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use rstest::rstest;
    use serde_json::json;
    use slinky_api::v1beta1::SecretKeySelector;
    use std::collections::BTreeMap;

    const ISSUED: i64 = 1_800_000_000;

    fn at(seconds_later: i64) -> Timestamp {
        Timestamp::from_second(ISSUED + seconds_later).unwrap()
    }

    fn key(bytes: &[u8]) -> SigningKey {
        SigningKey::new(bytes).unwrap()
    }

    fn wish() -> Wish {
        Wish {
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

    fn jwt() -> String {
        slurm_jwt::mint(&Claims::new("alice", at(0), wish().lifetime), &key(b"k"))
    }

    fn holding(data: &[(&str, &str)], immutable: bool) -> Observed {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, value)| ((*key).to_owned(), ByteString((*value).into()))).collect();
        let secret = Secret { data: Some(data), immutable: Some(immutable), ..Secret::default() };
        Observed { secret: Some(secret), signing: None }
    }

    #[rstest]
    #[case::fresh(0, true)]
    #[case::a_moment_before_renewal(799, true)]
    #[case::at_renewal(800, false)]
    #[case::long_expired(9000, false)]
    fn a_token_is_renewed_when_a_fifth_of_its_life_is_left(#[case] later: i64, #[case] kept: bool) {
        let decided = plan(&wish(), &key(b"k"), &holding(&[("SLURM_JWT", &jwt())], false), at(later));
        if kept {
            assert!(matches!(decided, Plan::Keep { .. }), "{decided:?}");
        } else {
            assert_eq!(decided, Plan::Issue(Reason::Due));
        }
    }

    #[rstest]
    #[case::another_user(Wish { user: "bob".to_owned(), ..wish() }, Reason::Changed)]
    #[case::another_lifetime(Wish { lifetime: SignedDuration::from_secs(60), ..wish() }, Reason::Changed)]
    #[case::another_key_in_the_secret(Wish { key: "OTHER".to_owned(), ..wish() }, Reason::Absent)]
    fn an_edit_of_the_token_issues_a_new_one(#[case] wish: Wish, #[case] reason: Reason) {
        let decided = plan(&wish, &key(b"k"), &holding(&[("SLURM_JWT", &jwt())], false), at(1));
        assert_eq!(decided, Plan::Issue(reason));
    }

    #[rstest]
    #[case::rotated_key(b"another", &jwt())]
    #[case::no_token(b"k", "hello")]
    #[case::nothing(b"k", "")]
    fn what_cannot_be_verified_is_replaced(#[case] signing: &[u8], #[case] found: &str) {
        let decided = plan(&wish(), &key(signing), &holding(&[("SLURM_JWT", found)], false), at(1));
        assert_eq!(decided, Plan::Issue(Reason::Unverifiable));
    }

    #[test]
    fn a_token_that_is_not_renewed_may_end() {
        let wish = Wish { refresh: false, ..wish() };
        let observed = holding(&[("SLURM_JWT", &jwt())], true);
        assert!(matches!(plan(&wish, &key(b"k"), &observed, at(9000)), Plan::Keep { .. }));
    }

    #[rstest]
    #[case::renewal_was_switched_on(wish(), Reason::Immutable)]
    #[case::changed_for_once_and_all(Wish { refresh: false, user: "bob".to_owned(), ..wish() }, Reason::Changed)]
    fn a_secret_that_cannot_be_changed_has_to_go(#[case] wish: Wish, #[case] reason: Reason) {
        let decided = plan(&wish, &key(b"k"), &holding(&[("SLURM_JWT", &jwt())], true), at(1));
        assert_eq!(decided, Plan::Remove(reason));
    }

    #[test]
    fn the_next_look_is_at_renewal_and_never_at_once() {
        let claims = Claims::new("alice", at(0), wish().lifetime);
        assert_eq!(wait(&claims, &wish(), at(100)), Some(SignedDuration::from_secs(700)));
        assert_eq!(wait(&claims, &wish(), at(900)), Some(SHORTEST_WAIT));
        assert_eq!(wait(&claims, &Wish { refresh: false, ..wish() }, at(0)), None);
    }

    #[rstest]
    #[case::own(json!([{ "uid": "token", "controller": true }]), json!({ "x": "" }), Claim::Ours)]
    #[case::of_the_signing_key(json!([{ "uid": "signing", "controller": true }]), json!({}), Claim::Inherited)]
    #[case::of_somebody_else(json!([{ "uid": "other", "controller": true }]), json!({}), Claim::Refused)]
    #[case::orphan(json!([]), json!({ "SLURM_JWT": "" }), Claim::Ours)]
    #[case::orphan_with_more(json!([]), json!({ "password": "" }), Claim::Refused)]
    fn whose_secret_it_is(
        #[case] owners: serde_json::Value,
        #[case] data: serde_json::Value,
        #[case] expected: Claim,
    ) {
        let read = |value| serde_json::from_value::<Secret>(value).unwrap();
        let token =
            serde_json::from_value(json!({ "metadata": { "uid": "token" }, "spec": { "username": "" } }));
        let secret = read(json!({ "metadata": { "ownerReferences": owners }, "data": data }));
        let signing = read(json!({ "metadata": { "uid": "signing" } }));
        assert_eq!(claim(&token.unwrap(), &wish(), &secret, Some(&signing)), expected);
    }
}
