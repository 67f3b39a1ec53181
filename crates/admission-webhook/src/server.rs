//! The HTTPS server of the webhook.

use crate::review::{Answer, Request, allow, answer};
use crate::validation::validate;
use crate::{NAME, binding, eviction};
use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::HeaderMap;
use axum::routing::{MethodRouter, post};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use clap::ArgAction;
use kube::Client;
use operator_runtime::lease::{Elector, LeaseTiming};
use operator_runtime::serving::{
    Authorities, Names, SecretAuthorities, SecretCertificate, SelfIssued, ServingCertificate,
};
use operator_runtime::{LeaseArgs, ListenAddr, Namespaces, Runtime, bind};
use slinky_api::v1beta1::{Accounting, Controller, LoginSet, NodeSet, RestApi, Token};
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

/// Largest review: an object of the largest size that etcd stores, its predecessor, and their JSON.
const MAX_BODY: usize = 7 << 20;
/// How long requests may go on after shutdown: longer than the API server waits for the webhook.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// Flags of the server.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Listen address of the HTTPS server: `:PORT` or `HOST:PORT`.
    #[arg(long, env = "SERVER_ADDR", default_value = ":9443")]
    server_addr: ListenAddr,

    /// Comma-separated namespaces whose objects are validated; empty means all. Objects in others are allowed.
    #[arg(long, env = "NAMESPACES", default_value = "", hide_default_value = true)]
    namespaces: Namespaces,

    #[command(flatten)]
    certificate: CertificateArgs,

    #[command(flatten)]
    lease: LeaseArgs,
}

/// Flags of the certificate.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Certificate")]
#[group(skip)]
struct CertificateArgs {
    /// Secret with the certificate of the server, of type kubernetes.io/tls, in the namespace of this process.
    #[arg(long = "tls-secret", env = "TLS_SECRET", default_value = "admission-webhook-tls")]
    secret: String,

    /// Make and renew the certificate; false if cert-manager or a person writes the Secret.
    #[arg(long = "tls-self-issued", env = "TLS_SELF_ISSUED", action = ArgAction::Set, default_value_t = true)]
    self_issued: bool,

    /// Names and addresses in a certificate that this process makes, separated by commas; the default are the names of a
    /// Service `admission-webhook` in the namespace of this process.
    #[arg(long = "tls-names", env = "TLS_NAMES", value_delimiter = ',')]
    names: Vec<String>,

    /// Name of the ValidatingWebhookConfiguration and MutatingWebhookConfiguration in which this process keeps the caBundle
    /// that of the Secret; empty if cert-manager or a person does.
    #[arg(long, env = "WEBHOOK_CONFIGURATION", default_value = "", hide_default_value = true)]
    webhook_configuration: String,
}

/// Shared by all requests.
#[derive(Clone)]
struct Context {
    client: Client,
    namespaces: Arc<Namespaces>,
}

/// Runs the server until shutdown.
pub async fn start(runtime: Runtime, args: Args) -> anyhow::Result<()> {
    let (host, port) = args.server_addr.host_and_port().context("--server-addr needs a port")?;
    let is_published = !args.certificate.self_issued || !args.certificate.webhook_configuration.is_empty();
    ensure!(
        is_published,
        "--tls-self-issued needs --webhook-configuration: the API server must know the authority"
    );
    let certificate = follow_certificate(&runtime, &args.certificate);
    maintain_certificate(&runtime, &args);
    let listener = bind(host, port).await.with_context(|| format!("cannot listen on {host}:{port}"))?;
    info!(address = ?listener.local_addr().ok(), "Webhook server is listening");
    let tls = RustlsConfig::from_config(Arc::new(certificate.server_config(&["h2", "http/1.1"])));
    let handle = Handle::new();
    let server = axum_server::from_tcp_rustls(listener.into_std()?, tls)?.handle(handle.clone());
    let context = Context { client: runtime.client(), namespaces: Arc::new(args.namespaces) };
    let shutdown = runtime.shutdown();
    runtime.spawn("webhook shutdown", async move {
        shutdown.await;
        handle.graceful_shutdown(Some(DRAIN_LIMIT));
    });
    server.serve(routes(context).into_make_service()).await.context("the webhook server failed")
}

fn routes(context: Context) -> Router {
    Router::new()
        .route("/validate-slinky-slurm-net-v1beta1-accounting", hook("accounting", validate::<Accounting>))
        .route("/validate-slinky-slurm-net-v1beta1-controller", hook("controller", validate::<Controller>))
        .route("/validate-slinky-slurm-net-v1beta1-loginset", hook("loginset", validate::<LoginSet>))
        .route("/validate-slinky-slurm-net-v1beta1-nodeset", hook("nodeset", validate::<NodeSet>))
        .route("/validate-slinky-slurm-net-v1beta1-restapi", hook("restapi", validate::<RestApi>))
        .route("/validate-slinky-slurm-net-v1beta1-token", hook("token", validate::<Token>))
        .route("/validate--v1-pod-eviction", hook("eviction", eviction::evict))
        .route("/mutate--v1-binding", hook("binding", binding::bind))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(context)
}

/// The handler of one hook. Requests for other namespaces than those of this process are allowed.
fn hook<D, F>(name: &'static str, decide: D) -> MethodRouter<Context>
where
    D: Fn(Client, Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    post(
        async move |State(context): State<Context>,
                    headers: HeaderMap,
                    body: Result<Bytes, BytesRejection>| {
            let decide = |request: Request| async move {
                let namespace = request.namespace.as_deref().unwrap_or_default();
                if !context.namespaces.contain(namespace) {
                    return allow(&request);
                }
                decide(context.client, request).await
            };
            answer(name, &headers, body, decide).await
        },
    )
}

/// The certificate of the Secret. The process is not ready without one.
fn follow_certificate(runtime: &Runtime, args: &CertificateArgs) -> ServingCertificate {
    let certificate = ServingCertificate::default();
    let secret = SecretCertificate { secret: args.secret.clone() };
    let loaded = runtime.ready_gate("certificate");
    let (following, followed) = (runtime.clone(), certificate.clone());
    runtime.spawn("certificate", async move { secret.follow(&following, &followed, loaded).await });
    certificate
}

/// Makes and renews the certificate, and keeps the webhook configurations in step with it, if this process has to. Only the
/// holder of the Lease does.
fn maintain_certificate(runtime: &Runtime, args: &Args) {
    let CertificateArgs { secret, self_issued, names, webhook_configuration } = args.certificate.clone();
    if webhook_configuration.is_empty() {
        return;
    }
    let authorities = Authorities::WebhookConfigurations(webhook_configuration);
    let names = if names.is_empty() {
        Names::of_service(NAME, runtime.namespace(), &runtime.cluster_domain())
    } else {
        Names::new(names)
    };
    let (runtime, lease) = (runtime.clone(), args.lease.clone());
    let task_runtime = runtime.clone();
    runtime.spawn("certificates", async move {
        let runtime = task_runtime;
        while !runtime.is_shutting_down() {
            let elector = Elector::of_process(&runtime, &lease, NAME, LeaseTiming::default());
            let mut leadership = tokio::select! {
                leadership = elector.acquire(|| ()) => leadership,
                () = runtime.shutdown() => return,
            };
            let maintained = async {
                if self_issued {
                    let issued = SelfIssued {
                        secret: secret.clone(),
                        authorities: authorities.clone(),
                        names: names.clone(),
                    };
                    issued.maintain(&runtime).await;
                } else {
                    let copied =
                        SecretAuthorities { secret: secret.clone(), authorities: authorities.clone() };
                    copied.maintain(&runtime).await;
                }
            };
            tokio::select! {
                () = maintained => leadership.release(None).await,
                lost = leadership.lost() => error!(error = %lost, "Lost the Lease"),
            }
        }
    });
}
