//! Black-box tests against a real Kubernetes API server, and what they share.
//!
//! They run where the cluster can be reached: `cargo xtask test` starts one and runs them there. With a cluster
//! of your own: `cargo xtask cluster exec -- cargo test -p e2e`.

pub mod audit;
pub mod custom;
pub mod lab;
pub mod node;
pub mod process;
pub mod stage;

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
    // Several tests share a process; the first one installs the provider.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    Client::try_default().await.context("no client from KUBECONFIG")
}

/// Prints a figure for people, whether the test succeeds or not: what goes to standard output is shown of failures only.
pub fn report(figure: impl std::fmt::Display) {
    use std::io::Write;
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "{figure}");
}

/// A namespace of one test. Its content goes with it.
pub struct TestNamespace {
    client: Client,
    name: String,
}

impl TestNamespace {
    /// Makes a namespace with a name that starts with `prefix`.
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

    /// Deletes it. A test that failed leaves it for a look.
    pub async fn delete(self) -> Result<()> {
        Api::<Namespace>::all(self.client.clone()).delete(&self.name, &DeleteParams::background()).await?;
        Ok(())
    }
}
