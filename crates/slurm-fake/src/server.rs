//! Serves the fake on a socket, for tests of the HTTP transport.

use crate::fake::FakeSlurm;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use futures::stream;
use http::{Request, Response};
use slurm_rest::Transport;
use tokio::net::TcpListener;

impl FakeSlurm {
    /// Serves requests while the future is polled. A fault that breaks the connection becomes a truncated body.
    pub async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        axum::serve(listener, Router::new().fallback(handle).with_state(self)).await
    }
}

async fn handle(State(fake): State<FakeSlurm>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::new(Body::empty());
    };
    match fake.send(Request::from_parts(parts, body)).await {
        Ok(response) => response.map(Body::from),
        Err(error) => {
            Response::new(Body::from_stream(stream::iter([Ok(Bytes::from_static(b"{")), Err(error)])))
        }
    }
}
