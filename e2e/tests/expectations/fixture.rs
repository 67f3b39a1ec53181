//! The service in a namespace of its own, with the permissions that it needs and no others, and its callers.

use anyhow::{Context, Result, bail};
use e2e::eventually;
pub use e2e::expectations::{AUDIENCE, CALLERS as REPLICAS, Server};
use e2e::expectations::{ExpectationsEnv, SERVICE};
use e2e::test_env::SOON;
use expectations::client::{Client, Config};
use expectations::proto::expectations_client::ExpectationsClient;
use expectations::{Answer, Basis, BatchId, Begin, Clock, Expectations, NodeSetName, Ops, ReplicaId};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use operator_runtime::since_boot;
use serde_json::{Value, json};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Request;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// Pause between calls under load. Callers and service without any keep all cores busy, and Linux may leave none of them to
/// processes of other sessions for many seconds: seen with an API server, whose clients then lost their Leases.
pub const CALL_PAUSE: Duration = Duration::from_millis(5);

/// A namespace in which processes of the service run.
pub struct Env(ExpectationsEnv);

impl Deref for Env {
    type Target = ExpectationsEnv;

    fn deref(&self) -> &ExpectationsEnv {
        &self.0
    }
}

/// A replica that has joined the service, or is about to.
pub struct Replica {
    pub client: Arc<Client>,
    pub id: ReplicaId,
    leave: oneshot::Sender<()>,
    tasks: JoinSet<()>,
}

impl Env {
    /// A namespace with the accounts of the service and of its callers.
    pub async fn create(test: &str) -> Result<Self> {
        ExpectationsEnv::create(test).await.map(Self)
    }

    /// A namespace in which the service may not review tokens.
    pub async fn without_token_reviews(test: &str) -> Result<Self> {
        ExpectationsEnv::without_token_reviews(test).await.map(Self)
    }

    /// Starts a process of the service and waits until it leads.
    pub async fn start_leader(&self, flags: &[&str]) -> Result<Server> {
        let leader = self.start("leader", flags)?;
        leader.wait_until_ready(SOON).await?;
        Ok(leader)
    }

    /// Makes the next leader take over from one that stopped in good order.
    pub async fn write_settled_lease(&self) -> Result<()> {
        let annotations = json!({ "slinky.slurm.net/released": "settled" });
        let lease = json!({ "metadata": { "name": SERVICE, "annotations": annotations }, "spec": {} });
        let leases = self.namespace.api::<Lease>();
        leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
        Ok(())
    }

    /// Lets a replica join.
    pub async fn join(&self, id: &str, servers: &[&Server]) -> Result<Replica> {
        let replica = Replica::start(id, self.config(servers).await?);
        timeout(SOON, replica.client.joined()).await.context("joining")?;
        Ok(replica)
    }

    /// A connection of its own to a process.
    pub async fn connect(&self, server: &Server) -> Result<Channel> {
        connect(server, &self.authorities().await?).await
    }

    /// A client with a connection of its own to a process, and the token of the replicas.
    pub async fn caller(&self, server: &Server) -> Result<Caller> {
        let token = std::fs::read_to_string(self.token_file()?)?;
        Ok(Caller { client: ExpectationsClient::new(self.connect(server).await?), token })
    }

    /// Merges fields into an object.
    pub async fn patch<K>(&self, name: &str, fields: Value) -> Result<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let patch = Patch::Merge(fields);
        Ok(self.namespace.api::<K>().patch(name, &PatchParams::default(), &patch).await?)
    }

    /// How callers find these processes.
    pub async fn config(&self, servers: &[&Server]) -> Result<Config> {
        let ca_file = self.write_authorities().await?;
        let endpoints = servers.iter().map(|server| server.url().parse()).collect::<Result<_, _>>()?;
        Ok(Config { endpoints, ca_file, token_file: self.token_file()? })
    }

    /// Deletes the namespace.
    pub async fn tear_down(self) -> Result<()> {
        self.0.tear_down().await
    }
}

/// A connection that trusts these authorities.
pub async fn connect(server: &Server, authorities: &str) -> Result<Channel> {
    let tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities)).domain_name("localhost");
    Ok(Endpoint::from_shared(server.url())?.tls_config(tls)?.connect().await?)
}

/// Calls the service without joining it.
#[derive(Clone)]
pub struct Caller {
    pub client: ExpectationsClient<Channel>,
    pub token: String,
}

impl Caller {
    /// A request with this caller's token.
    pub fn request<T>(&self, message: T) -> Request<T> {
        authorized(message, &self.token)
    }
}

/// A request with a token.
pub fn authorized<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

impl Replica {
    /// A replica that joins in the background.
    pub fn start(id: &str, config: Config) -> Self {
        let clock: Clock = Arc::new(since_boot);
        let id = ReplicaId::from(id);
        let client = Arc::new(Client::new(config, id.clone(), clock));
        let (leave, leaving) = oneshot::channel::<()>();
        let mut tasks = JoinSet::new();
        let running = client.clone();
        tasks.spawn(async move { running.run(async { drop(leaving.await) }).await });
        Self { client, id, leave, tasks }
    }

    /// Leaves the membership.
    pub async fn leave(mut self) {
        let _ = self.leave.send(());
        let _ = self.tasks.join_next().await;
    }

    /// Requests a batch of a NodeSet in the cluster `key`.
    pub async fn begin(&self, counter: u64, key: &str, basis: Option<Basis>, ops: Ops) -> Result<Answer> {
        Ok(self.client.begin(begin(&self.id, counter, key, basis, ops)).await?)
    }

    /// Opens a batch: requests it, and again with the basis of the answer.
    pub async fn open(&self, counter: u64, key: &str, ops: Ops) -> Result<Answer> {
        match self.begin(counter, key, None, ops).await? {
            Answer::NeedFresh(basis) => self.begin(counter + 1, key, Some(basis), ops).await,
            answer @ (Answer::Granted(_) | Answer::NotOwner(_) | Answer::Wait(_)) => Ok(answer),
        }
    }

    /// Ends a batch.
    pub async fn done(&self, counter: u64) -> Result<Option<Basis>> {
        Ok(self.client.done(BatchId { replica: self.id.clone(), counter }).await?)
    }

    /// Waits until the membership has these replicas.
    pub async fn wait_for_members(&self, expected: &[&str]) -> Result<()> {
        let members = async || match self.client.ownership() {
            expectations::Ownership::Shared { members, .. } => {
                Ok(members.iter().map(|member| member.as_str().to_owned()).collect::<Vec<_>>())
            }
            expectations::Ownership::All => bail!("not shared"),
        };
        eventually("members", SOON, members, |members| members.iter().eq(expected)).await?;
        Ok(())
    }
}

/// A request for a batch of a NodeSet, named as the cluster that it belongs to.
pub fn begin(replica: &ReplicaId, counter: u64, key: &str, basis: Option<Basis>, ops: Ops) -> Begin {
    let (namespace, name) = key.split_once('/').unwrap();
    Begin {
        batch: BatchId { replica: replica.clone(), counter },
        cluster_key: key.to_owned(),
        nodeset: NodeSetName { namespace: namespace.into(), name: name.into() },
        uid: "uid".into(),
        generation: 1,
        basis,
        ops,
    }
}

/// Pods to create.
pub const fn creates(creates: u32) -> Ops {
    Ops { creates, deletes: 0, others: 0 }
}

/// Pods to delete.
pub const fn deletes(deletes: u32) -> Ops {
    Ops { creates: 0, deletes, others: 0 }
}

/// The name of the Lease's holder.
pub async fn holder(env: &Env) -> Result<Option<String>> {
    let lease = env.namespace.api::<Lease>().get_opt(SERVICE).await?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity))
}

/// The annotations of the Lease.
pub async fn lease_annotations(env: &Env) -> Result<Vec<(String, String)>> {
    let lease = env.namespace.api::<Lease>().get(SERVICE).await?;
    Ok(lease.annotations().clone().into_iter().collect())
}
