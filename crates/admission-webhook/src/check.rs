//! Checks that the API server calls the webhook, and that the webhook answers.

use anyhow::bail;
use kube::Api;
use kube::api::PostParams;
use operator_runtime::error::chain;
use operator_runtime::parse_duration;
use serde_json::json;
use slinky_api::v1beta1::NodeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// A hostname that the schema accepts and the webhook does not.
const INVALID_HOSTNAME: &str = "Not_A_Hostname";

/// Flags of the check.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How long to wait for the webhook.
    #[arg(long, default_value = "2m", value_parser = parse_duration)]
    timeout: Duration,

    /// Namespace of the NodeSet that is sent; the default is that of this process.
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,

    /// Kubeconfig file; the default is the first of `KUBECONFIG`, ~/.kube/config and the service account of the pod.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Sends an invalid NodeSet, as a dry run, until the webhook denies it.
pub async fn run(args: Args) -> anyhow::Result<()> {
    // This fails only if one is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = operator_runtime::client::config(crate::NAME, args.kubeconfig.as_deref()).await?;
    let namespace = if args.namespace.is_empty() { config.default_namespace.clone() } else { args.namespace };
    let nodesets: Api<NodeSet> =
        Api::namespaced(operator_runtime::client::no_retry_client(&config)?, &namespace);
    let started = Instant::now();
    let mut reported = String::new();
    loop {
        let Some(problem) = attempt(&nodesets).await else {
            println!("The admission webhook answers, after {:.0} s.", started.elapsed().as_secs_f64());
            return Ok(());
        };
        if started.elapsed() >= args.timeout {
            bail!("the admission webhook does not answer after {} s: {problem}", args.timeout.as_secs());
        }
        if problem != reported {
            println!("Waiting for the admission webhook: {problem}");
            reported = problem;
        }
        sleep(PAUSE).await;
    }
}

/// Sends the NodeSet once. Returns why that does not show that the webhook works.
async fn attempt(nodesets: &Api<NodeSet>) -> Option<String> {
    let nodeset = json!({
        "metadata": { "name": "admission-webhook-check" },
        "spec": {
            "controllerRef": { "name": "admission-webhook-check" },
            "template": { "spec": { "hostname": INVALID_HOSTNAME } },
        },
    });
    let nodeset: NodeSet = match serde_json::from_value(nodeset) {
        Ok(nodeset) => nodeset,
        Err(error) => return Some(chain(&error)),
    };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match nodesets.create(&dry_run, &nodeset).await {
        Ok(_) => Some("the API server accepted an invalid NodeSet without asking the webhook".to_owned()),
        Err(kube::Error::Api(status)) if status.message.contains(INVALID_HOSTNAME) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => Some(chain(&error)),
    }
}
