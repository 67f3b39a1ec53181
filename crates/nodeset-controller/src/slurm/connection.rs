//! The clients of a cluster's slurmrestd, or why there are none. No I/O of its own.

use super::client_factory::{ClientFactory, KeyError};
use super::view::View;
use crate::timing::{KEY_RETRY_INTERVAL, REQUEST_TIMEOUT, RESTAPI_GRACE};
use operator_runtime::error::chain;
use slinky_api::v1beta1::SecretKeySelector;
use slurm_jwt::SigningKey;
use slurm_rest::{EndpointError, Limits, SlurmClient};
use std::sync::Arc;
use tokio::time::Instant;

/// One read at a time: slurmrestd blocks a thread for each.
const READ_LIMITS: Limits = Limits { in_flight: 1, timeout: REQUEST_TIMEOUT };
/// How many writes to one slurmrestd are in flight.
pub const CONCURRENT_SLURM_WRITES: usize = 8;
/// Writes, and live reads of single nodes.
const WRITE_LIMITS: Limits = Limits { in_flight: CONCURRENT_SLURM_WRITES, timeout: REQUEST_TIMEOUT };

/// Two clients of one slurmrestd, so that writes and reads never wait for each other.
pub struct Clients {
    url: String,
    /// For the polling task.
    pub reader: SlurmClient,
    /// For writes and live reads of single nodes.
    pub writer: SlurmClient,
}

/// Why there are no clients.
#[derive(Debug)]
enum Disconnected {
    NotTriedYet,
    NoRestApi {
        since: Instant,
        /// Whether there was one before.
        lost: bool,
    },
    NoKey(String),
    NoClient(String),
}

/// The connection to a cluster.
pub struct Connection {
    disconnected: Option<Disconnected>,
    clients: Option<Arc<Clients>>,
    key: Option<SigningKey>,
    /// The reference and the time of the last read of the key.
    key_read: Option<(Option<SecretKeySelector>, Instant)>,
    /// Slurm refused a token of this key.
    key_refused: bool,
    /// The key may have changed.
    key_changed: bool,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            disconnected: Some(Disconnected::NotTriedYet),
            clients: None,
            key: None,
            key_read: None,
            key_refused: false,
            key_changed: false,
        }
    }
}

impl Connection {
    /// The clients, if there are any.
    pub fn clients(&self) -> Option<&Arc<Clients>> {
        self.clients.as_ref()
    }

    /// The view of the cluster while there is no connection.
    pub fn disconnected_view(&self, now: Instant) -> Option<View> {
        let why = match self.disconnected.as_ref()? {
            Disconnected::NoRestApi { since, .. } if *since + RESTAPI_GRACE <= now => {
                return Some(View::NoRestApi);
            }
            Disconnected::NoRestApi { lost, .. } => {
                return Some(View::Unknown {
                    why: "the Controller has no RestApi".to_owned(),
                    overdue: *lost,
                });
            }
            Disconnected::NotTriedYet => {
                return Some(View::not_polled_yet("Slurm has not been polled yet".to_owned()));
            }
            Disconnected::NoKey(why) => format!("no signing key: {why}"),
            Disconnected::NoClient(why) => format!("no connection to slurmrestd: {why}"),
        };
        Some(View::unreachable(why))
    }

    /// There is no RestApi.
    pub fn restapi_missing(&mut self, now: Instant) {
        self.clients = None;
        let lost = match self.disconnected {
            Some(Disconnected::NoRestApi { .. }) => return,
            Some(Disconnected::NotTriedYet) => false,
            Some(Disconnected::NoKey(_) | Disconnected::NoClient(_)) | None => true,
        };
        self.disconnected = Some(Disconnected::NoRestApi { since: now, lost });
    }

    /// Has the key read again before the next request.
    pub fn invalidate_key(&mut self) {
        self.key_changed = true;
    }

    /// Slurm refused a token.
    pub fn token_refused(&mut self) {
        self.key_refused = true;
    }

    /// Whether the key that `selector` refers to has to be read.
    pub fn needs_key(&self, selector: Option<&SecretKeySelector>, now: Instant) -> bool {
        let Some((read, at)) = &self.key_read else { return true };
        let is_unusable = self.key.is_none() || self.key_refused;
        self.key_changed || read.as_ref() != selector || is_unusable && *at + KEY_RETRY_INTERVAL <= now
    }

    /// Starts a read of the key.
    pub fn key_read_started(&mut self, selector: Option<&SecretKeySelector>, now: Instant) {
        self.key_read = Some((selector.cloned(), now));
        self.key_changed = false;
    }

    /// Finishes a read of the key. After a failure the last key stays in use: Slurm may still accept it although the
    /// Secret was changed or deleted.
    pub fn key_read_finished(&mut self, read: Result<SigningKey, KeyError>) {
        match read {
            Ok(key) => {
                if let Some(clients) = &self.clients {
                    clients.reader.replace_key(key.clone());
                    clients.writer.replace_key(key.clone());
                }
                (self.key, self.key_refused) = (Some(key), false);
            }
            Err(error) if self.key.is_none() => self.disconnected = Some(Disconnected::NoKey(chain(&error))),
            Err(error) => {
                tracing::warn!(error = chain(&error), "Reading the signing key failed; keeping the last one");
            }
        }
    }

    /// Creates clients for `url` unless they exist; returns whether it did.
    pub fn connect(&mut self, url: &str, factory: &dyn ClientFactory) -> bool {
        let Some(key) = &self.key else { return false };
        if self.clients.as_ref().is_some_and(|clients| clients.url == url) {
            return false;
        }
        match build_clients(url, key, factory) {
            Ok(clients) => (self.clients, self.disconnected) = (Some(Arc::new(clients)), None),
            Err(error) => {
                (self.clients, self.disconnected) = (None, Some(Disconnected::NoClient(chain(&error))));
            }
        }
        self.clients.is_some()
    }
}

fn build_clients(url: &str, key: &SigningKey, factory: &dyn ClientFactory) -> Result<Clients, EndpointError> {
    Ok(Clients {
        url: url.to_owned(),
        reader: factory.client(url, key.clone(), READ_LIMITS)?,
        writer: factory.client(url, key.clone(), WRITE_LIMITS)?,
    })
}
