//! The client against a Slurm that fails, is slow, is upgraded, or sends malformed answers.

#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::json;
use slurm_fake::{FakeSlurm, Fault, KEY};
use slurm_jwt::SigningKey;
use slurm_rest::{
    Error, Limits, NodeState, NodeUpdate, SlurmClient, TOKEN_HEADER, TokenSource, Transport, TransportError,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, advance};

fn fake() -> FakeSlurm {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    fake.start_slurmd("w1");
    fake
}

fn client_with_limits(fake: &FakeSlurm, in_flight: usize, seconds: u64) -> SlurmClient {
    let tokens = TokenSource::new("slurm", SigningKey::new(KEY).unwrap(), fake.clock());
    SlurmClient::new(fake.clone(), tokens, Limits { in_flight, timeout: Duration::from_secs(seconds) })
}

fn drain() -> NodeUpdate {
    NodeUpdate::Drain { reason: "test".to_owned() }
}

async fn is_drained(fake: &FakeSlurm) -> bool {
    fake.recover();
    fake.client().get_node("w0").await.unwrap().unwrap().is_drained()
}

fn paths(fake: &FakeSlurm) -> Vec<String> {
    fake.take_requests().into_iter().map(|request| request.path).collect()
}

#[rstest]
#[case::connection_refused(Fault::Refused, "unreachable", false, false)]
#[case::lost_not_applied(Fault::Lost { applied: false }, "interrupted", true, false)]
#[case::lost_applied(Fault::Lost { applied: true }, "interrupted", true, true)]
#[case::no_answer_not_applied(Fault::NoAnswer { applied: false }, "timeout", true, false)]
#[case::no_answer_applied(Fault::NoAnswer { applied: true }, "timeout", true, true)]
#[case::too_slow(Fault::Slow(Duration::from_secs(16)), "timeout", true, false)]
#[case::controller_down(Fault::ControllerDown, "unavailable", true, false)]
#[case::controller_hangs(Fault::ControllerHangs, "unavailable", true, true)]
#[tokio::test(start_paused = true)]
async fn failed_write_reports_whether_it_may_have_been_applied(
    #[case] fault: Fault,
    #[case] category: &str,
    #[case] maybe_applied: bool,
    #[case] applied: bool,
) {
    let fake = fake();
    fake.inject(fault);
    let error = fake.client().update_nodes(&["w0"], &drain()).await.unwrap_err();
    assert_eq!((error.category(), error.maybe_applied()), (category, maybe_applied), "{error:?}");
    assert_eq!(is_drained(&fake).await, applied);
    assert!(!applied || maybe_applied, "an applied write was reported as not applied");
}

#[rstest]
#[case::html(StatusCode::OK, "text/html", "<html>hello</html>", "malformed")]
#[case::no_nodes(StatusCode::OK, "application/json", r#"{"errors":[]}"#, "malformed")]
#[case::null_nodes(StatusCode::OK, "application/json", r#"{"nodes":null,"errors":[]}"#, "malformed")]
#[case::truncated(StatusCode::OK, "application/json", r#"{"nodes":[{"name":"w0","sta"#, "malformed")]
#[case::no_content(StatusCode::NO_CONTENT, "application/json", "", "malformed")]
#[case::unexpected_304(StatusCode::NOT_MODIFIED, "application/json", "", "malformed")]
#[case::list_with_error(
    StatusCode::OK,
    "application/json",
    r#"{"nodes":[],"errors":[{"error_number":0}]}"#,
    "rejected"
)]
#[case::list_with_numbered_error(
    StatusCode::INTERNAL_SERVER_ERROR,
    "application/json",
    r#"{"nodes":[],"errors":[{"error_number":9207}]}"#,
    "rejected"
)]
#[case::gateway(StatusCode::BAD_GATEWAY, "text/html", "<html>", "unavailable")]
#[tokio::test(start_paused = true)]
async fn invalid_answer_never_becomes_a_node_list(
    #[case] status: StatusCode,
    #[case] kind: &'static str,
    #[case] body: &str,
    #[case] category: &str,
) {
    let fake = fake();
    fake.inject(Fault::Answer { status, kind, body: body.to_owned() });
    let error = fake.client().list_nodes().await.unwrap_err();
    assert_eq!(error.category(), category, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn incomplete_node_list_is_returned_unchanged() {
    let fake = fake();
    fake.inject_on(Method::GET, "/nodes/", Fault::OnlyNodes(1));
    assert_eq!(fake.client().list_nodes().await.unwrap().nodes.len(), 1);
    assert!(fake.client().get_node("w1").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn dead_slurmctld_shows_in_ping_at_once_and_in_other_requests_after_10_s() {
    let fake = fake();
    fake.inject(Fault::ControllerDown);
    let (client, started) = (fake.client(), Instant::now());
    assert!(!client.ping().await.unwrap()[0].responding);
    assert_eq!(started.elapsed(), Duration::ZERO);
    let error = client.confirm_access().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert_eq!(started.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn timeout_includes_waiting_for_a_permit() {
    let fake = fake();
    fake.inject(Fault::NoAnswer { applied: false });
    let (client, started) = (client_with_limits(&fake, 2, 5), Instant::now());
    let errors = join_all([client.list_nodes(), client.list_nodes(), client.list_nodes()]).await;
    let categories = errors.into_iter().map(|result| result.unwrap_err().category()).collect::<Vec<_>>();
    assert_eq!(categories, ["timeout", "timeout", "busy"]);
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn request_without_a_permit_is_not_sent() {
    let fake = fake();
    fake.inject(Fault::NoAnswer { applied: true });
    let client = client_with_limits(&fake, 1, 5);
    let (read, write) =
        futures::join!(client.list_nodes(), async { client.update_nodes(&["w0"], &drain()).await });
    assert_eq!(read.unwrap_err().category(), "timeout");
    let error = write.unwrap_err();
    assert!(matches!(error, Error::Busy(_)) && !error.maybe_applied(), "{error:?}");
    assert!(!is_drained(&fake).await);
}

#[tokio::test(start_paused = true)]
async fn failed_request_releases_its_permit() {
    let fake = fake();
    let client = client_with_limits(&fake, 1, 5);
    fake.inject(Fault::NoAnswer { applied: false });
    client.list_nodes().await.unwrap_err();
    fake.recover();
    assert_eq!(client.list_nodes().await.unwrap().nodes.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn first_request_negotiates_the_version_for_all_later_ones() {
    let fake = fake();
    fake.upgrade("25.05.8", &["v0.0.42", "v0.0.43"]);
    let client = fake.client();
    client.update_nodes(&["w0"], &drain()).await.unwrap();
    client.ping().await.unwrap();
    let expected =
        ["/slurm/v0.0.44/nodes/", "/slurm/v0.0.45/nodes/", "/slurm/v0.0.43/nodes/", "/slurm/v0.0.43/ping/"];
    assert_eq!(paths(&fake), expected);
}

#[tokio::test(start_paused = true)]
async fn upgrade_restores_the_preferred_version() {
    let fake = fake();
    fake.upgrade("24.11.6", &["v0.0.42"]);
    let client = fake.client();
    client.ping().await.unwrap();
    fake.upgrade("25.11.7", &["v0.0.42", "v0.0.43", "v0.0.44"]);
    client.ping().await.unwrap();
    paths(&fake);
    client.ping().await.unwrap();
    assert_eq!(paths(&fake), ["/slurm/v0.0.44/ping/"]);
}

#[tokio::test(start_paused = true)]
async fn removed_version_is_replaced_by_a_supported_one() {
    let fake = fake();
    let client = fake.client();
    client.ping().await.unwrap();
    fake.upgrade("27.05.1", &["v0.0.45", "v0.0.46"]);
    assert!(client.list_nodes().await.is_ok());
    paths(&fake);
    client.confirm_access().await.unwrap();
    assert!(paths(&fake)[0].starts_with("/slurm/v0.0.45/nodes/"));
}

#[tokio::test(start_paused = true)]
async fn request_is_unsupported_if_no_version_matches() {
    let fake = fake();
    let client = fake.client();
    client.ping().await.unwrap();
    fake.upgrade("31.05.0", &["v0.0.55"]);
    let error = client.update_nodes(&["w0"], &drain()).await.unwrap_err();
    assert!(matches!(&error, Error::Unsupported(path) if path == "POST /nodes/"), "{error:?}");
    assert!(!error.maybe_applied());
    fake.upgrade("26.05.5", &["v0.0.44"]);
    assert!(!is_drained(&fake).await);
}

#[tokio::test(start_paused = true)]
async fn update_of_many_nodes_is_one_request_with_a_hostlist() {
    let fake = fake();
    fake.client().update_nodes(&["w1", "w0"], &drain()).await.unwrap();
    let requests = fake.take_requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body, json!({ "name": ["w[0-1]"], "state": ["DRAIN"], "reason": "test" }));
}

#[tokio::test(start_paused = true)]
async fn names_of_several_nodes_are_not_sent() {
    let fake = fake();
    let client = fake.client();
    for name in ["w[0-1]", "w0,w1", "ALL", "", "w0/../w1"] {
        let results = [
            client.update_nodes(&["w0", name], &drain()).await,
            client.delete_node(name).await,
            client.get_node(name).await.map(drop),
        ];
        for result in results {
            assert!(matches!(result, Err(Error::Invalid(_))), "{name:?}: {result:?}");
        }
    }
    client.update_nodes(&[], &drain()).await.unwrap();
    assert!(fake.take_requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn client_renews_expired_tokens() {
    let fake = fake();
    let client = fake.client();
    for _ in 0..3 {
        client.confirm_access().await.unwrap();
        advance(Duration::from_mins(14)).await;
    }
    client.confirm_access().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn replaced_key_signs_the_next_request() {
    let fake = fake();
    let client = fake.client();
    client.confirm_access().await.unwrap();
    fake.change_key(b"rotated");
    let error = client.update_nodes(&["w0"], &drain()).await.unwrap_err();
    assert!(matches!(error, Error::Unauthorized(_)) && !error.maybe_applied(), "{error:?}");
    client.replace_key(SigningKey::new(b"rotated").unwrap());
    client.update_nodes(&["w0"], &drain()).await.unwrap();
    assert!(client.get_node("w0").await.unwrap().unwrap().is(&NodeState::Drain));
}

/// Token and answer status of each request.
type Exchanges = Arc<Mutex<Vec<(String, StatusCode)>>>;

/// Records all requests and answers.
struct RecordingTransport {
    fake: FakeSlurm,
    exchanges: Exchanges,
}

impl Transport for RecordingTransport {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let token = request.headers()[TOKEN_HEADER].to_str().unwrap().to_owned();
        Box::pin(async move {
            let answer = self.fake.send(request).await?;
            self.exchanges.lock().push((token, answer.status()));
            Ok(answer)
        })
    }
}

fn recording_client(key: &[u8]) -> (SlurmClient, Exchanges) {
    let (fake, exchanges) = (fake(), Exchanges::default());
    let source = TokenSource::new("slurm", SigningKey::new(key).unwrap(), fake.clock());
    let limits = Limits { in_flight: 1, timeout: Duration::from_secs(5) };
    let transport = RecordingTransport { fake, exchanges: exchanges.clone() };
    (SlurmClient::new(transport, source, limits), exchanges)
}

#[tokio::test(start_paused = true)]
async fn rejected_token_is_not_printed_and_not_sent_again() {
    let (client, exchanges) = recording_client(b"wrong");
    let mut shown = String::new();
    for _ in 0..2 {
        let error = client.confirm_access().await.unwrap_err();
        shown = format!("{shown} {error:?} {error}");
    }
    let exchanges = exchanges.lock();
    assert_eq!(exchanges.len(), 2);
    assert_ne!(exchanges[0].0, exchanges[1].0);
    assert!(exchanges.iter().all(|(token, _)| !shown.contains(token.as_str())), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn access_check_transfers_no_node_list() {
    let (client, exchanges) = recording_client(KEY);
    client.confirm_access().await.unwrap();
    assert_eq!(exchanges.lock()[0].1, StatusCode::NOT_MODIFIED);
}
