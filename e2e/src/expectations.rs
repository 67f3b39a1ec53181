//! The expectations service in a namespace of its own, with the permissions that it needs and no others, and the
//! credentials of its callers.

use crate::crds::install_crds;
use crate::process::{Process, binary, free_address, kubeconfig_of_pod, scratch};
use crate::service_account::{request_token, role_ref, subject};
use crate::test_env::SOON;
use crate::{TestNamespace, client, eventually};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The audience of tokens for the service.
pub const AUDIENCE: &str = "expectations.slinky.slurm.net";
/// The account that may call the service.
pub const CALLERS: &str = "replicas";
/// The account of the service.
pub const SERVICE: &str = "expectations";

/// A namespace in which processes of the service run.
pub struct ExpectationsEnv {
    /// A client of the cluster.
    pub client: Client,
    /// The namespace.
    pub namespace: TestNamespace,
    kubeconfig: PathBuf,
    started: AtomicU32,
}

/// A process of the service.
pub struct Server {
    /// The process.
    pub process: Process,
    /// Where it listens.
    pub address: SocketAddr,
}

impl ExpectationsEnv {
    /// A namespace with the accounts of the service and of its callers.
    pub async fn create(test: &str) -> Result<Self> {
        let env = Self::without_token_reviews(test).await?;
        let binding = json!({
            "metadata": { "name": env.name() },
            "roleRef": role_ref("ClusterRole", "system:auth-delegator"),
            "subjects": [subject(env.name(), SERVICE)],
        });
        let bindings: Api<ClusterRoleBinding> = Api::all(env.client.clone());
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        Ok(env)
    }

    /// A namespace in which the service may not review tokens.
    pub async fn without_token_reviews(test: &str) -> Result<Self> {
        let client = client().await?;
        install_crds(&client).await?;
        let namespace = TestNamespace::create(&client, test).await?;
        let accounts = namespace.api::<ServiceAccount>();
        for account in [SERVICE, CALLERS, "other"] {
            let account = json!({ "metadata": { "name": account } });
            accounts.create(&PostParams::default(), &serde_json::from_value(account)?).await?;
        }
        let verbs = ["get", "list", "watch", "create", "update"];
        let role = json!({ "metadata": { "name": SERVICE }, "rules": [
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs },
            { "apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": verbs },
        ] });
        namespace.api::<Role>().create(&PostParams::default(), &serde_json::from_value(role)?).await?;
        let binding = json!({
            "metadata": { "name": SERVICE },
            "roleRef": role_ref("Role", SERVICE),
            "subjects": [subject(namespace.name(), SERVICE)],
        });
        namespace
            .api::<RoleBinding>()
            .create(&PostParams::default(), &serde_json::from_value(binding)?)
            .await?;
        let token = request_token(&namespace, SERVICE, None).await?;
        let kubeconfig = scratch(&format!("{}.kubeconfig", namespace.name()))?;
        let kubeconfig = kubeconfig_of_pod(&token, Some(namespace.name()), kubeconfig)?;
        let env = Self { client, namespace, kubeconfig, started: AtomicU32::new(0) };
        std::fs::write(env.token_file()?, env.token(CALLERS, AUDIENCE).await?)?;
        Ok(env)
    }

    /// The name of the namespace.
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// The objects of one kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        self.namespace.api()
    }

    /// Starts a process of the service in a pod of this name.
    pub fn start(&self, pod: &str, flags: &[&str]) -> Result<Server> {
        self.start_at(free_address()?, pod, flags)
    }

    /// As [`Self::start`], at an address.
    pub fn start_at(&self, address: SocketAddr, pod: &str, flags: &[&str]) -> Result<Server> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = scratch(&format!("{}-{number}-{pod}.log", self.name()))?;
        let (listen, accounts) = (address.to_string(), format!("{}/{CALLERS}", self.name()));
        let kubeconfig = self.kubeconfig.to_str().context("a path")?;
        let common = ["--listen-addr", &listen, "--service-accounts", &accounts, "--kubeconfig", kubeconfig];
        let env = [("POD_NAME", pod), ("POD_UID", pod)];
        let process =
            Process::start_with_env(binary("expectations")?, &[&common, flags].concat(), &env, &log)?;
        Ok(Server { process, address })
    }

    /// A token of an account of this namespace.
    pub async fn token(&self, account: &str, audience: &str) -> Result<String> {
        request_token(&self.namespace, account, Some(audience)).await
    }

    /// The file with the token of the callers.
    pub fn token_file(&self) -> Result<PathBuf> {
        scratch(&format!("{}.token", self.name()))
    }

    /// The certificates of the authorities, as clients find them in the ConfigMap.
    pub async fn authorities(&self) -> Result<String> {
        let maps = self.api::<ConfigMap>();
        let get = async || Ok(maps.get_opt("expectations-ca").await?);
        let map = eventually("the ConfigMap", SOON, get, Option::is_some).await?.context("a ConfigMap")?;
        map.data.unwrap_or_default().remove("ca.crt").context("ca.crt")
    }

    /// Writes the certificates of the authorities to a file, and returns it.
    pub async fn write_authorities(&self) -> Result<PathBuf> {
        let file = scratch(&format!("{}.ca", self.name()))?;
        std::fs::write(&file, self.authorities().await?)?;
        Ok(file)
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

impl Server {
    /// Its URL.
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
