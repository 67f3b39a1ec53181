//! How this replica shares the NodeSets with others: the expectations service, in this process or over the network, and
//! the clusters that this replica owns.

use crate::slurm::ClusterKey;
use anyhow::Context as _;
use expectations::client::{Client, Config};
use expectations::{
    Clock, Embedded, Epoch, Expectations, Limits, Ownership, Parameters, Predecessor, ReplicaId, Timing,
};
use operator_runtime::{Runtime, since_boot};
use parking_lot::Mutex;
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tonic::transport::Uri;
use tracing::info;

/// Coordination backend for write batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// In this process: no other replica may be active.
    Embedded,
    /// The expectations service at these URLs.
    Service(Vec<Uri>),
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "embedded" {
            return Ok(Self::Embedded);
        }
        let urls = text.split(',').map(|url| match url.trim().parse::<Uri>() {
            Ok(uri) if uri.scheme_str() == Some("https") && uri.host().is_some() => Ok(uri),
            _ => Err(format!("`{url}` is neither `embedded` nor `https://HOST:PORT`")),
        });
        urls.collect::<Result<_, _>>().map(Self::Service)
    }
}

/// The part of the expectations protocol that all watched namespaces of a process share.
#[derive(Clone)]
pub struct Coordination {
    /// The expectations service.
    pub expectations: Arc<dyn Expectations>,
    /// This replica.
    pub replica: ReplicaId,
    /// Number of batches that this process has requested.
    pub batches: Arc<AtomicU64>,
    /// The clusters that this replica works on.
    cluster_keys: Arc<Mutex<BTreeSet<ClusterKey>>>,
}

impl Coordination {
    /// The replica of this name, coordinated by `expectations`.
    pub fn new(expectations: Arc<dyn Expectations>, replica: ReplicaId) -> Self {
        Self { expectations, replica, batches: Arc::default(), cluster_keys: Arc::default() }
    }

    /// Starts a replica with this backend. The process is ready when it has joined the service, and leaves it when the
    /// controllers have ended.
    pub fn start(runtime: &Runtime, backend: Backend, credentials: Credentials) -> anyhow::Result<Self> {
        let replica = ReplicaId::from(format!("{}_{:08x}", runtime.instance(), rand::random::<u32>()));
        let clock: Clock = Arc::new(since_boot);
        let expectations: Arc<dyn Expectations> = match backend {
            Backend::Embedded => {
                let term =
                    runtime.term().context("a process with embedded expectations has to be elected")?;
                Arc::new(embedded(&replica, clock)?.while_leading(move |now| term.covers(now)))
            }
            Backend::Service(endpoints) => {
                let Credentials { ca_file, token_file } = credentials;
                let config = Config { endpoints, ca_file, token_file };
                let client = Arc::new(Client::new(config, replica.clone(), clock));
                let (joined, gate) = (client.clone(), runtime.ready_gate("expectations service"));
                let (member, leaving) = (client.clone(), runtime.drained());
                runtime.spawn("join", async move { member.run(leaving).await });
                let shutdown = runtime.shutdown();
                runtime.spawn("first join", async move {
                    tokio::select! {
                        () = joined.joined() => gate.open(),
                        () = shutdown => {}
                    }
                });
                client
            }
        };
        info!(replica = replica.as_str(), "Replica starts");
        Ok(Self::new(expectations, replica))
    }

    /// What this replica may work on now.
    pub fn ownership(&self) -> Ownership {
        self.expectations.ownership()
    }

    /// Whether this replica works on a NodeSet.
    pub fn owns(&self, nodeset: &NodeSet) -> bool {
        self.owns_cluster(&ClusterKey::of(nodeset))
    }

    /// Whether this replica works on the NodeSets of a cluster.
    pub fn owns_cluster(&self, key: &ClusterKey) -> bool {
        match self.ownership() {
            Ownership::All => true,
            shared @ Ownership::Shared { .. } => shared.owns(&key.to_string()),
        }
    }

    /// Reports that this replica works on a cluster.
    pub fn take_up(&self, key: ClusterKey) {
        let mut keys = self.cluster_keys.lock();
        if keys.insert(key) {
            self.report(&keys);
        }
    }

    /// Reports that this replica does not work on a cluster any more.
    pub fn give_up(&self, key: &ClusterKey) {
        let mut keys = self.cluster_keys.lock();
        if keys.remove(key) {
            self.report(&keys);
        }
    }

    fn report(&self, keys: &BTreeSet<ClusterKey>) {
        self.expectations.report_clusters(keys.iter().map(ToString::to_string).collect());
    }
}

/// How a replica proves who it is, and knows the service.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Credentials {
    /// File with the certificates of the authorities that the expectations service's certificate is checked against.
    #[arg(
        id = "expectations_ca_file",
        long = "expectations-ca-file",
        env = "EXPECTATIONS_CA_FILE",
        default_value = expectations::client::DEFAULT_CA_FILE
    )]
    pub ca_file: std::path::PathBuf,

    /// File with the ServiceAccount token for the expectations service, of the audience `expectations.slinky.slurm.net`.
    #[arg(
        id = "expectations_token_file",
        long = "expectations-token-file",
        env = "EXPECTATIONS_TOKEN_FILE",
        default_value = expectations::client::DEFAULT_TOKEN_FILE
    )]
    pub token_file: std::path::PathBuf,
}

/// The expectations of a single active replica.
fn embedded(replica: &ReplicaId, clock: Clock) -> anyhow::Result<Embedded> {
    let parameters = Parameters {
        epoch: Epoch::from(format!("{:016x}", rand::random::<u64>())),
        timing: Timing::default(),
        limits: Limits::default(),
        predecessor: Predecessor::Unknown,
    };
    Embedded::new(parameters, clock, replica.clone())
        .context("the timing constants of the expectations protocol contradict each other")
}

#[cfg(test)]
mod tests {
    use super::Backend;
    use rstest::rstest;

    #[rstest]
    #[case::embedded("embedded", Some(0))]
    #[case::one("https://expectations.slinky:8443", Some(1))]
    #[case::several("https://10.0.0.1:8443, https://[fd00::1]:8443", Some(2))]
    #[case::plaintext("http://expectations:8443", None)]
    #[case::no_scheme("expectations:8443", None)]
    #[case::empty("", None)]
    #[case::empty_part("https://a,", None)]
    fn backend_is_embedded_or_urls(#[case] text: &str, #[case] urls: Option<usize>) {
        let parsed = text.parse().map(|backend| match backend {
            Backend::Embedded => 0,
            Backend::Service(urls) => urls.len(),
        });
        assert_eq!(parsed.ok(), urls);
    }
}
