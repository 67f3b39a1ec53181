//! The interface between the client and what carries its requests to slurmrestd.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::sync::Arc;

/// Sends requests to one slurmrestd.
///
/// The request's URI has a path and a query only. A transport never retries; on a timeout the client drops the future.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and returns the complete answer, whatever its status.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>>;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        (**self).send(request)
    }
}

/// Why no answer was received.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The connection failed: nothing was sent.
    #[error("no connection")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke after sending began, or before the answer was complete.
    #[error("connection lost")]
    Interrupted(#[source] Box<dyn std::error::Error + Send + Sync>),
}
