//! Certificates, outages and load.

use anyhow::{Context, Result, ensure};
use e2e::process::Process;
use e2e::test_env::SOON;
use e2e::webhook::WebhookEnv;
use e2e::{eventually, report};
use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use slinky_api::v1beta1::Token;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const SECRET: &str = "admission-webhook-tls";

fn token(name: &str) -> Result<Token> {
    let spec = json!({ "jwtKeyRef": { "name": "a", "key": "k" }, "username": "u" });
    Ok(serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?)
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

#[expect(clippy::disallowed_methods, reason = "the age of certificates is in wall-clock time")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Creates Tokens as dry runs, several at a time, until `ended`. Returns how many; every refusal is an error.
async fn create_until(env: &WebhookEnv, ended: watch::Receiver<bool>) -> Result<usize> {
    let tokens: Api<Token> = env.namespace.api();
    let calls = stream::repeat(()).take_while(|()| std::future::ready(!*ended.borrow())).map(|()| async {
        tokens.create(&dry_run(), &token("t")?).await?;
        anyhow::Ok(1)
    });
    let counts: Vec<Result<usize>> = calls.buffer_unordered(16).collect().await;
    counts.into_iter().sum()
}

/// Changes the record of issued certificates, and waits until it and the certificates satisfy `is_expected`.
async fn change_issued(
    env: &WebhookEnv,
    change: impl Fn(&mut Value),
    is_expected: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let secrets: Api<Secret> = env.namespace.api();
    let read = |secret: &Secret| -> Result<Value> {
        let data = secret.data.as_ref().and_then(|data| data.get("issued.json")).context("issued.json")?;
        Ok(serde_json::from_slice(&data.0)?)
    };
    let mut secret = secrets.get(SECRET).await?;
    let mut issued = read(&secret)?;
    change(&mut issued);
    let changed = ByteString(serde_json::to_vec(&issued)?);
    secret.data.get_or_insert_default().insert("issued.json".to_owned(), changed);
    secrets.replace(SECRET, &PostParams::default(), &secret).await?;
    eventually("renewed certificates", SOON, async || read(&secrets.get(SECRET).await?), is_expected).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_and_authority_are_replaced_without_a_refused_request() -> Result<()> {
    let (env, _webhook) = WebhookEnv::start("rotation").await?;
    let (end, ended) = watch::channel(false);
    let ago = |duration: SignedDuration| json!((now() - duration).to_string());
    let replacing = async {
        let year = SignedDuration::from_hours(24 * 365);
        let aged = |issued: &mut Value| issued["authorities"][0]["notBefore"] = ago(year * 10);
        let has_two = |issued: &Value| issued["authorities"].as_array().is_some_and(|all| all.len() == 2);
        change_issued(&env, aged, has_two).await.context("a second authority")?;
        let known =
            |issued: &mut Value| issued["authorities"][1]["notBefore"] = ago(SignedDuration::from_hours(2));
        let is_signed_by_second =
            |issued: &Value| issued["leaf"]["issuer"] == issued["authorities"][1]["commonName"];
        let issued = change_issued(&env, known, is_signed_by_second).await.context("a new issuer")?;
        let lost = |issued: &mut Value| issued["leaf"] = Value::Null;
        let is_other =
            |now: &Value| now["leaf"]["pem"].is_string() && now["leaf"]["pem"] != issued["leaf"]["pem"];
        change_issued(&env, lost, is_other).await.context("a new certificate")?;
        // Only the new authority is known from now on.
        let forget = |issued: &mut Value| {
            issued["authorities"].as_array_mut().map(|authorities| authorities.remove(0));
        };
        change_issued(&env, forget, |_| true).await?;
        let bundles = async || {
            let configuration = env.validating().get(env.name()).await?;
            let webhooks = configuration.webhooks.into_iter().flatten();
            let bundles = webhooks.filter_map(|webhook| webhook.client_config.ca_bundle);
            Ok(bundles.map(|bundle| String::from_utf8_lossy(&bundle.0).matches("BEGIN").count()).collect())
        };
        eventually("one authority in all caBundles", SOON, bundles, |counts: &Vec<_>| counts == &[1; 7])
            .await?;
        let tokens: Api<Token> = env.namespace.api();
        tokens.create(&dry_run(), &token("after")?).await?;
        anyhow::Ok(())
    };
    let replacing = async {
        let replaced = replacing.await;
        end.send_replace(true);
        replaced
    };
    let (created, replaced) = tokio::join!(create_until(&env, ended), replacing);
    replaced?;
    report(format!(
        "webhook: two certificates and an authority replaced under load: {} requests, 0 refused",
        created?
    ));
    env.tear_down().await
}

/// A webhook that is gone holds up new specs, and nothing else.
#[tokio::test]
async fn without_the_webhook_objects_can_be_deleted_and_their_status_written() -> Result<()> {
    let (env, mut webhook) = WebhookEnv::start("outage").await?;
    let tokens: Api<Token> = env.namespace.api();
    let mut held = token("t")?;
    held.metadata.finalizers = Some(vec!["e2e/hold".to_owned()]);
    tokens.create(&PostParams::default(), &held).await?;
    webhook.kill()?;

    let refused = tokens.create(&PostParams::default(), &token("new")?).await;
    let refused = refused.err().context("created without the webhook")?.to_string();
    ensure!(refused.contains("failed calling webhook"), "{refused}");
    let (code, output) = env.check("2s")?;
    ensure!(code == Some(1) && output.contains("failed calling webhook"), "{code:?} {output}");

    let merge = |fields: Value| kube::api::Patch::Merge(fields);
    let params = kube::api::PatchParams::default();
    tokens.patch_status("t", &params, &merge(json!({ "status": {} }))).await.context("the status")?;
    let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
    tokens.patch("t", &params, &merge(labelled)).await.context("a label")?;
    tokens.delete("t", &DeleteParams::default()).await?;
    let released = json!({ "metadata": { "finalizers": null } });
    tokens.patch("t", &params, &merge(released)).await.context("removal of the finalizer")?;
    eventually("the deletion", SOON, async || Ok(tokens.get_opt("t").await?), Option::is_none).await?;

    let restarted = env.start_process(&[])?;
    env.wait_until_ready(&restarted).await?;
    tokens.create(&PostParams::default(), &token("new")?).await?;
    env.tear_down().await
}

/// The time within which a share of all reviews of Tokens was answered, by the upper bounds of a histogram, and their number.
fn quantile(webhook: &Process, share: f64) -> Result<(f64, f64)> {
    let (_, metrics) = webhook.fetch("/metrics")?;
    let mut buckets = Vec::new();
    for line in metrics.lines().filter(|line| line.contains(r#"hook="token""#)) {
        let bucket = line.strip_prefix("slurm_operator_admission_review_duration_seconds_bucket{le=\"");
        let Some((bound, rest)) = bucket.and_then(|bucket| bucket.split_once('"')) else { continue };
        let count: f64 = rest.rsplit(' ').next().context("a count")?.parse()?;
        buckets.push((bound.parse().unwrap_or(f64::INFINITY), count));
    }
    let total = buckets.last().context("no reviews")?.1;
    let bound = buckets.iter().find(|(_, count)| *count >= total * share).context("no bucket")?.0;
    Ok((bound, total))
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_fast_with_many_at_a_time() -> Result<()> {
    const REQUESTS: usize = 4000;
    const CONCURRENT: usize = 200;
    let (env, webhook) = WebhookEnv::start("load").await?;
    let tokens: Api<Token> = env.namespace.api();
    let calls = stream::iter(0..REQUESTS).map(|number| {
        let tokens = &tokens;
        async move {
            let started = Instant::now();
            tokens.create(&dry_run(), &token(&format!("t{number}"))?).await?;
            anyhow::Ok(started.elapsed())
        }
    });
    let started = Instant::now();
    let times: Vec<Result<Duration>> = calls.buffer_unordered(CONCURRENT).collect().await;
    let mut times = times.into_iter().collect::<Result<Vec<_>>>()?;
    let elapsed = started.elapsed().as_secs_f64();
    times.sort();
    let (p99, reviews) = quantile(&webhook, 0.99)?;
    report(format!(
        "webhook: {reviews} reviews, {CONCURRENT} at a time, in {elapsed:.1} s; 99 % answered within {:.1} ms; creates \
         through the API server: p50 {} ms, p99 {} ms",
        p99 * 1000.0,
        times[REQUESTS / 2].as_millis(),
        times[REQUESTS * 99 / 100].as_millis(),
    ));
    env.tear_down().await
}
