//! Field ownership, which decides which fields a server-side apply removes.
//!
//! Field sets have the format of `metadata.managedFields`: `f:NAME` is a field, `k:{..}` an item of a list by its key,
//! `v:VALUE` a member of a set. There is no schema: lists with keys are recognised by their name.

use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Fields of `metadata` without an owner, because the server sets them.
const SERVER_FIELDS: [&str; 9] = [
    "f:creationTimestamp",
    "f:deletionGracePeriodSeconds",
    "f:deletionTimestamp",
    "f:generation",
    "f:managedFields",
    "f:name",
    "f:namespace",
    "f:resourceVersion",
    "f:uid",
];

/// How a value is divided into parts that are owned separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Not divided.
    Atomic,
    /// Objects are divided into their fields; lists are atomic.
    Plain,
    /// A list whose items are identified by this key and are atomic.
    AtomicItems(&'static str),
    /// A list whose items are identified by this key and are divided into their fields.
    Items(&'static str),
    /// A list of unique members.
    Set,
}

impl Shape {
    /// The shape of the value of a field with this name.
    pub fn of_field(name: &str) -> Self {
        match name {
            "ownerReferences" => Self::AtomicItems("uid"),
            "conditions" => Self::Items("type"),
            "finalizers" => Self::Set,
            _ => Self::Plain,
        }
    }

    fn of_item(self) -> Self {
        if matches!(self, Self::Items(_)) { Self::Plain } else { Self::Atomic }
    }

    /// The name of a list item in a field set.
    fn segment(self, item: &Value) -> String {
        match self {
            Self::AtomicItems(key) | Self::Items(key) => format!("k:{{\"{key}\":{}}}", item[key]),
            Self::Atomic | Self::Plain | Self::Set => format!("v:{item}"),
        }
    }
}

/// A set of fields; an empty set below a name means that the field is owned as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Fields(BTreeMap<String, Fields>);

impl Fields {
    /// The fields of an object, without those that the server sets.
    pub fn of(object: &Value) -> Self {
        difference(&Value::Null, object, Shape::Plain).0.unwrap_or_default().without_server_fields()
    }

    fn without_server_fields(mut self) -> Self {
        self.0.retain(|name, _| name != "f:apiVersion" && name != "f:kind");
        if let Some(metadata) = self.0.get_mut("f:metadata") {
            metadata.0.retain(|name, _| !SERVER_FIELDS.contains(&name.as_str()));
            if metadata.is_empty() {
                self.0.remove("f:metadata");
            }
        }
        self
    }

    /// The fields below one top-level field.
    pub fn only(mut self, field: &str) -> Self {
        self.0.retain(|name, _| name == field);
        self
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, other: Self) {
        for (name, inner) in other.0 {
            self.0.entry(name).or_default().add(inner);
        }
    }

    fn subtract(&mut self, other: &Self) {
        for (name, inner) in &other.0 {
            let Some(ours) = self.0.get_mut(name) else { continue };
            if !inner.is_empty() {
                ours.subtract(inner);
            }
            if inner.is_empty() || ours.is_empty() {
                self.0.remove(name);
            }
        }
    }

    /// Removes these fields from an object, and parents that become empty.
    pub fn remove_from(&self, object: &mut Value) {
        self.remove_from_value(object, Shape::Plain);
    }

    fn remove_from_value(&self, value: &mut Value, shape: Shape) {
        match value {
            Value::Object(fields) => self.remove_from_fields(fields),
            Value::Array(items) => items.retain_mut(|item| match self.0.get(&shape.segment(item)) {
                None => true,
                Some(inner) => !inner.is_empty() && inner.remove_from_item(item, shape),
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn remove_from_fields(&self, fields: &mut Map<String, Value>) {
        for (segment, inner) in &self.0 {
            let name = segment.trim_start_matches("f:");
            let Some(value) = fields.get_mut(name) else { continue };
            if !inner.is_empty() {
                inner.remove_from_value(value, Shape::of_field(name));
            }
            if inner.is_empty() || is_empty(value) {
                fields.remove(name);
            }
        }
    }

    /// Removes fields from a list item; whether the item remains. Its key is removed only with the last other field.
    fn remove_from_item(&self, item: &mut Value, shape: Shape) -> bool {
        let (Shape::Items(key), Value::Object(fields)) = (shape, item) else { return false };
        let name = format!("f:{key}");
        let removes_key = self.0.contains_key(&name);
        let others = self.0.iter().filter(|(field, _)| **field != name);
        Self(others.map(|(field, inner)| (field.clone(), inner.clone())).collect())
            .remove_from_fields(fields);
        !removes_key || fields.len() > 1
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// The parts of a value that are owned separately; `None` for a value that is owned as a whole.
fn parts(value: &Value, shape: Shape) -> Option<BTreeMap<String, (&Value, Shape)>> {
    match (value, shape) {
        (Value::Object(fields), Shape::Plain) if !fields.is_empty() => Some(
            fields
                .iter()
                .map(|(name, value)| (format!("f:{name}"), (value, Shape::of_field(name))))
                .collect(),
        ),
        (Value::Array(items), Shape::AtomicItems(_) | Shape::Items(_) | Shape::Set) => {
            Some(items.iter().map(|item| (shape.segment(item), (item, shape.of_item()))).collect())
        }
        _ => None,
    }
}

/// The fields that were added or changed, and those that were removed.
fn difference(before: &Value, after: &Value, shape: Shape) -> (Option<Fields>, Option<Fields>) {
    if before == after {
        return (None, None);
    }
    let (old, new) = (parts(before, shape), parts(after, shape));
    if old.is_none() && new.is_none() {
        let leaf = Some(Fields::default());
        return if after.is_null() { (None, leaf) } else { (leaf, None) };
    }
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let (mut written, mut removed) = (Fields::default(), Fields::default());
    let absent = |shape| (&Value::Null, shape);
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        let shape = old.get(name).or(new.get(name)).map_or(Shape::Plain, |(_, shape)| *shape);
        let (before, _) = old.get(name).copied().unwrap_or(absent(shape));
        let (after, _) = new.get(name).copied().unwrap_or(absent(shape));
        let (inner_written, inner_removed) = difference(before, after, shape);
        written.0.extend(inner_written.map(|inner| (name.clone(), inner)));
        removed.0.extend(inner_removed.map(|inner| (name.clone(), inner)));
    }
    (Some(written).filter(|fields| !fields.is_empty()), Some(removed).filter(|fields| !fields.is_empty()))
}

/// A field manager with its operation and subresource, which together identify an owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub manager: String,
    pub applies: bool,
    pub status: bool,
}

/// The owner of a write, and how the write changes ownership.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// The owner gets the fields that the write changes.
    Update(Owner),
    /// The owner gets these fields, changed or not.
    Apply { owner: Owner, fields: Fields },
}

/// The owners of one object's fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Owners(BTreeMap<Owner, Fields>);

impl Owners {
    /// Fields that this owner applied before, does not apply now, and that have no other owner: the apply removes them.
    pub fn abandoned(&self, owner: &Owner, applied: &Fields) -> Fields {
        let mut abandoned = self.0.get(owner).cloned().unwrap_or_default();
        abandoned.subtract(applied);
        for fields in self.0.iter().filter(|(other, _)| *other != owner).map(|(_, fields)| fields) {
            abandoned.subtract(fields);
        }
        abandoned
    }

    /// Whether a write that changes no value leaves the ownership unchanged as well.
    pub fn is_unchanged_by(&self, write: &Write) -> bool {
        match write {
            Write::Update(_) => true,
            Write::Apply { owner, fields } => self.0.get(owner).unwrap_or(&Fields::default()) == fields,
        }
    }

    /// Records a write. Other owners lose the fields that it changed.
    pub fn record(&mut self, before: &Value, after: &Value, write: &Write) {
        let (written, removed) = difference(before, after, Shape::Plain);
        let written = written.unwrap_or_default().without_server_fields();
        for fields in self.0.values_mut() {
            fields.subtract(&written);
            fields.subtract(removed.as_ref().unwrap_or(&Fields::default()));
        }
        match write {
            Write::Update(owner) => self.0.entry(owner.clone()).or_default().add(written),
            Write::Apply { owner, fields } => {
                self.0.insert(owner.clone(), fields.clone());
            }
        }
        self.0.retain(|_, fields| !fields.is_empty());
    }

    /// `metadata.managedFields`, with apply operations only: no client reads the others.
    pub fn managed_fields(&self, api_version: &Value) -> Option<Value> {
        let entry = |(owner, fields): (&Owner, &Fields)| {
            let mut entry = json!({
                "manager": owner.manager, "operation": "Apply", "apiVersion": api_version,
                "fieldsType": "FieldsV1", "fieldsV1": fields,
            });
            if owner.status {
                entry["subresource"] = "status".into();
            }
            entry
        };
        let entries: Vec<Value> = self.0.iter().filter(|(owner, _)| owner.applies).map(entry).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }
}
