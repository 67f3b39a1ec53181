//! What a binary's code gets to work with: clients, writes, Events, readiness, shutdown.

use crate::apply::Applier;
use crate::args::Args;
use crate::client::{self, client, no_retry_client};
use crate::events::Events;
use crate::ready::{Gate, Readiness};
use crate::scope::Scope;
use crate::tasks::Tasks;
use futures::future::try_join_all;
use kube::Client;
use slinky_api::names::cluster_domain;
use std::sync::Arc;

/// The running process. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    instance: String,
    args: Args,
    client: Client,
    no_retry_client: Client,
    namespace: String,
    applier: Applier,
    events: Events,
    readiness: Readiness,
    tasks: Tasks,
}

impl Runtime {
    /// Makes the clients and starts to publish Events; nothing is sent yet.
    pub(crate) async fn new(name: &'static str, args: Args, tasks: Tasks) -> Result<Self, client::Error> {
        let config = client::config(name, args.kubeconfig.as_deref()).await?;
        let (client, no_retry_client) = (client(&config)?, no_retry_client(&config)?);
        let instance = instance();
        let inner = Inner {
            name,
            applier: Applier::new(client.clone(), name),
            events: Events::start(client.clone(), name, &instance, &tasks),
            instance,
            args,
            client,
            no_retry_client,
            namespace: config.default_namespace,
            readiness: Readiness::default(),
            tasks,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The binary's name.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// What tells this process from others of the same name: the pod's name, or the host's.
    pub fn instance(&self) -> &str {
        &self.inner.instance
    }

    /// The namespace that this process runs in.
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// The domain of the cluster that this process runs in.
    pub fn cluster_domain(&self) -> String {
        let resolv_conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        cluster_domain(&resolv_conf).to_owned()
    }

    /// The common flags.
    pub fn args(&self) -> &Args {
        &self.inner.args
    }

    /// How many objects of a kind may be reconciled at a time.
    pub fn workers(&self) -> u16 {
        self.inner.args.workers
    }

    /// For reads, and for writes that may be sent twice.
    pub fn client(&self) -> Client {
        self.inner.client.clone()
    }

    /// For writes of which a second copy matters: every request is sent once, every answer is seen.
    pub fn no_retry_client(&self) -> Client {
        self.inner.no_retry_client.clone()
    }

    /// Writes objects; the field manager is the binary's name.
    pub fn applier(&self) -> &Applier {
        &self.inner.applier
    }

    /// Publishes Events.
    pub fn events(&self) -> &Events {
        &self.inner.events
    }

    /// Adds something that has to happen before the process is ready.
    pub fn ready_gate(&self, name: impl Into<String>) -> Gate {
        self.inner.readiness.gate(name)
    }

    /// Resolves when work has to stop.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        self.inner.tasks.shutdown()
    }

    /// Whether work has to stop.
    pub fn is_shutting_down(&self) -> bool {
        self.inner.tasks.is_shutting_down()
    }

    /// Runs a future in the background, until it ends or the process does. It should end on [`Runtime::shutdown`]; a
    /// panic in it stops the process.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        self.inner.tasks.spawn(name, future);
    }

    /// Does `work` for all namespaces at once, or side by side for each one of `--namespaces`.
    ///
    /// kube watches one namespace or all. Several are several watches, and each namespace has its own caches and
    /// controllers, so that one that cannot be read stops no other and is never taken for empty. What the namespaces
    /// share (connections, a watch of nodes) is made before and cloned into `work`.
    pub async fn for_each_scope<F, R>(&self, work: F) -> anyhow::Result<()>
    where
        F: Fn(Scope) -> R,
        R: Future<Output = anyhow::Result<()>>,
    {
        let scopes = self.inner.args.namespaces.scopes();
        let works = scopes.into_iter().map(|namespace| work(Scope::new(self.clone(), namespace)));
        try_join_all(works).await.map(drop)
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.inner.readiness
    }
}

fn instance() -> String {
    let given = ["POD_NAME", "HOSTNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let host = || std::fs::read_to_string("/etc/hostname").map(|name| name.trim().to_owned()).ok();
    given.or_else(host).unwrap_or_else(|| "unknown".to_owned())
}
