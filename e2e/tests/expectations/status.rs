//! `expectations status` asks a running service.

use crate::fixture::{Env, Server, creates, deletes};
use anyhow::{Context, Result};
use e2e::eventually;
use e2e::process::{binary, free_address, scratch};
use e2e::test_env::SOON;
use expectations::Expectations;
use expectations::client::Config;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

async fn status(config: &Config, flags: &[&str]) -> Result<Output> {
    let endpoints: Vec<_> = config.endpoints.iter().map(ToString::to_string).collect();
    let mut command = Command::new(binary("expectations")?);
    command.args(["status", "--endpoint", &endpoints.join(",")]).args(flags);
    command.arg("--ca-file").arg(&config.ca_file).arg("--token-file").arg(&config.token_file);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn status_shows_leader_members_owners_open_batches_and_waiting_nodesets() -> Result<()> {
    let env = Env::create("status").await?;
    let leader = env.start_leader(&[]).await?;
    let standby = env.start("standby", &[])?;
    let replica = env.join("replica-1", &[&leader]).await?;
    replica.client.report_clusters(vec!["slurm/blue".to_owned(), "slurm/red".to_owned()]);
    replica.open(6, "slurm/blue", creates(3)).await?;
    replica.open(8, "slurm/red", deletes(1)).await?;
    let config = env.config(&[&standby, &leader]).await?;
    let json = async || {
        let output = status(&config, &["-o", "json"]).await?;
        serde_json::from_slice::<Value>(&output.stdout).with_context(|| text(&output.stderr))
    };
    let has_clusters =
        |status: &Value| status["clusters"].as_array().is_some_and(|clusters| clusters.len() == 2);
    let json = eventually("clusters", SOON, json, has_clusters).await?;
    assert_eq!(json["members"], serde_json::json!(["replica-1"]));
    assert_eq!(json["clusters"][1], serde_json::json!({ "key": "slurm/red", "owner": "replica-1" }));
    assert_eq!(json["openBatches"][0]["batch"], "replica-1/7");
    assert_eq!(json["waiting"][0]["reason"], "halfOpen");
    assert!(json["leader"].as_str().is_some_and(|leader| leader.starts_with("leader_leader_")), "{json:#}");
    assert!(json["halfOpenSeconds"].as_f64().is_some_and(|left| left > 20.0), "{json:#}");

    let output = status(&config, &[]).await?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let columns: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    for expected in [
        ["EPOCH", "LEADER", "HALF"].as_slice(),
        &["replica-1", "2"],
        &["slurm/red", "replica-1"],
        &["slurm", "blue", "replica-1", "7"],
        &["slurm", "red", "writes", "of", "an", "earlier", "batch"],
    ] {
        assert!(columns.iter().any(|line| line.starts_with(expected)), "{expected:?} is not in\n{table}");
    }
    env.tear_down().await
}

#[tokio::test]
async fn status_says_why_it_fails() -> Result<()> {
    let env = Env::create("nostatus").await?;
    let leader = env.start_leader(&[]).await?;
    let config = env.config(&[&leader]).await?;
    let fails = async |config: Config, expected: &[&str]| {
        let output = status(&config, &[]).await?;
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(expected.iter().all(|expected| error.contains(expected)), "{expected:?} is not in: {error}");
        anyhow::Ok(())
    };
    let down = format!("https://localhost:{}", free_address()?.port());
    let unreachable = Config { endpoints: vec![down.parse()?], ..config.clone() };
    fails(unreachable, &["the expectations service did not answer", "Connection refused"]).await?;
    let no_token = Config { token_file: Path::new("/no/token").to_owned(), ..config.clone() };
    fails(no_token, &["cannot read /no/token"]).await?;
    let no_authorities = Config { ca_file: Path::new("/no/ca.crt").to_owned(), ..config.clone() };
    fails(no_authorities, &["cannot use /no/ca.crt"]).await?;
    let foreign = scratch(&format!("{}.foreign", env.name()))?;
    std::fs::write(&foreign, other_authority()?)?;
    fails(Config { ca_file: foreign, ..config.clone() }, &["UnknownIssuer"]).await?;
    let garbage = scratch(&format!("{}.garbage", env.name()))?;
    std::fs::write(&garbage, "garbage")?;
    fails(Config { token_file: garbage, ..config.clone() }, &["Unauthenticated", "the token was rejected"])
        .await?;
    let standby: Server = env.start("standby", &[])?;
    standby.wait_for_log("Certificate loaded").await?;
    let only_standby = env.config(&[&standby]).await?;
    fails(only_standby, &["this process does not lead"]).await?;
    env.tear_down().await
}

fn other_authority() -> Result<String> {
    let key = rcgen::KeyPair::generate()?;
    Ok(rcgen::CertificateParams::new(vec!["other".to_owned()])?.self_signed(&key)?.pem())
}
