//! The Secret that holds a server's certificate: follows it, and writes it where this operator makes the certificate.

use super::ServingCertificate;
use super::authorities::{AUTHORITIES, Authorities};
use super::issue::{Issued, Names};
use crate::error::chain;
use crate::ready::Gate;
use crate::runtime::Runtime;
use anyhow::{Context as _, ensure};
use futures::StreamExt;
use futures::stream::{self, Stream};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use std::time::Duration;
use tracing::{info, warn};

/// Keys of a Secret of type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Key of the Secret with everything that was issued.
const ISSUED: &str = "issued.json";
/// How often everything is read, at least.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Pause after a write that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// A Secret with the certificate of a server.
#[derive(Clone, Debug)]
pub struct SecretCertificate {
    /// Its name, in the namespace of the process.
    pub secret: String,
}

impl SecretCertificate {
    /// Keeps the certificate that of the Secret until shutdown. Until there is one, handshakes fail and the process is not
    /// ready.
    pub async fn follow(&self, runtime: &Runtime, certificate: &ServingCertificate, loaded: Gate) {
        let mut loaded = Some(loaded);
        let secrets: Api<Secret> = Api::namespaced(runtime.client(), runtime.namespace());
        let this_secret = watcher::Config::default().fields(&format!("metadata.name={}", self.secret));
        let changes = watcher(secrets, this_secret).default_backoff().applied_objects();
        let mut changes = std::pin::pin!(changes.take_until(runtime.shutdown()));
        while let Some(change) = changes.next().await {
            match change {
                Ok(secret) => {
                    if self.load(&secret, certificate)
                        && let Some(loaded) = loaded.take()
                    {
                        loaded.open();
                    }
                }
                Err(error) => {
                    warn!(secret = self.secret, error = chain(&error), "Watching the certificate failed");
                }
            }
        }
    }

    /// Whether the Secret has a certificate that can be used.
    fn load(&self, secret: &Secret, certificate: &ServingCertificate) -> bool {
        let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| &value.0);
        let empty = Vec::new();
        let (chain_pem, key) = (data(CERTIFICATE).unwrap_or(&empty), data(KEY).unwrap_or(&empty));
        match certificate.replace(chain_pem, key) {
            Ok(()) => {
                info!(secret = self.secret, version = secret.resource_version(), "Certificate loaded");
                true
            }
            Err(error) => {
                warn!(secret = self.secret, error = chain(&error), "Secret has no usable certificate");
                false
            }
        }
    }
}

/// A certificate that this operator makes and renews.
#[derive(Clone, Debug)]
pub struct SelfIssued {
    /// The Secret with the certificate.
    pub secret: String,
    /// Where clients find the certificates of the authorities.
    pub authorities: Authorities,
    /// The names and addresses of the server.
    pub names: Names,
}

impl SelfIssued {
    /// Keeps the Secret valid, and clients in step with it, until shutdown. For one process at a time; of two, the API server refuses one.
    pub async fn maintain(&self, runtime: &Runtime) {
        let mut changes = std::pin::pin!(self.changes(runtime));
        loop {
            let pause = match self.renew(runtime).await {
                Ok(pause) => pause.min(LONGEST_PAUSE),
                Err(error) => {
                    warn!(
                        secret = self.secret,
                        error = format!("{error:#}"),
                        "Renewing the certificate failed"
                    );
                    RETRY_PAUSE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = changes.next() => {}
                () = runtime.shutdown() => return,
            }
        }
    }

    /// An item after every change of the Secret or of what clients read, such as their deletion.
    fn changes(&self, runtime: &Runtime) -> impl Stream<Item = ()> + use<> {
        stream::select(changes_of_secret(runtime, &self.secret), self.authorities.changes(runtime))
    }

    /// Writes what is due; returns when something is due again.
    async fn renew(&self, runtime: &Runtime) -> anyhow::Result<Duration> {
        let secrets: Api<Secret> = Api::namespaced(runtime.no_retry_client(), runtime.namespace());
        let now = now();
        let stored = secrets.get_opt(&self.secret).await.context("cannot read the Secret")?;
        ensure!(
            stored.as_ref().is_none_or(may_replace),
            "the Secret has a certificate that this process did not make: delete it, or set --tls-self-issued=false"
        );
        let before = stored.as_ref().map(read_issued).unwrap_or_default();
        let issued = before.renewed(&self.names, now).context("cannot make a certificate")?;
        // Clients know an authority before it signs.
        self.authorities.publish(runtime, &issued.bundle()).await?;
        if issued != before {
            let is_new = stored.is_none();
            let secret = self.secret(stored.unwrap_or_default(), &issued)?;
            write(&secrets, &self.secret, &secret, is_new).await.context("cannot write the Secret")?;
            info!(secret = self.secret, "Certificate made");
        }
        let left = issued.due_at(now).map(|due| due.duration_since(now));
        Ok(left.and_then(|left| Duration::try_from(left).ok()).unwrap_or(LONGEST_PAUSE))
    }

    fn secret(&self, mut secret: Secret, issued: &Issued) -> anyhow::Result<Secret> {
        let (certificate, key) = issued.serving().context("there is no certificate")?;
        let state = serde_json::to_vec(issued)?;
        let data = [
            (CERTIFICATE, certificate.as_bytes().to_vec()),
            (KEY, key.as_bytes().to_vec()),
            (AUTHORITIES, issued.bundle().into_bytes()),
            (ISSUED, state),
        ];
        secret.metadata.name = Some(self.secret.clone());
        secret.type_.get_or_insert_with(|| "kubernetes.io/tls".to_owned());
        let data = data.map(|(key, value)| (key.to_owned(), ByteString(value)));
        secret.data.get_or_insert_default().extend(data);
        Ok(secret)
    }
}

/// The certificates of the authorities that a person puts into the Secret of the certificate, copied to clients.
#[derive(Clone, Debug)]
pub struct SecretAuthorities {
    /// The Secret with the certificate and, under `ca.crt`, its authorities.
    pub secret: String,
    /// Where clients find them.
    pub authorities: Authorities,
}

impl SecretAuthorities {
    /// Keeps clients in step with the Secret until shutdown. For one process at a time.
    pub async fn maintain(&self, runtime: &Runtime) {
        let changes =
            stream::select(changes_of_secret(runtime, &self.secret), self.authorities.changes(runtime));
        let mut changes = std::pin::pin!(changes);
        loop {
            let pause = match self.copy(runtime).await {
                Ok(()) => LONGEST_PAUSE,
                Err(error) => {
                    let error = format!("{error:#}");
                    warn!(secret = self.secret, error, "Copying the authorities of the certificate failed");
                    RETRY_PAUSE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = changes.next() => {}
                () = runtime.shutdown() => return,
            }
        }
    }

    async fn copy(&self, runtime: &Runtime) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(runtime.no_retry_client(), runtime.namespace());
        let secret = secrets.get(&self.secret).await.context("cannot read the Secret")?;
        let bundle = secret.data.as_ref().and_then(|data| data.get(AUTHORITIES));
        let bundle = bundle.context("the Secret has no ca.crt")?;
        let bundle = std::str::from_utf8(&bundle.0).context("ca.crt is not PEM text")?;
        self.authorities.publish(runtime, bundle).await
    }
}

/// Whether everything in the Secret was issued here. A certificate of a user or of cert-manager is not replaced.
fn may_replace(secret: &Secret) -> bool {
    let value = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    value(ISSUED).is_some() || value(CERTIFICATE).is_none_or(|certificate| certificate.0.is_empty())
}

/// What was issued before; nothing if that cannot be read.
fn read_issued(secret: &Secret) -> Issued {
    let stored = secret.data.as_ref().and_then(|data| data.get(ISSUED));
    stored.and_then(|stored| serde_json::from_slice(&stored.0).ok()).unwrap_or_default()
}

fn changes_of_secret(runtime: &Runtime, name: &str) -> impl Stream<Item = ()> + use<> {
    let secrets: Api<Secret> = Api::namespaced(runtime.client(), runtime.namespace());
    changes(secrets, name)
}

/// An item after every change of one object.
pub(super) fn changes<K>(api: Api<K>, name: &str) -> impl Stream<Item = ()> + use<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let this_one = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(api, this_one).default_backoff().filter_map(async |event| match event {
        Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone) => Some(()),
        // What a failed watch misses is found by its next list.
        Ok(watcher::Event::Init | watcher::Event::InitApply(_)) | Err(_) => None,
    })
}

/// Creates an object, or replaces exactly the version that was read.
pub(super) async fn write<K>(api: &Api<K>, name: &str, object: &K, is_new: bool) -> Result<K, kube::Error>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let params = PostParams::default();
    if is_new { api.create(&params, object).await } else { api.replace(name, &params, object).await }
}

#[expect(clippy::disallowed_methods, reason = "the validity of certificates is in wall-clock time")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::may_replace;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use rstest::rstest;

    #[rstest]
    #[case::empty(&[], true)]
    #[case::made_here(&["tls.crt", "tls.key", "issued.json"], true)]
    #[case::other_data(&["note"], true)]
    #[case::of_a_user(&["tls.crt", "tls.key"], false)]
    fn certificate_of_a_user_is_not_replaced(#[case] keys: &[&str], #[case] expected: bool) {
        let data = keys.iter().map(|key| ((*key).to_owned(), ByteString(b"value".to_vec())));
        let secret = Secret { data: Some(data.collect()), ..Secret::default() };
        assert_eq!(may_replace(&secret), expected);
    }
}
