//! Who wrote which field, which decides what a server-side apply removes.
//!
//! Fields are kept as the API server shows them in `metadata.managedFields`: `f:NAME` is a field, `k:{..}` an item of a
//! list by its key, `v:VALUE` a member of a set. There is no schema: lists that have keys are known by their name.

use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Fields of `metadata` that nobody owns: the server keeps them.
const KEPT_BY_SERVER: [&str; 9] = [
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

/// Into which parts a value falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Into none.
    Atom,
    /// Into the fields of objects; lists are atoms.
    Plain,
    /// Into the items of a list, told apart by a key; these are atoms.
    Atoms(&'static str),
    /// Into the items of a list, told apart by a key; these fall into their fields.
    Items(&'static str),
    /// Into the members of a list.
    Set,
}

impl Shape {
    /// The shape of the list, should it be one, in a field of this name.
    pub fn of_field(name: &str) -> Self {
        match name {
            "ownerReferences" => Self::Atoms("uid"),
            "conditions" => Self::Items("type"),
            "finalizers" => Self::Set,
            _ => Self::Plain,
        }
    }

    fn of_item(self) -> Self {
        if matches!(self, Self::Items(_)) { Self::Plain } else { Self::Atom }
    }

    /// How a set of fields names an item of such a list.
    fn segment(self, item: &Value) -> String {
        match self {
            Self::Atoms(key) | Self::Items(key) => format!("k:{{\"{key}\":{}}}", item[key]),
            Self::Atom | Self::Plain | Self::Set => format!("v:{item}"),
        }
    }
}

/// A set of fields; an empty one below a name is a field that is owned as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Fields(BTreeMap<String, Fields>);

impl Fields {
    /// The fields that an object has, but for those that the server keeps.
    pub fn of(object: &Value) -> Self {
        difference(&Value::Null, object, Shape::Plain).0.unwrap_or_default().without_server_fields()
    }

    fn without_server_fields(mut self) -> Self {
        self.0.retain(|name, _| name != "f:apiVersion" && name != "f:kind");
        if let Some(metadata) = self.0.get_mut("f:metadata") {
            metadata.0.retain(|name, _| !KEPT_BY_SERVER.contains(&name.as_str()));
            if metadata.is_empty() {
                self.0.remove("f:metadata");
            }
        }
        self
    }

    /// Those below one field of the object.
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

    /// Takes these fields out of an object, and what becomes empty by that.
    pub fn take_out_of(&self, object: &mut Value) {
        self.take_out(object, Shape::Plain);
    }

    fn take_out(&self, value: &mut Value, shape: Shape) {
        match value {
            Value::Object(fields) => self.take_fields(fields),
            Value::Array(items) => items.retain_mut(|item| match self.0.get(&shape.segment(item)) {
                None => true,
                Some(inner) => !inner.is_empty() && inner.leaves_item(item, shape),
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn take_fields(&self, fields: &mut Map<String, Value>) {
        for (segment, inner) in &self.0 {
            let name = segment.trim_start_matches("f:");
            let Some(value) = fields.get_mut(name) else { continue };
            if !inner.is_empty() {
                inner.take_out(value, Shape::of_field(name));
            }
            if inner.is_empty() || is_empty(value) {
                fields.remove(name);
            }
        }
    }

    /// Takes fields out of an item; whether there is anything left. The key goes last.
    fn leaves_item(&self, item: &mut Value, shape: Shape) -> bool {
        let (Shape::Items(key), Value::Object(fields)) = (shape, item) else { return false };
        let name = format!("f:{key}");
        let takes_key = self.0.contains_key(&name);
        let others = self.0.iter().filter(|(field, _)| **field != name);
        Self(others.map(|(field, inner)| (field.clone(), inner.clone())).collect()).take_fields(fields);
        !takes_key || fields.len() > 1
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// The parts of a value that are owned one by one; `None` for a value that is owned as a whole.
fn parts(value: &Value, shape: Shape) -> Option<BTreeMap<String, (&Value, Shape)>> {
    match (value, shape) {
        (Value::Object(fields), Shape::Plain) if !fields.is_empty() => Some(
            fields
                .iter()
                .map(|(name, value)| (format!("f:{name}"), (value, Shape::of_field(name))))
                .collect(),
        ),
        (Value::Array(items), Shape::Atoms(_) | Shape::Items(_) | Shape::Set) => {
            Some(items.iter().map(|item| (shape.segment(item), (item, shape.of_item()))).collect())
        }
        _ => None,
    }
}

/// The fields that got another value, and those that went.
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
    let (mut written, mut gone) = (Fields::default(), Fields::default());
    let absent = |shape| (&Value::Null, shape);
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        let shape = old.get(name).or(new.get(name)).map_or(Shape::Plain, |(_, shape)| *shape);
        let (before, _) = old.get(name).copied().unwrap_or(absent(shape));
        let (after, _) = new.get(name).copied().unwrap_or(absent(shape));
        let (inner_written, inner_gone) = difference(before, after, shape);
        written.0.extend(inner_written.map(|inner| (name.clone(), inner)));
        gone.0.extend(inner_gone.map(|inner| (name.clone(), inner)));
    }
    (Some(written).filter(|fields| !fields.is_empty()), Some(gone).filter(|fields| !fields.is_empty()))
}

/// In what capacity somebody writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub manager: String,
    pub applies: bool,
    pub status: bool,
}

/// A write, as far as ownership goes.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// The writer owns what it changed.
    Update(Owner),
    /// The writer owns these fields, changed or not.
    Apply { owner: Owner, fields: Fields },
}

/// Who owns which fields of one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Owners(BTreeMap<Owner, Fields>);

impl Owners {
    /// What this owner applied before, leaves out now, and nobody else owns.
    pub fn left_out(&self, owner: &Owner, applied: &Fields) -> Fields {
        let mut left_out = self.0.get(owner).cloned().unwrap_or_default();
        left_out.subtract(applied);
        for fields in self.0.iter().filter(|(other, _)| *other != owner).map(|(_, fields)| fields) {
            left_out.subtract(fields);
        }
        left_out
    }

    /// Whether a write that changed no value says nothing new.
    pub fn know(&self, write: &Write) -> bool {
        match write {
            Write::Update(_) => true,
            Write::Apply { owner, fields } => self.0.get(owner).unwrap_or(&Fields::default()) == fields,
        }
    }

    /// Notes a write. What it changed is no longer anybody else's.
    pub fn record(&mut self, before: &Value, after: &Value, write: &Write) {
        let (written, gone) = difference(before, after, Shape::Plain);
        let written = written.unwrap_or_default().without_server_fields();
        for fields in self.0.values_mut() {
            fields.subtract(&written);
            fields.subtract(gone.as_ref().unwrap_or(&Fields::default()));
        }
        match write {
            Write::Update(owner) => self.0.entry(owner.clone()).or_default().add(written),
            Write::Apply { owner, fields } => {
                self.0.insert(owner.clone(), fields.clone());
            }
        }
        self.0.retain(|_, fields| !fields.is_empty());
    }

    /// `metadata.managedFields`, with those who apply only: nobody asks for the others.
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
