//! Where clients find the certificates of the authorities that sign a server's certificate.

use super::secret::{changes, write};
use crate::runtime::Runtime;
use anyhow::Context as _;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use std::collections::BTreeMap;
use tracing::info;

/// Key with the certificates of the authorities, in Secrets and ConfigMaps.
pub(super) const AUTHORITIES: &str = "ca.crt";

/// Where clients find the certificates of the authorities.
#[derive(Clone, Debug)]
pub enum Authorities {
    /// A ConfigMap in the namespace of the process.
    ConfigMap(String),
    /// The caBundle of all webhooks in the ValidatingWebhookConfiguration and the MutatingWebhookConfiguration of this name.
    /// One that does not exist is left out: it is written once it appears.
    WebhookConfigurations(String),
}

impl Authorities {
    /// Writes the certificates where they differ.
    pub(super) async fn publish(&self, runtime: &Runtime, bundle: &str) -> anyhow::Result<()> {
        match self {
            Self::ConfigMap(name) => publish_in_config_map(runtime, name, bundle).await,
            Self::WebhookConfigurations(name) => {
                publish_in_webhooks::<ValidatingWebhookConfiguration>(runtime, name, bundle).await?;
                publish_in_webhooks::<MutatingWebhookConfiguration>(runtime, name, bundle).await
            }
        }
    }

    /// An item after every change of what clients read.
    pub(super) fn changes(&self, runtime: &Runtime) -> BoxStream<'static, ()> {
        let client = runtime.client();
        match self {
            Self::ConfigMap(name) => {
                let maps: Api<ConfigMap> = Api::namespaced(client, runtime.namespace());
                changes(maps, name).boxed()
            }
            Self::WebhookConfigurations(name) => {
                let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
                let mutating: Api<MutatingWebhookConfiguration> = Api::all(client);
                stream::select(changes(validating, name), changes(mutating, name)).boxed()
            }
        }
    }
}

async fn publish_in_config_map(runtime: &Runtime, name: &str, bundle: &str) -> anyhow::Result<()> {
    let config_maps: Api<ConfigMap> = Api::namespaced(runtime.no_retry_client(), runtime.namespace());
    let map = config_maps.get_opt(name).await.context("cannot read the ConfigMap")?;
    let data = BTreeMap::from([(AUTHORITIES.to_owned(), bundle.to_owned())]);
    if map.as_ref().and_then(|map| map.data.as_ref()) == Some(&data) {
        return Ok(());
    }
    let is_new = map.is_none();
    let mut map = map.unwrap_or_default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(data);
    write(&config_maps, name, &map, is_new).await.context("cannot write the ConfigMap")?;
    Ok(())
}

/// A configuration of webhooks.
trait WebhookConfiguration: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug
where
    Self: serde::Serialize + serde::de::DeserializeOwned,
{
    fn client_configs(&mut self) -> Vec<&mut WebhookClientConfig>;
}

impl WebhookConfiguration for ValidatingWebhookConfiguration {
    fn client_configs(&mut self) -> Vec<&mut WebhookClientConfig> {
        self.webhooks.iter_mut().flatten().map(|webhook| &mut webhook.client_config).collect()
    }
}

impl WebhookConfiguration for MutatingWebhookConfiguration {
    fn client_configs(&mut self) -> Vec<&mut WebhookClientConfig> {
        self.webhooks.iter_mut().flatten().map(|webhook| &mut webhook.client_config).collect()
    }
}

async fn publish_in_webhooks<K: WebhookConfiguration>(
    runtime: &Runtime,
    name: &str,
    bundle: &str,
) -> anyhow::Result<()> {
    let kind = K::kind(&());
    let configurations: Api<K> = Api::all(runtime.no_retry_client());
    let found = configurations.get_opt(name).await.with_context(|| format!("cannot read the {kind}"))?;
    let Some(mut configuration) = found else { return Ok(()) };
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let outdated = configuration
        .client_configs()
        .into_iter()
        .filter(|config| config.ca_bundle.as_ref() != Some(&bundle));
    let count = outdated.map(|config| config.ca_bundle = Some(bundle.clone())).count();
    if count > 0 {
        write(&configurations, name, &configuration, false)
            .await
            .with_context(|| format!("cannot write the {kind}"))?;
        info!(kind = %kind, name, webhooks = count, "caBundle written");
    }
    Ok(())
}
