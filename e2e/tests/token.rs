//! The token-controller against a real API server: issue, renewal, key rotation, repair, foreign Secrets.

use anyhow::{Context, Result};
use e2e::crds::{api_resource, dynamic_api};
use e2e::eventually;
use e2e::fixtures::{apply_secret, ensure_controlled_by, secret_data, with_spec};
use e2e::test_env::{SOON, TestEnv, condition, metadata_controlled_by};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{DynamicObject, PostParams};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::conditions::EXPIRING;
use slinky_api::v1beta1::Token;
use slurm_jwt::{Claims, SigningKey};
use std::time::Duration;

/// The garbage collector discovers new kinds twice a minute.
const GARBAGE_COLLECTED: Duration = Duration::from_mins(2);
/// The Secret that a Token gets by default.
const SECRET: &str = "t-jwt-alice";
const OLD_KEY: &str = "the old signing key";
const NEW_KEY: &str = "the new signing key";

async fn start(test: &str) -> Result<TestEnv> {
    TestEnv::start("token-controller", test).await
}

async fn apply_key(env: &TestEnv, key: &str) -> Result<Secret> {
    apply_secret(env, "auth", &[("jwt.key", key)]).await
}

async fn apply_token(env: &TestEnv, replaced: Value) -> Result<Token> {
    let spec = json!({ "jwtKeyRef": { "name": "auth", "key": "jwt.key" }, "username": "alice" });
    let mut token = with_spec(spec, &replaced);
    token["metadata"] = json!({ "labels": { "team": "hpc" } });
    env.apply("t", token).await
}

async fn patch_token(env: &TestEnv, spec: Value) -> Result<Token> {
    env.patch_spec("t", spec).await
}

async fn wait_for_ready_reason(env: &TestEnv, reason: &str) -> Result<Token> {
    env.wait_for_ready_reason("t", reason).await
}

/// A token of alice that is signed with this key.
fn jwt_of(key: &str) -> Result<String> {
    let key = SigningKey::new(key.as_bytes())?;
    Ok(slurm_jwt::mint(&Claims::new("alice", now(), jiff::SignedDuration::from_mins(15)), &key))
}

/// Waits until a Secret holds a token that is signed with `key` and satisfies `is_expected`.
async fn wait_for_token(
    env: &TestEnv,
    secret: &str,
    key: &str,
    is_expected: impl Fn(&Claims) -> bool,
) -> Result<(Secret, String, Claims)> {
    let key = SigningKey::new(key.as_bytes())?;
    let read = async || {
        let secret = env.get::<Secret>(secret).await?;
        let jwt = secret.data.iter().flatten().next().context("an empty Secret")?.1;
        let jwt = String::from_utf8(jwt.0.clone())?;
        let claims = slurm_jwt::parse(&jwt, &key)?;
        Ok((secret, jwt, claims))
    };
    eventually("the expected token", SOON, read, |(_, _, claims)| is_expected(claims)).await
}

#[tokio::test]
async fn token_is_issued_and_deleted_with_its_resource() -> Result<()> {
    let env = start("issue").await?;
    apply_key(&env, OLD_KEY).await?;
    let token = apply_token(&env, json!({})).await?;
    let (secret, _, claims) = wait_for_token(&env, SECRET, OLD_KEY, |_| true).await?;
    assert_eq!((claims.sun.as_deref(), claims.exp.unwrap() - claims.iat.unwrap()), (Some("alice"), 900));
    assert_eq!((secret.immutable, secret.labels()["team"].as_str()), (Some(false), "hpc"));
    ensure_controlled_by(&secret, &token)?;
    let token = wait_for_ready_reason(&env, "AsExpected").await?;
    assert_eq!(token.status.unwrap().issued_at.unwrap().0, claims.issued_at().unwrap());

    env.delete::<Token>("t").await?;
    env.wait_until_deleted_within::<Secret>(SECRET, GARBAGE_COLLECTED).await?;
    env.tear_down().await
}

#[tokio::test]
async fn token_is_renewed_repeatedly_before_it_expires() -> Result<()> {
    let env = start("renew").await?;
    apply_key(&env, OLD_KEY).await?;
    // The first token is close to its renewal, to save the time of waiting for it.
    let lifetime = jiff::SignedDuration::from_secs(10);
    let mut claims = Claims::new("alice", now() - jiff::SignedDuration::from_secs(6), lifetime);
    let jwt = slurm_jwt::mint(&claims, &SigningKey::new(OLD_KEY.as_bytes())?);
    apply_secret(&env, SECRET, &[("SLURM_JWT", &jwt)]).await?;
    apply_token(&env, json!({ "lifetime": "10s" })).await?;
    for _ in 0..2 {
        let last = claims.clone();
        let (_, _, next) = wait_for_token(&env, SECRET, OLD_KEY, |claims| claims.jti != last.jti).await?;
        assert!(next.iat < last.exp, "{last:?} expired before {next:?} was issued");
        claims = next;
    }
    env.tear_down().await
}

#[tokio::test]
async fn rotated_signing_key_issues_a_new_token() -> Result<()> {
    let env = start("rotate").await?;
    apply_key(&env, OLD_KEY).await?;
    apply_token(&env, json!({})).await?;
    wait_for_token(&env, SECRET, OLD_KEY, |_| true).await?;
    apply_key(&env, NEW_KEY).await?;
    let (_, jwt, _) = wait_for_token(&env, SECRET, NEW_KEY, |_| true).await?;
    assert!(slurm_jwt::parse(&jwt, &SigningKey::new(OLD_KEY.as_bytes())?).is_err());
    env.tear_down().await
}

#[tokio::test]
async fn changed_spec_reaches_the_token_even_in_an_immutable_secret() -> Result<()> {
    let env = start("edit").await?;
    apply_key(&env, OLD_KEY).await?;
    apply_token(&env, json!({ "secretRef": { "name": "s", "key": "k" } })).await?;
    wait_for_token(&env, "s", OLD_KEY, |claims| claims.sun.as_deref() == Some("alice")).await?;
    patch_token(&env, json!({ "username": "Bob_1" })).await?;
    let (_, before, _) =
        wait_for_token(&env, "s", OLD_KEY, |claims| claims.sun.as_deref() == Some("Bob_1")).await?;

    patch_token(&env, json!({ "refresh": false })).await?;
    env.wait_until::<Secret>("s", |secret| secret.immutable == Some(true)).await?;
    let (_, after, _) = wait_for_token(&env, "s", OLD_KEY, |_| true).await?;
    assert_eq!(after, before, "a valid token is kept");

    patch_token(&env, json!({ "username": "carol" })).await?;
    let (secret, _, _) =
        wait_for_token(&env, "s", OLD_KEY, |claims| claims.sun.as_deref() == Some("carol")).await?;
    assert_eq!(secret.immutable, Some(true));
    wait_for_ready_reason(&env, "AsExpected").await?;
    env.tear_down().await
}

#[tokio::test]
async fn changed_or_deleted_secret_is_restored() -> Result<()> {
    let env = start("repair").await?;
    apply_key(&env, OLD_KEY).await?;
    apply_token(&env, json!({})).await?;
    let (_, _, first) = wait_for_token(&env, SECRET, OLD_KEY, |_| true).await?;
    env.delete::<Secret>(SECRET).await?;
    let (_, _, second) = wait_for_token(&env, SECRET, OLD_KEY, |claims| claims.jti != first.jti).await?;
    env.patch::<Secret>(SECRET, json!({ "stringData": { "SLURM_JWT": "garbage" } })).await?;
    wait_for_token(&env, SECRET, OLD_KEY, |claims| claims.jti != second.jti).await?;
    env.tear_down().await
}

#[tokio::test]
async fn missing_signing_key_is_reported_and_creating_it_resolves_the_condition() -> Result<()> {
    let env = start("missing").await?;
    apply_token(&env, json!({})).await?;
    env.ensure_degraded::<Token>("t", "SigningKeyMissing", "auth").await?;
    env.ensure_event_note("t", "SigningKeyMissing", "Secret auth").await?;

    apply_key(&env, "").await?;
    wait_for_ready_reason(&env, "SigningKeyUnusable").await?;
    apply_key(&env, OLD_KEY).await?;
    wait_for_token(&env, SECRET, OLD_KEY, |_| true).await?;
    wait_for_ready_reason(&env, "AsExpected").await?;

    env.delete::<Secret>("auth").await?;
    wait_for_ready_reason(&env, "SigningKeyMissing").await?;
    wait_for_token(&env, SECRET, OLD_KEY, |_| true).await.context("the existing token is kept")?;
    env.tear_down().await
}

#[rstest]
#[case::no_token("SLURM_JWT", Ok("mine".to_owned()), false)]
#[case::password("password", Ok("mine".to_owned()), false)]
#[case::token_of_another_key("SLURM_JWT", jwt_of(NEW_KEY), false)]
#[case::owned_by_the_signing_key("SLURM_JWT", Ok("mine".to_owned()), true)]
#[tokio::test]
async fn secret_that_is_not_owned_by_the_token_is_not_touched(
    #[case] key: &str,
    #[case] value: Result<String>,
    #[case] is_owned: bool,
) -> Result<()> {
    let env = start("occupied").await?;
    let signing = apply_key(&env, OLD_KEY).await?;
    let metadata = if is_owned { metadata_controlled_by(&signing)? } else { json!({}) };
    let occupant = json!({ "metadata": metadata, "data": secret_data(&[(key, &value?)]) });
    let occupant: Secret = env.apply(SECRET, occupant).await?;
    apply_token(&env, json!({})).await?;
    wait_for_ready_reason(&env, "SecretOccupied").await?;
    env.ensure_event_note("t", "SecretOccupied", "name another Secret in spec.secretRef").await?;
    env.delete::<Token>("t").await?;
    env.wait_until_deleted::<Token>("t").await?;
    let now = env.get::<Secret>(SECRET).await?;
    assert_eq!(now.resource_version(), occupant.resource_version());
    env.tear_down().await
}

#[tokio::test]
async fn empty_secret_is_adopted() -> Result<()> {
    let env = start("empty").await?;
    apply_key(&env, OLD_KEY).await?;
    apply_secret(&env, SECRET, &[]).await?;
    let token = apply_token(&env, json!({})).await?;
    let (secret, _, _) = wait_for_token(&env, SECRET, OLD_KEY, |_| true).await?;
    ensure_controlled_by(&secret, &token)?;
    env.tear_down().await
}

#[tokio::test]
async fn token_of_another_operator_is_adopted_and_kept() -> Result<()> {
    let env = start("inherit").await?;
    let signing = apply_key(&env, OLD_KEY).await?;
    let jwt = jwt_of(OLD_KEY)?;
    let metadata = metadata_controlled_by(&signing)?;
    let inherited = json!({ "metadata": metadata, "stringData": { "SLURM_JWT": jwt } });
    env.create_as_other_operator::<Secret>(SECRET, inherited).await?;
    let token = apply_token(&env, json!({})).await?;
    wait_for_ready_reason(&env, "AsExpected").await?;
    let (secret, kept, _) = wait_for_token(&env, SECRET, OLD_KEY, |_| true).await?;
    assert_eq!(kept, jwt);
    ensure_controlled_by(&secret, &token)?;
    env.tear_down().await
}

#[tokio::test]
async fn expiry_within_the_hour_is_reported_by_condition_event_and_metric() -> Result<()> {
    let env = start("expiry").await?;
    apply_key(&env, OLD_KEY).await?;
    apply_token(&env, json!({ "lifetime": "1h0m5s", "refresh": false })).await?;
    let expiring =
        |token: &Token| condition(token, EXPIRING).map(|now| (now.status, now.reason)).unwrap_or_default();
    let is =
        |token: &Token, status: &str, reason: &str| expiring(token) == (status.to_owned(), reason.to_owned());
    let metric = |value: u8| {
        let sample = format!("token_expiring{{namespace=\"{}\",name=\"t\"}} {value}", env.namespace());
        let read = async || env.metrics();
        eventually("the metric of the Token", SOON, read, move |text: &String| text.contains(&sample))
    };
    env.wait_until::<Token>("t", |token| is(token, "False", "AsExpected")).await?;
    metric(0).await?;
    env.wait_until::<Token>("t", |token| is(token, "True", "RefreshOff")).await?;
    env.ensure_event_note("t", "Expiring", "refresh is off").await?;
    metric(1).await?;
    wait_for_ready_reason(&env, "AsExpected").await?;

    patch_token(&env, json!({ "refresh": true })).await?;
    env.wait_until::<Token>("t", |token| is(token, "False", "AsExpected")).await?;
    env.delete::<Token>("t").await?;
    let gone = async || env.metrics();
    let name = env.namespace().to_owned();
    eventually("no metric of a deleted Token", SOON, gone, |text| !text.contains(&name)).await?;
    env.tear_down().await
}

#[tokio::test]
async fn unreadable_object_does_not_affect_other_tokens() -> Result<()> {
    let env = start("poison").await?;
    apply_key(&env, OLD_KEY).await?;
    let mut poison = DynamicObject::new("poison", &api_resource("Token"));
    poison.data = json!({});
    dynamic_api(env.client(), env.namespace(), "Token").create(&PostParams::default(), &poison).await?;
    env.ensure_event_note("poison", "Unreadable", "spec").await?;

    apply_token(&env, json!({ "lifetime": "for ever" })).await?;
    env.ensure_degraded::<Token>("t", "InvalidSpec", "spec.lifetime").await?;
    patch_token(&env, json!({ "lifetime": "100ms" })).await?;
    env.ensure_degraded::<Token>("t", "InvalidSpec", "spec.lifetime must be at least 10 s").await?;
    assert!(!env.exists::<Secret>(SECRET).await?);
    patch_token(&env, json!({ "lifetime": null })).await?;
    wait_for_token(&env, SECRET, OLD_KEY, |_| true).await?;
    env.tear_down().await
}

#[expect(clippy::disallowed_methods, reason = "the token of the other operator has to be valid now")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
