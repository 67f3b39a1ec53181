//! How objects of the API model go.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::v1beta1::NodeSet;
use test_support::api_model::{ApiModel, Event};

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

/// A pod called `a` on a node.
fn put_pod(model: &ApiModel, spec: &Value, finalizers: &[&str]) {
    let metadata = json!({"name": "a", "namespace": NAMESPACE, "finalizers": finalizers});
    let mut pod = json!({"metadata": metadata, "spec": {"containers": [], "nodeName": "node"}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    model.put::<Pod>(pod);
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
async fn a_delete_may_be_conditional(
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
async fn finalizers_hold_an_object_until_they_are_gone() {
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
#[case::on_a_node(json!({}), "Running", None, Some(30))]
#[case::its_own_grace(json!({"terminationGracePeriodSeconds": 5}), "Running", None, Some(5))]
#[case::asked_for(json!({"terminationGracePeriodSeconds": 5}), "Running", Some(7), Some(7))]
#[case::without_grace(json!({}), "Running", Some(0), None)]
#[case::on_no_node(json!({"nodeName": ""}), "Pending", None, None)]
#[case::over(json!({}), "Succeeded", None, None)]
#[tokio::test]
async fn a_pod_on_a_node_has_time_to_end(
    #[case] spec: Value,
    #[case] phase: &str,
    #[case] asked: Option<u32>,
    #[case] expected: Option<i64>,
) {
    let model = model();
    put_pod(&model, &spec, &[]);
    model.edit::<Pod>(NAMESPACE, "a", |pod| pod["status"]["phase"] = phase.into());
    let known = model.history(0).len();
    delete_pod(&model, &DeleteParams { grace_period_seconds: asked, ..DeleteParams::default() }).await;
    assert_eq!(grace(&model), expected.map(Value::from));
    let changes = model.history(known);
    assert_eq!(changes[0].event, Event::Modified, "its end is seen to come");
    assert!(!changes[0].object["metadata"]["deletionTimestamp"].is_null());
    let went = changes.get(1).map(|change| change.event);
    assert_eq!(went, expected.is_none().then_some(Event::Deleted));
}

#[tokio::test]
async fn a_second_delete_changes_nothing_unless_it_shortens_the_grace() {
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
async fn the_kubelet_finishes_what_was_asked_for_and_finalizers_still_hold() {
    let model = model();
    put_pod(&model, &json!({}), &["e.com/a"]);
    model.finish_deletion(NAMESPACE, "a");
    assert_eq!(grace(&model), Some(Value::Null), "nobody deleted it");
    delete_pod(&model, &DeleteParams::default()).await;
    model.finish_deletion(NAMESPACE, "a");
    assert_eq!(grace(&model), Some(json!(0)));
    model.edit::<Pod>(NAMESPACE, "a", |pod| pod["metadata"]["finalizers"] = Value::Null);
    assert_eq!(grace(&model), None);
}

#[tokio::test]
async fn garbage_is_what_no_owner_is_left_of() {
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
