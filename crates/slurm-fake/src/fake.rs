//! [`FakeSlurm`]: the transport that a client uses, and the methods by which a test changes the cluster.

use crate::fault::{Fault, Faults};
use crate::model::{Cluster, Node, SlurmError};
use crate::routes::{ApiRequest, answer, json, ping, respond, text};
use bytes::Bytes;
use futures::future::{BoxFuture, pending};
use http::{Method, Request, Response, StatusCode, header};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use slurm_jwt::{SigningKey, parse};
use slurm_rest::{Clock, Limits, SlurmClient, TOKEN_HEADER, TokenSource, Transport, TransportError, errno};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The signing key that a new fake accepts.
pub const KEY: &[u8] = b"the signing key of a slurmctld in memory";

/// The start time of every fake: 2027-01-15.
const START: i64 = 1_800_000_000;

/// How long slurmrestd waits for a slurmctld that does not answer.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A Slurm cluster in memory. Clones share it.
#[derive(Clone)]
pub struct FakeSlurm(Arc<Shared>);

struct Shared {
    began: Instant,
    state: Mutex<State>,
}

struct State {
    cluster: Cluster,
    faults: Faults,
    key: SigningKey,
    versions: Vec<&'static str>,
    release: &'static str,
    requests: Vec<RecordedRequest>,
    /// Requests that a hanging slurmctld has received and not executed.
    unread: Vec<Request<Bytes>>,
}

/// A request that reached the fake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Its method.
    pub method: Method,
    /// Its path, with the API version and the query.
    pub path: String,
    /// Its body; `Null` if it had none.
    pub body: Value,
}

impl Default for FakeSlurm {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeSlurm {
    /// A cluster without nodes that accepts tokens signed with [`KEY`]. Its clock follows tokio's.
    pub fn new() -> Self {
        let state = State {
            cluster: Cluster { nodes_changed: START, reservations_changed: START, ..Cluster::default() },
            faults: Faults::default(),
            key: signing_key(KEY),
            versions: vec!["v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"],
            release: "26.05.5",
            requests: vec![],
            unread: vec![],
        };
        Self(Arc::new(Shared { began: Instant::now(), state: Mutex::new(state) }))
    }

    /// A client with the correct key and ordinary limits.
    pub fn client(&self) -> SlurmClient {
        let limits = Limits { in_flight: 4, timeout: Duration::from_secs(15) };
        let tokens = TokenSource::new("slurm", signing_key(KEY), self.clock());
        SlurmClient::new(self.clone(), tokens, limits)
    }

    /// The clock of the cluster.
    pub fn clock(&self) -> Clock {
        let shared = self.0.clone();
        Arc::new(move || Timestamp::from_second(shared.now()).unwrap_or_default())
    }

    /// A slurmd with this name registers: a new node, or one that returns. A node that is down stays down until it is
    /// resumed.
    pub fn start_slurmd(&self, name: &str) {
        self.change(|cluster, now| {
            let node = cluster.nodes.entry(name.to_owned()).or_insert_with(|| Node::registered(now));
            (node.slurmd_start, node.unreachable_since, node.not_responding) = (now, None, false);
            cluster.nodes_changed = now;
        });
    }

    /// The same for a slurmd at this address.
    pub fn start_slurmd_at(&self, name: &str, address: &str) {
        self.start_slurmd(name);
        self.change(|cluster, _| {
            if let Some(node) = cluster.nodes.get_mut(name) {
                address.clone_into(&mut node.address);
            }
        });
    }

    /// The slurmd with this name dies: its node is not responding after 20 s and down after 40 s.
    pub fn stop_slurmd(&self, name: &str) {
        self.change(|cluster, now| {
            if let Some(node) = cluster.nodes.get_mut(name) {
                node.unreachable_since = Some(now);
            }
        });
    }

    /// Submits a job that needs these nodes and starts when they are free. `None`: no time limit. Returns its id.
    pub fn submit_job(&self, nodes: &[&str], cpus: u32, minutes: Option<i64>) -> i64 {
        let nodes = nodes.iter().map(|name| (*name).to_owned()).collect();
        self.change(|cluster, now| cluster.submit(nodes, cpus, minutes, now))
    }

    /// A job ends and stays COMPLETING on its nodes until [`Self::end_job`].
    pub fn start_completing_job(&self, id: i64) {
        self.change(|cluster, now| cluster.end_job(id, "COMPLETED", true, now));
    }

    /// A job ends and releases its nodes.
    pub fn end_job(&self, id: i64) {
        self.change(|cluster, now| cluster.end_job(id, "COMPLETED", false, now));
    }

    /// Suspends a running job: it keeps its nodes, whose states no longer show it.
    pub fn suspend_job(&self, id: i64) {
        self.change(|cluster, now| cluster.set_suspended(id, true, now));
    }

    /// Resumes a suspended job.
    pub fn resume_job(&self, id: i64) {
        self.change(|cluster, now| cluster.set_suspended(id, false, now));
    }

    /// Whether a job holds this node.
    pub fn is_busy(&self, node: &str) -> bool {
        self.change(|cluster, _| cluster.jobs.values().any(|job| job.holds(node)))
    }

    /// The reason of a node that is drained, down or failed; `None` for any other node.
    pub fn unavailable_reason(&self, node: &str) -> Option<String> {
        self.change(|cluster, _| {
            let node = cluster.nodes.get(node).filter(|node| !node.flags.is_empty())?;
            Some(node.reason.clone())
        })
    }

    /// slurmctld loses its state: nodes, jobs and reservations.
    pub fn lose_state(&self) {
        self.change(|cluster, now| {
            *cluster = Cluster {
                nodes_changed: now,
                jobs_changed: now,
                reservations_changed: now,
                ..Cluster::default()
            };
        });
    }

    /// slurmctld accepts only tokens signed with this key.
    pub fn change_key(&self, key: &[u8]) {
        self.lock().key = signing_key(key);
    }

    /// Upgrades to another release, which serves these API versions.
    pub fn upgrade(&self, release: &'static str, versions: &[&'static str]) {
        let mut state = self.lock();
        (state.release, state.versions) = (release, versions.to_vec());
    }

    /// Makes every further request fail.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.all(fault);
    }

    /// Makes further requests with this method and with this text in their path fail.
    pub fn inject_on(&self, method: Method, path: &str, fault: Fault) {
        self.lock().faults.only(method, path, fault);
    }

    /// Removes all faults. A slurmctld that hung executes the requests it has received meanwhile.
    pub fn recover(&self) {
        self.lock().faults.clear();
        let unread = std::mem::take(&mut self.lock().unread);
        for request in unread {
            self.handle(&request, None);
        }
    }

    /// Requests received since the previous call.
    pub fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.lock().requests)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Cluster, i64) -> T) -> T {
        let now = self.0.now();
        let mut state = self.lock();
        state.cluster.advance(now);
        change(&mut state.cluster, now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    async fn receive(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let (method, path) = (request.method(), request.uri().path());
        let is_ping = path.contains("/ping");
        let fault = self.lock().faults.of(method, path);
        match fault {
            None => Ok(self.handle(&request, None)),
            Some(Fault::Refused) => Err(TransportError::Unreachable("connection refused".into())),
            Some(Fault::Lost { applied }) => {
                applied.then(|| self.handle(&request, None));
                Err(TransportError::Interrupted("connection reset".into()))
            }
            Some(Fault::NoAnswer { applied }) => {
                applied.then(|| self.handle(&request, None));
                pending().await
            }
            Some(Fault::Slow(time)) => {
                sleep(time).await;
                Ok(self.handle(&request, None))
            }
            Some(Fault::ControllerDown) => {
                sleep(if is_ping { Duration::ZERO } else { MESSAGE_TIMEOUT }).await;
                Ok(self.handle(&request, Some(errno::CONNECTION)))
            }
            Some(Fault::ControllerHangs) => {
                self.lock().unread.push(request.clone());
                sleep(MESSAGE_TIMEOUT).await;
                Ok(self.handle(&request, Some(errno::SOCKET_TIMEOUT)))
            }
            Some(Fault::OnlyNodes(count)) => Ok(self.truncate_node_list(&request, count)),
            Some(Fault::Answer { status, kind, body }) => Ok(respond(status, kind, body.as_bytes())),
        }
    }

    /// The answer of slurmrestd; `failing` is the error number of a slurmctld that does not answer.
    fn handle(&self, request: &Request<Bytes>, failing: Option<i32>) -> Response<Bytes> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let body = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
        let now = self.0.now();
        let mut state = self.lock();
        let full = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let record = RecordedRequest { method: request.method().clone(), path: full, body: body.clone() };
        state.requests.push(record);
        let parts = path.strip_prefix("/slurm/").and_then(|rest| rest.split_once('/'));
        let Some((version, path)) = parts.filter(|(version, _)| state.versions.contains(version)) else {
            return text(StatusCode::NOT_FOUND, "Unable to find requested URL endpoint.");
        };
        if let Some(rejection) = reject_in_slurmrestd(request, query) {
            return rejection;
        }
        let user = user_of(request, &state.key, now);
        let user = user.as_deref();
        let (method, release) = (request.method(), state.release);
        let api_request = ApiRequest { method, version, path, query, body: &body, user, release, now };
        match failing {
            Some(_) if path.starts_with("ping") => ping(&api_request, false),
            Some(errno) => json(Err(SlurmError::new(errno, "Unable to contact slurm controller")), release),
            None => {
                state.cluster.advance(now);
                answer(&api_request, &mut state.cluster)
            }
        }
    }

    fn truncate_node_list(&self, request: &Request<Bytes>, count: usize) -> Response<Bytes> {
        let mut response = self.handle(request, None);
        let is_list = request.uri().path().contains("/nodes/");
        if is_list
            && let Ok(mut body) = serde_json::from_slice::<Value>(response.body())
            && let Some(nodes) = body.get_mut("nodes").and_then(Value::as_array_mut)
        {
            nodes.truncate(count);
            *response.body_mut() = body.to_string().into();
        }
        response
    }
}

impl Shared {
    fn now(&self) -> i64 {
        START + i64::try_from(self.began.elapsed().as_secs()).unwrap_or_default()
    }
}

impl Transport for FakeSlurm {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(self.receive(request))
    }
}

/// Requests that slurmrestd rejects without asking slurmctld.
fn reject_in_slurmrestd(request: &Request<Bytes>, query: &str) -> Option<Response<Bytes>> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if !request.headers().contains_key(TOKEN_HEADER) {
        return Some(text(StatusCode::UNAUTHORIZED, "Authentication failure"));
    }
    if request.body().is_empty() {
        return None;
    }
    if kind.is_none_or(|kind| kind != "application/json") {
        return Some(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported media type"));
    }
    (!query.is_empty()).then(|| text(StatusCode::BAD_REQUEST, "Unexpected query"))
}

/// The user of a token that slurmctld accepts: it requires and checks `exp`, and ignores `nbf`.
fn user_of(request: &Request<Bytes>, key: &SigningKey, now: i64) -> Option<String> {
    let token = request.headers().get(TOKEN_HEADER)?.to_str().ok()?;
    let claims = parse(token, key).ok()?;
    claims.sun.filter(|_| claims.exp.is_some_and(|expiry| now < expiry))
}

#[expect(clippy::expect_used, reason = "an empty key is a mistake in the test")]
fn signing_key(bytes: &[u8]) -> SigningKey {
    SigningKey::new(bytes).expect("the signing key is not empty")
}
