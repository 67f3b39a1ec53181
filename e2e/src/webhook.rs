//! The admission webhook in a namespace of its own, which the API server calls for the objects of that namespace.

use crate::crds::install_crds;
use crate::process::{Process, binary, free_address, kubeconfig_of_pod, scratch};
use crate::service_account::{create_account, request_token};
use crate::test_env::SOON;
use crate::{TestNamespace, client, eventually};
use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The account of the webhook.
const ACCOUNT: &str = "admission-webhook";
/// The kinds that are validated: singular and plural.
const KINDS: [(&str, &str); 6] = [
    ("accounting", "accountings"),
    ("controller", "controllers"),
    ("loginset", "loginsets"),
    ("nodeset", "nodesets"),
    ("restapi", "restapis"),
    ("token", "tokens"),
];

/// A namespace whose objects the webhook validates.
pub struct WebhookEnv {
    /// A client of the cluster.
    pub client: Client,
    /// The namespace.
    pub namespace: TestNamespace,
    /// Where the webhook listens.
    pub address: SocketAddr,
    kubeconfig: PathBuf,
    started: AtomicU32,
}

impl WebhookEnv {
    /// A namespace with the account and the configurations of the webhook, which does not run yet.
    pub async fn create(test: &str) -> Result<Self> {
        let client = client().await?;
        install_crds(&client).await?;
        let namespace = TestNamespace::create(&client, test).await?;
        create_account(&client, &namespace, ACCOUNT, &rules(namespace.name())).await?;
        let token = request_token(&namespace, ACCOUNT, None).await?;
        let kubeconfig = scratch(&format!("{}.kubeconfig", namespace.name()))?;
        let kubeconfig = kubeconfig_of_pod(&token, Some(namespace.name()), kubeconfig)?;
        let (address, started) = (free_address()?, AtomicU32::new(0));
        Ok(Self { client, namespace, address, kubeconfig, started })
    }

    /// A namespace whose objects a webhook validates that runs.
    pub async fn start(test: &str) -> Result<(Self, Process)> {
        let env = Self::create(test).await?;
        env.configure().await?;
        let process = env.start_process(&[])?;
        env.wait_until_ready(&process).await?;
        Ok((env, process))
    }

    /// The name of the namespace, and that of the configurations.
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Has the API server call the webhook.
    pub async fn configure(&self) -> Result<()> {
        let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": self.name() } });
        let hook = |name: &str, path: &str, policy: &str, rule: Value| {
            json!({
                "name": name,
                "clientConfig": { "url": format!("https://{}{path}", self.address) },
                "rules": [rule],
                "namespaceSelector": selector,
                "failurePolicy": policy,
                "admissionReviewVersions": ["v1", "v1beta1"],
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": 10,
            })
        };
        let rule = |group: &str, version: &str, resource: &str, operations: &[&str]| {
            json!({
                "apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations,
            })
        };
        let mut validating: Vec<_> = KINDS
            .map(|(kind, plural)| {
                let path = format!("/validate-slinky-slurm-net-v1beta1-{kind}");
                let rule = rule("slinky.slurm.net", "v1beta1", plural, &["CREATE", "UPDATE"]);
                let mut hook = hook(&format!("{kind}-v1beta1.kb.io"), &path, "Fail", rule);
                hook["matchConditions"] = json!([
                    { "name": "not-deleted", "expression": "!has(object.metadata.deletionTimestamp)" },
                    { "name": "spec-changed", "expression": "oldObject == null || object.spec != oldObject.spec" },
                ]);
                hook
            })
            .into();
        let eviction = rule("", "v1", "pods/eviction", &["CREATE"]);
        validating.push(hook("podseviction-v1.kb.io", "/validate--v1-pod-eviction", "Ignore", eviction));
        let binding = rule("", "v1", "pods/binding", &["CREATE"]);
        let mutating = [hook("podsbinding-v1.kb.io", "/mutate--v1-binding", "Ignore", binding)];
        let configuration =
            |webhooks: Value| json!({ "metadata": { "name": self.name() }, "webhooks": webhooks });
        let created = PostParams::default();
        let validating = serde_json::from_value(configuration(json!(validating)))?;
        self.validating().create(&created, &validating).await?;
        let mutating = serde_json::from_value(configuration(json!(mutating)))?;
        self.mutating().create(&created, &mutating).await?;
        Ok(())
    }

    /// The configurations of validating webhooks.
    pub fn validating(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    fn mutating(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    /// Starts a process of the webhook.
    pub fn start_process(&self, flags: &[&str]) -> Result<Process> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = scratch(&format!("{}-{number}.log", self.name()))?;
        let (address, names) = (self.address.to_string(), self.address.ip().to_string());
        let kubeconfig = self.kubeconfig.to_str().context("a path")?;
        let common = [
            "--server-addr",
            &address,
            "--tls-names",
            &names,
            "--webhook-configuration",
            self.name(),
            "--kubeconfig",
            kubeconfig,
        ];
        Process::start(binary("admission-webhook")?, &[&common, flags].concat(), &log)
    }

    /// Waits until a process is ready and the API server trusts it.
    pub async fn wait_until_ready(&self, process: &Process) -> Result<()> {
        let ready = async || process.fetch("/readyz");
        eventually("readiness", SOON, ready, |(status, _)| *status == 200).await?;
        let check = async || self.check("1s");
        eventually("answers of the webhook", SOON, check, |(code, _)| *code == Some(0)).await?;
        Ok(())
    }

    /// Exit code and output of the check command.
    pub fn check(&self, timeout: &str) -> Result<(Option<i32>, String)> {
        let mut check = std::process::Command::new(binary("admission-webhook")?);
        let output = check.args(["check", "--namespace", self.name(), "--timeout", timeout]).output()?;
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((output.status.code(), text.concat()))
    }

    /// Deletes the configurations and the namespace.
    pub async fn tear_down(self) -> Result<()> {
        self.validating().delete(self.name(), &DeleteParams::default()).await?;
        self.mutating().delete(self.name(), &DeleteParams::default()).await?;
        self.namespace.delete().await
    }
}

/// What the webhook may do.
fn rules(configuration: &str) -> Value {
    json!([
        { "apiGroups": [""], "resources": ["configmaps", "persistentvolumeclaims", "nodes"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"] },
        { "apiGroups": ["slinky.slurm.net"], "resources": ["nodesets", "controllers"], "verbs": ["get"] },
        { "apiGroups": ["slinky.slurm.net"], "resources": ["restapis"], "verbs": ["list"] },
        { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch", "create", "update"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
          "verbs": ["get", "list", "watch", "create", "update"] },
        { "apiGroups": ["admissionregistration.k8s.io"],
          "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
          "resourceNames": [configuration], "verbs": ["get", "list", "watch", "update"] },
    ])
}
