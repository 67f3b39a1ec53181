//! The seam between what is said to slurmrestd and how it gets there.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::sync::Arc;

/// Carries one request to a slurmrestd and its answer back.
///
/// The request's URI has a path and a query only. A transport never repeats a request by itself, and is dropped in
/// the middle of one when its time is over.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and waits for the whole answer, whatever its status.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>>;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        (**self).send(request)
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// There was no connection: nothing was sent.
    #[error("no connection")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke with the request on its way, or answered only in part.
    #[error("connection lost")]
    Interrupted(#[source] Box<dyn std::error::Error + Send + Sync>),
}
