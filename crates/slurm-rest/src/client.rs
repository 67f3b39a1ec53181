//! How a request is made: a place among those in flight, a token, a version, an answer in time. No retries.

use crate::answer::{check, decode, envelope, is_unknown_path};
use crate::error::Error;
use crate::token::{TOKEN_HEADER, TokenSource};
use crate::transport::Transport;
use crate::version::Negotiation;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slurm_jwt::SigningKey;
use std::fmt;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

/// What slurmrestd takes unescaped in a path, besides letters and digits.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'~').remove(b'-').remove(b'.').remove(b'_');

/// How much a client may ask of its server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests under way at a time. slurmrestd blocks one of its few threads per request while slurmctld is away.
    pub in_flight: usize,
    /// Time from the call to the complete answer: waiting for a place, connecting and reading included.
    pub timeout: Duration,
}

/// A client of one Slurm cluster.
pub struct SlurmClient {
    transport: Box<dyn Transport>,
    tokens: TokenSource,
    negotiation: Negotiation,
    places: Semaphore,
    timeout: Duration,
}

/// One request, without version and token.
pub(crate) struct Call {
    method: Method,
    path: String,
    body: Bytes,
}

impl Call {
    /// A read, or one of Slurm's GETs with an effect.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new() }
    }

    /// A deletion.
    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, path: path.into(), body: Bytes::new() }
    }

    /// A write.
    pub fn post(path: impl Into<String>, body: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(body).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Self { method: Method::POST, path: path.into(), body: body.into() })
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn request(&self, version: &str, token: HeaderValue) -> Result<Request<Bytes>, Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(format!("/slurm/{version}{}", self.path))
            .header(TOKEN_HEADER, token);
        if !self.body.is_empty() {
            // Exactly this text: with a charset slurmrestd answers 415.
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(self.body.clone()).map_err(|error| Error::Invalid(error.to_string()))
    }
}

/// A name as part of a path.
pub(crate) fn escaped(name: &str) -> impl fmt::Display {
    utf8_percent_encode(name, ESCAPED)
}

impl SlurmClient {
    /// A client that speaks through `transport`.
    pub fn new(transport: impl Transport, tokens: TokenSource, limits: Limits) -> Self {
        Self {
            transport: Box::new(transport),
            tokens,
            negotiation: Negotiation::default(),
            places: Semaphore::new(limits.in_flight),
            timeout: limits.timeout,
        }
    }

    /// Signs tokens with another key from now on.
    pub fn replace_key(&self, key: SigningKey) {
        self.tokens.replace_key(key);
    }

    /// Makes a request that has a payload in its answer.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let response = self.answered(&call).await?;
        decode(&call.name(), response.body())
    }

    /// Makes a request that is answered without a payload when nothing changed.
    pub(crate) async fn read_changed<T: DeserializeOwned>(&self, call: Call) -> Result<Option<T>, Error> {
        let response = self.answered(&call).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        decode(&call.name(), response.body()).map(Some)
    }

    /// Makes a request of which only success matters.
    pub(crate) async fn write(&self, call: Call) -> Result<(), Error> {
        self.answered(&call).await.map(drop)
    }

    /// Makes a request; an answer that complains of anything is an error.
    async fn answered(&self, call: &Call) -> Result<Response<Bytes>, Error> {
        let result = self.exchange(call).await.and_then(|response| {
            if let Some(envelope) = envelope(&call.name(), &response)? {
                for warning in &envelope.warnings {
                    debug!(request = call.name(), warning = warning.description, "Slurm warns");
                }
                envelope.release().inspect(|release| self.negotiation.met(release));
                check(response.status(), &envelope)?;
            }
            Ok(response)
        });
        if matches!(result, Err(Error::Unauthorized(_))) {
            self.tokens.forget();
        }
        result
    }

    async fn exchange(&self, call: &Call) -> Result<Response<Bytes>, Error> {
        let deadline = Instant::now() + self.timeout;
        let place = timeout_at(deadline, self.places.acquire()).await;
        // A place may become free at the very end, and would let the request out too late.
        let in_time = place.ok().filter(|_| Instant::now() < deadline);
        let _place = in_time.ok_or(Error::Busy(self.timeout))?;
        let response = timeout_at(deadline, self.negotiated(call)).await;
        response.map_err(|_| Error::Timeout(self.timeout))?
    }

    /// Asks in the version that worked last; in the others if the server does not know the path in that one.
    async fn negotiated(&self, call: &Call) -> Result<Response<Bytes>, Error> {
        for version in self.negotiation.candidates() {
            let request = call.request(version, self.tokens.token())?;
            let response = self.transport.send(request).await?;
            if !is_unknown_path(&response) {
                self.negotiation.worked(version);
                return Ok(response);
            }
        }
        Err(Error::Unsupported(call.name()))
    }
}

impl fmt::Debug for SlurmClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, version) = (&self.tokens, &self.negotiation);
        formatter
            .debug_struct("SlurmClient")
            .field("tokens", tokens)
            .field("version", version)
            .finish_non_exhaustive()
    }
}
