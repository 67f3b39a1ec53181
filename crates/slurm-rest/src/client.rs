//! One request: limit of concurrent requests, token, API version, timeout. No retries.

use crate::answer::{check, decode, envelope, is_unknown_path};
use crate::error::Error;
use crate::token::{TOKEN_HEADER, TokenSource};
use crate::transport::Transport;
use crate::version::Negotiation;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use slurm_jwt::SigningKey;
use std::fmt;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

/// Everything but the characters that slurmrestd accepts unescaped in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'~').remove(b'-').remove(b'.').remove(b'_');

/// How much load a client may put on its server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent requests. slurmrestd blocks one of its few threads per request while slurmctld does not answer.
    pub in_flight: usize,
    /// Time from the call to the complete answer, including waiting for a permit, connecting and reading.
    pub timeout: Duration,
}

/// A client of one Slurm cluster.
pub struct SlurmClient {
    transport: Box<dyn Transport>,
    tokens: TokenSource,
    negotiation: Negotiation,
    permits: Semaphore,
    timeout: Duration,
}

/// One request, before the API version and the token are added.
pub(crate) struct Call {
    method: Method,
    path: String,
    body: Bytes,
}

impl Call {
    /// A read, or one of Slurm's GETs with a side effect.
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new() }
    }

    /// A deletion.
    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, path: path.into(), body: Bytes::new() }
    }

    /// A write.
    pub fn post(path: impl Into<String>, body: &Value) -> Self {
        Self { method: Method::POST, path: path.into(), body: body.to_string().into() }
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
            // Exactly this value: slurmrestd answers 415 if a charset follows.
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(self.body.clone()).map_err(|error| Error::Invalid(error.to_string()))
    }
}

/// A name, percent-encoded as a path segment.
pub(crate) fn escaped(name: &str) -> impl fmt::Display {
    utf8_percent_encode(name, ESCAPED)
}

impl SlurmClient {
    /// A client that sends its requests through `transport`.
    pub fn new(transport: impl Transport, tokens: TokenSource, limits: Limits) -> Self {
        Self {
            transport: Box::new(transport),
            tokens,
            negotiation: Negotiation::default(),
            permits: Semaphore::new(limits.in_flight),
            timeout: limits.timeout,
        }
    }

    /// Signs all further tokens with this key.
    pub fn replace_key(&self, key: SigningKey) {
        self.tokens.replace_key(key);
    }

    /// Sends a request and decodes the payload of its answer.
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let response = self.send(&call).await?;
        decode(&call.name(), response.body())
    }

    /// Sends a request; `None` if the server answers 304 because nothing changed.
    pub(crate) async fn read_changed<T: DeserializeOwned>(&self, call: Call) -> Result<Option<T>, Error> {
        let response = self.send(&call).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        decode(&call.name(), response.body()).map(Some)
    }

    /// Sends a request and ignores the payload of its answer.
    pub(crate) async fn write(&self, call: Call) -> Result<(), Error> {
        self.send(&call).await.map(drop)
    }

    /// Sends a request; an answer with an entry in `errors` is an error.
    async fn send(&self, call: &Call) -> Result<Response<Bytes>, Error> {
        let result = self.exchange(call).await.and_then(|response| {
            if let Some(envelope) = envelope(&call.name(), &response)? {
                for warning in &envelope.warnings {
                    debug!(
                        request = call.name(),
                        warning = warning.description,
                        "slurmrestd returned a warning"
                    );
                }
                envelope.release().inspect(|release| self.negotiation.record_release(release));
                check(response.status(), &envelope)?;
            }
            Ok(response)
        });
        if matches!(result, Err(Error::Unauthorized(_))) {
            self.tokens.discard();
        }
        result
    }

    async fn exchange(&self, call: &Call) -> Result<Response<Bytes>, Error> {
        let deadline = Instant::now() + self.timeout;
        let permit = timeout_at(deadline, self.permits.acquire()).await;
        // timeout_at prefers a result over the deadline: do not send a request that has no time left.
        let in_time = permit.ok().filter(|_| Instant::now() < deadline);
        let _permit = in_time.ok_or(Error::Busy(self.timeout))?;
        let response = timeout_at(deadline, self.negotiate(call)).await;
        response.map_err(|_| Error::Timeout(self.timeout))?
    }

    /// Sends the request in the API version that worked last, then in the others if the server does not serve it.
    async fn negotiate(&self, call: &Call) -> Result<Response<Bytes>, Error> {
        for version in self.negotiation.candidates() {
            let request = call.request(version, self.tokens.token())?;
            let response = self.transport.send(request).await?;
            if !is_unknown_path(&response) {
                self.negotiation.record_success(version);
                return Ok(response);
            }
        }
        Err(Error::Unsupported(call.name()))
    }
}
