//! Tokens in a real API server: issued, renewed, made anew, and nothing of others touched.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::{Context, Result};
use e2e::custom::{api, install_definitions, resource};
use e2e::process::{Process, binary};
use e2e::{TestNamespace, client, eventually};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use slinky_api::conditions;
use slinky_api::v1beta1::Token;
use slurm_jwt::{Claims, SigningKey};
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);
/// The garbage collector learns of new kinds twice a minute.
const COLLECTED: Duration = Duration::from_mins(2);
const OLD_KEY: &str = "the key that everybody knew";
const NEW_KEY: &str = "the key that nobody knows yet";

/// A namespace with a token-controller that looks after it.
struct Stage {
    client: Client,
    namespace: TestNamespace,
    _controller: Process,
}

impl Stage {
    async fn set(name: &str) -> Result<Self> {
        let client = client().await?;
        install_definitions(&client).await?;
        let namespace = TestNamespace::create(&client, name).await?;
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.log", namespace.name()));
        let program = binary("token-controller")?;
        let controller =
            Process::start(program.to_str().unwrap(), &["--namespaces", namespace.name()], &log)?;
        Ok(Self { client, namespace, _controller: controller })
    }

    fn secrets(&self) -> Api<Secret> {
        self.namespace.api()
    }

    fn tokens(&self) -> Api<Token> {
        self.namespace.api()
    }

    async fn put_key(&self, key: &str) -> Result<Secret> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "auth" }, "stringData": { "jwt.key": key },
        });
        let params = PatchParams::apply("test").force();
        Ok(self.secrets().patch("auth", &params, &Patch::Apply(&secret)).await?)
    }

    async fn put_token(&self, change: Value) -> Result<Token> {
        let mut spec = json!({ "jwtKeyRef": { "name": "auth", "key": "jwt.key" }, "username": "alice" });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let token = json!({ "metadata": { "name": "t", "labels": { "team": "hpc" } }, "spec": spec });
        Ok(self.tokens().create(&PostParams::default(), &serde_json::from_value(token)?).await?)
    }

    async fn edit_token(&self, change: Value) -> Result<Token> {
        let patch = Patch::Merge(json!({ "spec": change }));
        Ok(self.tokens().patch("t", &PatchParams::default(), &patch).await?)
    }

    /// The token in the Secret, once it was signed with `key` and `holds`.
    async fn jwt(
        &self,
        secret: &str,
        key: &str,
        holds: impl Fn(&Claims) -> bool,
    ) -> Result<(Secret, String, Claims)> {
        let key = SigningKey::new(key.as_bytes())?;
        let look = async || {
            let secret = self.secrets().get(secret).await?;
            let jwt = secret.data.iter().flatten().next().context("an empty Secret")?.1;
            let jwt = String::from_utf8(jwt.0.clone())?;
            let claims = slurm_jwt::parse(&jwt, &key)?;
            Ok((secret, jwt, claims))
        };
        eventually("a token as wanted", SOON, look, |(_, _, claims)| holds(claims)).await
    }

    /// Waits until the Token is ready, or not ready for the given reason.
    async fn ready(&self, reason: &str) -> Result<Token> {
        eventually(
            reason,
            SOON,
            async || Ok(self.tokens().get("t").await?),
            |token| {
                let conditions =
                    token.status.iter().flat_map(|status| &status.conditions).cloned().collect::<Vec<_>>();
                conditions::find(&conditions, conditions::READY).is_some_and(|ready| {
                    ready.reason == reason && ready.observed_generation == token.metadata.generation
                })
            },
        )
        .await
    }

    async fn event(&self, name: &str, reason: &str) -> Result<Event> {
        let events: Api<Event> = self.namespace.api();
        let look = async || Ok(events.list(&ListParams::default()).await?.items);
        let about = |event: &&Event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()) == Some(name)
        };
        let seen = eventually(reason, SOON, look, |events| events.iter().any(|event| about(&event))).await?;
        seen.iter().find(about).cloned().context("the event")
    }
}

#[tokio::test]
async fn a_token_is_issued_and_goes_with_its_resource() -> Result<()> {
    let stage = Stage::set("issue").await?;
    stage.put_key(OLD_KEY).await?;
    let token = stage.put_token(json!({})).await?;
    let (secret, _, claims) = stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await?;
    assert_eq!((claims.sun.as_deref(), claims.exp.unwrap() - claims.iat.unwrap()), (Some("alice"), 900));
    assert_eq!((secret.immutable, secret.labels()["team"].as_str()), (Some(false), "hpc"));
    let owner = &secret.owner_references()[0];
    assert_eq!((Some(&owner.uid), owner.controller), (token.metadata.uid.as_ref(), Some(true)));
    let token = stage.ready("AsExpected").await?;
    assert_eq!(token.status.unwrap().issued_at.unwrap().0, claims.issued_at().unwrap());

    stage.tokens().delete("t", &DeleteParams::default()).await?;
    let look = async || Ok(stage.secrets().get_opt("t-jwt-alice").await?);
    eventually("no credential is left", COLLECTED, look, Option::is_none).await?;
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends_again_and_again() -> Result<()> {
    let stage = Stage::set("renew").await?;
    stage.put_key(OLD_KEY).await?;
    stage.put_token(json!({ "lifetime": "5s" })).await?;
    let (_, _, mut claims) = stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await?;
    for _ in 0..3 {
        let last = claims.clone();
        let (_, _, next) = stage.jwt("t-jwt-alice", OLD_KEY, |claims| claims.jti != last.jti).await?;
        assert!(next.iat < last.exp, "the old token {last:?} ended before the new one {next:?} was issued");
        claims = next;
    }
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_new_signing_key_makes_a_new_token_at_once() -> Result<()> {
    let stage = Stage::set("rotate").await?;
    stage.put_key(OLD_KEY).await?;
    stage.put_token(json!({})).await?;
    stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await?;
    stage.put_key(NEW_KEY).await?;
    let (_, jwt, _) = stage.jwt("t-jwt-alice", NEW_KEY, |_| true).await?;
    assert!(slurm_jwt::parse(&jwt, &SigningKey::new(OLD_KEY.as_bytes())?).is_err());
    stage.namespace.delete().await
}

#[tokio::test]
async fn an_edit_takes_effect_at_once_in_immutable_secrets_too() -> Result<()> {
    let stage = Stage::set("edit").await?;
    stage.put_key(OLD_KEY).await?;
    stage.put_token(json!({ "secretRef": { "name": "s", "key": "k" } })).await?;
    stage.jwt("s", OLD_KEY, |claims| claims.sun.as_deref() == Some("alice")).await?;
    stage.edit_token(json!({ "username": "Bob_1" })).await?;
    let (_, before, _) = stage.jwt("s", OLD_KEY, |claims| claims.sun.as_deref() == Some("Bob_1")).await?;

    stage.edit_token(json!({ "refresh": false })).await?;
    let look = async || Ok(stage.secrets().get("s").await?);
    eventually("the Secret cannot be changed", SOON, look, |secret| secret.immutable == Some(true)).await?;
    let (_, after, _) = stage.jwt("s", OLD_KEY, |_| true).await?;
    assert_eq!(after, before, "a good token stays");

    stage.edit_token(json!({ "username": "carol" })).await?;
    let (secret, _, _) = stage.jwt("s", OLD_KEY, |claims| claims.sun.as_deref() == Some("carol")).await?;
    assert_eq!(secret.immutable, Some(true));
    stage.ready("AsExpected").await?;
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_secret_that_was_changed_or_deleted_is_put_right() -> Result<()> {
    let stage = Stage::set("repair").await?;
    stage.put_key(OLD_KEY).await?;
    stage.put_token(json!({})).await?;
    let (_, _, first) = stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await?;
    stage.secrets().delete("t-jwt-alice", &DeleteParams::default()).await?;
    let (_, _, second) = stage.jwt("t-jwt-alice", OLD_KEY, |claims| claims.jti != first.jti).await?;
    let garbage = Patch::Merge(json!({ "stringData": { "SLURM_JWT": "garbage" } }));
    stage.secrets().patch("t-jwt-alice", &PatchParams::default(), &garbage).await?;
    stage.jwt("t-jwt-alice", OLD_KEY, |claims| claims.jti != second.jti).await?;
    stage.namespace.delete().await
}

#[tokio::test]
async fn what_is_missing_is_named_and_heals_when_it_appears() -> Result<()> {
    let stage = Stage::set("missing").await?;
    stage.put_token(json!({})).await?;
    let token = stage.ready("SigningKeyMissing").await?;
    let degraded = conditions::find(&token.status.unwrap().conditions, conditions::DEGRADED).unwrap().clone();
    assert_eq!((degraded.status.as_str(), degraded.message.contains("auth")), ("True", true), "{degraded:?}");
    let event = stage.event("t", "SigningKeyMissing").await?;
    assert!(event.note.unwrap().contains("Secret auth"));

    stage.put_key("").await?;
    stage.ready("SigningKeyUnusable").await?;
    stage.put_key(OLD_KEY).await?;
    stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await?;
    stage.ready("AsExpected").await?;

    stage.secrets().delete("auth", &DeleteParams::default()).await?;
    stage.ready("SigningKeyMissing").await?;
    stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await.context("the token that there was is left alone")?;
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() -> Result<()> {
    let stage = Stage::set("occupied").await?;
    stage.put_key(OLD_KEY).await?;
    let occupant = json!({ "metadata": { "name": "t-jwt-alice" }, "stringData": { "password": "mine" } });
    let occupant = stage.secrets().create(&PostParams::default(), &serde_json::from_value(occupant)?).await?;
    stage.put_token(json!({})).await?;
    stage.ready("SecretOccupied").await?;
    stage.event("t", "SecretOccupied").await?;
    let now = stage.secrets().get("t-jwt-alice").await?;
    assert_eq!(now.resource_version(), occupant.resource_version());

    stage.secrets().delete("t-jwt-alice", &DeleteParams::default()).await?;
    stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await?;
    stage.namespace.delete().await
}

#[tokio::test]
async fn a_token_of_the_operator_before_us_is_kept_and_owned() -> Result<()> {
    let stage = Stage::set("inherit").await?;
    let signing = stage.put_key(OLD_KEY).await?;
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
    stage.secrets().create(&PostParams::default(), &serde_json::from_value(inherited)?).await?;
    let token = stage.put_token(json!({})).await?;
    stage.ready("AsExpected").await?;
    let (secret, kept, _) = stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await?;
    let owners: Vec<_> = secret.owner_references().iter().map(|owner| owner.uid.clone()).collect();
    assert_eq!((kept, owners), (jwt, vec![token.uid().unwrap()]));
    stage.namespace.delete().await
}

#[tokio::test]
async fn an_object_that_makes_no_sense_stops_no_other() -> Result<()> {
    let stage = Stage::set("poison").await?;
    stage.put_key(OLD_KEY).await?;
    let mut poison = DynamicObject::new("poison", &resource("Token"));
    poison.data = json!({});
    api(&stage.client, stage.namespace.name(), "Token").create(&PostParams::default(), &poison).await?;
    let event = stage.event("poison", "Unreadable").await?;
    assert!(event.note.unwrap().contains("spec"));

    stage.put_token(json!({ "lifetime": "for ever" })).await?;
    let token = stage.ready("InvalidSpec").await?;
    let message =
        conditions::find(&token.status.unwrap().conditions, conditions::DEGRADED).unwrap().message.clone();
    assert!(message.contains("spec.lifetime"), "{message}");
    stage.edit_token(json!({ "lifetime": null })).await?;
    stage.jwt("t-jwt-alice", OLD_KEY, |_| true).await?;
    stage.namespace.delete().await
}

#[expect(clippy::disallowed_methods, reason = "a token for now has to know what now is")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
