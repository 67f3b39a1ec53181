//! HTTP servers of /livez, /readyz and /metrics. Requests change nothing.
//!
//! Our own because kube 5 has no such server and kubert's does not support kube 5; a kubert release for kube 5 would
//! replace it.

use crate::args::ListenAddr;
use crate::metrics::METRICS;
use crate::ready::Readiness;
use crate::tasks::Tasks;
use anyhow::Context;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpListener;
use tracing::{error, info};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Starts the servers; equal addresses share one.
pub async fn serve(
    health: &ListenAddr,
    metrics: &ListenAddr,
    readiness: &Readiness,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    if health == metrics {
        start(health, health_routes(readiness, tasks).merge(metrics_routes()), tasks).await
    } else {
        start(health, health_routes(readiness, tasks), tasks).await?;
        start(metrics, metrics_routes(), tasks).await
    }
}

async fn start(address: &ListenAddr, routes: Router, tasks: &Tasks) -> anyhow::Result<()> {
    let Some((host, port)) = address.host_and_port() else { return Ok(()) };
    let listener = bind(host, port).await.with_context(|| format!("cannot listen on {host}:{port}"))?;
    info!(address = ?listener.local_addr().ok(), "Admin server is listening");
    let stop = tasks.drained();
    tasks.spawn("admin server", async move {
        if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(stop).await {
            error!(%error, "Admin server failed");
        }
    });
    Ok(())
}

/// Listens on an address. An empty host means all addresses: IPv6 and IPv4 in one socket, or only IPv4 on a host without
/// IPv6.
pub async fn bind(host: &str, port: u16) -> std::io::Result<TcpListener> {
    if host.is_empty() {
        let all: [SocketAddr; 2] =
            [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()];
        TcpListener::bind(&all[..]).await
    } else {
        TcpListener::bind((host, port)).await
    }
}

fn health_routes(readiness: &Readiness, tasks: &Tasks) -> Router {
    let (readiness, tasks) = (readiness.clone(), tasks.clone());
    let ready = get(move || async move {
        if tasks.is_shutting_down() {
            return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned());
        }
        match readiness.waiting_for().as_slice() {
            [] => (StatusCode::OK, "ok\n".to_owned()),
            gates => (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}\n", gates.join(", "))),
        }
    });
    let live = get(|| async { "ok\n" });
    Router::new().route("/livez", live.clone()).route("/healthz", live).route("/readyz", ready)
}

fn metrics_routes() -> Router {
    Router::new().route(
        "/metrics",
        get(|| async {
            match METRICS.encode() {
                Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::{health_routes, metrics_routes};
    use crate::ready::Readiness;
    use crate::tasks::Tasks;
    use axum::Router;
    use axum::body::Body;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    async fn fetch(routes: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = routes.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readyz_names_the_closed_gates_and_livez_ignores_them() {
        let (readiness, tasks) = (Readiness::default(), Tasks::default());
        let routes = health_routes(&readiness, &tasks);
        let gate = readiness.gate("Pod");
        assert_eq!(
            fetch(&routes, "/readyz").await,
            (StatusCode::SERVICE_UNAVAILABLE, "waiting for Pod\n".into())
        );
        assert_eq!(fetch(&routes, "/livez").await.0, StatusCode::OK);
        gate.open();
        assert_eq!(fetch(&routes, "/readyz").await, (StatusCode::OK, "ok\n".into()));
        tasks.shut_down();
        assert_eq!(
            fetch(&routes, "/readyz").await,
            (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".into())
        );
        assert_eq!(fetch(&routes, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_are_openmetrics_text() {
        let (status, text) = fetch(&metrics_routes(), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
