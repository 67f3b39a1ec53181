//! Writes to the API model.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]
#![expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Client, ResourceExt};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::v1beta1::NodeSet;
use std::sync::Arc;
use test_support::api_model::ApiModel;
use test_support::fixture::with_fields;

const NAMESPACE: &str = "n";

fn model() -> ApiModel {
    ApiModel::new(|| "2030-01-01T00:00:00Z".parse::<Timestamp>().unwrap())
}

fn typed<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn pod(metadata: Value) -> Pod {
    typed(json!({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Running"}}))
}

fn node_set(metadata: Value) -> NodeSet {
    typed(json!({"metadata": metadata, "spec": {"controllerRef": {"name": "slurm"}}}))
}

fn api<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), NAMESPACE)
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> Box<Status> {
    match outcome {
        Err(kube::Error::Api(status)) => status,
        other => panic!("not refused: {other:?}"),
    }
}

/// A model with a pod, a NodeSet and a ConfigMap, all named `a`.
fn fixture() -> (ApiModel, Client) {
    let model = model();
    let metadata = json!({"name": "a", "namespace": NAMESPACE, "labels": {"x": "1"}});
    model.put::<Pod>(pod(metadata.clone()));
    model.put::<NodeSet>(node_set(metadata.clone()));
    model.put::<ConfigMap>(json!({"metadata": metadata, "data": {"k": "v"}}));
    let client = model.client("test");
    (model, client)
}

async fn patch_pod(client: &Client, patch: Patch<Value>) -> Result<Pod, kube::Error> {
    api::<Pod>(client).patch("a", &PatchParams::default(), &patch).await
}

async fn apply_pod(client: &Client, manager: &str, metadata: Value) -> Pod {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    object["metadata"]["name"] = "a".into();
    api(client).patch("a", &PatchParams::apply(manager).force(), &Patch::Apply(object)).await.unwrap()
}

async fn apply_conditions(client: &Client, manager: &str, conditions: Value) -> NodeSet {
    let object = json!({
        "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet",
        "status": {"conditions": conditions, "nodeSetHash": "h", "selector": "s"},
    });
    let params = PatchParams::apply(manager).force();
    api(client).patch_status("a", &params, &Patch::Apply(object)).await.unwrap()
}

#[tokio::test]
async fn create_sets_the_fields_of_the_server() {
    let model = model();
    let client = model.client("test");
    let metadata =
        json!({"name": "a", "uid": "mine", "generation": 7, "deletionTimestamp": "2020-01-01T00:00:00Z"});
    let pod = api(&client).create(&PostParams::default(), &pod(metadata)).await.unwrap();
    assert_eq!(pod.uid().unwrap(), "00000000-0000-4000-8000-000000000001");
    assert_eq!(pod.namespace().unwrap(), NAMESPACE);
    assert_eq!(pod.creation_timestamp().unwrap().0, "2030-01-01T00:00:00Z".parse().unwrap());
    assert_eq!((pod.metadata.generation, &pod.metadata.deletion_timestamp), (Some(1), &None));
    assert_eq!(pod.status.unwrap().phase.unwrap(), "Pending", "a create cannot set the status");
    let config_map: ConfigMap = typed(json!({"metadata": {"name": "a"}}));
    let config_map = api(&client).create(&PostParams::default(), &config_map).await.unwrap();
    assert_eq!(config_map.metadata.generation, None);
    assert!(config_map.resource_version() > pod.metadata.resource_version);
}

#[rstest]
#[case::name_exists(json!({"name": "a"}), 409, "AlreadyExists")]
#[case::without_a_name(json!({}), 422, "Invalid")]
#[case::with_resource_version(json!({"name": "b", "resourceVersion": "1"}), 500, "")]
#[case::other_namespace_than_the_path(json!({"name": "b", "namespace": "m"}), 400, "BadRequest")]
#[case::two_controllers(json!({"name": "b", "ownerReferences": [
    {"apiVersion": "v1", "kind": "C", "name": "c", "uid": "1", "controller": true},
    {"apiVersion": "v1", "kind": "C", "name": "d", "uid": "2", "controller": true},
]}), 422, "Invalid")]
#[tokio::test]
async fn invalid_create_is_refused(#[case] metadata: Value, #[case] code: u16, #[case] reason: &str) {
    let (model, client) = fixture();
    let before = model.history(0).len();
    let status = refusal(api(&client).create(&PostParams::default(), &pod(metadata)).await);
    assert_eq!((status.code, status.reason.as_str()), (code, reason));
    assert_eq!(model.history(0).len(), before);
}

#[tokio::test]
async fn generated_names_are_unique() {
    let client = model().client("test");
    let [one, other] = [(); 2].map(|()| pod(json!({"generateName": "p-"})));
    let one: Pod = api(&client).create(&PostParams::default(), &one).await.unwrap();
    let other: Pod = api(&client).create(&PostParams::default(), &other).await.unwrap();
    assert!(one.name_any().starts_with("p-") && other.name_any() > one.name_any());
}

#[tokio::test]
async fn create_in_a_terminating_namespace_is_forbidden() {
    let (model, client) = fixture();
    model.terminate_namespace(NAMESPACE);
    let status = refusal(api(&client).create(&PostParams::default(), &pod(json!({"name": "b"}))).await);
    assert!(status.is_forbidden());
    assert_eq!(status.details.unwrap().causes[0].reason, "NamespaceTerminating");
    patch_pod(&client, Patch::Merge(json!({"metadata": {"labels": {"x": "2"}}}))).await.unwrap();
}

#[rstest]
#[case::current(json!({"resourceVersion": "1002"}), Ok("2"))]
#[case::stale(json!({"resourceVersion": "1001"}), Err("Conflict"))]
#[case::other_uid(json!({"resourceVersion": "1002", "uid": "other"}), Err("Conflict"))]
#[case::unconditional(json!({}), Err("Invalid"))]
#[tokio::test]
async fn custom_resource_is_replaced_only_with_its_current_version(
    #[case] preconditions: Value,
    #[case] expected: Result<&str, &str>,
) {
    let (_, client) = fixture();
    let metadata = with_fields(&json!({"name": "a", "labels": {"x": "2"}}), &preconditions);
    let replaced = api(&client).replace("a", &PostParams::default(), &node_set(metadata)).await;
    match expected {
        Ok(label) => assert_eq!(replaced.unwrap().labels()["x"], label),
        Err(reason) => assert_eq!(refusal(replaced).reason, reason),
    }
}

#[rstest]
#[case::none(json!({}), Ok(()))]
#[case::right_version(json!({"resourceVersion": "1001"}), Ok(()))]
#[case::right_uid(json!({"uid": "00000000-0000-4000-8000-000000000001"}), Ok(()))]
#[case::wrong_version(json!({"resourceVersion": "1002"}), Err("Conflict"))]
#[case::wrong_uid(json!({"uid": "other"}), Err("Invalid"))]
#[tokio::test]
async fn patch_with_preconditions(#[case] mut metadata: Value, #[case] expected: Result<(), &str>) {
    let (model, client) = fixture();
    metadata["labels"] = json!({"x": "2"});
    let patched = patch_pod(&client, Patch::Merge(json!({ "metadata": metadata }))).await;
    let label = model.get::<Pod>(NAMESPACE, "a").unwrap()["metadata"]["labels"]["x"].clone();
    match expected {
        Ok(()) => assert_eq!((patched.unwrap().labels()["x"].as_str(), label), ("2", json!("2"))),
        Err(reason) => assert_eq!((refusal(patched).reason.as_str(), label), (reason, json!("1"))),
    }
}

#[rstest]
#[case::merge(Patch::Merge(json!({"metadata": {"labels": {"x": "1", "y": null}, "annotations": {}}})))]
#[case::strategic(Patch::Strategic(json!({"metadata": {"labels": {"x": "1"}, "finalizers": []}})))]
#[tokio::test]
async fn patch_without_a_change_is_not_logged(#[case] patch: Patch<Value>) {
    let (model, client) = fixture();
    let before = model.get::<Pod>(NAMESPACE, "a").unwrap();
    patch_pod(&client, patch).await.unwrap();
    assert!(Arc::ptr_eq(&before, &model.get::<Pod>(NAMESPACE, "a").unwrap()));
    assert_eq!(model.history(0).len(), 3);
}

#[tokio::test]
async fn status_is_a_subresource() {
    let (_, client) = fixture();
    let node_sets: Api<NodeSet> = api(&client);
    let both = json!({
        "metadata": {"labels": {"x": "2"}}, "spec": {"replicas": 2},
        "status": {"replicas": 5, "nodeSetHash": "h", "selector": "s"},
    });
    let main = node_sets.patch("a", &PatchParams::default(), &Patch::Merge(&both)).await.unwrap();
    assert_eq!((main.spec.replicas, main.status, main.metadata.generation), (2, None, Some(2)));
    let patch = json!({"spec": {"replicas": 3}, "status": both["status"]});
    let status = node_sets.patch_status("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!((status.spec.replicas, status.status.unwrap().replicas), (2, 5));
    assert_eq!(status.metadata.generation, Some(2), "a status write does not increment the generation");
    let labels = json!({"metadata": {"labels": {"x": "3"}}});
    let labelled = node_sets.patch("a", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    assert_eq!((labelled.metadata.generation, labelled.status.unwrap().replicas), (Some(2), 5));
    let config_maps: Api<ConfigMap> = api(&client);
    let none = config_maps.patch_status("a", &PatchParams::default(), &Patch::Merge(json!({}))).await;
    assert!(refusal(none).is_not_found());
}

#[tokio::test]
async fn strategic_patch_merges_lists_by_key() {
    let (_, client) = fixture();
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "C", "name": "c", "uid": uid});
    let patch = json!({"metadata": {"ownerReferences": [owner("1"), owner("2")], "finalizers": ["e.com/a"]}});
    patch_pod(&client, Patch::Strategic(patch)).await.unwrap();
    let patch = json!({"metadata": {
        "ownerReferences": [{"$patch": "delete", "uid": "1"}, {"uid": "2", "controller": true}],
        "finalizers": ["e.com/b"],
        "$deleteFromPrimitiveList/finalizers": ["e.com/a"],
    }});
    let pod = patch_pod(&client, Patch::Strategic(patch)).await.unwrap();
    let [owner] = pod.owner_references() else { panic!("{pod:?}") };
    assert_eq!((owner.uid.as_str(), owner.name.as_str(), owner.controller), ("2", "c", Some(true)));
    assert_eq!(pod.finalizers(), ["e.com/b"]);
    let condition = |name: &str| json!({"status": {"conditions": [{"type": name, "status": "True"}]}});
    for name in ["Ready", "Special"] {
        let patch = Patch::Strategic(condition(name));
        api::<Pod>(&client).patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    }
    let pod: Pod = api(&client).get("a").await.unwrap();
    assert_eq!(pod.status.unwrap().conditions.unwrap().len(), 2);
    let patch = Patch::Strategic(json!({}));
    let custom = api::<NodeSet>(&client).patch("a", &PatchParams::default(), &patch).await;
    assert_eq!(refusal(custom).code, 415, "custom resources do not support strategic patches");
}

#[rstest]
#[case::test_passes("1", None)]
#[case::test_fails("2", Some(422))]
#[tokio::test]
async fn json_patch_is_applied_only_if_its_tests_pass(#[case] tested: &str, #[case] refused: Option<u16>) {
    let (_, client) = fixture();
    let patch = json!([
        {"op": "test", "path": "/metadata/labels/x", "value": tested},
        {"op": "replace", "path": "/metadata/labels/x", "value": "3"},
    ]);
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/a");
    let request = http::Request::patch(path).header("content-type", "application/json-patch+json");
    let patched: Result<Pod, _> = client.request(request.body(patch.to_string().into_bytes()).unwrap()).await;
    match refused {
        None => assert_eq!(patched.unwrap().labels()["x"], "3"),
        Some(code) => assert_eq!(refusal(patched).code, code),
    }
}

#[tokio::test]
async fn apply_removes_fields_that_only_its_manager_applied_before() {
    let (_, client) = fixture();
    apply_pod(&client, "one", json!({"annotations": {"ours": "1", "shared": "1"}})).await;
    apply_pod(&client, "two", json!({"annotations": {"shared": "1", "theirs": "1"}})).await;
    let pod = apply_pod(&client, "one", json!({})).await;
    assert_eq!(json!(pod.annotations()), json!({"shared": "1", "theirs": "1"}));
    let pod = apply_pod(&client, "two", json!({})).await;
    assert_eq!(json!(pod.annotations()), json!({}));
    assert_eq!(json!(pod.labels()), json!({"x": "1"}), "labels without an applier remain");
}

#[tokio::test]
async fn apply_does_not_remove_a_field_that_another_client_changed() {
    let (_, client) = fixture();
    apply_pod(&client, "one", json!({"annotations": {"a": "1", "b": "1"}})).await;
    let theirs = Patch::Merge(json!({"metadata": {"annotations": {"a": "2"}}}));
    let pod = patch_pod(&client, theirs).await.unwrap();
    let fields = pod.managed_fields()[0].fields_v1.as_ref().unwrap();
    assert_eq!(fields.0, json!({"f:metadata": {"f:annotations": {"f:b": {}}}}));
    let pod = apply_pod(&client, "one", json!({})).await;
    assert_eq!(json!(pod.annotations()), json!({"a": "2"}));
}

#[tokio::test]
async fn managers_own_conditions_separately() {
    let (model, client) = fixture();
    let condition = |name: &str| {
        let time = "2030-01-01T00:00:00Z";
        json!({"type": name, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time})
    };
    apply_conditions(&client, "one", json!([condition("A"), condition("B")])).await;
    apply_conditions(&client, "two", json!([condition("C")])).await;
    let node_set = apply_conditions(&client, "one", json!([condition("B")])).await;
    let names: Vec<String> = node_set.status.unwrap().conditions.into_iter().map(|one| one.type_).collect();
    assert_eq!(names, ["B", "C"]);
    let changes = model.history(0).len();
    apply_conditions(&client, "one", json!([condition("B")])).await;
    assert_eq!(model.history(0).len(), changes, "a repeated apply is not a change");
}

#[tokio::test]
async fn managed_fields_contain_the_applied_fields() {
    let (_, client) = fixture();
    let owner = json!({"apiVersion": "v1", "kind": "C", "name": "c", "uid": "1"});
    let pod = apply_pod(&client, "one", json!({"annotations": {"a": "1"}, "ownerReferences": [owner]})).await;
    let [entry] = pod.managed_fields() else { panic!("{pod:?}") };
    assert_eq!((entry.manager.as_deref(), entry.operation.as_deref()), (Some("one"), Some("Apply")));
    let fields = json!({"f:metadata": {
        "f:annotations": {"f:a": {}},
        "f:ownerReferences": {r#"k:{"uid":"1"}"#: {}},
    }});
    assert_eq!(entry.fields_v1.as_ref().unwrap().0, fields);
}

#[rstest]
#[case::plain(json!({}), Ok(()))]
#[case::with_version(json!({"resourceVersion": "7"}), Ok(()))]
#[case::with_uid(json!({"uid": "deleted"}), Err(409))]
#[tokio::test]
async fn apply_creates_a_missing_object(#[case] metadata: Value, #[case] expected: Result<(), u16>) {
    let model = model();
    let client = model.client("test");
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}});
    let params = PatchParams::apply("one").force();
    let applied = api::<Pod>(&client).patch("a", &params, &Patch::Apply(object)).await;
    match expected {
        Ok(()) => assert_eq!(applied.unwrap().name_any(), "a"),
        Err(code) => assert_eq!(refusal(applied).code, code),
    }
    assert_eq!(model.get::<Pod>(NAMESPACE, "a").is_some(), expected.is_ok());
}

#[tokio::test]
async fn list_is_filtered_by_labels_and_has_a_resource_version() {
    let (model, client) = fixture();
    model.put::<Pod>(pod(json!({"name": "b", "namespace": NAMESPACE, "labels": {"x": "2"}})));
    model.put::<Pod>(pod(json!({"name": "c", "namespace": "elsewhere", "labels": {"x": "1"}})));
    let pods: Api<Pod> = api(&client);
    let list = pods.list(&ListParams::default().labels("x in (1,3)")).await.unwrap();
    let newest = model.history(0).pop().unwrap().object["metadata"]["resourceVersion"].clone();
    assert_eq!(list.metadata.resource_version, newest.as_str().map(str::to_owned));
    let names = |list: Vec<Pod>| list.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    assert_eq!(names(list.items), ["a"]);
    assert_eq!(names(pods.list(&ListParams::default()).await.unwrap().items), ["a", "b"]);
    let everywhere = Api::<Pod>::all(client).list(&ListParams::default().labels("x=1")).await.unwrap();
    assert_eq!(names(everywhere.items), ["c", "a"]);
}
