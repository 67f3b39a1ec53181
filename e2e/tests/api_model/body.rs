//! Operations as requests. What differs between two servers (names in the namespace, uids, versions) comes in.

use crate::operation::{Action, Change, Claim, Claims, Content, How, Kind};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A uid and a version that no object has.
const WRONG_UID: &str = "99999999-9999-4999-8999-999999999999";
const WRONG_VERSION: &str = "1";

/// What a server has that requests refer to.
pub struct Surroundings<'a> {
    pub namespace: &'a str,
    /// The object's name there.
    pub name: &'a str,
    /// The object that the operation is about, as it is there.
    pub live: Option<&'a Value>,
    /// The uids of the owners by their names.
    pub owners: &'a BTreeMap<&'static str, String>,
}

impl Kind {
    pub fn path(self, namespace: &str) -> String {
        match self {
            Self::Pod => format!("/api/v1/namespaces/{namespace}/pods"),
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Self::NodeSet => format!("/apis/slinky.slurm.net/v1beta1/namespaces/{namespace}/nodesets"),
        }
    }

    fn skeleton(self, name: &str) -> Value {
        let metadata = json!({ "name": name });
        match self {
            Self::ConfigMap => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"always": "there"}})
            }
            Self::Pod => json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]},
            }),
            Self::NodeSet => json!({
                "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "metadata": metadata,
                "spec": {"controllerRef": {"name": "slurm"}},
            }),
        }
    }

    /// A status with these conditions and what else the kind must have there.
    fn status(self, conditions: &[Value]) -> Value {
        let mut status = json!({ "conditions": conditions });
        if self == Self::NodeSet {
            status["nodeSetHash"] = "hash".into();
            status["selector"] = "app".into();
        }
        status
    }

    /// The field that the value of a content is in.
    fn value_path(self) -> Option<(&'static str, &'static str)> {
        match self {
            // Hardly anything in the spec of a pod may change.
            Self::Pod => None,
            Self::ConfigMap => Some(("data", "key")),
            Self::NodeSet => Some(("spec", "extraConf")),
        }
    }
}

/// The request for an action.
pub fn request(kind: Kind, action: &Action, at: &Surroundings<'_>) -> http::Request<Vec<u8>> {
    let collection = kind.path(at.namespace);
    let path = format!("{collection}/{}", at.name);
    let json = "application/json";
    let (method, path, content_type, body) = match action {
        Action::Create { content, is_scheduled, has_version } => {
            ("POST", collection, json, created(kind, content, *is_scheduled, *has_version, at))
        }
        Action::Write { how, change, claims } => {
            let subresource = if matches!(change, Change::Status(_)) { "/status" } else { "" };
            let (method, query, content_type) = match how {
                How::Replace => ("PUT", String::new(), json),
                How::Merge => ("PATCH", String::new(), "application/merge-patch+json"),
                How::Strategic => ("PATCH", String::new(), "application/strategic-merge-patch+json"),
                How::Json => ("PATCH", String::new(), "application/json-patch+json"),
                How::Apply { manager } => {
                    ("PATCH", format!("?fieldManager={manager}&force=true"), "application/apply-patch+yaml")
                }
            };
            (
                method,
                format!("{path}{subresource}{query}"),
                content_type,
                written(kind, *how, change, *claims, at),
            )
        }
        Action::Delete { claims, grace } => {
            let preconditions = identity(*claims, at);
            ("DELETE", path, json, json!({"gracePeriodSeconds": grace, "preconditions": preconditions}))
        }
        Action::List { selector } => {
            let selector = selector.replace(' ', "+").replace('=', "%3D").replace('!', "%21");
            ("GET", format!("{collection}?labelSelector={selector}"), json, Value::Null)
        }
    };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    request.body(body).unwrap()
}

fn created(
    kind: Kind,
    content: &Content,
    is_scheduled: bool,
    has_version: bool,
    at: &Surroundings<'_>,
) -> Value {
    let mut object = whole(kind, content, at);
    if is_scheduled && kind == Kind::Pod {
        object["spec"]["nodeName"] = "nowhere".into();
    }
    if has_version {
        object["metadata"]["resourceVersion"] = WRONG_VERSION.into();
    }
    object
}

fn written(kind: Kind, how: How, change: &Change, claims: Claims, at: &Surroundings<'_>) -> Value {
    let claimed = |mut object: Value| {
        for (field, value) in identity(claims, at) {
            object["metadata"][field] = value;
        }
        object
    };
    match (how, change) {
        (How::Replace, change) => claimed(replacement(kind, change, at)),
        (How::Merge, Change::Main(content)) => claimed(merge_patch(kind, content, at)),
        (How::Merge, Change::Status(conditions)) => {
            claimed(json!({"status": kind.status(&present(conditions))}))
        }
        (How::Strategic, Change::Main(content)) => claimed(strategic_patch(kind, content, at)),
        (How::Strategic, Change::Status(conditions)) => {
            let gone = conditions.iter().filter(|(_, status)| status.is_none());
            let gone = gone.map(|(name, _)| json!({"$patch": "delete", "type": name}));
            let all: Vec<Value> = present(conditions).into_iter().chain(gone).collect();
            claimed(json!({"status": kind.status(&all)}))
        }
        (How::Json, change) => json_patch(change, claims, at),
        (How::Apply { .. }, Change::Main(content)) => claimed(whole(kind, content, at)),
        (How::Apply { .. }, Change::Status(conditions)) => {
            let mut object = kind.skeleton(at.name);
            object["status"] = kind.status(&present(conditions));
            claimed(object)
        }
    }
}

fn identity(claims: Claims, at: &Surroundings<'_>) -> Map<String, Value> {
    let fields = [("uid", claims.uid, WRONG_UID), ("resourceVersion", claims.version, WRONG_VERSION)];
    let value = |(field, claim, wrong): (&str, Claim, &str)| match (claim, at.live) {
        (Claim::None, _) | (Claim::Right, None) => None,
        (Claim::Right, Some(live)) => Some((field.to_owned(), live["metadata"][field].clone())),
        (Claim::Wrong, _) => Some((field.to_owned(), wrong.into())),
    };
    fields.into_iter().filter_map(value).collect()
}

/// An object with this content and nothing else.
fn whole(kind: Kind, content: &Content, at: &Surroundings<'_>) -> Value {
    let mut object = kind.skeleton(at.name);
    fill(kind, content, at, &mut object);
    object
}

/// Gives an object exactly this content.
fn fill(kind: Kind, content: &Content, at: &Surroundings<'_>, object: &mut Value) {
    let metadata = &mut object["metadata"];
    metadata["labels"] = json!(texts(&content.labels));
    metadata["annotations"] = json!(texts(&content.annotations));
    metadata["ownerReferences"] = owners(content, at).into();
    metadata["finalizers"] = finalizers(content, true).into();
    metadata.as_object_mut().unwrap().retain(|_, value| *value != json!({}) && *value != json!([]));
    if let (Some((field, key)), Some(value)) = (kind.value_path(), content.value) {
        object[field][key] = value.into();
    }
}

fn replacement(kind: Kind, change: &Change, at: &Surroundings<'_>) -> Value {
    let mut object = at.live.cloned().unwrap_or_else(|| kind.skeleton(at.name));
    for field in ["uid", "resourceVersion", "managedFields"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    match change {
        Change::Main(content) => fill(kind, content, at, &mut object),
        Change::Status(conditions) => object["status"] = kind.status(&present(conditions)),
    }
    object
}

fn merge_patch(kind: Kind, content: &Content, at: &Surroundings<'_>) -> Value {
    let mut patch = json!({"metadata": {"labels": content.labels, "annotations": content.annotations}});
    if !content.owners.is_empty() {
        patch["metadata"]["ownerReferences"] = owners(content, at).into();
    }
    if !content.finalizers.is_empty() {
        patch["metadata"]["finalizers"] = finalizers(content, true).into();
    }
    if let (Some((field, key)), Some(value)) = (kind.value_path(), content.value) {
        patch[field][key] = value.into();
    }
    patch
}

fn strategic_patch(kind: Kind, content: &Content, at: &Surroundings<'_>) -> Value {
    let mut patch = merge_patch(kind, content, at);
    let gone = content.owners.iter().filter(|(_, controls)| controls.is_none());
    let gone = gone.map(|(name, _)| json!({"$patch": "delete", "uid": at.owners[name]}));
    if !content.owners.is_empty() {
        patch["metadata"]["ownerReferences"] = owners(content, at).into_iter().chain(gone).collect();
    }
    let leaving = finalizers(content, false);
    if !leaving.is_empty() {
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = leaving.into();
    }
    patch
}

fn json_patch(change: &Change, claims: Claims, at: &Surroundings<'_>) -> Value {
    let tests = identity(claims, at);
    let mut steps: Vec<Value> = tests
        .into_iter()
        .map(|(field, value)| json!({"op": "test", "path": format!("/metadata/{field}"), "value": value}))
        .collect();
    match change {
        Change::Main(content) => {
            let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
            steps.push(add("/metadata/annotations", json!(texts(&content.annotations))));
            for (key, value) in &content.labels {
                let path = format!("/metadata/labels/{key}");
                steps.push(
                    value.map_or(json!({"op": "remove", "path": path}), |value| add(&path, value.into())),
                );
            }
        }
        Change::Status(conditions) => {
            steps.push(json!({"op": "add", "path": "/status/conditions", "value": present(conditions)}));
        }
    }
    steps.into()
}

fn texts(keys: &BTreeMap<&'static str, Option<&'static str>>) -> BTreeMap<&'static str, &'static str> {
    keys.iter().filter_map(|(key, value)| Some((*key, (*value)?))).collect()
}

fn owners(content: &Content, at: &Surroundings<'_>) -> Vec<Value> {
    let staying = content.owners.iter().filter_map(|(name, controls)| Some((name, (*controls)?)));
    let reference = |(name, controls): (&&str, bool)| {
        let uid = &at.owners[name];
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": controls})
    };
    staying.map(reference).collect()
}

fn finalizers(content: &Content, staying: bool) -> Vec<&'static str> {
    content.finalizers.iter().filter(|(_, stays)| **stays == staying).map(|(name, _)| *name).collect()
}

fn present(conditions: &BTreeMap<&'static str, Option<&'static str>>) -> Vec<Value> {
    let condition = |(name, status)| {
        json!({
            "type": name, "status": status, "reason": "Random", "message": "by chance",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        })
    };
    texts(conditions).into_iter().map(condition).collect()
}
