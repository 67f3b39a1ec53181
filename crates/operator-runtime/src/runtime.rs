//! The handle that a binary's code works with: clients, writes, Events, readiness, shutdown.

use crate::apply::Applier;
use crate::args::Args;
use crate::client::{self, client, no_retry_client};
use crate::events::Events;
use crate::ready::{Gate, Readiness};
use crate::tasks::Tasks;
use crate::term::Term;
use kube::Client;
use slinky_api::names::cluster_domain;
use std::sync::{Arc, OnceLock};

/// The running process. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    instance: String,
    args: Args,
    client: Client,
    no_retry_client: Client,
    namespace: String,
    applier: Applier,
    events: Events,
    readiness: Readiness,
    tasks: Tasks,
    term: OnceLock<Term>,
}

impl Runtime {
    /// Builds the clients and starts the task that sends Events. It sends no request.
    pub(crate) async fn new(name: &'static str, args: Args, tasks: Tasks) -> Result<Self, client::Error> {
        let config = client::config(name, args.process.kubeconfig.as_deref()).await?;
        let (client, no_retry_client) = (client(&config)?, no_retry_client(&config)?);
        let instance = instance();
        let inner = Inner {
            applier: Applier::new(client.clone(), name),
            events: Events::start(client.clone(), name, &instance, &tasks),
            instance,
            args,
            client,
            no_retry_client,
            namespace: config.default_namespace,
            readiness: Readiness::default(),
            tasks,
            term: OnceLock::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name of the pod, or else of the host: it distinguishes replicas of the binary.
    pub fn instance(&self) -> &str {
        &self.inner.instance
    }

    /// The namespace of this process.
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// The DNS domain of the cluster in which this process runs.
    pub fn cluster_domain(&self) -> String {
        let resolv_conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        cluster_domain(&resolv_conf).to_owned()
    }

    /// The common flags.
    pub fn args(&self) -> &Args {
        &self.inner.args
    }

    /// The time for which this process holds its Lease, if it was elected.
    pub fn term(&self) -> Option<Term> {
        self.inner.term.get().cloned()
    }

    pub(crate) fn set_term(&self, term: Term) {
        // A process is elected once.
        let _ = self.inner.term.set(term);
    }

    /// The client for reads and for idempotent writes: it retries requests.
    pub fn client(&self) -> Client {
        self.inner.client.clone()
    }

    /// The client for writes that must not be duplicated: every request is sent once, and every answer is returned.
    pub fn no_retry_client(&self) -> Client {
        self.inner.no_retry_client.clone()
    }

    /// Writes objects with the name of the binary as field manager.
    pub fn applier(&self) -> &Applier {
        &self.inner.applier
    }

    /// Publishes Events.
    pub fn events(&self) -> &Events {
        &self.inner.events
    }

    /// Adds a condition of readiness.
    pub fn ready_gate(&self, name: impl Into<String>) -> Gate {
        self.inner.readiness.gate(name)
    }

    /// Resolves when shutdown is requested.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        self.inner.tasks.shutdown()
    }

    /// Resolves when the future of the binary's `start` has ended: servers that it used may stop.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        self.inner.tasks.drained()
    }

    /// Whether shutdown was requested.
    pub fn is_shutting_down(&self) -> bool {
        self.inner.tasks.is_shutting_down()
    }

    /// Runs a future in the background. It should end on [`Runtime::shutdown`]; a panic in it stops the process.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        self.inner.tasks.spawn(name, future);
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.inner.readiness
    }
}

#[cfg(any(test, feature = "testing"))]
impl Runtime {
    /// A process with these flags whose requests go to this client.
    pub(crate) fn with_client(client: Client, args: Args, tasks: Tasks) -> Self {
        let inner = Inner {
            instance: "test".to_owned(),
            args,
            applier: Applier::new(client.clone(), "test"),
            events: Events::unsent(1).0,
            no_retry_client: client.clone(),
            client,
            namespace: "default".to_owned(),
            readiness: Readiness::default(),
            tasks,
            term: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }
}

fn instance() -> String {
    let variable = ["POD_NAME", "HOSTNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let host = || std::fs::read_to_string("/etc/hostname").map(|name| name.trim().to_owned()).ok();
    variable.or_else(host).unwrap_or_else(|| "unknown".to_owned())
}
