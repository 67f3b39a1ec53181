//! Operations as requests to one server, with its names, UIDs and versions.

use crate::operation::{Action, Change, Content, Kind, Precondition, Preconditions, WriteMethod};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A UID and a resource version that no object has.
const WRONG_UID: &str = "99999999-9999-4999-8999-999999999999";
const WRONG_VERSION: &str = "1";

/// The objects of a server that a request refers to.
pub struct ServerObjects<'a> {
    pub namespace: &'a str,
    /// The object's name on this server.
    pub name: &'a str,
    /// The live object that the operation is about.
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

    /// A status with these conditions and the required fields of the kind.
    fn status(self, conditions: &[Value]) -> Value {
        let mut status = json!({ "conditions": conditions });
        if self == Self::NodeSet {
            status["nodeSetHash"] = "hash".into();
            status["selector"] = "app".into();
        }
        status
    }

    /// The field that holds [`Content::value`].
    fn value_path(self) -> Option<(&'static str, &'static str)> {
        match self {
            // Most of a pod's spec is immutable.
            Self::Pod => None,
            Self::ConfigMap => Some(("data", "key")),
            Self::NodeSet => Some(("spec", "extraConf")),
        }
    }
}

/// The request for an action.
pub fn request(kind: Kind, action: &Action, objects: &ServerObjects<'_>) -> http::Request<Vec<u8>> {
    let collection = kind.path(objects.namespace);
    let path = format!("{collection}/{}", objects.name);
    let json = "application/json";
    let (verb, path, content_type, body) = match action {
        Action::Create { content, is_scheduled, has_version } => {
            ("POST", collection, json, created_object(kind, content, *is_scheduled, *has_version, objects))
        }
        Action::Write { method, change, preconditions } => {
            let subresource = if matches!(change, Change::Status(_)) { "/status" } else { "" };
            let (verb, query, content_type) = match method {
                WriteMethod::Replace => ("PUT", String::new(), json),
                WriteMethod::Merge => ("PATCH", String::new(), "application/merge-patch+json"),
                WriteMethod::Strategic => ("PATCH", String::new(), "application/strategic-merge-patch+json"),
                WriteMethod::Json => ("PATCH", String::new(), "application/json-patch+json"),
                WriteMethod::Apply { manager } => {
                    ("PATCH", format!("?fieldManager={manager}&force=true"), "application/apply-patch+yaml")
                }
            };
            (
                verb,
                format!("{path}{subresource}{query}"),
                content_type,
                write_body(kind, *method, change, *preconditions, objects),
            )
        }
        Action::Delete { preconditions, grace } => {
            let preconditions = precondition_fields(*preconditions, objects);
            ("DELETE", path, json, json!({"gracePeriodSeconds": grace, "preconditions": preconditions}))
        }
        Action::List { selector } => {
            let selector = selector.replace(' ', "+").replace('=', "%3D").replace('!', "%21");
            ("GET", format!("{collection}?labelSelector={selector}"), json, Value::Null)
        }
    };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(verb).uri(path).header("content-type", content_type);
    request.body(body).unwrap()
}

fn created_object(
    kind: Kind,
    content: &Content,
    is_scheduled: bool,
    has_version: bool,
    objects: &ServerObjects<'_>,
) -> Value {
    let mut object = new_object(kind, content, objects);
    if is_scheduled && kind == Kind::Pod {
        object["spec"]["nodeName"] = "nowhere".into();
    }
    if has_version {
        object["metadata"]["resourceVersion"] = WRONG_VERSION.into();
    }
    object
}

fn write_body(
    kind: Kind,
    method: WriteMethod,
    change: &Change,
    preconditions: Preconditions,
    objects: &ServerObjects<'_>,
) -> Value {
    let with_preconditions = |mut object: Value| {
        for (field, value) in precondition_fields(preconditions, objects) {
            object["metadata"][field] = value;
        }
        object
    };
    match (method, change) {
        (WriteMethod::Replace, change) => with_preconditions(replacement(kind, change, objects)),
        (WriteMethod::Merge, Change::Main(content)) => {
            with_preconditions(merge_patch(kind, content, objects))
        }
        (WriteMethod::Merge, Change::Status(conditions)) => {
            with_preconditions(json!({"status": kind.status(&present(conditions))}))
        }
        (WriteMethod::Strategic, Change::Main(content)) => {
            with_preconditions(strategic_patch(kind, content, objects))
        }
        (WriteMethod::Strategic, Change::Status(conditions)) => {
            let removed = conditions.iter().filter(|(_, status)| status.is_none());
            let removed = removed.map(|(name, _)| json!({"$patch": "delete", "type": name}));
            let all: Vec<Value> = present(conditions).into_iter().chain(removed).collect();
            with_preconditions(json!({"status": kind.status(&all)}))
        }
        (WriteMethod::Json, change) => json_patch(change, preconditions, objects),
        (WriteMethod::Apply { .. }, Change::Main(content)) => {
            with_preconditions(new_object(kind, content, objects))
        }
        (WriteMethod::Apply { .. }, Change::Status(conditions)) => {
            let mut object = kind.skeleton(objects.name);
            object["status"] = kind.status(&present(conditions));
            with_preconditions(object)
        }
    }
}

fn precondition_fields(preconditions: Preconditions, objects: &ServerObjects<'_>) -> Map<String, Value> {
    let fields =
        [("uid", preconditions.uid, WRONG_UID), ("resourceVersion", preconditions.version, WRONG_VERSION)];
    let value = |(field, precondition, wrong): (&str, Precondition, &str)| match (precondition, objects.live)
    {
        (Precondition::None, _) | (Precondition::Matching, None) => None,
        (Precondition::Matching, Some(live)) => Some((field.to_owned(), live["metadata"][field].clone())),
        (Precondition::Wrong, _) => Some((field.to_owned(), wrong.into())),
    };
    fields.into_iter().filter_map(value).collect()
}

/// A new object with this content.
fn new_object(kind: Kind, content: &Content, objects: &ServerObjects<'_>) -> Value {
    let mut object = kind.skeleton(objects.name);
    set_content(kind, content, objects, &mut object);
    object
}

/// Sets the content of an object.
fn set_content(kind: Kind, content: &Content, objects: &ServerObjects<'_>, object: &mut Value) {
    let metadata = &mut object["metadata"];
    metadata["labels"] = json!(texts(&content.labels));
    metadata["annotations"] = json!(texts(&content.annotations));
    metadata["ownerReferences"] = owners(content, objects).into();
    metadata["finalizers"] = finalizers(content, true).into();
    metadata.as_object_mut().unwrap().retain(|_, value| *value != json!({}) && *value != json!([]));
    if let (Some((field, key)), Some(value)) = (kind.value_path(), content.value) {
        object[field][key] = value.into();
    }
}

fn replacement(kind: Kind, change: &Change, objects: &ServerObjects<'_>) -> Value {
    let mut object = objects.live.cloned().unwrap_or_else(|| kind.skeleton(objects.name));
    for field in ["uid", "resourceVersion", "managedFields"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    match change {
        Change::Main(content) => set_content(kind, content, objects, &mut object),
        Change::Status(conditions) => object["status"] = kind.status(&present(conditions)),
    }
    object
}

fn merge_patch(kind: Kind, content: &Content, objects: &ServerObjects<'_>) -> Value {
    let mut patch = json!({"metadata": {"labels": content.labels, "annotations": content.annotations}});
    if !content.owners.is_empty() {
        patch["metadata"]["ownerReferences"] = owners(content, objects).into();
    }
    if !content.finalizers.is_empty() {
        patch["metadata"]["finalizers"] = finalizers(content, true).into();
    }
    if let (Some((field, key)), Some(value)) = (kind.value_path(), content.value) {
        patch[field][key] = value.into();
    }
    patch
}

fn strategic_patch(kind: Kind, content: &Content, objects: &ServerObjects<'_>) -> Value {
    let mut patch = merge_patch(kind, content, objects);
    let removed = content.owners.iter().filter(|(_, controls)| controls.is_none());
    let removed = removed.map(|(name, _)| json!({"$patch": "delete", "uid": objects.owners[name]}));
    if !content.owners.is_empty() {
        patch["metadata"]["ownerReferences"] = owners(content, objects).into_iter().chain(removed).collect();
    }
    let removed = finalizers(content, false);
    if !removed.is_empty() {
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = removed.into();
    }
    patch
}

fn json_patch(change: &Change, preconditions: Preconditions, objects: &ServerObjects<'_>) -> Value {
    let tests = precondition_fields(preconditions, objects);
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

fn owners(content: &Content, objects: &ServerObjects<'_>) -> Vec<Value> {
    let staying = content.owners.iter().filter_map(|(name, controls)| Some((name, (*controls)?)));
    let reference = |(name, controls): (&&str, bool)| {
        let uid = &objects.owners[name];
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
