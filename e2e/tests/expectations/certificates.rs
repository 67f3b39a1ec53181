//! Certificates are replaced while callers work.

use crate::fixture::{CALL_PAUSE, Env, Server, connect, creates};
use crate::messages::tls_stream;
use anyhow::{Context, Result, ensure};
use e2e::test_env::SOON;
use e2e::{eventually, report};
use expectations::proto::StatusRequest;
use expectations::proto::expectations_client::ExpectationsClient;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::watch;
use tokio::time::sleep;

const SECRET: &str = "expectations-tls";

/// The certificate that a new connection is presented.
async fn presented(env: &Env, server: &Server) -> Result<CertificateDer<'static>> {
    let stream = tls_stream(env, server).await?;
    Ok(stream.get_ref().1.peer_certificates().context("a certificate")?[0].clone().into_owned())
}

/// Replaces the certificate while callers call, some over one connection and some over a new one each time. Returns the
/// number of calls; every call that fails is an error.
async fn replace_under_load(
    env: &Env,
    leader: &Server,
    replace: impl Future<Output = Result<()>>,
) -> Result<u32> {
    let replica = env.join("r", &[leader]).await?;
    let before = presented(env, leader).await?;
    let (end, ended) = watch::channel(false);
    let batches = async {
        let mut number = 0;
        while !*ended.borrow() {
            replica.open(number, &format!("slurm/{number}"), creates(1)).await.context("Begin")?;
            replica.done(number + 1).await.context("Done")?;
            number += 2;
            ensure!(replica.client.ownership_is_joined(), "the Join stream ended");
            sleep(CALL_PAUSE).await;
        }
        Ok(u32::try_from(number)?)
    };
    let connections = async {
        let token = std::fs::read_to_string(env.token_file()?)?;
        let mut calls = 0;
        while !*ended.borrow() {
            let authorities = env.authorities().await?;
            let channel = connect(leader, &authorities).await.context("a new connection")?;
            let request = crate::fixture::authorized(StatusRequest {}, &token);
            ExpectationsClient::new(channel).status(request).await.context("Status")?;
            calls += 1;
            sleep(CALL_PAUSE).await;
        }
        anyhow::Ok(calls)
    };
    let replacing = async {
        replace.await?;
        let current = async || presented(env, leader).await;
        eventually("the new certificate", SOON, current, |current| *current != before).await?;
        // Some more calls after it.
        let calls = r#"expectations_calls_total{method="Status",code="Ok"}"#;
        let so_far = leader.metric(calls)?;
        eventually("more calls", SOON, async || leader.metric(calls), |calls| *calls > so_far + 20.0).await?;
        anyhow::Ok(())
    };
    let replacing = async {
        let replaced = replacing.await;
        end.send_replace(true);
        replaced
    };
    let (batches, connections, replaced) = tokio::join!(batches, connections, replacing);
    replaced?;
    Ok(batches? + connections?)
}

trait IsJoined {
    fn ownership_is_joined(&self) -> bool;
}

impl IsJoined for expectations::client::Client {
    fn ownership_is_joined(&self) -> bool {
        expectations::Expectations::ownership(self).is_joined()
    }
}

/// A certificate that is due is renewed by the leader; here it is taken from its records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_of_a_self_issued_certificate_fails_no_call() -> Result<()> {
    let env = Env::create("renewal").await?;
    let leader = env.start_leader(&["--max-begins=10000"]).await?;
    let renew = async {
        let secrets = env.namespace.api::<Secret>();
        let mut secret = secrets.get(SECRET).await?;
        let data = secret.data.as_mut().context("data")?;
        let mut issued: Value = serde_json::from_slice(&data.get("issued.json").context("issued.json")?.0)?;
        issued["leaf"] = Value::Null;
        data.insert("issued.json".to_owned(), ByteString(serde_json::to_vec(&issued)?));
        secrets.replace(SECRET, &PostParams::default(), &secret).await?;
        Ok(())
    };
    let calls = Box::pin(replace_under_load(&env, &leader, renew)).await?;
    report(format_args!("expectations: self-issued certificate renewed under load: {calls} calls, 0 failed"));
    env.tear_down().await
}

/// A deleted Secret or ConfigMap comes back without a restart.
#[tokio::test]
async fn deleted_secret_and_config_map_are_written_again() -> Result<()> {
    let env = Env::create("deleted").await?;
    let leader = env.start_leader(&[]).await?;
    let before = env.authorities().await?;
    let maps = env.namespace.api::<ConfigMap>();
    maps.delete("expectations-ca", &kube::api::DeleteParams::default()).await?;
    assert_eq!(env.authorities().await?, before);
    let secrets = env.namespace.api::<Secret>();
    secrets.delete(SECRET, &kube::api::DeleteParams::default()).await?;
    eventually("the Secret", SOON, async || Ok(secrets.get_opt(SECRET).await?), Option::is_some).await?;
    let current = async || presented(&env, &leader).await;
    eventually("a certificate of the new authority", SOON, current, |_| true).await?;
    env.tear_down().await
}

/// An authority of a user.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// The content of a Secret with a new certificate.
    fn sign(&self) -> Result<BTreeMap<String, String>> {
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &self.issuer)?;
        let data =
            [("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem()), ("ca.crt", self.pem.clone())];
        Ok(data.map(|(key, value)| (key.to_owned(), value)).into())
    }
}

/// As cert-manager or a person writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_certificate_of_a_user_fails_no_call() -> Result<()> {
    let env = Env::create("user").await?;
    let authority = Authority::new()?;
    let leader = env.start("leader", &["--tls-self-issued=false", "--max-begins=10000"])?;
    leader.wait_for_log("Leading").await?;
    let (status, body) = leader.process.fetch("/readyz")?;
    assert_eq!((status, body.as_str()), (503, "waiting for certificate\n"), "without a Secret");
    let secret = json!({ "metadata": { "name": SECRET }, "type": "kubernetes.io/tls", "stringData": authority.sign()? });
    env.namespace.api::<Secret>().create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let map = json!({ "metadata": { "name": "expectations-ca" }, "data": { "ca.crt": authority.pem } });
    env.namespace.api::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    leader.wait_until_ready(SOON).await?;
    let replace = async {
        env.patch::<Secret>(SECRET, json!({ "stringData": { "tls.key": "no key" } })).await?;
        leader.wait_for_log("Secret has no usable certificate").await?;
        env.patch::<Secret>(SECRET, json!({ "stringData": authority.sign()? })).await?;
        Ok(())
    };
    let calls = Box::pin(replace_under_load(&env, &leader, replace)).await?;
    report(format_args!("expectations: certificate of a user replaced under load: {calls} calls, 0 failed"));
    env.tear_down().await
}

/// A Secret that the service did not write is used, and not replaced.
#[tokio::test]
async fn certificate_of_a_user_is_not_overwritten() -> Result<()> {
    let env = Env::create("foreign").await?;
    let data = Authority::new()?.sign()?;
    let secret = json!({ "metadata": { "name": SECRET }, "type": "kubernetes.io/tls", "stringData": data });
    env.namespace.api::<Secret>().create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let leader = env.start_leader(&[]).await?;
    leader.wait_for_log("set --tls-self-issued=false").await?;
    let secret = env.namespace.api::<Secret>().get(SECRET).await?;
    let stored = secret.data.unwrap_or_default().remove("tls.crt").context("tls.crt")?.0;
    assert_eq!(String::from_utf8(stored)?, data["tls.crt"]);
    env.tear_down().await
}
