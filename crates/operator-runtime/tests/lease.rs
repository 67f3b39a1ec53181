//! Leader election with a faulty API server, on a paused clock.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test helpers may panic")]

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::client::Body;
use operator_runtime::lease::{Elector, Lost};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tower::BoxError;

/// An API server with one Lease and optimistic locking, which can stop answering.
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

    fn set_hanging(&self, hangs: bool) {
        self.state.lock().hangs = hangs;
    }

    fn holder(&self) -> Option<String> {
        self.state.lock().lease.as_ref()?.spec.as_ref()?.holder_identity.clone()
    }

    /// Writes another holder into the Lease, as a user could.
    fn set_holder(&self, identity: &str) {
        let mut lease = self.state.lock().lease.clone().unwrap();
        lease.spec.as_mut().unwrap().holder_identity = Some(identity.into());
        self.exchange(&Method::PUT, &serde_json::to_vec(&lease).unwrap());
    }

    fn handle(self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, BoxError>> {
        Box::pin(async move {
            if self.state.lock().hangs {
                std::future::pending::<()>().await;
            }
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await?;
            Ok(self.exchange(&method, &body))
        })
    }

    fn exchange(&self, method: &Method, body: &[u8]) -> Response<Body> {
        let mut state = self.state.lock();
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

/// Fails after a minute on the paused clock.
async fn within_a_minute<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_mins(1), future).await.expect("a result within a minute")
}

#[tokio::test(start_paused = true)]
async fn standby_acquires_a_lease_that_was_not_renewed_for_its_duration() {
    let server = Server::default();
    let first = server.elector("first").acquire(|| ()).await;
    drop(first);
    let started = Instant::now();
    let mut was_standby = false;
    let second = server.elector("second").acquire(|| was_standby = true).await;
    let waited = started.elapsed();
    assert!(was_standby);
    assert!((Duration::from_secs(15)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
    assert_eq!(server.holder().as_deref(), Some("second"));
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn renewed_lease_is_not_acquired_by_a_standby() {
    let server = Server::default();
    let mut first = server.elector("first").acquire(|| ()).await;
    let acquire = timeout(Duration::from_mins(10), server.elector("second").acquire(|| ()));
    tokio::select! {
        lost = first.lost() => panic!("lost: {lost}"),
        acquired = acquire => assert!(acquired.is_err(), "two leaders"),
    }
    assert_eq!(server.holder().as_deref(), Some("first"));
}

#[tokio::test(start_paused = true)]
async fn holder_that_cannot_renew_stops_before_the_lease_expires() {
    let server = Server::default();
    let mut leader = server.elector("first").acquire(|| ()).await;
    let started = Instant::now();
    server.set_hanging(true);
    assert_eq!(within_a_minute(leader.lost()).await, Lost::NotRenewed);
    assert!(started.elapsed() <= Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn holder_keeps_the_lease_over_a_short_outage() {
    let server = Server::default();
    let mut leader = server.elector("first").acquire(|| ()).await;
    server.set_hanging(true);
    assert!(timeout(Duration::from_secs(7), leader.lost()).await.is_err());
    server.set_hanging(false);
    assert!(timeout(Duration::from_mins(1), leader.lost()).await.is_err());
    assert_eq!(server.holder().as_deref(), Some("first"));
}

#[tokio::test(start_paused = true)]
async fn holder_loses_the_lease_to_another_holder() {
    let server = Server::default();
    let mut leader = server.elector("first").acquire(|| ()).await;
    server.set_holder("second");
    assert_eq!(within_a_minute(leader.lost()).await, Lost::Taken { holder: Some("second".into()) });
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_acquired_without_a_wait() {
    let server = Server::default();
    server.elector("first").acquire(|| ()).await.release().await;
    assert_eq!(server.holder(), None);
    let started = Instant::now();
    let _second = server.elector("second").acquire(|| ()).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn lease_of_another_holder_is_not_released() {
    let server = Server::default();
    let frozen = server.elector("first").acquire(|| ()).await;
    let _second = server.elector("second").acquire(|| ()).await;
    frozen.release().await;
    assert_eq!(server.holder().as_deref(), Some("second"));
}
