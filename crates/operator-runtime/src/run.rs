//! The lifecycle of a process: set up, acquire the Lease, run controllers, drain, release the Lease, stop.

use crate::admin;
use crate::args::{Args, LogFormat, ProcessArgs};
use crate::lease::{Elector, Leadership, LeaseTiming};
use crate::ready::Gate;
use crate::runtime::Runtime;
use crate::tasks::Tasks;
use anyhow::{Context, bail};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

/// How long controllers may run after a shutdown request. Together with the remaining steps this is less than the
/// default termination grace period of a pod, 30 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a binary. `start` is called when the process is active, and has to return soon after [`Runtime::shutdown`]. It
/// creates its caches and gates before its first await; the process is ready when the caches are filled and the gates
/// open.
///
/// `name` is the name of the binary, and that of its field manager, Lease and Event source.
pub async fn run<F, R>(name: &'static str, args: Args, start: F) -> anyhow::Result<()>
where
    F: FnOnce(Runtime) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    // The TLS provider of kube, tonic and the webhook. This fails only if one is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    init_logging(&args.process);
    info!(name, version = env!("CARGO_PKG_VERSION"), "Starting process");
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
    let ProcessArgs { health_addr, metrics_addr, .. } = &args.process;
    admin::serve(health_addr, metrics_addr, runtime.readiness(), tasks).await?;
    if !args.leader_elect.unwrap_or_default() {
        return run_until_shutdown(tasks, starting, start(runtime)).await;
    }
    let leadership = tokio::select! {
        leadership = acquire_leadership(name, &runtime, &mut starting) => leadership,
        () = tasks.shutdown() => return Ok(()),
    };
    runtime.set_term(leadership.term());
    run_while_leading(tasks, leadership, starting, start(runtime)).await
}

/// Waits for leadership. A standby is ready once it observed another leader: it can take over at any time, and a
/// rollout that waits for ready new pods before it stops the old leader must not wait forever.
async fn acquire_leadership(name: &str, runtime: &Runtime, starting: &mut Option<Gate>) -> Leadership {
    let elector = Elector::of_process(runtime, &runtime.args().lease, name, LeaseTiming::default());
    elector.acquire(|| open(starting.take())).await
}

/// Holds the Lease until the controllers are drained, then releases it. If the Lease is lost, the controllers are
/// cancelled and the process exits.
async fn run_while_leading(
    tasks: &Tasks,
    mut leadership: Leadership,
    starting: Option<Gate>,
    started: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let result = tokio::select! {
        result = run_until_shutdown(tasks, starting, started) => result,
        lost = leadership.lost() => return Err(lost).context("lost leadership"),
    };
    leadership.release(None).await;
    result
}

/// Runs the future of the binary's `start`, and cancels it if it does not end in time after shutdown.
async fn run_until_shutdown(
    tasks: &Tasks,
    starting: Option<Gate>,
    started: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let overdue = async {
        // `started` was polled once and has added its gates.
        open(starting);
        tasks.shutdown().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        result = started => match result {
            Ok(()) if !tasks.is_shutting_down() => bail!("the controllers ended without a shutdown request"),
            result => result,
        },
        () = overdue => {
            warn!("Controllers did not stop in time; cancelling them");
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
            _ = terminate.recv() => info!("Received SIGTERM; shutting down"),
            _ = interrupt.recv() => info!("Received SIGINT; shutting down"),
            () = stopping.shutdown() => return,
        }
        stopping.shut_down();
    });
    Ok(())
}

/// Logs to standard error. A second call in the same process has no effect.
fn init_logging(args: &ProcessArgs) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&args.log_level))
        .with_writer(std::io::stderr);
    let _ = match args.log_format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
