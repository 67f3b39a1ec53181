//! The objects, and what a write does to them: names, versions, generations, ownership. Knows nothing of HTTP.

use super::ownership::{Fields, Owner, Owners, Write};
use super::patch::{drop_nulls, overlay};
use super::refusal::Refusal;
use super::watch::{Change, Event};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where versions begin: none that a client makes up is that of an object.
const FIRST_VERSION: u64 = 1000;
/// Fields of `metadata` that no client can change.
const KEPT: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "uid",
];

/// What a request gives: the object as it is afterwards, or a refusal.
pub(super) type Outcome<T = Arc<Value>> = Result<T, Refusal>;

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Plural and group: `pods`, `nodesets.slinky.slurm.net`.
    pub resource: String,
    /// Empty for kinds without.
    pub namespace: String,
    /// Empty for lists and for objects that the server names.
    pub name: String,
}

impl Target {
    pub(super) fn is_pod(&self) -> bool {
        self.resource == "pods"
    }

    /// Whether the status is written apart from the rest.
    pub(super) fn has_status(&self) -> bool {
        self.is_pod() || self.resource.ends_with(".slinky.slurm.net")
    }

    /// Whether the kind is not one of Kubernetes itself.
    pub(super) fn is_custom(&self) -> bool {
        let group = self.resource.split_once('.').map_or("", |(_, group)| group);
        group.contains('.') && !group.ends_with(".k8s.io")
    }

    fn has_generation(&self) -> bool {
        self.is_pod() || self.is_custom()
    }
}

/// The half of an object that a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything but the status, if that is written apart.
    Main,
    /// The status alone.
    Status,
    /// Everything, fields of the server included: how a test writes.
    Whole,
}

/// An object and who wrote it.
pub(super) struct Entry {
    pub object: Arc<Value>,
    pub owners: Owners,
}

/// All objects and everything that happened to them.
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

    /// All objects of a kind, in one namespace or, without, in all.
    pub fn list(&self, resource: &str, namespace: &str) -> impl Iterator<Item = &Arc<Value>> {
        let namespaces = self.objects.get(resource).into_iter().flatten();
        let wanted = namespaces.filter(move |(name, _)| namespace.is_empty() || *name == namespace);
        wanted.flat_map(|(_, names)| names.values().map(|entry| &entry.object))
    }

    pub fn create(&mut self, target: &Target, part: Part, mut object: Value, write: &Write) -> Outcome {
        let target = &self.named(target, &object);
        if self.terminating_namespaces.contains(&target.namespace) {
            return Err(Refusal::namespace_terminates(target));
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
            metadata.retain(|field, _| !KEPT.contains(&field.as_str()));
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

    /// The target under the name that the object has or gets.
    fn named(&mut self, target: &Target, object: &Value) -> Target {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let name = match (text("name"), text("generateName")) {
            ("", "") => target.name.clone(),
            ("", prefix) => format!("{prefix}{:05}", self.created),
            (name, _) => name.to_owned(),
        };
        Target { name, ..target.clone() }
    }

    /// Writes what `change` makes of the object.
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
            check_identity(target, &before, None, claim(&after, "resourceVersion"))?;
        }
        let has_foreign_uid = claim(&after, "uid").is_some_and(|uid| before["metadata"]["uid"] != uid);
        keep(target, part, &before, &mut after);
        drop_empty(target, &mut after);
        // Nobody looks at the metadata in the status of a custom resource.
        if has_foreign_uid && !(part == Part::Status && target.is_custom()) {
            return Err(Refusal::invalid(target, "metadata.uid: field is immutable"));
        }
        validate(target, Some(&before), &after)?;
        if after == *before && entry.owners.know(write) {
            return Ok(before);
        }
        let mut owners = entry.owners.clone();
        owners.record(&before, &after, write);
        if target.has_generation() && content_differs(&before, &after) {
            bump_generation(&mut after);
        }
        let is_last_write = before["metadata"]["deletionGracePeriodSeconds"] == 0
            && after["metadata"]["finalizers"].is_null();
        if is_last_write {
            self.remove(target);
            show_owners(&mut after, &owners);
            return Ok(Arc::new(after));
        }
        Ok(self.save(target, after, owners))
    }

    /// Makes the object what `config` says, and makes it if it is not there; whether it was made.
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
            // A version, strange as it is, is not a condition where there is nothing.
            metadata_of(&mut config).remove("resourceVersion");
            return Ok((self.create(target, part, config, &write)?, true));
        }
        let object = self.update(target, part, &write, |entry| {
            let mut object = Value::clone(&entry.object);
            overlay(&mut object, config);
            if let Write::Apply { owner, fields } = &write {
                entry.owners.left_out(owner, fields).take_out_of(&mut object);
            }
            Ok(object)
        })?;
        Ok((object, false))
    }

    /// All objects with their names.
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
        show_owners(&mut object, &owners);
        metadata_of(&mut object).insert("resourceVersion".into(), self.version.to_string().into());
        let object = Arc::new(object);
        let namespaces = self.objects.entry(target.resource.clone()).or_default();
        let names = namespaces.entry(target.namespace.clone()).or_default();
        let before = names.insert(target.name.clone(), Entry { object: object.clone(), owners });
        let event = if before.is_some() { Event::Modified } else { Event::Added };
        self.note(target, event, before.map(|entry| entry.object), object.clone());
        object
    }

    /// Takes an object away, whatever holds it.
    pub fn remove(&mut self, target: &Target) -> Option<Arc<Value>> {
        let before =
            self.objects.get_mut(&target.resource)?.get_mut(&target.namespace)?.remove(&target.name)?;
        self.version += 1;
        let mut last = Value::clone(&before.object);
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        let last = Arc::new(last);
        self.note(target, Event::Deleted, Some(before.object), last.clone());
        Some(last)
    }

    fn note(&mut self, target: &Target, event: Event, before: Option<Arc<Value>>, object: Arc<Value>) {
        self.log.push(Change { target: target.clone(), event, before, object, by: None });
    }
}

/// `metadata`, which every object has.
fn metadata_of(object: &mut Value) -> &mut Map<String, Value> {
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("it was made one")
}

fn show_owners(object: &mut Value, owners: &Owners) {
    let entries = owners.managed_fields(&object["apiVersion"]);
    put_back(&mut object["metadata"], "managedFields", &entries.unwrap_or_default());
}

/// What an object that a client sends says about the one that it is meant for.
pub(super) fn claim<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object["metadata"][field].as_str().filter(|text| !text.is_empty())
}

/// Refuses a write that is meant for another object of that name, or for another version.
pub(super) fn check_identity(
    target: &Target,
    live: &Value,
    uid: Option<&str>,
    version: Option<&str>,
) -> Outcome<()> {
    for (field, wanted) in [("uid", uid), ("resourceVersion", version)] {
        let is = &live["metadata"][field];
        if wanted.is_some_and(|wanted| is != wanted) {
            return Err(Refusal::conflict(target, &format!("has another {field}: {is}")));
        }
    }
    Ok(())
}

/// Puts back what a write of this part cannot change.
fn keep(target: &Target, part: Part, before: &Value, after: &mut Value) {
    match part {
        Part::Whole => {
            let metadata = metadata_of(after);
            for field in KEPT.iter().filter(|field| !before["metadata"][**field].is_null()) {
                metadata.entry(*field).or_insert_with(|| before["metadata"][*field].clone());
            }
            metadata.insert("resourceVersion".into(), before["metadata"]["resourceVersion"].clone());
        }
        Part::Status => {
            let status = after["status"].take();
            after.clone_from(before);
            put_back(after, "status", &status);
        }
        Part::Main => {
            for field in ["apiVersion", "kind"] {
                put_back(after, field, &before[field]);
            }
            if target.has_status() {
                put_back(after, "status", &before["status"]);
            }
            metadata_of(after)
                .insert("resourceVersion".into(), before["metadata"]["resourceVersion"].clone());
            for field in KEPT {
                put_back(&mut after["metadata"], field, &before["metadata"][field]);
            }
        }
    }
}

fn put_back(object: &mut Value, field: &str, value: &Value) {
    if value.is_null() {
        object.as_object_mut().map(|fields| fields.remove(field));
    } else {
        object[field] = value.clone();
    }
}

/// Leaves out empty fields where they are not told from absent ones: everywhere in the kinds of Kubernetes, of which
/// no more is known here than these.
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
            put_back(object, "data", &Value::Null);
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

/// Whether a write changed what a generation counts.
fn content_differs<'a>(before: &'a Value, after: &'a Value) -> bool {
    let fields = |object: &'a Value| object.as_object().into_iter().flatten();
    let is_content = |(field, _): &(&String, &Value)| *field != "metadata" && *field != "status";
    !fields(before).filter(is_content).eq(fields(after).filter(is_content))
}

pub(super) fn bump_generation(object: &mut Value) {
    let generation = &mut object["metadata"]["generation"];
    *generation = (generation.as_i64().unwrap_or_default() + 1).into();
}
