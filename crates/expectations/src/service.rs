//! Runs the service: listens, waits for the Lease, leads one epoch, and stops in good order.
//!
//! A process listens before it leads, so that callers learn at once that it does not. It leads at most once: when its
//! term is over it exits, because open HTTP/2 connections would outlive a change of its readiness.

mod admission;
mod api;
mod args;
mod authentication;
mod connections;
mod leading;
mod metrics;

pub use args::Args;

use anyhow::Context as _;
use api::{Api, BeginLimit};
use authentication::Authenticator;
use axum::middleware;
use expectations::proto::expectations_server::{ExpectationsServer, SERVICE_NAME};
use expectations::{Clock, Limits, Machine, Parameters, Predecessor, Timing};
use futures::StreamExt;
use leading::{Epoch, Leading};
use operator_runtime::lease::{Elector, Leadership};
use operator_runtime::serving::{Authorities, Names, SecretCertificate, SelfIssued, ServingCertificate};
use operator_runtime::{Gate, Runtime, bind, since_boot};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::info;

/// Interval of the machine's ticks.
const TICK: Duration = Duration::from_secs(1);
/// How long a leader that stops waits for open batches to end: less than the runtime waits for this function.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);
/// Pause between two looks at whether a leader that stops has settled.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
/// Message in the Lease of a leader that stopped when no write of any batch could land any more.
const SETTLED: &str = "settled";
/// Largest message: a heartbeat that reports thousands of clusters.
const MAX_MESSAGE: usize = 1 << 20;
/// Largest list of headers.
const MAX_HEADERS: u32 = 16 << 10;
/// Calls in progress per connection: a replica has a few.
const MAX_STREAMS: u32 = 256;
/// Interval of HTTP/2 pings to callers, and how long their answers may take.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Interval at which limits forget callers that are gone.
const FORGET_PAUSE: Duration = Duration::from_secs(10);
/// Connections that wait for the server to take them.
const ACCEPTED: usize = 64;

/// Runs the service until shutdown, or until its term is over.
pub async fn start(runtime: Runtime, args: Args) -> anyhow::Result<()> {
    args.check()?;
    let gate = runtime.ready_gate("leading");
    let epoch = Epoch::default();
    metrics::register(&epoch);
    let health = serve(&runtime, &args, &epoch).await?;
    let elector = Elector::of_process(&runtime, &args.lease, crate::NAME, args.lease_timing);
    let leadership = tokio::select! {
        leadership = elector.acquire(|| info!("Standing by: another process leads")) => leadership,
        () = runtime.shutdown() => return Ok(()),
    };
    issue_certificate(&runtime, &args);
    lead(&runtime, &args, leadership, &epoch, gate, &health).await
}

/// Starts the gRPC server.
async fn serve(runtime: &Runtime, args: &Args, epoch: &Epoch) -> anyhow::Result<HealthReporter> {
    let certificate = ServingCertificate::default();
    let secret = SecretCertificate { secret: args.certificate.secret.clone() };
    let (following, followed) = (runtime.clone(), certificate.clone());
    let loaded = runtime.ready_gate("certificate");
    runtime.spawn("certificate", async move { secret.follow(&following, &followed, loaded).await });
    let (host, port) = args.listen_addr.host_and_port().context("--listen-addr needs a port")?;
    let listener = bind(host, port).await.with_context(|| format!("cannot listen on {host}:{port}"))?;
    info!(address = ?listener.local_addr().ok(), "gRPC server is listening");
    let (sender, receiver) = mpsc::channel(ACCEPTED);
    let tls = Arc::new(certificate.server_config(&["h2"]));
    let shutdown = runtime.drained();
    runtime.spawn("accept", async move {
        tokio::select! {
            () = connections::accept(listener, tls, sender) => {}
            () = shutdown => {}
        }
    });
    let (health, health_service) = tonic_health::server::health_reporter();
    set_health(&health, ServingStatus::NotServing).await;
    let routes = Routes::from(routes(runtime, args, epoch)).add_service(health_service);
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .http2_max_header_list_size(MAX_HEADERS)
        .max_concurrent_streams(MAX_STREAMS)
        .add_routes(routes);
    let incoming = futures::stream::unfold(receiver, |mut receiver| async move {
        let connection = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(connection), receiver))
    });
    let stop = runtime.drained();
    runtime.spawn("grpc server", async move {
        if let Err(error) = server.serve_with_incoming_shutdown(incoming.boxed(), stop).await {
            tracing::error!(%error, "gRPC server failed");
        }
    });
    Ok(health)
}

/// The methods of the service, for callers that are admitted.
fn routes(runtime: &Runtime, args: &Args, epoch: &Epoch) -> axum::Router {
    let begins = Arc::new(BeginLimit::new(args.limits.begins));
    let authenticator = Arc::new(Authenticator::new(runtime, &args.service_accounts));
    let api = Api { runtime: runtime.clone(), epoch: epoch.clone(), begins: begins.clone() };
    let (limited, stopped) = (authenticator.clone(), runtime.drained());
    runtime.spawn("limits", async move {
        let forgetting = async {
            loop {
                sleep(FORGET_PAUSE).await;
                begins.forget_idle();
                limited.forget_idle();
            }
        };
        tokio::select! {
            () = forgetting => {}
            () = stopped => {}
        }
    });
    let service = ExpectationsServer::new(api).max_decoding_message_size(MAX_MESSAGE);
    let admit = middleware::from_fn_with_state(authenticator, admission::admit);
    Routes::new(service).into_axum_router().route_layer(admit)
}

/// Sets the answer of the gRPC health protocol.
async fn set_health(health: &HealthReporter, status: ServingStatus) {
    health.set_service_status(SERVICE_NAME, status).await;
    health.set_service_status("", status).await;
}

/// Makes and renews the certificate, if this process has to. Only the leader does.
fn issue_certificate(runtime: &Runtime, args: &Args) {
    let certificate = &args.certificate;
    if !certificate.self_issued {
        return;
    }
    let names = if certificate.names.is_empty() {
        Names::of_service(crate::NAME, runtime.namespace(), &runtime.cluster_domain())
    } else {
        Names::new(certificate.names.iter().cloned())
    };
    let authorities = Authorities::ConfigMap(certificate.config_map.clone());
    let issued = SelfIssued { secret: certificate.secret.clone(), authorities, names };
    let runtime_of_task = runtime.clone();
    runtime.spawn("certificates", async move { issued.maintain(&runtime_of_task).await });
}

/// Leads one epoch: until shutdown, when the Lease is released, or until the term is over.
async fn lead(
    runtime: &Runtime,
    args: &Args,
    mut leadership: Leadership,
    epoch: &Epoch,
    gate: Gate,
    health: &HealthReporter,
) -> anyhow::Result<()> {
    let clock: Clock = Arc::new(since_boot);
    let predecessor = match leadership.message() {
        Some(SETTLED) => Predecessor::Settled,
        _ => Predecessor::Unknown,
    };
    let id = format!("{:016x}", rand::random::<u64>());
    info!(epoch = id, ?predecessor, "Leading");
    let parameters = Parameters {
        epoch: id.into(),
        timing: Timing::from(&args.timing),
        limits: Limits { creates: args.limits.creates, deletes: args.limits.deletes },
        predecessor,
    };
    let machine = Machine::new(parameters, clock());
    let identity = leadership.identity().to_owned();
    let leading = epoch.get_or_init(|| Leading::new(machine, leadership.term(), clock, &identity));
    gate.open();
    set_health(health, ServingStatus::Serving).await;
    let settled = tokio::select! {
        settled = run(runtime, leading, health) => settled?,
        lost = leadership.lost() => return Err(lost).context("lost leadership"),
    };
    leadership.release(settled.then_some(SETTLED)).await;
    Ok(())
}

/// Ticks until shutdown, then waits until everything has settled; returns whether it has.
async fn run(runtime: &Runtime, leading: &Leading, health: &HealthReporter) -> anyhow::Result<bool> {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ticking = async {
        loop {
            ticks.tick().await;
            leading.tick()?;
        }
    };
    let stopping = async {
        runtime.shutdown().await;
        set_health(health, ServingStatus::NotServing).await;
        settle(leading).await
    };
    tokio::select! {
        ticked = ticking => ticked,
        settled = stopping => settled,
    }
}

/// Grants nothing more and waits until no write of any batch can land. Gives up at once where that takes too long: the
/// next leader then waits instead, and grants creates meanwhile.
async fn settle(leading: &Leading) -> anyhow::Result<bool> {
    let deadline = tokio::time::Instant::now() + SETTLE_LIMIT;
    leading.call(|machine, _| machine.stop())?;
    loop {
        let (is_settled, half_open_left) =
            leading.call(|machine, now| (machine.is_settled(now), machine.half_open_left()))?;
        let now = tokio::time::Instant::now();
        if is_settled || now + half_open_left > deadline || now > deadline {
            info!(is_settled, ?half_open_left, "Stopping");
            return Ok(is_settled);
        }
        sleep(SETTLE_PAUSE).await;
    }
}
