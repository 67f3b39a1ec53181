use super::*;
use crate::slurm::{ClientFactory, ClusterDeps, KeyError};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::{Value, json};
use slurm_jwt::SigningKey;
use slurm_rest::{EndpointError, Limits, SlurmClient};
use std::sync::Arc;

fn nodeset(namespace: &str, name: &str, spec: &Value) -> NodeSet {
    let mut nodeset = crate::fixture::nodeset(spec);
    nodeset.metadata.namespace = Some(namespace.to_owned());
    nodeset.metadata.name = Some(name.to_owned());
    nodeset
}

fn store_of<K: Resource<DynamicType = ()> + Clone + 'static>(objects: Vec<K>) -> Store<K> {
    let (store, mut writer) = reflector::store();
    for object in objects {
        writer.apply_watcher_event(&Event::Apply(object));
    }
    store
}

fn names(nodesets: impl IntoIterator<Item = ObjectRef<NodeSet>>) -> Vec<String> {
    let mut names: Vec<_> = nodesets
        .into_iter()
        .map(|nodeset| format!("{}/{}", nodeset.namespace.unwrap_or_default(), nodeset.name))
        .collect();
    names.sort();
    names
}

fn worker(name: &str, node: &str, nodeset: &str) -> Pod {
    let owner = json!({ "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": nodeset, "uid": "u",
        "controller": true });
    let metadata = json!({ "name": name, "namespace": "ns", "labels": { APP_INSTANCE: nodeset }, "ownerReferences": [owner] });
    serde_json::from_value(json!({ "metadata": metadata, "spec": { "containers": [], "nodeName": node } }))
        .unwrap()
}

fn host(name: &str, change: &Value) -> Node {
    let mut node = json!({ "metadata": { "name": name, "uid": name } });
    crate::plan::testing::merge(&mut node, change);
    serde_json::from_value(node).unwrap()
}

/// NodeSets with ordinals, one of which has a pod on `a`; one in DaemonSet mode; one that pins its workers to nodes.
#[rstest]
#[case::node_with_a_worker("a", &["ns/daemon", "ns/pinned", "ns/placed"])]
#[case::node_without_a_worker("b", &["ns/daemon", "ns/pinned"])]
fn kubernetes_node_enqueues_nodesets_with_or_eligible_for_a_pod_on_it(
    #[case] node: &str,
    #[case] expected: &[&str],
) {
    let nodesets = store_of(vec![
        nodeset("ns", "placed", &json!({})),
        nodeset("ns", "unplaced", &json!({})),
        nodeset("other", "placed", &json!({})),
        nodeset("ns", "daemon", &json!({ "scalingMode": "DaemonSet" })),
        nodeset("ns", "pinned", &json!({ "pinToNode": true })),
    ]);
    let pod = worker("placed-0", "a", "placed");
    let pods = PodCache::new(store_of(vec![pod.clone()]), Arc::default());
    pods.observe(&Event::Apply(pod));
    assert_eq!(names(of_node(nodesets, pods)(node)), expected);
}

fn heartbeat(second: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": second }] } })
}

fn condition(type_: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": type_, "status": "True", "reason": "r", "message": "m" }] } })
}

#[test]
fn kubernetes_node_change_is_emitted_only_if_a_plan_depends_on_it() {
    let (store, mut writer) = reflector::store::<Node>();
    let (sender, changes) = futures::channel::mpsc::unbounded();
    let nodes = NodeCache::new(store.clone(), Arc::from(["DiskPressure".to_owned()]));
    let mut changes = node_changes(changes.boxed(), store, nodes.clone());
    let mut emits = |change: &Value| {
        let node = host("a", change);
        writer.apply_watcher_event(&Event::Apply(node.clone()));
        sender.unbounded_send(Ok(node)).unwrap();
        changes.next().now_or_never().is_some()
    };
    assert!(emits(&heartbeat("2027-01-01T00:00:00Z")), "a new node");
    let before = nodes.all();
    assert!(!emits(&heartbeat("2027-01-01T00:00:10Z")), "a heartbeat");
    assert!(!emits(&condition("NetworkUnavailable")), "a condition that is not propagated");
    assert!(
        !emits(&json!({ "metadata": { "annotations": { "agent.example.com/alive": "1" } } })),
        "an annotation of another program"
    );
    assert!(Arc::ptr_eq(&before, &nodes.all()), "the cached facts stay");
    assert!(emits(&condition("DiskPressure")), "a propagated condition");
    assert!(emits(&json!({ "spec": { "unschedulable": true } })), "a cordon");
    assert!(nodes.all()["a"].unschedulable, "the cached facts have the cordon");
    assert!(!emits(&json!({ "spec": { "unschedulable": true } })), "no change");
    assert!(emits(&json!({})), "an uncordon");
    assert!(emits(&json!({ "metadata": { "labels": { "gpu": "yes" } } })), "a label");
    assert!(
        emits(&json!({ "metadata": { "annotations": { "topology.slinky.slurm.net/spec": "b0" } } })),
        "a topology"
    );
    assert!(emits(&json!({ "spec": { "taints": [{ "key": "k", "effect": "NoExecute" }] } })), "a taint");
}

#[test]
fn cached_hash_of_a_secret_is_invalidated_before_its_change_is_emitted() {
    let (sender, events) = futures::channel::mpsc::unbounded();
    let hashes = SecretHashes::default();
    let mut changes = secret_changes(store_of(vec![]), events.boxed(), hashes.clone());
    let selector = serde_json::from_value(json!({ "name": "sssd", "key": "sssd.conf" })).unwrap();
    let cached_or = |live: &str| {
        let read = futures::future::ready(Ok::<_, ()>(live.to_owned()));
        hashes.get("ns", &selector, read).now_or_never().unwrap().unwrap()
    };
    assert_eq!((cached_or("old"), cached_or("new")), ("old".to_owned(), "old".to_owned()));
    let metadata = json!({ "name": "sssd", "namespace": "ns" });
    let secret: PartialObjectMeta<Secret> = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    sender.unbounded_send(Ok(Event::Apply(secret))).unwrap();
    assert!(changes.next().now_or_never().is_some());
    assert_eq!(cached_or("new"), "new");
}

/// Never connects to Slurm.
struct NoSlurm;

impl ClientFactory for NoSlurm {
    fn signing_key<'a>(&'a self, _: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>> {
        futures::future::pending().boxed()
    }

    fn client(&self, url: &str, _: SigningKey, _: Limits) -> Result<SlurmClient, EndpointError> {
        Err(EndpointError::Url(url.to_owned()))
    }
}

fn controller(namespace: &str, name: &str, key: &str) -> Controller {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": namespace, "uid": "c" },
        "spec": { "jwtKeyRef": { "name": key, "key": "jwt.key" }, "slurmKeyRef": { "name": "munge", "key": "k" } },
    }))
    .unwrap()
}

/// Two NodeSets of one cluster, one of another in the same namespace, one of a cluster of the same name in another namespace.
fn members() -> ClusterMembers {
    let controllers = store_of(vec![
        controller("ns", "slurm", "tokens"),
        controller("ns", "lab", "lab-tokens"),
        controller("other", "slurm", "tokens"),
    ]);
    let ssh = json!({ "enabled": true, "sssdConfRef": { "name": "sssd", "key": "sssd.conf" } });
    let lab = json!({ "name": "lab" });
    let nodesets = store_of(vec![
        nodeset("ns", "cpu", &json!({})),
        nodeset("ns", "gpu", &json!({ "ssh": ssh })),
        nodeset("ns", "lab", &json!({ "controllerRef": lab })),
        nodeset("other", "cpu", &json!({})),
    ]);
    let clusters = Clusters::new(ClusterDeps {
        controllers: controllers.clone(),
        restapis: store_of(vec![]),
        client_factory: Box::new(NoSlurm),
        clock: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
        spawn: Box::new(|_| {}),
        is_owned: Box::new(|_| true),
    });
    ClusterMembers { nodesets, controllers, clusters }
}

#[rstest]
#[case::signing_key("ns", "tokens", &["ns/cpu", "ns/gpu"])]
#[case::signing_key_of_another_cluster("ns", "lab-tokens", &["ns/lab"])]
#[case::sssd_conf("ns", "sssd", &["ns/gpu"])]
#[case::signing_key_in_another_namespace("other", "tokens", &["other/cpu"])]
#[case::sssd_conf_name_in_another_namespace("other", "sssd", &[])]
#[case::mounted_slurm_key("ns", "munge", &[])]
#[case::unrelated("ns", "unrelated", &[])]
fn secret_enqueues_the_nodesets_that_read_it(
    #[case] namespace: &str,
    #[case] name: &str,
    #[case] expected: &[&str],
) {
    let metadata = json!({ "name": name, "namespace": namespace });
    let secret: PartialObjectMeta<Secret> = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    assert_eq!(names(members().of_secret()(secret)), expected);
}

#[test]
fn controller_and_restapi_enqueue_the_nodesets_of_their_cluster_only() {
    let members = members();
    assert_eq!(names(members.of_controller()(controller("ns", "slurm", "tokens"))), ["ns/cpu", "ns/gpu"]);
    assert_eq!(names(members.of_controller()(controller("ns", "unreferenced", "tokens"))), [""; 0]);
    let restapi = json!({ "metadata": { "name": "api", "namespace": "ns" }, "spec": { "controllerRef": { "name": "lab" } } });
    assert_eq!(names(members.of_restapi()(serde_json::from_value(restapi).unwrap())), ["ns/lab"]);
}

#[test]
fn pod_enqueues_its_controlling_nodeset_and_the_one_of_its_label() {
    let mut pod = worker("gpu-0", "a", "gpu");
    assert_eq!(names(of_pod(&pod)), ["ns/gpu"]);
    pod.labels_mut().insert(APP_INSTANCE.to_owned(), "cpu".to_owned());
    assert_eq!(names(of_pod(&pod)), ["ns/cpu", "ns/gpu"], "one releases it, the other may adopt it");
    pod.metadata.owner_references = None;
    assert_eq!(names(of_pod(&pod)), ["ns/cpu"]);
    assert_eq!(names(of_label(&pod)), ["ns/cpu"]);
}

#[test]
fn shared_object_enqueues_all_owning_nodesets() {
    let owner = |kind: &str, name: &str| json!({ "apiVersion": "slinky.slurm.net/v1beta1", "kind": kind, "name": name, "uid": name });
    let owners = json!([owner("NodeSet", "gpu"), owner("Controller", "slurm"), owner("NodeSet", "cpu")]);
    let metadata = json!({ "name": "slurm-workers-slurm", "namespace": "ns", "ownerReferences": owners });
    let service: k8s_openapi::api::core::v1::Service =
        serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    assert_eq!(names(of_owners(&service)), ["ns/cpu", "ns/gpu"]);
}
