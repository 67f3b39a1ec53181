//! The exact requests of writes: what is sent, and above all what is not.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::client::Body;
use operator_runtime::apply::{Applied, Applier, Created, Deleted, Error, StatusWrite};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;
use tower::timeout::Timeout;
use tower_test::mock::{Handle, pair};

const LIMIT: Duration = Duration::from_secs(5);
const MANAGER: &str = "probe";
const MAP: &str = "/api/v1/namespaces/n/configmaps/a";
/// kube ends the path of requests without parameters so.
const MAP_WITHOUT_PARAMETERS: &str = "/api/v1/namespaces/n/configmaps/a?";
const APPLY: &str = "/api/v1/namespaces/n/configmaps/a?&force=true&fieldManager=probe";
const POD: &str = "/api/v1/namespaces/n/pods/a";
const APPLY_STATUS: &str = "/api/v1/namespaces/n/pods/a/status?&force=true&fieldManager=probe";

/// The API server's side of a test.
struct Server(Handle<Request<Body>, Response<Body>>);

impl Server {
    /// A request that the test does not expect is not answered, and fails after a while.
    fn start() -> (Applier, Self) {
        let (service, handle) = pair();
        let service = Timeout::new(service, LIMIT);
        (Applier::new(Client::new(service, "default"), MANAGER), Self(handle))
    }

    /// Takes the next request, which has to be this one, answers it and returns its body.
    async fn answer(&mut self, method: Method, uri: &str, code: u16, answer: Value) -> Value {
        let next = tokio::time::timeout(LIMIT, self.0.next_request());
        let (request, send) = next.await.expect("a request in time").expect("a request");
        assert_eq!((request.method(), request.uri().to_string().as_str()), (&method, uri));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let response = Response::builder().status(StatusCode::from_u16(code).unwrap());
        send.send_response(response.body(Body::from(serde_json::to_vec(&answer).unwrap())).unwrap());
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// All clients are gone; nothing else may have been sent.
    async fn assert_silent(mut self, applier: Applier) {
        drop(applier);
        if let Some((request, _)) = self.0.next_request().await {
            panic!("unexpected {} {}", request.method(), request.uri());
        }
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code})
}

fn typed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn owned_by(uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "Flower", "name": "rose", "uid": uid, "controller": true}])
}

fn desired() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n", "ownerReferences": owned_by("1")},
        "data": {"k": "v"},
    })
}

fn entry(manager: &str, operation: &str) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {
        "f:data": {"f:k": {}},
        "f:metadata": {"f:ownerReferences": {r#"k:{"uid":"1"}"#: {}}},
    }})
}

/// What we want as the server has it.
fn live() -> Value {
    let mut live = desired();
    live["metadata"]["uid"] = "u".into();
    live["metadata"]["resourceVersion"] = "7".into();
    live["metadata"]["managedFields"] = json!([entry(MANAGER, "Apply")]);
    live
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

#[tokio::test]
async fn an_unchanged_object_costs_no_request() {
    let (applier, server) = Server::start();
    let outcome = applier.apply::<ConfigMap>(&typed(desired()), Some(&typed(live()))).await.unwrap();
    assert!(matches!(outcome, Applied::Unchanged), "{outcome:?}");
    server.assert_silent(applier).await;
}

#[tokio::test]
async fn an_absent_object_is_looked_for_and_applied_once() {
    let (applier, mut server) = Server::start();
    let desired: ConfigMap = typed(desired());
    let script = async {
        server.answer(Method::GET, MAP, 404, failure(404, "NotFound")).await;
        server.answer(Method::PATCH, APPLY, 201, live()).await
    };
    let (outcome, body) = tokio::join!(applier.apply(&desired, None), script);
    assert_eq!(body, self::desired());
    let Applied::Created(object) = outcome.unwrap() else { panic!("not created") };
    let again = applier.apply(&desired, Some(&object)).await.unwrap();
    assert!(matches!(again, Applied::Unchanged), "{again:?}");
    server.assert_silent(applier).await;
}

#[tokio::test]
async fn a_changed_object_is_applied_to_the_same_uid() {
    let (applier, mut server) = Server::start();
    let changed = with(live(), "/data/k", "drifted".into());
    let (wanted, cached) = (typed::<ConfigMap>(desired()), typed(changed));
    let (outcome, body) =
        tokio::join!(applier.apply(&wanted, Some(&cached)), server.answer(Method::PATCH, APPLY, 200, live()));
    assert!(matches!(outcome.unwrap(), Applied::Changed(_)));
    assert_eq!(body, with(desired(), "/metadata/uid", "u".into()));
    // The cache lags behind: the same version needs no second apply.
    let again = applier.apply(&wanted, Some(&cached)).await.unwrap();
    assert!(matches!(again, Applied::Unchanged), "{again:?}");
    server.assert_silent(applier).await;
}

#[tokio::test]
async fn a_value_that_the_server_writes_in_another_form_is_applied_once() {
    let (applier, mut server) = Server::start();
    let wanted: ConfigMap = typed(with(desired(), "/data/k", "1000m".into()));
    let canonical = |version: &str| {
        with(with(live(), "/data/k", "1".into()), "/metadata/resourceVersion", version.into())
    };
    let cached = typed(live());
    let (outcome, _) = tokio::join!(
        applier.apply(&wanted, Some(&cached)),
        server.answer(Method::PATCH, APPLY, 200, canonical("8"))
    );
    assert!(matches!(outcome.unwrap(), Applied::Changed(_)));
    for version in ["8", "9"] {
        let again = applier.apply(&wanted, Some(&typed(canonical(version)))).await.unwrap();
        assert!(matches!(again, Applied::Unchanged), "version {version}: {again:?}");
    }
    server.assert_silent(applier).await;
}

#[tokio::test]
async fn a_refused_wish_is_not_repeated() {
    let (applier, mut server) = Server::start();
    let cached: ConfigMap = typed(with(live(), "/data/k", "drifted".into()));
    let script = async {
        server.answer(Method::PATCH, APPLY, 422, failure(422, "Invalid")).await;
        server.answer(Method::GET, MAP, 200, live()).await;
    };
    let wanted = typed::<ConfigMap>(desired());
    let (outcome, ()) = tokio::join!(applier.apply(&wanted, Some(&cached)), script);
    assert!(matches!(outcome, Err(Error::Api { verb: "apply", .. })), "{outcome:?}");
    server.assert_silent(applier).await;
}

#[tokio::test]
async fn an_object_made_anew_by_somebody_else_is_recognised() {
    let (applier, mut server) = Server::start();
    let cached: ConfigMap = typed(with(live(), "/data/k", "drifted".into()));
    let foreign = with(live(), "/metadata/ownerReferences", owned_by("2"));
    let script = async {
        server.answer(Method::PATCH, APPLY, 422, failure(422, "Invalid")).await;
        server.answer(Method::GET, MAP, 200, with(foreign, "/metadata/uid", "w".into())).await;
    };
    let wanted = typed::<ConfigMap>(desired());
    let (outcome, ()) = tokio::join!(applier.apply(&wanted, Some(&cached)), script);
    assert!(matches!(outcome, Err(Error::Foreign { .. })), "{outcome:?}");
    server.assert_silent(applier).await;
}

#[rstest]
#[case::terminating("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), "Terminating")]
#[case::immutable("/immutable", json!(true), "Immutable")]
#[tokio::test]
async fn what_must_be_left_alone_is(#[case] field: &str, #[case] value: Value, #[case] expected: &str) {
    let (applier, server) = Server::start();
    let live = with(with(live(), "/data/k", "drifted".into()), field, value);
    let outcome = applier.apply::<ConfigMap>(&typed(desired()), Some(&typed(live))).await.unwrap();
    assert_eq!(format!("{outcome:?}"), expected);
    server.assert_silent(applier).await;
}

#[rstest]
#[case::from_the_cache(true)]
#[case::read(false)]
#[tokio::test]
async fn an_object_of_another_controller_is_never_written(#[case] cached: bool) {
    let (applier, mut server) = Server::start();
    let foreign = with(live(), "/metadata/ownerReferences", owned_by("2"));
    let (wanted, object) = (typed::<ConfigMap>(desired()), typed(foreign.clone()));
    let result = if cached {
        applier.apply(&wanted, Some(&object)).await
    } else {
        tokio::join!(applier.apply(&wanted, None), server.answer(Method::GET, MAP, 200, foreign)).0
    };
    let error = result.expect_err("refused");
    assert_eq!(
        error.to_string(),
        "ConfigMap n/a is controlled by Flower rose (UID 2), not by us: left alone"
    );
    server.assert_silent(applier).await;
}

#[tokio::test]
async fn fields_of_our_predecessor_are_taken_over_before_the_first_apply() {
    let (applier, mut server) = Server::start();
    let old = with(live(), "/metadata/managedFields", json!([entry("manager", "Update")]));
    let script = async {
        let taken = server.answer(Method::PATCH, MAP_WITHOUT_PARAMETERS, 200, live()).await;
        (taken, server.answer(Method::PATCH, APPLY, 200, live()).await)
    };
    let (wanted, old) = (typed::<ConfigMap>(desired()), typed(old));
    let (outcome, (taken, _)) = tokio::join!(applier.apply(&wanted, Some(&old)), script);
    assert!(matches!(outcome.unwrap(), Applied::Changed(_)));
    let entries = json!([entry(MANAGER, "Apply")]);
    assert_eq!(taken, json!({"metadata": {"resourceVersion": "7", "managedFields": entries}}));
    server.assert_silent(applier).await;
}

#[rstest]
#[case::deleted(200, "", Deleted::Requested)]
#[case::gone(404, "NotFound", Deleted::Gone)]
#[case::changed(409, "Conflict", Deleted::Changed)]
#[tokio::test]
async fn a_delete_names_uid_and_version(#[case] code: u16, #[case] reason: &str, #[case] expected: Deleted) {
    let (applier, mut server) = Server::start();
    let owner: Pod = typed(json!({"metadata": {"uid": "1"}}));
    let answer = if code == 200 { live() } else { failure(code, reason) };
    let object = typed::<ConfigMap>(live());
    let (deleted, body) = tokio::join!(
        applier.delete_if_owned(&object, &owner),
        server.answer(Method::DELETE, MAP_WITHOUT_PARAMETERS, code, answer)
    );
    assert_eq!(deleted.unwrap(), expected);
    assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
    server.assert_silent(applier).await;
}

#[rstest]
#[case::another_owner(owned_by("2"), "Flower rose (UID 2)")]
#[case::nobody(Value::Null, "nobody")]
#[tokio::test]
async fn what_is_not_ours_is_never_deleted(#[case] owners: Value, #[case] named: &str) {
    let (applier, server) = Server::start();
    let owner: Pod = typed(json!({"metadata": {"uid": "1"}}));
    let object: ConfigMap = typed(with(live(), "/metadata/ownerReferences", owners));
    let error = applier.delete_if_owned(&object, &owner).await.expect_err("refused");
    assert!(matches!(&error, Error::Foreign { .. }) && error.to_string().contains(named), "{error}");
    server.assert_silent(applier).await;
}

#[rstest]
#[case::ours(live(), "Existing")]
#[case::ours_on_its_way_out(with(live(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")), "Terminating")]
#[case::foreign(with(live(), "/metadata/ownerReferences", owned_by("2")), "Foreign")]
#[tokio::test]
async fn a_create_that_finds_the_name_taken_looks_by_whom(#[case] existing: Value, #[case] expected: &str) {
    let (applier, mut server) = Server::start();
    let script = async {
        let uri = "/api/v1/namespaces/n/configmaps?&fieldManager=probe";
        server.answer(Method::POST, uri, 409, failure(409, "AlreadyExists")).await;
        server.answer(Method::GET, MAP, 200, existing).await;
    };
    let wanted = typed::<ConfigMap>(desired());
    let (created, ()) = tokio::join!(applier.create(&wanted), script);
    let outcome = match created {
        Ok(Created::New(_)) => "New",
        Ok(Created::Existing(_)) => "Existing",
        Ok(Created::Terminating) => "Terminating",
        Err(Error::Foreign { .. }) => "Foreign",
        Err(_) => "Err",
    };
    assert_eq!(outcome, expected);
    server.assert_silent(applier).await;
}

fn pod(version: &str, generation: i64, phase: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": version, "generation": generation,
            "managedFields": [{
                "manager": MANAGER, "operation": "Apply", "subresource": "status",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:phase": {}}},
            }],
        },
        "status": {"phase": phase},
    })
}

#[tokio::test]
async fn an_unchanged_status_costs_no_request() {
    let (applier, server) = Server::start();
    let pod: Pod = typed(pod("7", 1, "Running"));
    let written = applier.apply_status(&pod, &json!({"phase": "Running"})).await.unwrap();
    assert_eq!(written, StatusWrite::Unchanged);
    server.assert_silent(applier).await;
}

#[tokio::test]
async fn a_status_that_loses_a_race_is_written_to_the_newest_version() {
    let (applier, mut server) = Server::start();
    let object: Pod = typed(pod("7", 1, "Pending"));
    let script = async {
        let first = server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        server.answer(Method::GET, POD, 200, pod("8", 1, "Pending")).await;
        (first, server.answer(Method::PATCH, APPLY_STATUS, 200, pod("9", 1, "Running")).await)
    };
    let wanted = json!({"phase": "Running", "message": null});
    let (written, (first, second)) = tokio::join!(applier.apply_status(&object, &wanted), script);
    assert_eq!(written.unwrap(), StatusWrite::Written);
    let body = |version: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"uid": "u", "resourceVersion": version},
            "status": {"phase": "Running"},
        })
    };
    assert_eq!((first, second), (body("7"), body("8")));
    server.assert_silent(applier).await;
}

#[rstest]
#[case::newer_spec(200, pod("8", 2, "Pending"))]
#[case::gone(404, failure(404, "NotFound"))]
#[tokio::test]
async fn a_status_of_an_old_spec_is_not_written(#[case] code: u16, #[case] latest: Value) {
    let (applier, mut server) = Server::start();
    let object: Pod = typed(pod("7", 1, "Pending"));
    let script = async {
        server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        server.answer(Method::GET, POD, code, latest).await;
    };
    let wanted = json!({"phase": "Running"});
    let (written, ()) = tokio::join!(applier.apply_status(&object, &wanted), script);
    assert_eq!(written.unwrap(), StatusWrite::Outdated);
    server.assert_silent(applier).await;
}

#[tokio::test]
async fn a_status_that_always_loses_gives_up_after_five_attempts() {
    let (applier, mut server) = Server::start();
    let object: Pod = typed(pod("7", 1, "Pending"));
    let script = async {
        server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        for version in ["8", "9", "10", "11"] {
            server.answer(Method::GET, POD, 200, pod(version, 1, "Pending")).await;
            server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        }
    };
    let wanted = json!({"phase": "Running"});
    let (written, ()) = tokio::join!(applier.apply_status(&object, &wanted), script);
    assert!(matches!(written, Err(Error::Api { .. })), "{written:?}");
    server.assert_silent(applier).await;
}
