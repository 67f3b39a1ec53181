//! The exact requests of each write, and the cases in which none is sent.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test helpers may panic")]

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

const TIMEOUT: Duration = Duration::from_secs(5);
const MANAGER: &str = "probe";
const MAP: &str = "/api/v1/namespaces/n/configmaps/a";
/// kube ends the path of some requests without parameters in a question mark.
const MAP_WITHOUT_PARAMETERS: &str = "/api/v1/namespaces/n/configmaps/a?";
const APPLY: &str = "/api/v1/namespaces/n/configmaps/a?&force=true&fieldManager=probe";
const POD: &str = "/api/v1/namespaces/n/pods/a";
const APPLY_STATUS: &str = "/api/v1/namespaces/n/pods/a/status?&force=true&fieldManager=probe";

/// The API server of a test.
struct Server(Handle<Request<Body>, Response<Body>>);

impl Server {
    /// Requests that the test does not expect time out.
    fn start() -> (Applier, Self) {
        let (service, handle) = pair();
        let service = Timeout::new(service, TIMEOUT);
        (Applier::new(Client::new(service, "default"), MANAGER), Self(handle))
    }

    /// Expects this request next, answers it and returns its body.
    async fn answer(&mut self, method: Method, uri: &str, code: u16, answer: Value) -> Value {
        let next = tokio::time::timeout(TIMEOUT, self.0.next_request());
        let (request, send) = next.await.expect("a request in time").expect("a request");
        assert_eq!((request.method(), request.uri().to_string().as_str()), (&method, uri));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let response = Response::builder().status(StatusCode::from_u16(code).unwrap());
        send.send_response(response.body(Body::from(serde_json::to_vec(&answer).unwrap())).unwrap());
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// Asserts that no further request was sent.
    async fn assert_no_request(mut self, applier: Applier) {
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

/// The live object after `desired` was applied.
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

/// With the labels that identify the children of one owner.
fn labelled(object: Value) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "flower", "app.kubernetes.io/instance": "rose", "app.kubernetes.io/component": "leaf",
    });
    with(object, "/metadata/labels", labels)
}

#[tokio::test]
async fn unchanged_object_is_not_written() {
    let (applier, server) = Server::start();
    let outcome = applier.apply::<ConfigMap>(&typed(desired()), Some(&typed(live()))).await.unwrap();
    assert!(matches!(outcome, Applied::Unchanged), "{outcome:?}");
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn absent_object_is_read_and_applied_once() {
    let (applier, mut server) = Server::start();
    let desired: ConfigMap = typed(desired());
    let exchange = async {
        server.answer(Method::GET, MAP, 404, failure(404, "NotFound")).await;
        server.answer(Method::PATCH, APPLY, 201, live()).await
    };
    let (outcome, body) = tokio::join!(applier.apply(&desired, None), exchange);
    assert_eq!(body, self::desired());
    let Applied::Created(object) = outcome.unwrap() else { panic!("not created") };
    let second = applier.apply(&desired, Some(&object)).await.unwrap();
    assert!(matches!(second, Applied::Unchanged), "{second:?}");
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn apply_to_a_changed_object_carries_its_uid_and_version() {
    let (applier, mut server) = Server::start();
    let changed = with(live(), "/data/k", "drifted".into());
    let (desired, cached) = (typed::<ConfigMap>(desired()), typed(changed));
    let (outcome, body) = tokio::join!(
        applier.apply(&desired, Some(&cached)),
        server.answer(Method::PATCH, APPLY, 200, live())
    );
    assert!(matches!(outcome.unwrap(), Applied::Changed(_)));
    let expected = with(self::desired(), "/metadata/uid", "u".into());
    assert_eq!(body, with(expected, "/metadata/resourceVersion", "7".into()));
    // A stale cache still has the old version: it needs no second apply.
    let second = applier.apply(&desired, Some(&cached)).await.unwrap();
    assert!(matches!(second, Applied::Unchanged), "{second:?}");
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn value_that_the_server_normalises_is_applied_once() {
    let (applier, mut server) = Server::start();
    let desired: ConfigMap = typed(with(desired(), "/data/k", "1000m".into()));
    let normalised = |version: &str| {
        with(with(live(), "/data/k", "1".into()), "/metadata/resourceVersion", version.into())
    };
    let cached = typed(live());
    let (outcome, _) = tokio::join!(
        applier.apply(&desired, Some(&cached)),
        server.answer(Method::PATCH, APPLY, 200, normalised("8"))
    );
    assert!(matches!(outcome.unwrap(), Applied::Changed(_)));
    for version in ["8", "9"] {
        let second = applier.apply(&desired, Some(&typed(normalised(version)))).await.unwrap();
        assert!(matches!(second, Applied::Unchanged), "version {version}: {second:?}");
    }
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn rejected_apply_is_not_retried() {
    let (applier, mut server) = Server::start();
    let cached: ConfigMap = typed(with(live(), "/data/k", "drifted".into()));
    let exchange = async {
        server.answer(Method::PATCH, APPLY, 422, failure(422, "Invalid")).await;
    };
    let desired = typed::<ConfigMap>(desired());
    let (outcome, ()) = tokio::join!(applier.apply(&desired, Some(&cached)), exchange);
    assert!(matches!(outcome, Err(Error::Api { verb: "apply", .. })), "{outcome:?}");
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn object_recreated_under_another_controller_is_foreign() {
    let (applier, mut server) = Server::start();
    let cached: ConfigMap = typed(with(live(), "/data/k", "drifted".into()));
    let foreign = with(live(), "/metadata/ownerReferences", owned_by("2"));
    let exchange = async {
        server.answer(Method::PATCH, APPLY, 409, failure(409, "Conflict")).await;
        server.answer(Method::GET, MAP, 200, with(foreign, "/metadata/uid", "w".into())).await;
    };
    let desired = typed::<ConfigMap>(desired());
    let (outcome, ()) = tokio::join!(applier.apply(&desired, Some(&cached)), exchange);
    assert!(matches!(outcome, Err(Error::Foreign { .. })), "{outcome:?}");
    server.assert_no_request(applier).await;
}

#[rstest]
#[case::terminating("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), "Terminating")]
#[case::immutable("/immutable", json!(true), "Immutable")]
#[tokio::test]
async fn terminating_or_immutable_object_is_not_written(
    #[case] field: &str,
    #[case] value: Value,
    #[case] expected: &str,
) {
    let (applier, server) = Server::start();
    let live = with(with(live(), "/data/k", "drifted".into()), field, value);
    let outcome = applier.apply::<ConfigMap>(&typed(desired()), Some(&typed(live))).await.unwrap();
    assert_eq!(format!("{outcome:?}"), expected);
    server.assert_no_request(applier).await;
}

#[rstest]
#[case::cached(true)]
#[case::live(false)]
#[tokio::test]
async fn object_of_another_controller_is_not_written(#[case] cached: bool) {
    let (applier, mut server) = Server::start();
    let foreign = with(live(), "/metadata/ownerReferences", owned_by("2"));
    let (desired, object) = (typed::<ConfigMap>(desired()), typed(foreign.clone()));
    let result = if cached {
        applier.apply(&desired, Some(&object)).await
    } else {
        tokio::join!(applier.apply(&desired, None), server.answer(Method::GET, MAP, 200, foreign)).0
    };
    let error = result.expect_err("refused");
    assert_eq!(
        error.to_string(),
        "ConfigMap n/a is controlled by Flower rose (UID 2), not by the expected owner: left unchanged"
    );
    server.assert_no_request(applier).await;
}

/// What `kubectl delete --cascade=orphan` leaves behind until the owner is gone, and what is there after a restore.
#[rstest]
#[case::owner_exists(200, json!({"name": "rose", "namespace": "n", "uid": "1"}), true)]
#[case::owner_is_being_deleted(200, json!({"name": "rose", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"}), false)]
#[case::owner_was_recreated(200, json!({"name": "rose", "namespace": "n", "uid": "2"}), false)]
#[case::owner_is_gone(404, Value::Null, false)]
#[tokio::test]
async fn object_without_owner_is_adopted_only_if_its_owner_stays(
    #[case] code: u16,
    #[case] owner: Value,
    #[case] is_adopted: bool,
) {
    let (applier, mut server) = Server::start();
    let desired: ConfigMap = typed(labelled(desired()));
    let orphan = with(labelled(live()), "/metadata/ownerReferences", Value::Null);
    let answer = if owner.is_null() {
        failure(404, "NotFound")
    } else {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": owner})
    };
    let exchange = async {
        server.answer(Method::GET, "/api/v1/namespaces/n/flowers/rose", code, answer).await;
        if is_adopted {
            server.answer(Method::PATCH, APPLY, 200, live()).await;
        }
    };
    let orphan = typed(orphan);
    let (outcome, ()) = tokio::join!(applier.apply(&desired, Some(&orphan)), exchange);
    let outcome = outcome.unwrap();
    assert_eq!(matches!(outcome, Applied::Changed(_)), is_adopted, "{outcome:?}");
    assert_eq!(matches!(outcome, Applied::Terminating), !is_adopted, "{outcome:?}");
    server.assert_no_request(applier).await;
}

/// The cache still has the owner that the garbage collector removed: with it restored, the object would be deleted with
/// its owner.
#[tokio::test]
async fn owner_that_is_only_in_the_cache_is_not_restored() {
    let (applier, mut server) = Server::start();
    let desired: ConfigMap = typed(labelled(desired()));
    let cached: ConfigMap = typed(live());
    let orphan = with(labelled(live()), "/metadata/ownerReferences", Value::Null);
    let exchange = async {
        let body = server.answer(Method::PATCH, APPLY, 409, failure(409, "Conflict")).await;
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        server.answer(Method::GET, MAP, 200, orphan).await;
        server.answer(Method::GET, "/api/v1/namespaces/n/flowers/rose", 404, failure(404, "NotFound")).await;
    };
    let (outcome, ()) = tokio::join!(applier.apply(&desired, Some(&cached)), exchange);
    assert!(matches!(outcome, Ok(Applied::Terminating)), "{outcome:?}");
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn apply_fails_after_five_conflicts() {
    let (applier, mut server) = Server::start();
    let drifted = with(live(), "/data/k", "drifted".into());
    let cached: ConfigMap = typed(drifted.clone());
    let exchange = async {
        server.answer(Method::PATCH, APPLY, 409, failure(409, "Conflict")).await;
        for _ in 0..4 {
            server.answer(Method::GET, MAP, 200, drifted.clone()).await;
            server.answer(Method::PATCH, APPLY, 409, failure(409, "Conflict")).await;
        }
    };
    let desired = typed::<ConfigMap>(desired());
    let (outcome, ()) = tokio::join!(applier.apply(&desired, Some(&cached)), exchange);
    assert!(matches!(outcome, Err(Error::Api { verb: "apply", .. })), "{outcome:?}");
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn predecessors_fields_are_taken_over_before_the_first_apply() {
    let (applier, mut server) = Server::start();
    let old = with(live(), "/metadata/managedFields", json!([entry("manager", "Update")]));
    let exchange = async {
        let taken_over = with(live(), "/metadata/resourceVersion", "8".into());
        let taken = server.answer(Method::PATCH, MAP_WITHOUT_PARAMETERS, 200, taken_over).await;
        (taken, server.answer(Method::PATCH, APPLY, 200, live()).await)
    };
    let (desired, old) = (typed::<ConfigMap>(desired()), typed(old));
    let (outcome, (taken, write)) = tokio::join!(applier.apply(&desired, Some(&old)), exchange);
    assert!(matches!(outcome.unwrap(), Applied::Changed(_)));
    assert_eq!(write["metadata"]["resourceVersion"], "8");
    let entries = json!([entry(MANAGER, "Apply")]);
    assert_eq!(taken, json!({"metadata": {"resourceVersion": "7", "managedFields": entries}}));
    server.assert_no_request(applier).await;
}

#[rstest]
#[case::deleted(200, "", Deleted::Requested)]
#[case::not_found(404, "NotFound", Deleted::Gone)]
#[case::changed(409, "Conflict", Deleted::Changed)]
#[tokio::test]
async fn delete_carries_uid_and_version_as_preconditions(
    #[case] code: u16,
    #[case] reason: &str,
    #[case] expected: Deleted,
) {
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
    server.assert_no_request(applier).await;
}

#[rstest]
#[case::another_owner(owned_by("2"), "Flower rose (UID 2)")]
#[case::no_owner(Value::Null, "no object")]
#[tokio::test]
async fn object_that_the_owner_does_not_control_is_not_deleted(
    #[case] owners: Value,
    #[case] controller: &str,
) {
    let (applier, server) = Server::start();
    let owner: Pod = typed(json!({"metadata": {"uid": "1"}}));
    let object: ConfigMap = typed(with(live(), "/metadata/ownerReferences", owners));
    let error = applier.delete_if_owned(&object, &owner).await.expect_err("refused");
    assert!(matches!(&error, Error::Foreign { .. }) && error.to_string().contains(controller), "{error}");
    server.assert_no_request(applier).await;
}

#[rstest]
#[case::same_controller(live(), "Existing")]
#[case::terminating(with(live(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")), "Terminating")]
#[case::other_controller(with(live(), "/metadata/ownerReferences", owned_by("2")), "Foreign")]
#[tokio::test]
async fn create_of_an_existing_object_depends_on_its_controller(
    #[case] existing: Value,
    #[case] expected: &str,
) {
    let (applier, mut server) = Server::start();
    let exchange = async {
        let uri = "/api/v1/namespaces/n/configmaps?&fieldManager=probe";
        server.answer(Method::POST, uri, 409, failure(409, "AlreadyExists")).await;
        server.answer(Method::GET, MAP, 200, existing).await;
    };
    let desired = typed::<ConfigMap>(desired());
    let (created, ()) = tokio::join!(applier.create(&desired), exchange);
    let outcome = match created {
        Ok(Created::New(_)) => "New",
        Ok(Created::Existing(_)) => "Existing",
        Ok(Created::Terminating) => "Terminating",
        Err(Error::Foreign { .. }) => "Foreign",
        Err(_) => "Err",
    };
    assert_eq!(outcome, expected);
    server.assert_no_request(applier).await;
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
async fn unchanged_status_is_not_written() {
    let (applier, server) = Server::start();
    let pod: Pod = typed(pod("7", 1, "Running"));
    let written = applier.apply_status(&pod, &json!({"phase": "Running"})).await.unwrap();
    assert_eq!(written, StatusWrite::Unchanged);
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn status_is_written_to_the_latest_version_after_a_conflict() {
    let (applier, mut server) = Server::start();
    let object: Pod = typed(pod("7", 1, "Pending"));
    let exchange = async {
        let first = server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        server.answer(Method::GET, POD, 200, pod("8", 1, "Pending")).await;
        (first, server.answer(Method::PATCH, APPLY_STATUS, 200, pod("9", 1, "Running")).await)
    };
    let desired = json!({"phase": "Running", "message": null});
    let (written, (first, second)) = tokio::join!(applier.apply_status(&object, &desired), exchange);
    assert_eq!(written.unwrap(), StatusWrite::Written);
    let body = |version: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"uid": "u", "resourceVersion": version},
            "status": {"phase": "Running"},
        })
    };
    assert_eq!((first, second), (body("7"), body("8")));
    server.assert_no_request(applier).await;
}

#[rstest]
#[case::newer_spec(200, pod("8", 2, "Pending"))]
#[case::deleted(404, failure(404, "NotFound"))]
#[tokio::test]
async fn status_of_an_old_spec_is_not_written(#[case] code: u16, #[case] latest: Value) {
    let (applier, mut server) = Server::start();
    let object: Pod = typed(pod("7", 1, "Pending"));
    let exchange = async {
        server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        server.answer(Method::GET, POD, code, latest).await;
    };
    let desired = json!({"phase": "Running"});
    let (written, ()) = tokio::join!(applier.apply_status(&object, &desired), exchange);
    assert_eq!(written.unwrap(), StatusWrite::Outdated);
    server.assert_no_request(applier).await;
}

#[rstest]
#[case::same_status("Pending", StatusWrite::Written)]
#[case::status_of_another_process("Failed", StatusWrite::Outdated)]
#[tokio::test]
async fn next_status_is_written_after_a_conflict_unless_another_process_wrote_one(
    #[case] phase: &str,
    #[case] expected: StatusWrite,
) {
    let (applier, mut server) = Server::start();
    let object: Pod = typed(pod("7", 1, "Pending"));
    let is_written = expected == StatusWrite::Written;
    let exchange = async {
        server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        server.answer(Method::GET, POD, 200, pod("8", 1, phase)).await;
        if is_written {
            server.answer(Method::PATCH, APPLY_STATUS, 200, pod("9", 1, "Running")).await;
        }
    };
    let desired = json!({"phase": "Running"});
    let (written, ()) = tokio::join!(applier.apply_next_status(&object, &desired), exchange);
    assert_eq!(written.unwrap(), expected);
    server.assert_no_request(applier).await;
}

#[tokio::test]
async fn status_write_fails_after_five_conflicts() {
    let (applier, mut server) = Server::start();
    let object: Pod = typed(pod("7", 1, "Pending"));
    let exchange = async {
        server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        for version in ["8", "9", "10", "11"] {
            server.answer(Method::GET, POD, 200, pod(version, 1, "Pending")).await;
            server.answer(Method::PATCH, APPLY_STATUS, 409, failure(409, "Conflict")).await;
        }
    };
    let desired = json!({"phase": "Running"});
    let (written, ()) = tokio::join!(applier.apply_status(&object, &desired), exchange);
    assert!(matches!(written, Err(Error::Api { .. })), "{written:?}");
    server.assert_no_request(applier).await;
}
