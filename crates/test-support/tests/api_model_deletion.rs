//! Deletion in the API model.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::v1beta1::NodeSet;
use test_support::api_model::{ApiModel, Event};
use test_support::fixture::with_fields;

const NAMESPACE: &str = "n";

fn model() -> ApiModel {
    ApiModel::new(|| "2030-01-01T00:00:00Z".parse::<Timestamp>().unwrap())
}

fn api<K>(model: &ApiModel) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(model.client("test"), NAMESPACE)
}

/// Creates a pod `a` that is scheduled to a node.
fn put_pod(model: &ApiModel, spec: &Value, finalizers: &[&str]) {
    let metadata = json!({"name": "a", "namespace": NAMESPACE, "finalizers": finalizers});
    let spec = with_fields(&json!({"containers": [], "nodeName": "node"}), spec);
    model.put::<Pod>(json!({"metadata": metadata, "spec": spec}));
}

async fn delete_pod(model: &ApiModel, params: &DeleteParams) {
    api::<Pod>(model).delete("a", params).await.unwrap();
}

fn grace(model: &ApiModel) -> Option<Value> {
    model.get::<Pod>(NAMESPACE, "a").map(|pod| pod["metadata"]["deletionGracePeriodSeconds"].clone())
}

#[rstest]
#[case::right_uid(Some("00000000-0000-4000-8000-000000000001"), None, true)]
#[case::right_version(None, Some("1001"), true)]
#[case::wrong_uid(Some("other"), None, false)]
#[case::wrong_version(None, Some("1002"), false)]
#[tokio::test]
async fn delete_with_preconditions(
    #[case] uid: Option<&str>,
    #[case] version: Option<&str>,
    #[case] succeeds: bool,
) {
    let model = model();
    model.put::<ConfigMap>(json!({"metadata": {"name": "a", "namespace": NAMESPACE}}));
    let preconditions =
        Preconditions { uid: uid.map(str::to_owned), resource_version: version.map(str::to_owned) };
    let deleted =
        api::<ConfigMap>(&model).delete("a", &DeleteParams::default().preconditions(preconditions)).await;
    match deleted {
        Ok(_) => assert!(succeeds),
        Err(kube::Error::Api(status)) => assert!(status.is_conflict() && !succeeds, "{status:?}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(model.get::<ConfigMap>(NAMESPACE, "a").is_none(), succeeds);
}

#[tokio::test]
async fn object_is_removed_with_its_last_finalizer() {
    let model = model();
    let metadata = json!({"name": "a", "namespace": NAMESPACE, "finalizers": ["e.com/a", "e.com/b"]});
    model.put::<NodeSet>(json!({"metadata": metadata, "spec": {"controllerRef": {"name": "s"}}}));
    let node_sets: Api<NodeSet> = api(&model);
    node_sets.delete("a", &DeleteParams::default()).await.unwrap();
    let deleted = model.get::<NodeSet>(NAMESPACE, "a").unwrap();
    assert_eq!(deleted["metadata"]["deletionTimestamp"], "2030-01-01T00:00:00Z");
    assert_eq!(deleted["metadata"]["generation"], 2);
    let finalizers = |list: Value| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    let more = finalizers(json!(["e.com/a", "e.com/b", "e.com/c"]));
    let refused = node_sets.patch("a", &PatchParams::default(), &more).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.is_invalid()));
    node_sets.patch("a", &PatchParams::default(), &finalizers(json!(["e.com/b"]))).await.unwrap();
    assert!(model.get::<NodeSet>(NAMESPACE, "a").is_some());
    node_sets.patch("a", &PatchParams::default(), &finalizers(json!([]))).await.unwrap();
    assert!(model.get::<NodeSet>(NAMESPACE, "a").is_none());
}

#[rstest]
#[case::default_grace(json!({}), "Running", None, Some(30))]
#[case::grace_of_the_spec(json!({"terminationGracePeriodSeconds": 5}), "Running", None, Some(5))]
#[case::grace_of_the_request(json!({"terminationGracePeriodSeconds": 5}), "Running", Some(7), Some(7))]
#[case::without_grace(json!({}), "Running", Some(0), None)]
#[case::unscheduled(json!({"nodeName": ""}), "Pending", None, None)]
#[case::finished(json!({}), "Succeeded", None, None)]
#[tokio::test]
async fn running_pod_is_deleted_with_a_grace_period(
    #[case] spec: Value,
    #[case] phase: &str,
    #[case] requested: Option<u32>,
    #[case] expected: Option<i64>,
) {
    let model = model();
    put_pod(&model, &spec, &[]);
    model.edit::<Pod>(NAMESPACE, "a", |pod| pod["status"]["phase"] = phase.into());
    let known = model.history(0).len();
    delete_pod(&model, &DeleteParams { grace_period_seconds: requested, ..DeleteParams::default() }).await;
    assert_eq!(grace(&model), expected.map(Value::from));
    let changes = model.history(known);
    assert_eq!(changes[0].event, Event::Modified, "the pod is terminating before it is removed");
    assert!(!changes[0].object["metadata"]["deletionTimestamp"].is_null());
    let second = changes.get(1).map(|change| change.event);
    assert_eq!(second, expected.is_none().then_some(Event::Deleted));
}

#[tokio::test]
async fn second_delete_has_an_effect_only_if_it_shortens_the_grace_period() {
    let model = model();
    put_pod(&model, &json!({}), &[]);
    delete_pod(&model, &DeleteParams::default()).await;
    let known = model.history(0).len();
    delete_pod(&model, &DeleteParams::default()).await;
    delete_pod(&model, &DeleteParams::default().grace_period(60)).await;
    assert_eq!(model.history(known).len(), 0);
    delete_pod(&model, &DeleteParams::default().grace_period(5)).await;
    assert_eq!(grace(&model), Some(json!(5)));
    delete_pod(&model, &DeleteParams::default().grace_period(0)).await;
    assert_eq!(grace(&model), None);
}

#[tokio::test]
async fn kubelet_finishes_only_deletions_that_were_requested_and_finalizers_remain() {
    let model = model();
    put_pod(&model, &json!({}), &["e.com/a"]);
    model.finish_deletion(NAMESPACE, "a");
    assert_eq!(grace(&model), Some(Value::Null), "the pod was not deleted");
    delete_pod(&model, &DeleteParams::default()).await;
    model.finish_deletion(NAMESPACE, "a");
    assert_eq!(grace(&model), Some(json!(0)));
    model.edit::<Pod>(NAMESPACE, "a", |pod| pod["metadata"]["finalizers"] = Value::Null);
    assert_eq!(grace(&model), None);
}

#[tokio::test]
async fn garbage_collector_deletes_objects_without_a_living_owner() {
    let model = model();
    let put = |name: &str, owners: &[&str]| {
        let owner = |uid: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid});
        let owners: Vec<Value> = owners.iter().map(owner).collect();
        let metadata = json!({"name": name, "namespace": NAMESPACE, "uid": name, "ownerReferences": owners});
        model.put::<ConfigMap>(json!({ "metadata": metadata }));
    };
    put("root", &[]);
    put("child", &["root"]);
    put("grandchild", &["child"]);
    put("of-both", &["root", "other"]);
    put("other", &[]);
    let names = || -> Vec<Value> {
        model.list::<ConfigMap>("").iter().map(|object| object["metadata"]["name"].clone()).collect()
    };
    model.collect_garbage();
    assert_eq!(names().len(), 5);
    model.remove::<ConfigMap>(NAMESPACE, "root");
    model.collect_garbage();
    assert_eq!(names(), ["of-both", "other"]);
}
