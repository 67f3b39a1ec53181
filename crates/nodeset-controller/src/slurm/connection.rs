//! How a cluster is reached at the moment, or why it is not. No I/O of its own.

use super::connect::{Connect, KeyError};
use super::view::View;
use crate::timing::{KEY_RETRY_INTERVAL, REQUEST_TIMEOUT, RESTAPI_GRACE};
use operator_runtime::error::chain;
use slinky_api::v1beta1::SecretKeySelector;
use slurm_jwt::SigningKey;
use slurm_rest::{EndpointError, Limits, SlurmClient};
use std::sync::Arc;
use tokio::time::Instant;

/// One read at a time.
const READS: Limits = Limits { in_flight: 1, timeout: REQUEST_TIMEOUT };
/// Writes, and reads of single nodes.
const WRITES: Limits = Limits { in_flight: 8, timeout: REQUEST_TIMEOUT };

/// Two clients of one slurmrestd, so that writes never wait for a read, nor a read for them.
pub struct Clients {
    url: String,
    /// For the background.
    pub reader: SlurmClient,
    /// For everybody else.
    pub writer: SlurmClient,
}

/// Why nobody can be asked.
#[derive(Debug)]
enum Obstacle {
    Unexplored,
    NoRestApi {
        since: Instant,
        /// Whether there was one before.
        lost: bool,
    },
    NoKey(String),
    NoClient(String),
}

/// The way to a cluster.
pub struct Connection {
    obstacle: Option<Obstacle>,
    clients: Option<Arc<Clients>>,
    key: Option<SigningKey>,
    /// The reference by which the key was read last, and when.
    key_read: Option<(Option<SecretKeySelector>, Instant)>,
    /// Slurm refused a token of this key.
    key_refused: bool,
    /// The key may have changed.
    key_changed: bool,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            obstacle: Some(Obstacle::Unexplored),
            clients: None,
            key: None,
            key_read: None,
            key_refused: false,
            key_changed: false,
        }
    }
}

impl Connection {
    /// The way itself, if there is one.
    pub fn clients(&self) -> Option<&Arc<Clients>> {
        self.clients.as_ref()
    }

    /// What is known of a cluster to which there is no connection.
    pub fn obstacle(&self, now: Instant) -> Option<View> {
        let why = match self.obstacle.as_ref()? {
            Obstacle::NoRestApi { since, .. } if *since + RESTAPI_GRACE <= now => {
                return Some(View::NotExpected);
            }
            Obstacle::NoRestApi { lost, .. } => {
                return Some(View::Unknown {
                    why: "the Controller has no RestApi".to_owned(),
                    overdue: *lost,
                });
            }
            Obstacle::Unexplored => return Some(View::not_polled_yet("Slurm was not asked yet".to_owned())),
            Obstacle::NoKey(why) => format!("no signing key: {why}"),
            Obstacle::NoClient(why) => format!("no way to slurmrestd: {why}"),
        };
        Some(View::unreachable(why))
    }

    /// There is no RestApi.
    pub fn lose(&mut self, now: Instant) {
        self.clients = None;
        let lost = match self.obstacle {
            Some(Obstacle::NoRestApi { .. }) => return,
            Some(Obstacle::Unexplored) => false,
            Some(Obstacle::NoKey(_) | Obstacle::NoClient(_)) | None => true,
        };
        self.obstacle = Some(Obstacle::NoRestApi { since: now, lost });
    }

    /// The key is read again before the next question.
    pub fn suspect_key(&mut self) {
        self.key_changed = true;
    }

    /// Slurm refused a token.
    pub fn refused(&mut self) {
        self.key_refused = true;
    }

    /// Whether the key that this refers to has to be read.
    pub fn needs_key(&self, selector: Option<&SecretKeySelector>, now: Instant) -> bool {
        let Some((read, at)) = &self.key_read else { return true };
        let is_doubted = self.key.is_none() || self.key_refused;
        self.key_changed || read.as_ref() != selector || is_doubted && *at + KEY_RETRY_INTERVAL <= now
    }

    /// The key is about to be read.
    pub fn reads_key(&mut self, selector: Option<&SecretKeySelector>, now: Instant) {
        self.key_read = Some((selector.cloned(), now));
        self.key_changed = false;
    }

    /// The key was read, or not. A key that worked is kept until there is another: what became of the Secret is not yet
    /// what Slurm uses.
    pub fn key(&mut self, read: Result<SigningKey, KeyError>) {
        match read {
            Ok(key) => {
                if let Some(clients) = &self.clients {
                    clients.reader.replace_key(key.clone());
                    clients.writer.replace_key(key.clone());
                }
                (self.key, self.key_refused) = (Some(key), false);
            }
            Err(error) if self.key.is_none() => self.obstacle = Some(Obstacle::NoKey(chain(&error))),
            Err(error) => tracing::warn!(error = chain(&error), "Going on with the signing key read before"),
        }
    }

    /// Makes clients for `url` if there are none; whether it did.
    pub fn connect(&mut self, url: &str, connect: &dyn Connect) -> bool {
        let Some(key) = &self.key else { return false };
        if self.clients.as_ref().is_some_and(|clients| clients.url == url) {
            return false;
        }
        match clients(url, key, connect) {
            Ok(clients) => (self.clients, self.obstacle) = (Some(Arc::new(clients)), None),
            Err(error) => {
                (self.clients, self.obstacle) = (None, Some(Obstacle::NoClient(chain(&error))));
            }
        }
        self.clients.is_some()
    }
}

fn clients(url: &str, key: &SigningKey, connect: &dyn Connect) -> Result<Clients, EndpointError> {
    Ok(Clients {
        url: url.to_owned(),
        reader: connect.client(url, key.clone(), READS)?,
        writer: connect.client(url, key.clone(), WRITES)?,
    })
}
