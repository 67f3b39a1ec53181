//! One of the two compared servers, and the parts of its responses that are compared.

use crate::operation::{Action, Kind, Operation};
use crate::request::{ServerObjects, request};
use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use kube::core::WatchEvent;
use kube::{Client, Error};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::pin::pin;

/// The objects that may own others. They are never deleted.
const OWNERS: [&str; 2] = ["owner-a", "owner-b"];

/// A server with the objects of one sequence: objects of one kind whose names have a prefix.
pub struct ComparedServer {
    client: Client,
    namespace: String,
    kind: Kind,
    prefix: String,
    owners: BTreeMap<&'static str, String>,
}

impl ComparedServer {
    pub async fn new(client: Client, namespace: &str, kind: Kind, prefix: &str) -> Result<Self> {
        let mut owners = BTreeMap::new();
        for name in OWNERS {
            let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            let path = format!("{}/{name}?fieldManager=test&force=true", Kind::ConfigMap.path(namespace));
            let apply = http::Request::patch(path).header("content-type", "application/apply-patch+yaml");
            let owner: Value = client.request(apply.body(config.to_string().into_bytes())?).await?;
            owners.insert(name, owner["metadata"]["uid"].as_str().context("no uid")?.to_owned());
        }
        Ok(Self { client, namespace: namespace.to_owned(), kind, prefix: prefix.to_owned(), owners })
    }

    /// Performs an operation; returns the comparable parts of the response and of the object afterwards.
    pub async fn perform(&self, operation: &Operation) -> Result<Value> {
        let name = format!("{}{}", self.prefix, operation.name);
        let before = self.get(&name).await?;
        let (namespace, owners) = (&self.namespace, &self.owners);
        let objects = ServerObjects { namespace, name: &name, live: before.as_ref(), owners };
        let request = request(self.kind, &operation.action, &objects);
        let response = match self.client.request::<Value>(request).await {
            Ok(list) if matches!(operation.action, Action::List { .. }) => self.names(&list),
            Ok(status) if status["kind"] == "Status" => json!("done"),
            Ok(object) => self.project(&object),
            Err(Error::Api(status)) => json!({"code": status.code, "reason": status.reason}),
            Err(error) => return Err(error.into()),
        };
        let after = self.get(&name).await?;
        let field = |object: &Option<Value>, field: &str| {
            object.as_ref().map_or(Value::Null, |object| object["metadata"][field].clone())
        };
        Ok(json!({
            "response": response,
            "after": after.as_ref().map(|object| self.project(object)),
            "version changed": field(&before, "resourceVersion") != field(&after, "resourceVersion"),
            "recreated": field(&before, "uid") != field(&after, "uid"),
        }))
    }

    /// The current resource version of the collection.
    pub async fn version(&self) -> Result<String> {
        let path = format!("{}?limit=1", self.kind.path(&self.namespace));
        let list: Value = self.client.request(http::Request::get(path).body(Vec::new())?).await?;
        Ok(list["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned())
    }

    /// The watch events from a version until the end of the sequence.
    pub async fn events(&self, since: &str) -> Result<Value> {
        let path = format!(
            "{}?watch=true&resourceVersion={since}&timeoutSeconds=20",
            self.kind.path(&self.namespace)
        );
        let request = http::Request::get(path).body(Vec::new())?;
        let mut stream = pin!(self.client.request_events::<Value>(request).await?);
        let mut events = Vec::new();
        while let Some(event) = stream.try_next().await? {
            let (name, object) = match event {
                WatchEvent::Added(object) => ("Added", object),
                WatchEvent::Modified(object) => ("Modified", object),
                WatchEvent::Deleted(object) => ("Deleted", object),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => bail!("{status:?}"),
            };
            events.extend(self.event(name, &object));
            if object["metadata"]["name"] == format!("{}{}", self.prefix, Operation::last().name) {
                return Ok(events.into());
            }
        }
        bail!("the watch ended before the sequence did: {events:?}")
    }

    /// The comparable parts of an event; `None` if it is not about the sequence.
    pub fn event(&self, name: &str, object: &Value) -> Option<Value> {
        let object_name = object["metadata"]["name"].as_str()?.strip_prefix(&self.prefix)?;
        Some(json!({"event": name, "name": object_name, "object": self.project(object)}))
    }

    /// Deletes the objects of the sequence despite finalizers and grace periods.
    pub async fn clean(&self) -> Result<()> {
        for name in ["a", "b", Operation::last().name] {
            let path = format!("{}/{}{name}", self.kind.path(&self.namespace), self.prefix);
            let unfinalize =
                http::Request::patch(&path).header("content-type", "application/merge-patch+json");
            let unfinalize = unfinalize.body(br#"{"metadata": {"finalizers": null}}"#.to_vec())?;
            let delete = http::Request::delete(&path).body(br#"{"gracePeriodSeconds": 0}"#.to_vec())?;
            for request in [unfinalize, delete] {
                match self.client.request::<Value>(request).await {
                    Err(Error::Api(status)) if status.is_not_found() => {}
                    outcome => drop(outcome?),
                }
            }
        }
        Ok(())
    }

    async fn get(&self, name: &str) -> Result<Option<Value>> {
        let path = format!("{}/{name}", self.kind.path(&self.namespace));
        match self.client.request(http::Request::get(path).body(Vec::new())?).await {
            Ok(object) => Ok(Some(object)),
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The names of the sequence's objects in a list.
    fn names(&self, list: &Value) -> Value {
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        names.filter_map(|name| name.strip_prefix(&self.prefix)).collect()
    }

    /// The comparable parts of an object.
    fn project(&self, object: &Value) -> Value {
        let metadata = &object["metadata"];
        let text = json!({
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "owners": sorted(&metadata["ownerReferences"]),
            "finalizers": sorted(&metadata["finalizers"]),
            "is deleted": !metadata["deletionTimestamp"].is_null(),
            "grace": metadata["deletionGracePeriodSeconds"],
            "generation": metadata["generation"],
            "conditions": sorted(&conditions(&object["status"]["conditions"])),
            "data": object["data"],
            "spec": object["spec"]["extraConf"],
            "applied": applied_fields(&metadata["managedFields"]),
        })
        .to_string();
        let text = self.owners.iter().fold(text, |text, (name, uid)| text.replace(uid, name));
        serde_json::from_str(&text).unwrap()
    }
}

fn sorted(list: &Value) -> Value {
    let mut items = list.as_array().cloned().unwrap_or_default();
    items.sort_by_cached_key(Value::to_string);
    items.into()
}

fn conditions(list: &Value) -> Value {
    // The real server has an empty string where the model has no field.
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = list.as_array().into_iter().flatten();
    conditions.map(|condition| json!([text(&condition["type"]), text(&condition["status"])])).collect()
}

/// The managed fields of each manager that applies.
fn applied_fields(managed_fields: &Value) -> Value {
    let entries = managed_fields.as_array().into_iter().flatten();
    let applied = entries.filter(|entry| entry["operation"] == "Apply");
    let fields = applied.map(|entry| {
        let mut fields = entry["fieldsV1"].clone();
        drop_unmodelled(&mut fields);
        (format!("{} {}", entry["manager"], entry["subresource"]), fields)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Drops the ownership of list items and maps themselves, and of fields whose granularity depends on the schema.
fn drop_unmodelled(fields: &mut Value) {
    if let Value::Object(fields) = fields {
        fields.retain(|name, _| ![".", "f:containers", "f:controllerRef"].contains(&name.as_str()));
        fields.values_mut().for_each(drop_unmodelled);
    }
}
