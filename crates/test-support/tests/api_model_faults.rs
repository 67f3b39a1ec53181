//! Faults and lagging caches of the API model.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use rstest::rstest;
use serde_json::{Value, json};
use std::time::Duration;
use test_support::api_model::{ApiModel, Event, Failure, Fate, LaggingCache, Verb};
use tokio::time::timeout;

const NAMESPACE: &str = "n";
const SECOND: Duration = Duration::from_secs(1);

/// A model with a ConfigMap `a`, and a client `us`.
fn fixture() -> (ApiModel, Client) {
    let model = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    model.put::<ConfigMap>(json!({"metadata": {"name": "a", "namespace": NAMESPACE}, "data": {"k": "old"}}));
    let client = model.client("us");
    (model, client)
}

async fn write(client: &Client, value: &str) -> Result<ConfigMap, kube::Error> {
    let patch = Patch::Merge(json!({"data": {"k": value}}));
    Api::namespaced(client.clone(), NAMESPACE).patch("a", &PatchParams::default(), &patch).await
}

fn value(model: &ApiModel) -> Value {
    model.get::<ConfigMap>(NAMESPACE, "a").unwrap()["data"]["k"].clone()
}

#[rstest]
#[case::served(Fate::Served, Some(200), "new")]
#[case::conflict(Fate::Refused(Failure::Conflict), Some(409), "old")]
#[case::too_many_requests(Fate::Refused(Failure::TooManyRequests), Some(429), "old")]
#[case::internal_error(Fate::Refused(Failure::InternalError), Some(500), "old")]
#[case::unavailable(Fate::Refused(Failure::ServiceUnavailable), Some(503), "old")]
#[case::disconnected(Fate::Refused(Failure::Disconnect), None, "old")]
#[case::performed_but_500(Fate::Misreported(Failure::InternalError), Some(500), "new")]
#[case::performed_but_504(Fate::Misreported(Failure::Timeout), Some(504), "new")]
#[case::performed_but_disconnected(Fate::Misreported(Failure::Disconnect), None, "new")]
#[case::lost(Fate::Lost, None, "old")]
#[case::late(Fate::Late(SECOND), Some(200), "new")]
#[tokio::test(start_paused = true)]
async fn fate_decides_effect_and_response(
    #[case] fate: Fate,
    #[case] expected_code: Option<u16>,
    #[case] expected_value: &str,
) {
    let (model, client) = fixture();
    model.on_request(move |_| fate);
    let code = match timeout(10 * SECOND, write(&client, "new")).await {
        Ok(Ok(_)) => Some(200),
        Ok(Err(kube::Error::Api(status))) => Some(status.code),
        Ok(Err(kube::Error::Service(_))) | Err(_) => None,
        Ok(Err(error)) => panic!("{error:?}"),
    };
    assert_eq!((code, value(&model)), (expected_code, json!(expected_value)));
    let [exchange] = &model.exchanges()[..] else { panic!("one request") };
    assert_eq!((exchange.call.to_string().as_str(), exchange.status), ("patch configmaps a", expected_code));
}

#[rstest]
#[case::with_resource_version(true, Some(409))]
#[case::without(false, None)]
#[tokio::test]
async fn overtaken_write_is_refused_if_it_has_a_resource_version(
    #[case] is_conditional: bool,
    #[case] refusal: Option<u16>,
) {
    let (model, client) = fixture();
    let read = model.get::<ConfigMap>(NAMESPACE, "a").unwrap()["metadata"]["resourceVersion"].clone();
    let version = if is_conditional { read } else { Value::Null };
    model.on_request(|_| Fate::Overtaken);
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": {"k": "new"}}));
    let maps = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let code = match maps.patch("a", &PatchParams::default(), &patch).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(error) => panic!("{error:?}"),
    };
    let expected = if refusal.is_some() { "old" } else { "new" };
    assert_eq!((code, value(&model)), (refusal, json!(expected)));
}

#[tokio::test(start_paused = true)]
async fn late_request_lands_after_its_client_gave_up() {
    let (model, client) = fixture();
    model.on_request(|_| Fate::Late(2 * SECOND));
    assert!(timeout(SECOND, write(&client, "new")).await.is_err());
    assert_eq!(value(&model), "old");
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(value(&model), "new");
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_crashed_client_have_no_effect_and_no_response() {
    let (model, client) = fixture();
    model.crash("us");
    assert!(timeout(SECOND, write(&client, "ours")).await.is_err());
    assert_eq!(value(&model), "old");
    write(&model.client("them"), "theirs").await.unwrap();
    assert_eq!(value(&model), "theirs");
    model.revive("us");
    write(&client, "ours").await.unwrap();
    assert_eq!(value(&model), "ours");
}

#[tokio::test(start_paused = true)]
async fn client_may_crash_between_effect_and_response() {
    let (model, client) = fixture();
    let server = model.clone();
    model.on_request(move |call| {
        server.crash(&call.client);
        Fate::Served
    });
    assert!(timeout(SECOND, write(&client, "new")).await.is_err());
    assert_eq!(value(&model), "new");
}

#[tokio::test]
async fn concurrent_write_before_a_request_causes_a_conflict() {
    let (model, client) = fixture();
    let configs: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let read = configs.get("a").await.unwrap();
    let server = model.clone();
    model.on_request(move |call| {
        if call.verb == Verb::Update {
            server.edit::<ConfigMap>(NAMESPACE, "a", |object| object["data"]["k"] = "theirs".into());
        }
        Fate::Served
    });
    let replaced = configs.replace("a", &kube::api::PostParams::default(), &read).await;
    assert!(matches!(replaced, Err(kube::Error::Api(status)) if status.is_conflict()));
    assert_eq!(value(&model), "theirs");
}

#[tokio::test]
async fn history_records_changes_and_their_clients() {
    let (model, client) = fixture();
    let known = model.history(0).len();
    let mut pods = model.subscribe::<Pod>();
    let mut configs = model.subscribe::<ConfigMap>();
    write(&client, "new").await.unwrap();
    model.put::<Pod>(json!({"metadata": {"name": "p", "namespace": NAMESPACE}}));
    Api::<ConfigMap>::namespaced(client, NAMESPACE).delete("a", &DeleteParams::default()).await.unwrap();
    let history = model.history(known);
    let lines: Vec<String> = history
        .iter()
        .map(|change| {
            format!("{:?} by {}", change.event, change.by.as_ref().map_or("test", |call| &call.client))
        })
        .collect();
    assert_eq!(lines, ["Modified by us", "Added by test", "Deleted by us"]);
    let change = configs.next().unwrap();
    assert_eq!(change.before.unwrap()["data"]["k"], "old");
    assert_eq!(change.object["data"]["k"], "new");
    assert_eq!((configs.pending(), configs.next().unwrap().event), (1, Event::Deleted));
    assert!(configs.next().is_none());
    assert_eq!((pods.next().unwrap().event, pods.pending()), (Event::Added, 0));
}

#[tokio::test]
async fn cache_contains_only_delivered_changes() {
    let (model, client) = fixture();
    let mut cache = LaggingCache::<ConfigMap>::new(&model);
    let store = cache.store();
    assert!(store.wait_until_ready().now_or_never().is_some());
    let cached = || -> Vec<(String, String)> {
        let mut cached: Vec<_> = store
            .state()
            .iter()
            .map(|object| {
                (object.name_any(), object.data.as_ref().map_or(String::new(), |data| data["k"].clone()))
            })
            .collect();
        cached.sort();
        cached
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    write(&client, "new").await.unwrap();
    model.put::<ConfigMap>(json!({"metadata": {"name": "b", "namespace": NAMESPACE}}));
    model.remove::<ConfigMap>(NAMESPACE, "a");
    assert_eq!((cached(), cache.pending()), (vec![pair("a", "old")], 3));
    assert!(matches!(&cache.deliver(1)[..], [watcher::Event::Apply(_)]));
    assert_eq!(cached(), [pair("a", "new")]);
    assert_eq!(cache.deliver(1).len(), 1);
    assert_eq!(cached(), [pair("a", "new"), pair("b", "")]);
    assert!(matches!(&cache.deliver(5)[..], [watcher::Event::Delete(deleted)] if deleted.name_any() == "a"));
    assert_eq!((cached(), cache.pending()), (vec![pair("b", "")], 0));
    model.remove::<ConfigMap>(NAMESPACE, "b");
    model.put::<ConfigMap>(json!({"metadata": {"name": "c", "namespace": NAMESPACE}}));
    assert_eq!(cache.relist().len(), 3, "Init, one object, InitDone");
    assert_eq!((cached(), cache.pending()), (vec![pair("c", "")], 0));
}

#[test]
fn put_of_the_test_sets_all_fields_and_keeps_absent_server_fields() {
    let model = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let metadata = json!({"name": "p", "namespace": NAMESPACE, "uid": "mine"});
    model.put::<Pod>(json!({"metadata": metadata, "status": {"phase": "Running"}}));
    let pod = model.put::<Pod>(json!({
        "metadata": {"name": "p", "namespace": NAMESPACE, "labels": {"x": "1"}}, "spec": {"nodeName": "node"},
    }));
    assert_eq!((&pod["metadata"]["uid"], &pod["metadata"]["generation"]), (&json!("mine"), &json!(2)));
    assert_eq!((&pod["status"], &pod["kind"]), (&Value::Null, &json!("Pod")));
    assert!(model.remove::<Pod>(NAMESPACE, "p"));
    assert!(!model.remove::<Pod>(NAMESPACE, "p"));
}
