//! Normalises objects as in the golden data: only those that the operator creates, without defaults of the API server, and
//! with placeholders for random values.

use crate::case::{Case, id, kind, name, owner_kinds};
use crate::json::{at, change_leaves, each, remove, remove_defaults};
use crate::{pods, texts};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static HASH: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[0-9a-z]{8,64}$").unwrap());

/// The normalised objects of a case's namespace, sorted by kind and name.
pub fn normalise(objects: &[Value], case: &Case) -> Vec<Value> {
    let inputs = case.input_ids();
    let is_compared = |object: &&Value| {
        is_custom(object) || (!inputs.contains(&id(object)) && is_created_by_the_operator(object))
    };
    let mut objects: Vec<Value> =
        objects.iter().filter(is_compared).map(|object| normalise_one(object.clone(), case)).collect();
    objects
        .sort_by_cached_key(|object| (kind(object).to_owned(), name(object).to_owned(), object.to_string()));
    objects
}

fn is_custom(object: &Value) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version.starts_with(slinky_api::GROUP))
}

/// False for objects of Kubernetes' own controllers, of volume provisioners and of Helm.
fn is_created_by_the_operator(object: &Value) -> bool {
    let of_node_set = || owner_kinds(object).any(|kind| kind == "NodeSet");
    match kind(object) {
        "ConfigMap" => name(object) != "kube-root-ca.crt",
        "Pod" | "ControllerRevision" => of_node_set(),
        "PersistentVolumeClaim" => !name(object).starts_with("statesave-") || of_node_set(),
        "Secret" => !["helm.sh/release.v1", "kubernetes.io/service-account-token"]
            .map(Value::from)
            .contains(&object["type"]),
        _ => true,
    }
}

fn normalise_one(mut object: Value, case: &Case) -> Value {
    at(&mut object, "/metadata", trim_metadata);
    if is_custom(&object) {
        return custom(&object);
    }
    let status = object["status"].take();
    remove(&mut object, &["status"]);
    match kind(&object) {
        "Pod" => pod(&mut object, &status),
        "StatefulSet" => stateful_set(&mut object),
        "Deployment" => deployment(&mut object),
        "DaemonSet" => workload(&mut object),
        "PersistentVolumeClaim" => claim(&mut object),
        "Service" => service(&mut object, case),
        "ConfigMap" => files(&mut object, |name, text| texts::file(name, text).into()),
        "Secret" => files(&mut object, texts::secret),
        _ => {}
    }
    hide_random_values(&mut object);
    object
}

fn trim_metadata(metadata: &mut Value) {
    remove(
        metadata,
        &[
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ],
    );
    each(metadata, "ownerReferences").for_each(|owner| remove(owner, &["uid"]));
    if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
        owners.sort_by_cached_key(|owner| format!("{} {}", owner["kind"], owner["name"]));
    }
    at(metadata, "/annotations", |annotations| {
        remove(
            annotations,
            &[
                LAST_APPLIED,
                "deployment.kubernetes.io/revision",
                "pv.kubernetes.io/bind-completed",
                "pv.kubernetes.io/bound-by-controller",
            ],
        );
    });
    remove_defaults(metadata, &json!({ "annotations": {} }));
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The status of a custom resource, and the metadata that a controller writes.
fn custom(object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata
            .retain(|key, _| ["name", "namespace", "finalizers", "ownerReferences"].contains(&key.as_str()));
    }
    let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
    if let Some(list) = status.get_mut("conditions") {
        *list = conditions(list);
    }
    for (field, placeholder) in [("issuedAt", "<ts>"), ("nodeSetHash", "<hash>")] {
        if let Some(value) = status.get_mut(field).filter(|value| **value != json!("")) {
            *value = placeholder.into();
        }
    }
    json!({ "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata, "status": status })
}

/// Conditions without times, sorted by type.
fn conditions(list: &Value) -> Value {
    let mut list = list.as_array().cloned().unwrap_or_default();
    for condition in &mut list {
        remove(condition, &["lastTransitionTime", "lastUpdateTime", "lastProbeTime", "lastHeartbeatTime"]);
    }
    list.sort_by_cached_key(|condition| condition["type"].to_string());
    list.into()
}

/// Removes the conditions of kubelet and scheduler.
fn pod(object: &mut Value, status: &Value) {
    const OF_KUBERNETES: [&str; 6] = [
        "PodScheduled",
        "Initialized",
        "ContainersReady",
        "Ready",
        "PodReadyToStartContainers",
        "DisruptionTarget",
    ];
    let conditions = conditions(&status["conditions"]);
    let ours = conditions.as_array().into_iter().flatten();
    let ours: Vec<_> = ours.filter(|one| !OF_KUBERNETES.map(Value::from).contains(&one["type"])).collect();
    if !ours.is_empty() {
        object["status"] = json!({ "conditions": ours });
    }
    at(object, "/spec", pods::trim_pod);
}

fn workload(object: &mut Value) {
    at(object, "/spec/template/metadata", |metadata| {
        at(metadata, "/annotations", |annotations| remove(annotations, &[LAST_APPLIED]));
        remove_defaults(metadata, &json!({ "creationTimestamp": null }));
    });
    at(object, "/spec/template/spec", pods::trim_spec);
}

fn stateful_set(object: &mut Value) {
    workload(object);
    at(object, "/spec", |spec| {
        remove_defaults(
            spec,
            &json!({
                "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Retain", "whenScaled": "Retain" },
                "updateStrategy": { "rollingUpdate": { "partition": 0 }, "type": "RollingUpdate" },
            }),
        );
        for template in each(spec, "volumeClaimTemplates") {
            remove(template, &["apiVersion", "kind", "status"]);
            pods::trim_claim_template(template);
        }
    });
}

fn deployment(object: &mut Value) {
    workload(object);
    let strategy =
        json!({ "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" }, "type": "RollingUpdate" });
    let defaults = json!({ "progressDeadlineSeconds": 600, "strategy": strategy });
    at(object, "/spec", |spec| remove_defaults(spec, &defaults));
}

fn claim(object: &mut Value) {
    at(object, "/metadata", |metadata| remove(metadata, &["finalizers"]));
    at(object, "/spec", |spec| {
        remove(spec, &["volumeName"]);
        remove_defaults(spec, &json!({ "volumeMode": "Filesystem" }));
    });
}

fn service(object: &mut Value, case: &Case) {
    let Some(spec) = object.get_mut("spec") else { return };
    remove(spec, &["ipFamilies", "ipFamilyPolicy"]);
    remove_defaults(
        spec,
        &json!({
            "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster",
            "allocateLoadBalancerNodePorts": true,
        }),
    );
    let hide = |address: &mut Value| {
        if *address != json!("None") {
            *address = "<ip>".into();
        }
    };
    at(spec, "/clusterIP", hide);
    each(spec, "clusterIPs").for_each(hide);
    for port in each(spec, "ports") {
        remove_defaults(port, &json!({ "protocol": "TCP" }));
        if let Some(number) = port.get_mut("nodePort").filter(|number| !case.sets_node_port(number)) {
            *number = "<rand>".into();
        }
    }
    at(spec, "/healthCheckNodePort", |port| *port = "<rand>".into());
}

fn files(object: &mut Value, show: impl Fn(&str, &str) -> Value) {
    for (name, value) in object.get_mut("data").and_then(Value::as_object_mut).into_iter().flatten() {
        *value = show(name, value.as_str().unwrap_or_default());
    }
}

/// Hides hashes, and names that contain them or are random.
fn hide_random_values(object: &mut Value) {
    let mut random = BTreeMap::new();
    let own_name = name(object).to_owned();
    let labels = &object["metadata"]["labels"];
    let revision = labels["controller.kubernetes.io/hash"].as_str().unwrap_or_default().to_owned();
    let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default();
    match kind(object) {
        "ControllerRevision" if !revision.is_empty() => {
            random.insert(own_name.clone(), own_name.replace(&revision, "<rand>"));
            random.insert(revision, "<rand>".to_owned());
        }
        "Pod" if !prefix.is_empty() && labels.get("nodeset.slinky.slurm.net/pod-index").is_none() => {
            random.insert(own_name, format!("{prefix}<rand>"));
        }
        _ => {}
    }
    let is_hash = |field: &str, text: &str| {
        ["controller-revision-hash", "controller.kubernetes.io/hash"].contains(&field)
            || (field.ends_with("-hash") && HASH.is_match(text))
    };
    change_leaves(object, "", &|field, leaf| {
        let Some(text) = leaf.as_str() else { return };
        if is_hash(field, text) {
            *leaf = "<hash>".into();
        } else if let Some(placeholder) = random.get(text) {
            *leaf = placeholder.as_str().into();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: &str = "
kind: Namespace
metadata: { name: g }
---
kind: Secret
metadata: { name: auth }
---
kind: Token
metadata: { name: t }
spec: { service: { nodePort: 31817 } }
";

    fn normalised(objects: &[Value]) -> Vec<Value> {
        normalise(objects, &Case::parse("c", INPUT.to_owned(), "").unwrap())
    }

    fn object(kind: &str, name: &str, mut content: Value) -> Value {
        content["apiVersion"] = "v1".into();
        content["kind"] = kind.into();
        content["metadata"] = json!({ "name": name, "uid": "u" });
        content
    }

    #[test]
    fn objects_of_other_controllers_are_left_out() {
        let owner = json!([{ "kind": "NodeSet", "name": "n", "uid": "u" }]);
        let mut worker = object("Pod", "w-0", json!({ "spec": {} }));
        worker["metadata"]["ownerReferences"] = owner;
        let objects = [
            object("Secret", "auth", json!({})),
            object("Secret", "chart", json!({ "type": "helm.sh/release.v1" })),
            object("Secret", "created", json!({})),
            object("ConfigMap", "kube-root-ca.crt", json!({})),
            object("Pod", "of-a-deployment", json!({})),
            object("PersistentVolumeClaim", "statesave-x", json!({})),
            worker,
        ];
        assert_eq!(normalised(&objects).iter().map(id).collect::<Vec<_>>(), ["Pod/w-0", "Secret/created"]);
    }

    #[test]
    fn custom_resource_is_reduced_to_its_status_without_times() {
        let condition = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": "now" });
        let status = json!({ "issuedAt": "now", "conditions": [condition("Ready"), condition("Degraded")] });
        let mut token = object("Token", "t", json!({ "spec": { "x": 1 }, "status": status }));
        token["apiVersion"] = "slinky.slurm.net/v1beta1".into();
        token["metadata"]["labels"] = json!({ "l": "v" });
        let conditions =
            json!([{ "type": "Degraded", "status": "True" }, { "type": "Ready", "status": "True" }]);
        let expected = json!({
            "apiVersion": "slinky.slurm.net/v1beta1", "kind": "Token", "metadata": { "name": "t" },
            "status": { "issuedAt": "<ts>", "conditions": conditions },
        });
        assert_eq!(normalised(&[token]), [expected]);
    }

    #[test]
    fn random_addresses_and_ports_are_hidden_and_others_kept() {
        let port = |node_port: u16| json!({ "port": 1, "protocol": "TCP", "nodePort": node_port });
        let spec = json!({
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "sessionAffinity": "None",
            "externalTrafficPolicy": "Local", "ports": [port(31817), port(30001)],
        });
        let expected = json!({
            "clusterIP": "<ip>", "clusterIPs": ["<ip>"], "externalTrafficPolicy": "Local",
            "ports": [{ "port": 1, "nodePort": 31817 }, { "port": 1, "nodePort": "<rand>" }],
        });
        assert_eq!(normalised(&[object("Service", "s", json!({ "spec": spec }))])[0]["spec"], expected);
        let headless = object("Service", "s", json!({ "spec": { "clusterIP": "None" } }));
        assert_eq!(normalised(&[headless])[0]["spec"], json!({ "clusterIP": "None" }));
    }

    #[test]
    fn hashes_and_names_with_hashes_are_hidden() {
        let mut revision = object("ControllerRevision", "n-abc", json!({}));
        revision["metadata"]["ownerReferences"] = json!([{ "kind": "NodeSet", "name": "n", "uid": "u" }]);
        revision["metadata"]["labels"] = json!({ "controller.kubernetes.io/hash": "abc" });
        let revision = &normalised(&[revision])[0];
        assert_eq!(revision["metadata"]["name"], "n-<rand>");
        assert_eq!(revision["metadata"]["labels"]["controller.kubernetes.io/hash"], "<hash>");
        let annotations = json!({ "slinky.slurm.net/a-hash": "0123456789", "slinky.slurm.net/b-hash": "" });
        let template = json!({ "metadata": { "annotations": annotations }, "spec": {} });
        let workload = object("StatefulSet", "s", json!({ "spec": { "template": template } }));
        let expected = json!({ "slinky.slurm.net/a-hash": "<hash>", "slinky.slurm.net/b-hash": "" });
        assert_eq!(normalised(&[workload])[0]["spec"]["template"]["metadata"]["annotations"], expected);
    }

    #[test]
    fn only_default_strategies_are_removed() {
        let strategy = |surge: &str| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": "25%" } });
        let deployment =
            |surge| object("Deployment", "d", json!({ "spec": { "strategy": strategy(surge) } }));
        assert_eq!(normalised(&[deployment("25%")])[0]["spec"], json!({}));
        assert_eq!(normalised(&[deployment("1")])[0]["spec"], json!({ "strategy": strategy("1") }));
    }
}
