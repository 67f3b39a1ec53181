//! Tokens in a real API server: issued, renewed, made anew, and nothing of others touched.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::{Context, Result};
use e2e::custom::{api, resource};
use e2e::eventually;
use e2e::stage::{SOON, Stage, condition};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use slinky_api::conditions::DEGRADED;
use slinky_api::v1beta1::Token;
use slurm_jwt::{Claims, SigningKey};
use std::time::Duration;

/// The garbage collector learns of new kinds twice a minute.
const COLLECTED: Duration = Duration::from_mins(2);
const OLD_KEY: &str = "the key that everybody knew";
const NEW_KEY: &str = "the key that nobody knows yet";

async fn set(test: &str) -> Result<Stage> {
    Stage::set("token-controller", test).await
}

fn secrets(stage: &Stage) -> Api<Secret> {
    stage.api()
}

async fn put_key(stage: &Stage, key: &str) -> Result<Secret> {
    stage.put("auth", json!({ "data": { "jwt.key": ByteString(key.into()) } })).await
}

async fn put_token(stage: &Stage, change: Value) -> Result<Token> {
    let mut spec = json!({ "jwtKeyRef": { "name": "auth", "key": "jwt.key" }, "username": "alice" });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    stage.put("t", json!({ "metadata": { "labels": { "team": "hpc" } }, "spec": spec })).await
}

async fn edit_token(stage: &Stage, change: Value) -> Result<Token> {
    stage.edit("t", change).await
}

async fn ready(stage: &Stage, reason: &str) -> Result<Token> {
    stage.ready("t", reason).await
}

/// The token in the Secret, once it was signed with `key` and `holds`.
async fn token_in(
    stage: &Stage,
    secret: &str,
    key: &str,
    holds: impl Fn(&Claims) -> bool,
) -> Result<(Secret, String, Claims)> {
    let key = SigningKey::new(key.as_bytes())?;
    let look = async || {
        let secret = secrets(stage).get(secret).await?;
        let jwt = secret.data.iter().flatten().next().context("an empty Secret")?.1;
        let jwt = String::from_utf8(jwt.0.clone())?;
        let claims = slurm_jwt::parse(&jwt, &key)?;
        Ok((secret, jwt, claims))
    };
    eventually("a token as wanted", SOON, look, |(_, _, claims)| holds(claims)).await
}

#[tokio::test]
async fn a_token_is_issued_and_goes_with_its_resource() -> Result<()> {
    let stage = set("issue").await?;
    put_key(&stage, OLD_KEY).await?;
    let token = put_token(&stage, json!({})).await?;
    let (secret, _, claims) = token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true).await?;
    assert_eq!((claims.sun.as_deref(), claims.exp.unwrap() - claims.iat.unwrap()), (Some("alice"), 900));
    assert_eq!((secret.immutable, secret.labels()["team"].as_str()), (Some(false), "hpc"));
    let owner = &secret.owner_references()[0];
    assert_eq!((Some(&owner.uid), owner.controller), (token.metadata.uid.as_ref(), Some(true)));
    let token = ready(&stage, "AsExpected").await?;
    assert_eq!(token.status.unwrap().issued_at.unwrap().0, claims.issued_at().unwrap());

    stage.api::<Token>().delete("t", &DeleteParams::default()).await?;
    let look = async || Ok(secrets(&stage).get_opt("t-jwt-alice").await?);
    eventually("no credential is left", COLLECTED, look, Option::is_none).await?;
    stage.end().await
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends_again_and_again() -> Result<()> {
    let stage = set("renew").await?;
    put_key(&stage, OLD_KEY).await?;
    put_token(&stage, json!({ "lifetime": "5s" })).await?;
    let (_, _, mut claims) = token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true).await?;
    for _ in 0..3 {
        let last = claims.clone();
        let (_, _, next) = token_in(&stage, "t-jwt-alice", OLD_KEY, |claims| claims.jti != last.jti).await?;
        assert!(next.iat < last.exp, "the old token {last:?} ended before the new one {next:?} was issued");
        claims = next;
    }
    stage.end().await
}

#[tokio::test]
async fn a_new_signing_key_makes_a_new_token_at_once() -> Result<()> {
    let stage = set("rotate").await?;
    put_key(&stage, OLD_KEY).await?;
    put_token(&stage, json!({})).await?;
    token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true).await?;
    put_key(&stage, NEW_KEY).await?;
    let (_, jwt, _) = token_in(&stage, "t-jwt-alice", NEW_KEY, |_| true).await?;
    assert!(slurm_jwt::parse(&jwt, &SigningKey::new(OLD_KEY.as_bytes())?).is_err());
    stage.end().await
}

#[tokio::test]
async fn an_edit_takes_effect_at_once_in_immutable_secrets_too() -> Result<()> {
    let stage = set("edit").await?;
    put_key(&stage, OLD_KEY).await?;
    put_token(&stage, json!({ "secretRef": { "name": "s", "key": "k" } })).await?;
    token_in(&stage, "s", OLD_KEY, |claims| claims.sun.as_deref() == Some("alice")).await?;
    edit_token(&stage, json!({ "username": "Bob_1" })).await?;
    let (_, before, _) =
        token_in(&stage, "s", OLD_KEY, |claims| claims.sun.as_deref() == Some("Bob_1")).await?;

    edit_token(&stage, json!({ "refresh": false })).await?;
    let look = async || Ok(secrets(&stage).get("s").await?);
    eventually("the Secret cannot be changed", SOON, look, |secret| secret.immutable == Some(true)).await?;
    let (_, after, _) = token_in(&stage, "s", OLD_KEY, |_| true).await?;
    assert_eq!(after, before, "a good token stays");

    edit_token(&stage, json!({ "username": "carol" })).await?;
    let (secret, _, _) =
        token_in(&stage, "s", OLD_KEY, |claims| claims.sun.as_deref() == Some("carol")).await?;
    assert_eq!(secret.immutable, Some(true));
    ready(&stage, "AsExpected").await?;
    stage.end().await
}

#[tokio::test]
async fn a_secret_that_was_changed_or_deleted_is_put_right() -> Result<()> {
    let stage = set("repair").await?;
    put_key(&stage, OLD_KEY).await?;
    put_token(&stage, json!({})).await?;
    let (_, _, first) = token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true).await?;
    secrets(&stage).delete("t-jwt-alice", &DeleteParams::default()).await?;
    let (_, _, second) = token_in(&stage, "t-jwt-alice", OLD_KEY, |claims| claims.jti != first.jti).await?;
    let garbage = Patch::Merge(json!({ "stringData": { "SLURM_JWT": "garbage" } }));
    secrets(&stage).patch("t-jwt-alice", &PatchParams::default(), &garbage).await?;
    token_in(&stage, "t-jwt-alice", OLD_KEY, |claims| claims.jti != second.jti).await?;
    stage.end().await
}

#[tokio::test]
async fn what_is_missing_is_named_and_heals_when_it_appears() -> Result<()> {
    let stage = set("missing").await?;
    put_token(&stage, json!({})).await?;
    let token = ready(&stage, "SigningKeyMissing").await?;
    let degraded = condition(&token, DEGRADED)?;
    assert_eq!((degraded.status.as_str(), degraded.message.contains("auth")), ("True", true), "{degraded:?}");
    let event = stage.event("t", "SigningKeyMissing").await?;
    assert!(event.note.unwrap().contains("Secret auth"));

    put_key(&stage, "").await?;
    ready(&stage, "SigningKeyUnusable").await?;
    put_key(&stage, OLD_KEY).await?;
    token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true).await?;
    ready(&stage, "AsExpected").await?;

    secrets(&stage).delete("auth", &DeleteParams::default()).await?;
    ready(&stage, "SigningKeyMissing").await?;
    token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true)
        .await
        .context("the token that there was is left alone")?;
    stage.end().await
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() -> Result<()> {
    let stage = set("occupied").await?;
    put_key(&stage, OLD_KEY).await?;
    let occupant = json!({ "metadata": { "name": "t-jwt-alice" }, "stringData": { "password": "mine" } });
    let occupant = secrets(&stage).create(&PostParams::default(), &serde_json::from_value(occupant)?).await?;
    put_token(&stage, json!({})).await?;
    ready(&stage, "SecretOccupied").await?;
    stage.event("t", "SecretOccupied").await?;
    let now = secrets(&stage).get("t-jwt-alice").await?;
    assert_eq!(now.resource_version(), occupant.resource_version());

    secrets(&stage).delete("t-jwt-alice", &DeleteParams::default()).await?;
    token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true).await?;
    stage.end().await
}

#[tokio::test]
async fn a_token_of_the_operator_before_us_is_kept_and_owned() -> Result<()> {
    let stage = set("inherit").await?;
    let signing = put_key(&stage, OLD_KEY).await?;
    let key = SigningKey::new(OLD_KEY.as_bytes())?;
    let now = now();
    let jwt = slurm_jwt::mint(&Claims::new("alice", now, jiff::SignedDuration::from_mins(15)), &key);
    let inherited = json!({
        "metadata": {
            "name": "t-jwt-alice",
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Secret", "name": "auth", "uid": signing.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "stringData": { "SLURM_JWT": jwt },
    });
    secrets(&stage).create(&PostParams::default(), &serde_json::from_value(inherited)?).await?;
    let token = put_token(&stage, json!({})).await?;
    ready(&stage, "AsExpected").await?;
    let (secret, kept, _) = token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true).await?;
    let owners: Vec<_> = secret.owner_references().iter().map(|owner| owner.uid.clone()).collect();
    assert_eq!((kept, owners), (jwt, vec![token.uid().unwrap()]));
    stage.end().await
}

#[tokio::test]
async fn an_object_that_makes_no_sense_stops_no_other() -> Result<()> {
    let stage = set("poison").await?;
    put_key(&stage, OLD_KEY).await?;
    let mut poison = DynamicObject::new("poison", &resource("Token"));
    poison.data = json!({});
    api(stage.client(), stage.namespace(), "Token").create(&PostParams::default(), &poison).await?;
    let event = stage.event("poison", "Unreadable").await?;
    assert!(event.note.unwrap().contains("spec"));

    put_token(&stage, json!({ "lifetime": "for ever" })).await?;
    let token = ready(&stage, "InvalidSpec").await?;
    let message = condition(&token, DEGRADED)?.message;
    assert!(message.contains("spec.lifetime"), "{message}");
    edit_token(&stage, json!({ "lifetime": null })).await?;
    token_in(&stage, "t-jwt-alice", OLD_KEY, |_| true).await?;
    stage.end().await
}

#[expect(clippy::disallowed_methods, reason = "a token for now has to know what now is")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
