//! Random faults: processes are killed and paused, connections are cut, while NodeSets are scaled and updated. Afterwards
//! the audit log is read.
//!
//! A short version runs with the other tests, in a cluster without kubelets. `cargo xtask chaos` runs many rounds with
//! hundreds of pods on simulated nodes. The faults are a function of the seed; their effects also depend on the time that
//! real processes take.

use crate::audit::History;
use crate::faults::Faults;
use crate::operator::Operator;
use crate::workload::Workload;
use anyhow::{Context, Result, ensure};
use e2e::expectations::ExpectationsEnv;
use e2e::report;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::env::var;
use std::str::FromStr;
use tokio::time::Instant;

/// What a run consists of.
struct Settings {
    rounds: u32,
    pods: u32,
    faults: u32,
    seed: u64,
    /// Whether the cluster has nodes that run pods.
    has_nodes: bool,
}

impl Settings {
    fn from_env() -> Result<Self> {
        Ok(Self {
            rounds: number("CHAOS_ROUNDS")?.unwrap_or(2),
            pods: number("CHAOS_PODS")?.unwrap_or(30),
            faults: number("CHAOS_FAULTS")?.unwrap_or(4),
            seed: number("CHAOS_SEED")?.unwrap_or(1),
            has_nodes: var("CHAOS_ROUNDS").is_ok(),
        })
    }
}

fn number<T: FromStr>(name: &str) -> Result<Option<T>> {
    let Ok(text) = var(name) else { return Ok(None) };
    text.parse().ok().with_context(|| format!("{name}={text} is not a number")).map(Some)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_leads_to_a_write_outside_a_batch_and_the_final_state_is_exact() -> Result<()> {
    let settings = Settings::from_env()?;
    let env = ExpectationsEnv::create("chaos").await?;
    let workload = Workload::create(&env, settings.pods, settings.has_nodes).await?;
    let mut operator = Operator::start(&env).await?;
    let mut random = StdRng::seed_from_u64(settings.seed);
    let mut counts = Faults::default();
    for round in 0..settings.rounds {
        let started = Instant::now();
        let change = workload.change(round).await?;
        let injected = operator.inject(settings.faults, &mut random).await?;
        let faulty = started.elapsed();
        operator.heal()?;
        workload.wait_until_exact().await.with_context(|| operator.logs())?;
        report(format!(
            "round {round}: {change}; {injected}; faults for {:.0} s, exact after {:.0} s",
            faulty.as_secs_f64(),
            started.elapsed().as_secs_f64()
        ));
        counts.add(&injected);
    }
    let history = History::read(&env, &operator)?;
    let violations = history.violations();
    report(format!("{} rounds, {counts}, {history}, {} violations", settings.rounds, violations.len()));
    ensure!(violations.is_empty(), "{violations:#?}");
    workload.delete().await?;
    operator.stop().await?;
    env.tear_down().await
}
