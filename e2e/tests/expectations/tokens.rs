//! Who may call: tokens that the API server made, or that were signed with its key.

use crate::fixture::{AUDIENCE, CALL_PAUSE, Caller, Env, REPLICAS, authorized, creates};
use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use e2e::eventually;
use e2e::test_env::SOON;
use expectations::proto::StatusRequest;
use expectations::{Expectations, Ownership};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tonic::Code;

/// A token as the API server signs it, that expires in so many seconds. The API server itself makes none that is valid
/// for less than ten minutes.
async fn sign_token(env: &Env, expires_in: i64) -> Result<String> {
    let directory = PathBuf::from(std::env::var_os("SLURM_OPERATOR_CLUSTER_DIR").context("no cluster")?);
    let key = PrivateKeyDer::from_pem_file(directory.join("pki/service-account.key"))?;
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_der(), &random);
    let key = key.ok().context("the key of service account tokens")?;
    let now = i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())?;
    let account = env.namespace.api::<ServiceAccount>().get(REPLICAS).await?;
    let claims = json!({
        "iss": "https://kubernetes.default.svc",
        "aud": [AUDIENCE],
        "sub": format!("system:serviceaccount:{}:{REPLICAS}", env.name()),
        "iat": now - 600,
        "nbf": now - 600,
        "exp": now + expires_in,
        "kubernetes.io": {
            "namespace": env.name(),
            "serviceaccount": { "name": REPLICAS, "uid": account.uid() },
        },
    });
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(json!({ "alg": "ES256", "typ": "JWT" })), part(claims));
    let signature = key.sign(&random, signed.as_bytes()).ok().context("a signature")?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Code and message of the answer to a call with this token.
async fn call(caller: &mut Caller, token: &str) -> (Code, String) {
    let request = authorized(StatusRequest {}, token);
    let status = caller.client.status(request).await.err();
    status.map_or((Code::Ok, String::new()), |status| (status.code(), status.message().to_owned()))
}

#[tokio::test]
async fn only_valid_tokens_of_the_configured_account_are_accepted() -> Result<()> {
    let env = Env::create("tokens").await?;
    let leader = env.start_leader(&[]).await?;
    let mut caller = env.caller(&leader).await?;
    let missing = caller.client.status(StatusRequest {}).await.unwrap_err();
    assert_eq!(
        (missing.code(), missing.message()),
        (Code::Unauthenticated, "a ServiceAccount token is missing")
    );
    let valid = caller.token.clone();
    assert_eq!(call(&mut caller, &valid).await.0, Code::Ok);
    assert_eq!(call(&mut caller, &sign_token(&env, 60).await?).await.0, Code::Ok, "signed by this test");

    let other = call(&mut caller, &env.token("other", AUDIENCE).await?).await;
    let denied = format!("system:serviceaccount:{}:other may not call this service", env.name());
    assert_eq!(other, (Code::PermissionDenied, denied));
    let (signed, signature) = valid.rsplit_once('.').context("a JWT")?;
    for (what, token) in [
        ("another audience", env.token(REPLICAS, "https://kubernetes.default.svc").await?),
        ("expired", sign_token(&env, -90).await?),
        ("another signature", format!("{signed}.{}", signature.chars().rev().collect::<String>())),
        ("no JWT", "garbage".to_owned()),
    ] {
        let (code, message) = call(&mut caller, &token).await;
        assert_eq!(code, Code::Unauthenticated, "{what}: {message}");
        assert!(message.starts_with("the token was rejected: "), "{what}: {message}");
    }
    for (outcome, count) in [("missing", "1"), ("accepted", "2"), ("forbidden", "1"), ("rejected", "4")] {
        let metric = format!("expectations_authentications_total{{outcome=\"{outcome}\"}}");
        assert_eq!(leader.metric(&metric)?.to_string(), count, "{outcome}");
    }
    let refused = r#"expectations_calls_total{method="Status",code="Unauthenticated"}"#;
    assert_eq!(leader.metric(refused)?.to_string(), "5");
    env.tear_down().await
}

/// The API server accepts a token for one minute after it expired, because clocks differ; so does the service.
#[tokio::test]
async fn token_that_expires_ends_the_join_stream_and_its_successor_is_used() -> Result<()> {
    let env = Env::create("expiry").await?;
    let leader = env.start_leader(&[]).await?;
    let lasting = std::fs::read_to_string(env.token_file()?)?;
    let short = sign_token(&env, -52).await?;
    std::fs::write(env.token_file()?, &short)?;
    let replica = env.join("r", &[&leader]).await?;
    let mut caller = env.caller(&leader).await?;
    assert_eq!(call(&mut caller, &short).await.0, Code::Ok);
    let is_joined = async || Ok(replica.client.ownership().is_joined());
    eventually("the end of the Join stream", SOON, is_joined, |is_joined| !is_joined).await?;
    assert!(leader.process.log()?.contains("the token has expired"), "{}", leader.process.log()?);
    assert_eq!(call(&mut caller, &short).await.0, Code::Unauthenticated);
    let error = replica.begin(1, "slurm/a", None, creates(1)).await.unwrap_err();
    assert!(format!("{error:?}").contains("the token was rejected"), "{error:?}");
    std::fs::write(env.token_file()?, &lasting)?;
    eventually("the next Join stream", SOON, is_joined, |is_joined| *is_joined).await?;
    assert!(matches!(replica.client.ownership(), Ownership::Shared { members, .. } if members.len() == 1));
    env.tear_down().await
}

#[tokio::test]
async fn tokens_that_cannot_be_reviewed_make_the_service_unavailable() -> Result<()> {
    let env = Env::without_token_reviews("reviews").await?;
    let leader = env.start_leader(&[]).await?;
    let mut caller = env.caller(&leader).await?;
    let token = caller.token.clone();
    let (code, message) = call(&mut caller, &token).await;
    assert_eq!(code, Code::Unavailable, "{message}");
    assert!(
        message.starts_with("the token could not be reviewed: ") && message.contains("tokenreviews"),
        "{message}"
    );
    assert_eq!(leader.metric(r#"expectations_authentications_total{outcome="failed"}"#)?.to_string(), "1");
    env.tear_down().await
}

/// Callers with unknown tokens neither flood the API server nor harm callers that are known.
#[tokio::test]
async fn flood_of_unknown_tokens_is_limited_and_leaves_known_callers_alone() -> Result<()> {
    let env = Env::create("garbage").await?;
    let leader = env.start_leader(&[]).await?;
    let mut caller = env.caller(&leader).await?;
    let token = caller.token.clone();
    assert_eq!(call(&mut caller, &token).await.0, Code::Ok);
    let calls = (0..200).map(|number| {
        let mut caller = caller.clone();
        async move { call(&mut caller, &format!("garbage-{number}")).await.0 }
    });
    let codes = futures::future::join_all(calls).await;
    let count = |code| codes.iter().filter(|other| **other == code).count();
    let (limited, refused) = (count(Code::ResourceExhausted), count(Code::Unauthenticated));
    // A busy API server does not review all of them in time.
    let late = count(Code::Unavailable);
    assert!(
        limited > 50 && limited + refused + late == 200,
        "{limited} limited, {refused} refused, {late} late"
    );
    assert_eq!(call(&mut caller, &token).await.0, Code::Ok);
    tokio::time::timeout(Duration::from_secs(5), async {
        while call(&mut caller, "another").await.0 == Code::ResourceExhausted {
            tokio::time::sleep(CALL_PAUSE).await;
        }
    })
    .await
    .context("unknown tokens are reviewed again")?;
    env.tear_down().await
}
