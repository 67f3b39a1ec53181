use super::*;
use crate::slurm::{ClusterDeps, Connect, KeyError};
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

fn stored<K: Resource<DynamicType = ()> + Clone + 'static>(objects: Vec<K>) -> Store<K> {
    let (store, mut writer) = reflector::store();
    for object in objects {
        writer.apply_watcher_event(&Event::Apply(object));
    }
    store
}

fn names(concerned: impl IntoIterator<Item = ObjectRef<NodeSet>>) -> Vec<String> {
    let mut names: Vec<_> = concerned
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

/// Two NodeSets with numbers, one of which has a pod on `a`, one with a worker on each node, one with pins.
#[rstest]
#[case::with_a_worker("a", &["ns/busy", "ns/each", "ns/pinned"])]
#[case::without("b", &["ns/each", "ns/pinned"])]
fn a_kubernetes_node_concerns_whoever_is_there_or_could_be(#[case] node: &str, #[case] expected: &[&str]) {
    let nodesets = stored(vec![
        nodeset("ns", "busy", &json!({})),
        nodeset("ns", "idle", &json!({})),
        nodeset("other", "busy", &json!({})),
        nodeset("ns", "each", &json!({ "scalingMode": "DaemonSet" })),
        nodeset("ns", "pinned", &json!({ "pinToNode": true })),
    ]);
    let pod = worker("busy-0", "a", "busy");
    let pods = PodCache::new(stored(vec![pod.clone()]));
    pods.observe(&Event::Apply(pod));
    assert_eq!(names(of_node(nodesets, pods)(host(node, &json!({})))), expected);
}

fn heartbeat(second: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": second }] } })
}

fn condition(type_: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": type_, "status": "True", "reason": "r", "message": "m" }] } })
}

#[test]
fn only_what_decisions_look_at_is_a_change_of_a_kubernetes_node() {
    let (store, mut writer) = reflector::store::<Node>();
    let (sender, changes) = futures::channel::mpsc::unbounded();
    let nodes = NodeCache::new(store.clone(), Arc::from(["DiskPressure".to_owned()]));
    let mut changes = node_changes(changes.boxed(), store, nodes.clone());
    let mut tells = |change: &Value| {
        let node = host("a", change);
        writer.apply_watcher_event(&Event::Apply(node.clone()));
        sender.unbounded_send(Ok(node)).unwrap();
        changes.next().now_or_never().is_some()
    };
    assert!(tells(&heartbeat("2027-01-01T00:00:00Z")), "a new node");
    let before = nodes.all();
    assert!(!tells(&heartbeat("2027-01-01T00:00:10Z")), "a heartbeat");
    assert!(!tells(&condition("NetworkUnavailable")), "the state of what nobody asks for");
    assert!(
        !tells(&json!({ "metadata": { "annotations": { "agent.example.com/alive": "1" } } })),
        "a program lives"
    );
    assert!(Arc::ptr_eq(&before, &nodes.all()), "which makes nothing anew");
    assert!(tells(&condition("DiskPressure")), "what may explain a cordon");
    assert!(tells(&json!({ "spec": { "unschedulable": true } })), "a cordon");
    assert!(nodes.all()["a"].unschedulable, "which decisions know of");
    assert!(!tells(&json!({ "spec": { "unschedulable": true } })), "nothing");
    assert!(tells(&json!({})), "the end of the cordon");
    assert!(tells(&json!({ "metadata": { "labels": { "gpu": "yes" } } })), "a label");
    assert!(
        tells(&json!({ "metadata": { "annotations": { "topology.slinky.slurm.net/spec": "b0" } } })),
        "a place"
    );
    assert!(tells(&json!({ "spec": { "taints": [{ "key": "k", "effect": "NoExecute" }] } })), "a taint");
}

#[test]
fn what_is_kept_of_a_secret_is_forgotten_before_anybody_hears_of_its_change() {
    let (sender, events) = futures::channel::mpsc::unbounded();
    let hashes = SecretHashes::default();
    let mut changes = secret_changes(events.boxed(), hashes.clone());
    let selector = serde_json::from_value(json!({ "name": "sssd", "key": "sssd.conf" })).unwrap();
    let told = |now: &str| {
        let read = futures::future::ready(Ok::<_, ()>(now.to_owned()));
        hashes.get("ns", &selector, read).now_or_never().unwrap().unwrap()
    };
    assert_eq!((told("old"), told("new")), ("old".to_owned(), "old".to_owned()));
    let metadata = json!({ "name": "sssd", "namespace": "ns" });
    let secret: PartialObjectMeta<Secret> = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    sender.unbounded_send(Ok(Event::Apply(secret))).unwrap();
    assert!(changes.next().now_or_never().is_some());
    assert_eq!(told("new"), "new");
}

/// Nobody asks Slurm here.
struct Nowhere;

impl Connect for Nowhere {
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

/// Two NodeSets of one cluster, one of another in the same namespace, one of a cluster of the same name elsewhere.
fn members() -> ClusterMembers {
    let controllers = stored(vec![
        controller("ns", "slurm", "tokens"),
        controller("ns", "lab", "lab-tokens"),
        controller("other", "slurm", "tokens"),
    ]);
    let ssh = json!({ "enabled": true, "sssdConfRef": { "name": "sssd", "key": "sssd.conf" } });
    let lab = json!({ "name": "lab" });
    let nodesets = stored(vec![
        nodeset("ns", "cpu", &json!({})),
        nodeset("ns", "gpu", &json!({ "ssh": ssh })),
        nodeset("ns", "lab", &json!({ "controllerRef": lab })),
        nodeset("other", "cpu", &json!({})),
    ]);
    let clusters = Clusters::new(ClusterDeps {
        controllers: controllers.clone(),
        restapis: stored(vec![]),
        connect: Box::new(Nowhere),
        clock: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
        spawn: Box::new(|_| {}),
    });
    ClusterMembers { nodesets, controllers, clusters }
}

#[rstest]
#[case::that_signs_tokens("ns", "tokens", &["ns/cpu", "ns/gpu"])]
#[case::that_signs_those_of_another_cluster("ns", "lab-tokens", &["ns/lab"])]
#[case::that_workers_read_as_sssd_conf("ns", "sssd", &["ns/gpu"])]
#[case::of_that_name_elsewhere("other", "tokens", &["other/cpu"])]
#[case::of_that_name_where_it_means_nothing("other", "sssd", &[])]
#[case::that_workers_mount_themselves("ns", "munge", &[])]
#[case::of_others("ns", "unrelated", &[])]
fn a_secret_concerns(#[case] namespace: &str, #[case] name: &str, #[case] expected: &[&str]) {
    let metadata = json!({ "name": name, "namespace": namespace });
    let secret: PartialObjectMeta<Secret> = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    assert_eq!(names(members().of_secret()(secret)), expected);
}

#[test]
fn a_controller_concerns_the_nodesets_of_its_cluster_alone() {
    let members = members();
    assert_eq!(names(members.of_controller()(controller("ns", "slurm", "tokens"))), ["ns/cpu", "ns/gpu"]);
    assert_eq!(names(members.of_controller()(controller("ns", "gone", "tokens"))), [""; 0]);
    let restapi = json!({ "metadata": { "name": "api", "namespace": "ns" }, "spec": { "controllerRef": { "name": "lab" } } });
    assert_eq!(names(members.of_restapi()(serde_json::from_value(restapi).unwrap())), ["ns/lab"]);
}

#[test]
fn a_pod_concerns_its_controller_and_whom_it_claims_to_be_of() {
    let mut pod = worker("odd", "a", "gpu");
    assert_eq!(names(of_pod(&pod)), ["ns/gpu"]);
    pod.labels_mut().insert(APP_INSTANCE.to_owned(), "cpu".to_owned());
    assert_eq!(names(of_pod(&pod)), ["ns/cpu", "ns/gpu"], "one gives it up, the other may take it");
    pod.metadata.owner_references = None;
    assert_eq!(names(of_pod(&pod)), ["ns/cpu"]);
    assert_eq!(names(of_label(&pod)), ["ns/cpu"]);
}

#[test]
fn what_several_own_concerns_all_of_them() {
    let owner = |kind: &str, name: &str| json!({ "apiVersion": "slinky.slurm.net/v1beta1", "kind": kind, "name": name, "uid": name });
    let owners = json!([owner("NodeSet", "gpu"), owner("Controller", "slurm"), owner("NodeSet", "cpu")]);
    let metadata = json!({ "name": "slurm-workers-slurm", "namespace": "ns", "ownerReferences": owners });
    let service: k8s_openapi::api::core::v1::Service =
        serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    assert_eq!(names(of_owners(&service)), ["ns/cpu", "ns/gpu"]);
}
