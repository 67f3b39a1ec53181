//! Leadership while the API server misbehaves, on a paused clock.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::client::Body;
use operator_runtime::lease::{Elector, Lost};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tower::BoxError;

/// One Lease with optimistic locking, in a server that may stop answering.
#[derive(Clone, Default)]
struct Server {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    hangs: bool,
}

impl Server {
    fn elector(&self, identity: &str) -> Elector {
        let server = self.clone();
        let service = tower::service_fn(move |request| server.clone().handle(request));
        Elector::new(Client::new(service, "default"), "n", "lease", identity)
    }

    fn hang(&self, hangs: bool) {
        self.state.lock().unwrap().hangs = hangs;
    }

    fn holder(&self) -> Option<String> {
        self.state.lock().unwrap().lease.as_ref()?.spec.as_ref()?.holder_identity.clone()
    }

    /// Writes another holder into the Lease, as a person could.
    fn give_to(&self, identity: &str) {
        let mut lease = self.state.lock().unwrap().lease.clone().unwrap();
        lease.spec.as_mut().unwrap().holder_identity = Some(identity.into());
        self.exchange(&Method::PUT, &serde_json::to_vec(&lease).unwrap());
    }

    fn handle(self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, BoxError>> {
        Box::pin(async move {
            if self.state.lock().unwrap().hangs {
                std::future::pending::<()>().await;
            }
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await?;
            Ok(self.exchange(&method, &body))
        })
    }

    fn exchange(&self, method: &Method, body: &[u8]) -> Response<Body> {
        let mut state = self.state.lock().unwrap();
        if *method != Method::GET {
            let mut lease: Lease = serde_json::from_slice(body).unwrap();
            let current = state.lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
            if lease.metadata.resource_version != current {
                return failure(StatusCode::CONFLICT, "Conflict");
            }
            state.version += 1;
            lease.metadata.resource_version = Some(state.version.to_string());
            state.lease = Some(lease);
        }
        match &state.lease {
            Some(lease) => Response::new(Body::from(serde_json::to_vec(lease).unwrap())),
            None => failure(StatusCode::NOT_FOUND, "NotFound"),
        }
    }
}

fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({"status": "Failure", "message": "x", "reason": reason, "code": code.as_u16()});
    let body = Body::from(serde_json::to_vec(&status).unwrap());
    Response::builder().status(code).body(body).unwrap()
}

/// Fails when the clock has run on for too long.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_mins(1), future).await.expect("an end within a minute")
}

#[tokio::test(start_paused = true)]
async fn the_second_waits_until_the_first_has_not_renewed_for_the_whole_duration() {
    let server = Server::default();
    let first = server.elector("first").acquire(|| ()).await;
    drop(first);
    let begun = Instant::now();
    let mut stood_by = false;
    let second = server.elector("second").acquire(|| stood_by = true).await;
    let waited = begun.elapsed();
    assert!(stood_by);
    assert!((Duration::from_secs(15)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
    assert_eq!(server.holder().as_deref(), Some("second"));
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_is_not_taken() {
    let server = Server::default();
    let mut first = server.elector("first").acquire(|| ()).await;
    let claim = timeout(Duration::from_mins(10), server.elector("second").acquire(|| ()));
    tokio::select! {
        lost = first.lost() => panic!("lost: {lost}"),
        claimed = claim => assert!(claimed.is_err(), "two leaders"),
    }
    assert_eq!(server.holder().as_deref(), Some("first"));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_before_another_may_start() {
    let server = Server::default();
    let mut leader = server.elector("first").acquire(|| ()).await;
    let begun = Instant::now();
    server.hang(true);
    assert_eq!(soon(leader.lost()).await, Lost::NotRenewed);
    assert!(begun.elapsed() <= Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_holder_survives_a_short_outage() {
    let server = Server::default();
    let mut leader = server.elector("first").acquire(|| ()).await;
    server.hang(true);
    assert!(timeout(Duration::from_secs(7), leader.lost()).await.is_err());
    server.hang(false);
    assert!(timeout(Duration::from_mins(1), leader.lost()).await.is_err());
    assert_eq!(server.holder().as_deref(), Some("first"));
}

#[tokio::test(start_paused = true)]
async fn a_holder_notices_that_it_was_replaced() {
    let server = Server::default();
    let mut leader = server.elector("first").acquire(|| ()).await;
    server.give_to("second");
    assert_eq!(soon(leader.lost()).await, Lost::Taken { holder: Some("second".into()) });
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_free_at_once() {
    let server = Server::default();
    server.elector("first").acquire(|| ()).await.release().await;
    assert_eq!(server.holder(), None);
    let begun = Instant::now();
    let _second = server.elector("second").acquire(|| ()).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_is_not_released() {
    let server = Server::default();
    let frozen = server.elector("first").acquire(|| ()).await;
    let _second = server.elector("second").acquire(|| ()).await;
    frozen.release().await;
    assert_eq!(server.holder().as_deref(), Some("second"));
}
