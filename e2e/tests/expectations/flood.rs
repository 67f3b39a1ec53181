//! Connections that say nothing.

use crate::fixture::{Env, creates};
use crate::messages::tls_stream;
use anyhow::{Context, Result, bail, ensure};
use e2e::report;
use expectations::{Answer, Expectations};
use futures::{StreamExt, TryStreamExt, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// Connections without a TLS handshake, and with one.
const SILENT: usize = 10_000;
const SILENT_TLS: usize = 500;
/// The time limit of a call; on an idle machine calls take some milliseconds.
const RPC_LIMIT: Duration = Duration::from_secs(2);
/// What a silent connection may cost at most, over all of them.
const MEMORY_LIMIT_KIB: u64 = 64 << 10;

/// Lets this process have as many open files as the system allows.
fn raise_file_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    ensure!(limit.maximum.is_none_or(|maximum| maximum > 11_000), "too few open files are allowed");
    Ok(())
}

/// Performs batches until the end, and returns their number and the longest time that Begin took.
async fn work(replica: &crate::fixture::Replica, mut end: watch::Receiver<bool>) -> Result<(u64, Duration)> {
    let (mut batches, mut longest) = (0, Duration::ZERO);
    while !*end.borrow_and_update() {
        sleep(Duration::from_millis(50)).await;
        let (number, key) = (batches * 10, format!("slurm/{}", batches % 20));
        let started = Instant::now();
        let fresh = replica.begin(number, &key, None, creates(1)).await?;
        longest = longest.max(started.elapsed());
        // The replica that arrives owns some of the clusters until it leaves.
        if matches!(fresh, Answer::NotOwner(_)) {
            batches += 1;
            continue;
        }
        let Answer::NeedFresh(basis) = fresh else { bail!("{fresh:?}") };
        let started = Instant::now();
        let answer = replica.begin(number + 1, &key, Some(basis), creates(1)).await?;
        longest = longest.max(started.elapsed());
        ensure!(matches!(answer, Answer::Granted(_) | Answer::NotOwner(_)), "{answer:?}");
        replica.done(number + 1).await?;
        batches += 1;
        ensure!(replica.client.ownership().is_joined(), "the replica was no member");
    }
    Ok((batches, longest))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_harm_no_other_caller() -> Result<()> {
    raise_file_limit()?;
    let env = Env::create("silence").await?;
    let leader = env.start_leader(&[]).await?;
    let replica = env.join("r", &[&leader]).await?;
    let before = leader.memory()?;
    let (end, ended) = watch::channel(false);
    let flood = async {
        let started = Instant::now();
        let address = leader.address;
        let connect = |count| {
            let connections = (0..count).map(move |_| TcpStream::connect(address));
            stream::iter(connections).buffer_unordered(100).try_collect::<Vec<_>>()
        };
        let silent = connect(SILENT / 2).await?;
        // A caller that arrives among them is served.
        let late = async {
            let started = Instant::now();
            let late = env.join("late", &[&leader]).await.context("a replica cannot join")?;
            let joined = started.elapsed();
            late.leave().await;
            anyhow::Ok(joined)
        };
        let (more, joined) = tokio::join!(connect(SILENT / 2), late);
        let (more, joined) = (more?, joined?);
        let opened = started.elapsed();
        let mut encrypted = Vec::new();
        for _ in 0..SILENT_TLS {
            // The oldest ones have been closed meanwhile.
            encrypted.push(tls_stream(&env, &leader).await?);
        }
        let during = leader.memory()?;
        let files = std::fs::read_dir(format!("/proc/{}/fd", leader.process.id()))?.count();
        drop((silent, more, encrypted));
        anyhow::Ok((opened, during, files, joined))
    };
    let flood = async {
        let flooded = flood.await;
        end.send_replace(true);
        flooded
    };
    let (worked, flooded) = tokio::join!(work(&replica, ended), flood);
    let ((batches, longest), (opened, during, files, joined)) = (worked?, flooded?);
    let grown = during.saturating_sub(before);
    report(format_args!(
        "expectations: {SILENT} silent connections opened in {opened:.1?}, {SILENT_TLS} more with TLS: memory {before} -> \
         {during} KiB, {files} open files; meanwhile {batches} batches, Begin took {longest:.1?} at most, \
         a new replica joined in {joined:.1?}"
    ));
    ensure!(batches > 5 && longest < RPC_LIMIT, "{longest:?}");
    ensure!(grown < MEMORY_LIMIT_KIB, "{grown} KiB");
    ensure!(files < 600, "{files} open files");
    let displaced = leader.metric(r#"expectations_connections_total{outcome="displaced"}"#)?;
    ensure!(displaced > 9_000.0, "{displaced} displaced");
    env.tear_down().await
}
