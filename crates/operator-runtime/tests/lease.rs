//! Leader election with a faulty API server, on a paused clock.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test helpers may panic")]

use axum::body::Body;
use futures::future::BoxFuture;
use futures::stream;
use http::{Method, Request, Response, StatusCode, Uri};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use operator_runtime::lease::{Elector, Identity, LeaseTiming, Lost};
use operator_runtime::since_boot;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tower::BoxError;

/// An API server with one Lease, optimistic locking and watches, which can stop answering.
#[derive(Clone)]
struct Server {
    state: Arc<Mutex<State>>,
    /// The version of the Lease.
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    hangs: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self { state: Arc::default(), version: watch::Sender::new(0) }
    }
}

impl Server {
    /// A candidate in a pod of this name.
    fn elector(&self, pod: &str) -> Elector {
        let server = self.clone();
        let service = tower::service_fn(move |request| server.clone().handle(request));
        let identity = Identity::new(pod, Some("uid"));
        Elector::new(Client::new(service, "default"), "n", "lease", identity, LeaseTiming::default())
    }

    fn set_hanging(&self, hangs: bool) {
        self.state.lock().hangs = hangs;
    }

    /// The name of the pod that holds the Lease.
    fn holder(&self) -> Option<String> {
        let identity = self.state.lock().lease.as_ref()?.spec.as_ref()?.holder_identity.clone()?;
        Some(identity.split_once('_').map_or(identity.clone(), |(pod, _)| pod.to_owned()))
    }

    /// Writes another holder into the Lease, as a user could.
    fn set_holder(&self, identity: &str) {
        let mut lease = self.state.lock().lease.clone().unwrap();
        lease.spec.as_mut().unwrap().holder_identity = Some(identity.into());
        self.exchange(&Method::PUT, &serde_json::to_vec(&lease).unwrap());
    }

    fn handle(
        self,
        request: Request<kube::client::Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, BoxError>> {
        Box::pin(async move {
            if self.state.lock().hangs {
                std::future::pending::<()>().await;
            }
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let body = request.into_body().collect_bytes().await?;
            if uri.path().ends_with("/leases") && method == Method::GET {
                return Ok(if uri.query().is_some_and(|query| query.contains("watch=true")) {
                    self.watch(&uri)
                } else {
                    self.list()
                });
            }
            Ok(self.exchange(&method, &body))
        })
    }

    fn list(&self) -> Response<Body> {
        let items: Vec<_> = self.state.lock().lease.iter().cloned().collect();
        let metadata = json!({ "resourceVersion": self.version.borrow().to_string() });
        let list = json!({ "apiVersion": "v1", "kind": "LeaseList", "metadata": metadata, "items": items });
        Response::new(Body::from(serde_json::to_vec(&list).unwrap()))
    }

    /// The versions of the Lease after the one in the query.
    fn watch(&self, uri: &Uri) -> Response<Body> {
        let start = uri.query().unwrap().split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let start: u64 = start.unwrap().parse().unwrap();
        let next = |(server, mut versions, last): (Self, watch::Receiver<u64>, u64)| async move {
            let version = *versions.wait_for(|version| *version > last).await.ok()?;
            let event = json!({ "type": "MODIFIED", "object": server.state.lock().lease });
            let line = format!("{event}\n").into_bytes();
            Some((Ok::<_, BoxError>(line), (server, versions, version)))
        };
        let events = stream::unfold((self.clone(), self.version.subscribe(), start), next);
        Response::new(Body::from_stream(events))
    }

    fn exchange(&self, method: &Method, body: &[u8]) -> Response<Body> {
        let mut state = self.state.lock();
        if *method != Method::GET {
            let mut lease: Lease = serde_json::from_slice(body).unwrap();
            let current = state.lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
            if lease.metadata.resource_version != current {
                return failure(StatusCode::CONFLICT, "Conflict");
            }
            let version = *self.version.borrow() + 1;
            lease.metadata.resource_version = Some(version.to_string());
            state.lease = Some(lease);
            self.version.send_replace(version);
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
    assert!((Duration::from_secs(15)..Duration::from_secs(16)).contains(&waited), "{waited:?}");
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
    assert_eq!(within_a_minute(leader.lost()).await, Lost::NotRenewed(Duration::from_secs(10)));
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
    let term = leader.term();
    assert!(term.covers(since_boot()));
    assert_eq!(within_a_minute(leader.lost()).await, Lost::Taken { holder: Some("second".into()) });
    assert!(!term.covers(since_boot()), "a server would answer although another process leads");
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_acquired_without_a_wait() {
    let server = Server::default();
    let first = server.elector("first").acquire(|| ()).await;
    let term = first.term();
    first.release(None).await;
    assert!(!term.covers(since_boot()));
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
    frozen.release(None).await;
    assert_eq!(server.holder().as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn restarted_container_takes_the_lease_of_its_predecessor_at_once() {
    let server = Server::default();
    drop(server.elector("first").acquire(|| ()).await);
    let started = Instant::now();
    let mut was_standby = false;
    let _restarted = server.elector("first").acquire(|| was_standby = true).await;
    assert!(!was_standby);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn message_of_a_release_reaches_the_next_holder_and_no_later_one() {
    let server = Server::default();
    let first = server.elector("first").acquire(|| ()).await;
    assert_eq!(first.message(), None);
    first.release(Some("settled")).await;
    let second = server.elector("second").acquire(|| ()).await;
    assert_eq!(second.message(), Some("settled"));
    second.release(None).await;
    assert_eq!(server.elector("third").acquire(|| ()).await.message(), None);
}
