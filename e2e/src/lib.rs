//! Black-box tests against a real Kubernetes API server, and their shared helpers.
//!
//! They run inside a local cluster: `cargo xtask test` starts one and runs them there. With a cluster of your own:
//! `cargo xtask cluster exec -- cargo test -p e2e`.

pub mod audit;
pub mod crds;
pub mod deployments;
pub mod expectations;
pub mod fixtures;
pub mod helm;
pub mod node;
pub mod process;
pub mod service_account;
pub mod slurm_cluster;
pub mod test_env;
pub mod webhook;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
pub use test_support::eventually;

/// A client of the cluster that KUBECONFIG names.
pub async fn client() -> Result<Client> {
    if std::env::var_os("KUBECONFIG").is_none() {
        bail!(
            "KUBECONFIG is not set: run `cargo xtask test`, or `cargo xtask cluster exec -- cargo test -p e2e`"
        );
    }
    // Fails in all but the first test of a process, which has installed the provider.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    Client::try_default().await.context("creating a client from KUBECONFIG")
}

/// Prints a figure of a test even if the test passes: libtest shows standard output of failed tests only.
pub fn report(figure: impl std::fmt::Display) {
    use std::io::Write;
    // The reader of the output may have closed it.
    let _ = writeln!(std::io::stderr(), "{figure}");
}

/// A namespace of one test.
pub struct TestNamespace {
    client: Client,
    name: String,
}

impl TestNamespace {
    /// Creates a namespace with a name that starts with `prefix`.
    pub async fn create(client: &Client, prefix: &str) -> Result<Self> {
        let namespace = Namespace {
            metadata: ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let created = Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(Self { client: client.clone(), name: created.name_any() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The objects of one kind in it.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Deletes the namespace and its content. A failed test keeps it for inspection.
    pub async fn delete(self) -> Result<()> {
        Api::<Namespace>::all(self.client.clone()).delete(&self.name, &DeleteParams::background()).await?;
        Ok(())
    }
}
