//! The objects and the rules of writes: names, resource versions, generations, ownership. Independent of HTTP.

use super::ownership::{Fields, Owner, Owners, Write};
use super::patch::{drop_nulls, merge_applied};
use super::refusal::Refusal;
use super::watch::{Change, Event};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The first resource version; high, so that a version invented by a test matches no object.
const FIRST_VERSION: u64 = 1000;
/// Fields of `metadata` that clients cannot change.
const IMMUTABLE_METADATA: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "uid",
];

/// The result of a request: by default the object after it.
pub(super) type Outcome<T = Arc<Value>> = Result<T, Refusal>;

/// Identifies one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Plural and group: `pods`, `nodesets.slinky.slurm.net`.
    pub resource: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Empty for lists and if the server generates the name.
    pub name: String,
}

impl Target {
    pub(super) fn is_pod(&self) -> bool {
        self.resource == "pods"
    }

    /// Whether the kind has a status subresource.
    pub(super) fn has_status(&self) -> bool {
        self.is_pod() || self.resource.ends_with(".slinky.slurm.net")
    }

    /// Whether the kind is a custom resource.
    pub(super) fn is_custom(&self) -> bool {
        let group = self.resource.split_once('.').map_or("", |(_, group)| group);
        group.contains('.') && !group.ends_with(".k8s.io")
    }

    fn has_generation(&self) -> bool {
        self.is_pod() || self.is_custom()
    }
}

/// The part of an object that a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything except a status subresource.
    Main,
    /// The status subresource.
    Status,
    /// Everything, including fields that the server sets: for writes of the test.
    Whole,
}

/// An object and its field owners.
pub(super) struct Entry {
    pub object: Arc<Value>,
    pub owners: Owners,
}

/// All objects and the log of their changes.
pub(super) struct Store {
    clock: Box<dyn Fn() -> Timestamp + Send>,
    /// By resource, namespace and name.
    objects: BTreeMap<String, BTreeMap<String, BTreeMap<String, Entry>>>,
    terminating_namespaces: BTreeSet<String>,
    pub version: u64,
    created: u64,
    pub log: Vec<Change>,
}

impl Store {
    pub fn new(clock: impl Fn() -> Timestamp + Send + 'static) -> Self {
        Self {
            clock: Box::new(clock),
            objects: BTreeMap::new(),
            terminating_namespaces: BTreeSet::new(),
            version: FIRST_VERSION,
            created: 0,
            log: Vec::new(),
        }
    }

    pub fn terminate_namespace(&mut self, namespace: &str) {
        self.terminating_namespaces.insert(namespace.to_owned());
    }

    pub fn find(&self, target: &Target) -> Option<&Entry> {
        self.objects.get(&target.resource)?.get(&target.namespace)?.get(&target.name)
    }

    pub fn get(&self, target: &Target) -> Outcome {
        Ok(self.entry(target)?.object.clone())
    }

    pub fn entry(&self, target: &Target) -> Outcome<&Entry> {
        self.find(target).ok_or_else(|| Refusal::not_found(target))
    }

    /// All objects of a kind in a namespace, or in all namespaces if it is empty.
    pub fn list(&self, resource: &str, namespace: &str) -> impl Iterator<Item = &Arc<Value>> {
        let namespaces = self.objects.get(resource).into_iter().flatten();
        let selected = namespaces.filter(move |(name, _)| namespace.is_empty() || *name == namespace);
        selected.flat_map(|(_, names)| names.values().map(|entry| &entry.object))
    }

    pub fn create(&mut self, target: &Target, part: Part, mut object: Value, write: &Write) -> Outcome {
        let target = &self.with_name(target, &object);
        if self.terminating_namespaces.contains(&target.namespace) {
            return Err(Refusal::namespace_terminating(target));
        }
        if target.name.is_empty() {
            return Err(Refusal::invalid(
                target,
                "metadata.name: Required value: name or generateName is required",
            ));
        }
        let metadata = metadata_of(&mut object);
        if part == Part::Whole {
            metadata.remove("resourceVersion");
        } else {
            metadata.retain(|field, _| !IMMUTABLE_METADATA.contains(&field.as_str()));
            if target.has_status() {
                object.as_object_mut().map(|fields| fields.remove("status"));
            }
            if target.is_pod() {
                object["status"] = json!({"phase": "Pending"});
            }
        }
        drop_empty(target, &mut object);
        validate(target, None, &object)?;
        if !object["metadata"]["resourceVersion"].is_null() {
            return Err(Refusal::version_on_create());
        }
        if self.find(target).is_some() {
            return Err(Refusal::already_exists(target));
        }
        self.created += 1;
        let (now, uid) = (json!(Time(self.now())), format!("00000000-0000-4000-8000-{:012x}", self.created));
        let metadata = metadata_of(&mut object);
        metadata.insert("name".into(), target.name.clone().into());
        if !target.namespace.is_empty() {
            metadata.insert("namespace".into(), target.namespace.clone().into());
        }
        metadata.entry("uid").or_insert(uid.into());
        metadata.entry("creationTimestamp").or_insert(now);
        if target.has_generation() {
            metadata.entry("generation").or_insert(1.into());
        }
        let mut owners = Owners::default();
        owners.record(&Value::Null, &object, write);
        Ok(self.save(target, object, owners))
    }

    /// The target with the object's name, which is generated if it has only a `generateName`.
    fn with_name(&mut self, target: &Target, object: &Value) -> Target {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let name = match (text("name"), text("generateName")) {
            ("", "") => target.name.clone(),
            ("", prefix) => format!("{prefix}{:05}", self.created),
            (name, _) => name.to_owned(),
        };
        Target { name, ..target.clone() }
    }

    /// Writes the result of `change`.
    pub fn update(
        &mut self,
        target: &Target,
        part: Part,
        write: &Write,
        change: impl FnOnce(&Entry) -> Outcome<Value>,
    ) -> Outcome {
        let entry = self.entry(target)?;
        let before = entry.object.clone();
        let mut after = change(entry)?;
        if part != Part::Whole {
            check_identity(target, &before, None, metadata_text(&after, "resourceVersion"))?;
        }
        let has_other_uid = metadata_text(&after, "uid").is_some_and(|uid| before["metadata"]["uid"] != uid);
        restore_protected(target, part, &before, &mut after);
        drop_empty(target, &mut after);
        // The API server ignores the metadata in a status write of a custom resource.
        if has_other_uid && !(part == Part::Status && target.is_custom()) {
            return Err(Refusal::invalid(target, "metadata.uid: field is immutable"));
        }
        validate(target, Some(&before), &after)?;
        if after == *before && entry.owners.is_unchanged_by(write) {
            return Ok(before);
        }
        let mut owners = entry.owners.clone();
        owners.record(&before, &after, write);
        if target.has_generation() && content_differs(&before, &after) {
            bump_generation(&mut after);
        }
        let removes_last_finalizer = before["metadata"]["deletionGracePeriodSeconds"] == 0
            && after["metadata"]["finalizers"].is_null();
        if removes_last_finalizer {
            self.remove(target);
            set_managed_fields(&mut after, &owners);
            return Ok(Arc::new(after));
        }
        Ok(self.save(target, after, owners))
    }

    /// Server-side apply. Returns the object and whether it was created.
    pub fn apply(
        &mut self,
        target: &Target,
        part: Part,
        mut config: Value,
        owner: Owner,
    ) -> Outcome<(Arc<Value>, bool)> {
        drop_nulls(&mut config);
        let config_fields = config.as_object_mut().ok_or_else(|| Refusal::bad_request("not an object"))?;
        config_fields.retain(|field, _| match part {
            Part::Main => field != "status" || !target.has_status(),
            Part::Status => ["apiVersion", "kind", "metadata", "status"].contains(&field.as_str()),
            Part::Whole => true,
        });
        let mut fields = Fields::of(&config);
        if part == Part::Status {
            fields = fields.only("f:status");
        }
        let write = Write::Apply { owner, fields };
        if part == Part::Main && self.find(target).is_none() {
            if !config["metadata"]["uid"].is_null() {
                return Err(Refusal::conflict(target, "has no object with that uid"));
            }
            // The API server ignores the resourceVersion of an apply that creates.
            metadata_of(&mut config).remove("resourceVersion");
            return Ok((self.create(target, part, config, &write)?, true));
        }
        let object = self.update(target, part, &write, |entry| {
            let mut object = Value::clone(&entry.object);
            merge_applied(&mut object, config);
            if let Write::Apply { owner, fields } = &write {
                entry.owners.abandoned(owner, fields).remove_from(&mut object);
            }
            Ok(object)
        })?;
        Ok((object, false))
    }

    /// All objects.
    pub fn all(&self) -> impl Iterator<Item = (Target, &Value)> {
        self.objects.iter().flat_map(|(resource, namespaces)| {
            namespaces.iter().flat_map(move |(namespace, names)| {
                names.iter().map(move |(name, entry)| {
                    let (resource, namespace, name) = (resource.clone(), namespace.clone(), name.clone());
                    (Target { resource, namespace, name }, &*entry.object)
                })
            })
        })
    }

    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub fn save(&mut self, target: &Target, mut object: Value, owners: Owners) -> Arc<Value> {
        self.version += 1;
        set_managed_fields(&mut object, &owners);
        metadata_of(&mut object).insert("resourceVersion".into(), self.version.to_string().into());
        let object = Arc::new(object);
        let namespaces = self.objects.entry(target.resource.clone()).or_default();
        let names = namespaces.entry(target.namespace.clone()).or_default();
        let before = names.insert(target.name.clone(), Entry { object: object.clone(), owners });
        let event = if before.is_some() { Event::Modified } else { Event::Added };
        self.log_change(target, event, before.map(|entry| entry.object), object.clone());
        object
    }

    /// Gives an object, if it exists, a new resourceVersion.
    pub fn touch(&mut self, target: &Target) {
        if let Some(entry) = self.find(target) {
            let (object, owners) = (Value::clone(&entry.object), entry.owners.clone());
            self.save(target, object, owners);
        }
    }

    /// Removes an object at once, regardless of finalizers.
    pub fn remove(&mut self, target: &Target) -> Option<Arc<Value>> {
        let before =
            self.objects.get_mut(&target.resource)?.get_mut(&target.namespace)?.remove(&target.name)?;
        self.version += 1;
        let mut last = Value::clone(&before.object);
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        let last = Arc::new(last);
        self.log_change(target, Event::Deleted, Some(before.object), last.clone());
        Some(last)
    }

    fn log_change(&mut self, target: &Target, event: Event, before: Option<Arc<Value>>, object: Arc<Value>) {
        self.log.push(Change { target: target.clone(), event, before, object, by: None });
    }
}

/// The `metadata` of an object, added if it is missing.
fn metadata_of(object: &mut Value) -> &mut Map<String, Value> {
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("replaced if not an object")
}

fn set_managed_fields(object: &mut Value, owners: &Owners) {
    let entries = owners.managed_fields(&object["apiVersion"]);
    set_or_remove(&mut object["metadata"], "managedFields", &entries.unwrap_or_default());
}

/// A text field of `metadata`; `None` if it is absent or empty.
pub(super) fn metadata_text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object["metadata"][field].as_str().filter(|text| !text.is_empty())
}

/// Checks preconditions: refuses a write with another UID or resource version than the live object's.
pub(super) fn check_identity(
    target: &Target,
    live: &Value,
    uid: Option<&str>,
    version: Option<&str>,
) -> Outcome<()> {
    for (field, required) in [("uid", uid), ("resourceVersion", version)] {
        let actual = &live["metadata"][field];
        if required.is_some_and(|required| actual != required) {
            return Err(Refusal::conflict(target, &format!("has another {field}: {actual}")));
        }
    }
    Ok(())
}

/// Restores the fields that a write to this part cannot change.
fn restore_protected(target: &Target, part: Part, before: &Value, after: &mut Value) {
    match part {
        Part::Whole => {
            let metadata = metadata_of(after);
            for field in IMMUTABLE_METADATA.iter().filter(|field| !before["metadata"][**field].is_null()) {
                metadata.entry(*field).or_insert_with(|| before["metadata"][*field].clone());
            }
            metadata.insert("resourceVersion".into(), before["metadata"]["resourceVersion"].clone());
        }
        Part::Status => {
            let status = after["status"].take();
            after.clone_from(before);
            set_or_remove(after, "status", &status);
        }
        Part::Main => {
            for field in ["apiVersion", "kind"] {
                set_or_remove(after, field, &before[field]);
            }
            if target.has_status() {
                set_or_remove(after, "status", &before["status"]);
            }
            metadata_of(after)
                .insert("resourceVersion".into(), before["metadata"]["resourceVersion"].clone());
            for field in IMMUTABLE_METADATA {
                set_or_remove(&mut after["metadata"], field, &before["metadata"][field]);
            }
        }
    }
}

/// Sets a field, or removes it if the value is null.
fn set_or_remove(object: &mut Value, field: &str, value: &Value) {
    if value.is_null() {
        object.as_object_mut().map(|fields| fields.remove(field));
    } else {
        object[field] = value.clone();
    }
}

/// Removes empty fields where the API server does not distinguish them from absent ones. It does so in all fields of
/// built-in kinds; only those that tests use are handled here.
fn drop_empty(target: &Target, object: &mut Value) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    metadata_of(object).retain(|_, value| !is_empty(value));
    if !target.is_custom() {
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            status.retain(|_, value| !is_empty(value));
        }
        if object.get("data").is_some_and(is_empty) {
            set_or_remove(object, "data", &Value::Null);
        }
    }
}

fn validate(target: &Target, before: Option<&Value>, after: &Value) -> Outcome<()> {
    let owners = after["metadata"]["ownerReferences"].as_array();
    if owners.is_some_and(|owners| owners.iter().filter(|owner| owner["controller"] == true).count() > 1) {
        return Err(Refusal::invalid(
            target,
            "metadata.ownerReferences: Only one reference can have Controller set to true",
        ));
    }
    let finalizers =
        |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if let Some(before) = before
        && !before["metadata"]["deletionTimestamp"].is_null()
    {
        let old = finalizers(before);
        if finalizers(after).iter().any(|finalizer| !old.contains(finalizer)) {
            return Err(Refusal::invalid(
                target,
                "metadata.finalizers: no new finalizers can be added if the object is being deleted",
            ));
        }
    }
    Ok(())
}

/// Whether a write changed fields that increment the generation.
fn content_differs<'a>(before: &'a Value, after: &'a Value) -> bool {
    let fields = |object: &'a Value| object.as_object().into_iter().flatten();
    let is_content = |(field, _): &(&String, &Value)| *field != "metadata" && *field != "status";
    !fields(before).filter(is_content).eq(fields(after).filter(is_content))
}

pub(super) fn bump_generation(object: &mut Value) {
    let generation = &mut object["metadata"]["generation"];
    *generation = (generation.as_i64().unwrap_or_default() + 1).into();
}
