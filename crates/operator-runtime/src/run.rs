//! The life of a process: set up, lead if asked to, work, drain, release, stop.

use crate::admin;
use crate::args::{Args, LogFormat};
use crate::lease::{Elector, Leadership};
use crate::ready::Gate;
use crate::runtime::Runtime;
use crate::tasks::Tasks;
use anyhow::{Context, bail};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

/// How long work may go on after shutdown was asked for. With the rest of the way out this is less than the 30 s after
/// which a pod is killed.
const DRAIN: Duration = Duration::from_secs(20);

/// Runs a binary: `start` is called when the process may work, and has to end soon after [`Runtime::shutdown`]. Before
/// it first waits for something it makes its caches and gates; the process is ready when these are done.
///
/// `name` is the binary's name: its field manager, its Lease and the source of its Events.
pub async fn run<F, R>(name: &'static str, args: Args, start: F) -> anyhow::Result<()>
where
    F: FnOnce(Runtime) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    // kube, tonic and the webhook find the provider here; it fails only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    log(&args);
    info!(name, version = env!("CARGO_PKG_VERSION"), "Starting");
    let tasks = Tasks::default();
    stop_on_signals(&tasks)?;
    let result = serve(name, args, &tasks, start).await;
    match tasks.finish().await {
        Some(task) => bail!("the background task `{task}` panicked"),
        None => result,
    }
}

async fn serve<F, R>(name: &'static str, args: Args, tasks: &Tasks, start: F) -> anyhow::Result<()>
where
    F: FnOnce(Runtime) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let runtime = Runtime::new(name, args, tasks.clone()).await?;
    let args = runtime.args();
    let mut starting = Some(runtime.ready_gate("start"));
    admin::serve(&args.health_addr, &args.metrics_addr, runtime.readiness(), tasks).await?;
    if !args.leader_elect {
        return work(tasks, starting, start(runtime)).await;
    }
    let leadership = tokio::select! {
        leadership = lead(&runtime, &mut starting) => leadership,
        () = tasks.shutdown() => return Ok(()),
    };
    work_while_leading(tasks, leadership, starting, start(runtime)).await
}

/// Waits for leadership. A standby is ready as soon as it saw that another leads: it can take over at any moment, and a
/// rollout that waits for new pods to be ready before it stops the old leader must not wait for ever.
async fn lead(runtime: &Runtime, starting: &mut Option<Gate>) -> Leadership {
    let args = runtime.args();
    let or = |given: &str, otherwise: &str| if given.is_empty() { otherwise } else { given }.to_owned();
    let namespace = or(&args.leader_elect_namespace, runtime.namespace());
    let lease = or(&args.leader_elect_lease, runtime.name());
    let identity = format!("{}_{:08x}", runtime.instance(), rand::random::<u32>());
    let elector = Elector::new(runtime.no_retry_client(), &namespace, &lease, &identity);
    elector.acquire(|| open(starting.take())).await
}

/// Leadership is kept while work drains, and given back when nothing of it is left. When it is lost, work is dropped
/// where it stands, and the process ends.
async fn work_while_leading(
    tasks: &Tasks,
    mut leadership: Leadership,
    starting: Option<Gate>,
    started: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let result = tokio::select! {
        result = work(tasks, starting, started) => result,
        lost = leadership.lost() => return Err(lost).context("stopped leading"),
    };
    leadership.release().await;
    result
}

/// Runs the binary's own code, and drops it when it does not end in time after shutdown.
async fn work(
    tasks: &Tasks,
    starting: Option<Gate>,
    started: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let overdue = async {
        // The code was polled once and has added what it waits for.
        open(starting);
        tasks.shutdown().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        biased;
        result = started => match result {
            Ok(()) if !tasks.is_shutting_down() => bail!("the work ended although nobody asked for it"),
            result => result,
        },
        () = overdue => {
            warn!("Work did not end in time, leaving it behind");
            Ok(())
        }
    }
}

fn open(gate: Option<Gate>) {
    if let Some(gate) = gate {
        gate.open();
    }
}

fn stop_on_signals(tasks: &Tasks) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let stopping = tasks.clone();
    tasks.spawn("signals", async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM: stopping"),
            _ = interrupt.recv() => info!("SIGINT: stopping"),
            () = stopping.shutdown() => return,
        }
        stopping.shut_down();
    });
    Ok(())
}

/// Logs to standard error. A second call in one process changes nothing.
fn log(args: &Args) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&args.log_level))
        .with_writer(std::io::stderr);
    let _ = match args.log_format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
