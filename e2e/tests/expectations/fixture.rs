//! The service in a namespace of its own, with the permissions that it needs and no others, and its callers.

use anyhow::{Context, Result, bail};
use e2e::process::{Process, binary, free_address, kubeconfig_of_pod, scratch};
use e2e::test_env::SOON;
use e2e::{TestNamespace, client, eventually};
use expectations::client::{Client, Config};
use expectations::proto::expectations_client::ExpectationsClient;
use expectations::{Answer, Basis, BatchId, Begin, Clock, Expectations, NodeSetName, Ops, ReplicaId};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use operator_runtime::since_boot;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::Request;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// The audience of tokens for the service.
pub const AUDIENCE: &str = "expectations.slinky.slurm.net";
/// The account that may call the service.
pub const REPLICAS: &str = "replicas";
/// The account of the service.
const SERVICE: &str = "expectations";

/// A namespace in which processes of the service run.
pub struct Env {
    pub client: kube::Client,
    pub namespace: TestNamespace,
    kubeconfig: PathBuf,
    started: AtomicU32,
}

/// A process of the service.
pub struct Server {
    pub process: Process,
    pub address: SocketAddr,
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
        let env = Self::without_token_reviews(test).await?;
        let subject = json!([{ "kind": "ServiceAccount", "name": SERVICE, "namespace": env.name() }]);
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator" });
        let binding = json!({ "metadata": { "name": env.name() }, "roleRef": role, "subjects": subject });
        let bindings: Api<ClusterRoleBinding> = Api::all(env.client.clone());
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        Ok(env)
    }

    /// A namespace in which the service may not review tokens.
    pub async fn without_token_reviews(test: &str) -> Result<Self> {
        let client = client().await?;
        let namespace = TestNamespace::create(&client, test).await?;
        for account in [SERVICE, REPLICAS, "other"] {
            let account = json!({ "metadata": { "name": account } });
            let accounts = namespace.api::<ServiceAccount>();
            accounts.create(&PostParams::default(), &serde_json::from_value(account)?).await?;
        }
        let rules = json!([
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update"] },
            { "apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch", "create", "update"] },
        ]);
        let role = json!({ "metadata": { "name": SERVICE }, "rules": rules });
        namespace.api::<Role>().create(&PostParams::default(), &serde_json::from_value(role)?).await?;
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": SERVICE });
        let subject = json!([{ "kind": "ServiceAccount", "name": SERVICE, "namespace": namespace.name() }]);
        let binding = json!({ "metadata": { "name": SERVICE }, "roleRef": role, "subjects": subject });
        namespace
            .api::<RoleBinding>()
            .create(&PostParams::default(), &serde_json::from_value(binding)?)
            .await?;
        let token = request_token(&namespace, SERVICE, None).await?;
        let kubeconfig = scratch(&format!("{}.kubeconfig", namespace.name()))?;
        let kubeconfig = kubeconfig_of_pod(&token, Some(namespace.name()), kubeconfig)?;
        let env = Self { client, namespace, kubeconfig, started: AtomicU32::new(0) };
        std::fs::write(env.token_file()?, env.token(REPLICAS, AUDIENCE).await?)?;
        Ok(env)
    }

    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Starts a process of the service in a pod of this name.
    pub fn start(&self, pod: &str, flags: &[&str]) -> Result<Server> {
        self.start_at(free_address()?, pod, flags)
    }

    /// As [`Env::start`], at a given address.
    pub fn start_at(&self, address: SocketAddr, pod: &str, flags: &[&str]) -> Result<Server> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = scratch(&format!("{}-{number}-{pod}.log", self.name()))?;
        let (listen, accounts) = (address.to_string(), format!("{}/{REPLICAS}", self.name()));
        let kubeconfig = self.kubeconfig.to_str().context("a path")?;
        let common = ["--listen-addr", &listen, "--service-accounts", &accounts, "--kubeconfig", kubeconfig];
        let env = [("POD_NAME", pod), ("POD_UID", pod)];
        let process =
            Process::start_with_env(binary("expectations")?, &[&common, flags].concat(), &env, &log)?;
        Ok(Server { process, address })
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

    /// A token of an account of this namespace, for 10 minutes.
    pub async fn token(&self, account: &str, audience: &str) -> Result<String> {
        request_token(&self.namespace, account, Some(audience)).await
    }

    /// The file with the token of the replicas.
    pub fn token_file(&self) -> Result<PathBuf> {
        scratch(&format!("{}.token", self.name()))
    }

    /// The certificates of the authorities, as clients find them in the ConfigMap.
    pub async fn authorities(&self) -> Result<String> {
        let maps = self.namespace.api::<ConfigMap>();
        let get = async || Ok(maps.get_opt("expectations-ca").await?);
        let map = eventually("the ConfigMap", SOON, get, Option::is_some).await?.context("a ConfigMap")?;
        map.data.unwrap_or_default().remove("ca.crt").context("ca.crt")
    }

    /// How callers find these processes.
    pub async fn config(&self, servers: &[&Server]) -> Result<Config> {
        let ca_file = scratch(&format!("{}.ca", self.name()))?;
        std::fs::write(&ca_file, self.authorities().await?)?;
        let endpoints = servers.iter().map(|server| server.url().parse()).collect::<Result<_, _>>()?;
        Ok(Config { endpoints, ca_file, token_file: self.token_file()? })
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

    /// Deletes the namespace.
    pub async fn tear_down(self) -> Result<()> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        if bindings.get_opt(self.name()).await?.is_some() {
            bindings.delete(self.name(), &DeleteParams::default()).await?;
        }
        self.namespace.delete().await
    }
}

/// A token for this audience, by default that of the API server.
async fn request_token(namespace: &TestNamespace, account: &str, audience: Option<&str>) -> Result<String> {
    let audiences: Vec<_> = audience.into_iter().collect();
    let request = json!({ "metadata": {}, "spec": { "audiences": audiences, "expirationSeconds": 3600 } });
    let request: TokenRequest = serde_json::from_value(request)?;
    let accounts = namespace.api::<ServiceAccount>();
    let request = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    request.status.and_then(|status| status.token).context("a token")
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

impl Server {
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// Waits until it leads, and returns how long that took.
    pub async fn wait_until_ready(&self, limit: Duration) -> Result<Duration> {
        let started = Instant::now();
        let fetch = async || self.process.fetch("/readyz");
        eventually("readiness", limit, fetch, |(status, _)| *status == 200).await?;
        Ok(started.elapsed())
    }

    /// Waits until its log has this text.
    pub async fn wait_for_log(&self, text: &str) -> Result<()> {
        let log = async || self.process.log();
        eventually(text, SOON, log, |log| log.contains(text)).await?;
        Ok(())
    }

    /// The value of a metric with these labels, as in the text format and without prefix; 0 if there is none.
    pub fn metric(&self, name_and_labels: &str) -> Result<f64> {
        let (_, metrics) = self.process.fetch("/metrics")?;
        let line = metrics.lines().find_map(|line| {
            line.strip_prefix("slurm_operator_")?.strip_prefix(name_and_labels)?.strip_prefix(' ')
        });
        Ok(line.map(str::parse).transpose()?.unwrap_or_default())
    }

    /// Waits for the end of the process, and returns its exit code and how long that took.
    pub async fn wait_for_exit(&mut self, limit: Duration) -> Result<(Option<i32>, Duration)> {
        let started = Instant::now();
        let process = std::cell::RefCell::new(&mut self.process);
        let exit_status = async || process.borrow_mut().exit_status();
        let status = eventually("the end of the process", limit, exit_status, Option::is_some).await?;
        Ok((status.and_then(|status| status.code()), started.elapsed()))
    }

    /// Resident memory in KiB.
    pub fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        Ok(line.split_whitespace().next().context("a number")?.parse()?)
    }
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
