//! Decides whether an object has to be applied. Pure: objects are passed as JSON.

use super::fields::{is_applied, union};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use slinky_api::labels::{APP_COMPONENT, APP_INSTANCE, APP_NAME};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The field manager of the operator that ours may replace: the default name of binaries that are built with
/// Kubebuilder.
const PREDECESSOR: &str = "manager";

/// The labels that identify the children of one custom resource. All three are required: Helm charts set the first two,
/// too.
const IDENTITY: [&str; 3] = [APP_NAME, APP_INSTANCE, APP_COMPONENT];

/// Fields of `metadata` that the API server sets, or that identify the object. They are not compared.
const SERVER_FIELDS: [&str; 8] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The part of an object that one endpoint writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// All fields except the status.
    Main,
    /// Only the status.
    Status,
}

impl Part {
    /// The comparable content of this part of an object.
    fn of(self, object: &Value) -> Value {
        if self == Self::Status {
            return json!({ "status": object.get("status") });
        }
        let mut content = object.clone();
        if let Some(fields) = content.as_object_mut() {
            fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind" | "status"));
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|field, _| !SERVER_FIELDS.contains(&field.as_str()));
                if metadata.is_empty() {
                    fields.remove("metadata");
                }
            }
        }
        content
    }

    /// Whether an entry of managedFields covers this part.
    fn is_of(self, entry: &Value) -> bool {
        let subresource = entry.get("subresource").and_then(Value::as_str).unwrap_or_default();
        subresource == if self == Self::Status { "status" } else { "" }
    }
}

/// What to do with a live object.
#[derive(Debug, PartialEq)]
pub enum Decision {
    /// It is as desired.
    Keep,
    /// It has to be applied.
    Apply,
    /// It is being deleted: a write would be lost.
    Terminating,
    /// It is marked immutable.
    Immutable,
    /// Another object controls it.
    Foreign(Box<OwnerReference>),
    /// No object controls it, and it lacks this mark of the desired object.
    Unmarked(String),
}

/// Decides for the main part of `live`.
pub fn decide(desired: &Value, live: &Value, manager: &str) -> Decision {
    let desired_owner = controller_of(desired).map(|owner| owner.uid);
    if let Some(owner) = controller_of(live)
        && Some(&owner.uid) != desired_owner.as_ref()
    {
        return Decision::Foreign(Box::new(owner));
    }
    if let Some(mark) = missing_mark(desired, live) {
        return Decision::Unmarked(mark);
    }
    if !live["metadata"]["deletionTimestamp"].is_null() {
        return Decision::Terminating;
    }
    if live["immutable"] == true {
        return Decision::Immutable;
    }
    if needs_apply(desired, live, manager, Part::Main) { Decision::Apply } else { Decision::Keep }
}

/// Whether one part has to be applied. Without managedFields (some caches drop them) the owned fields are unknown, and
/// it has to be.
pub fn needs_apply(desired: &Value, live: &Value, manager: &str, part: Part) -> bool {
    owned_fields(live, manager, part)
        .is_none_or(|owned| !is_applied(&part.of(desired), &part.of(live), owned))
}

/// What `live` lacks to be an earlier version of `desired`: one of its owners, or else its identity.
///
/// Without an owner are objects of a custom resource that was deleted with `--cascade=orphan`. They still have the
/// labels that identify them, as those of the operator that ours may replace do. Objects that several custom resources
/// own have no labels, and are identified by their selector.
fn missing_mark(desired: &Value, live: &Value) -> Option<String> {
    let desired_owners = owner_uids(desired);
    if owner_uids(live).iter().any(|uid| desired_owners.contains(uid)) {
        return None;
    }
    let (desired_labels, live_labels) = (&desired["metadata"]["labels"], &live["metadata"]["labels"]);
    let identity: Vec<_> =
        IDENTITY.iter().filter_map(|key| Some((key, desired_labels.get(key)?.as_str()?))).collect();
    if !identity.is_empty() {
        let is_marked = identity.iter().all(|(key, value)| live_labels[key] == *value);
        let labels: Vec<_> = identity.iter().map(|(key, value)| format!("{key}={value}")).collect();
        return (!is_marked).then(|| format!("the labels {}", labels.join(",")));
    }
    let selector = &desired["spec"]["selector"];
    if selector.is_null() {
        return Some("an owner reference".to_owned());
    }
    (live["spec"]["selector"] != *selector).then(|| format!("the selector {selector}"))
}

fn owner_uids(object: &Value) -> Vec<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter_map(|owner| owner["uid"].as_str()).collect()
}

/// The reference to the object that controls this one.
fn controller_of(object: &Value) -> Option<OwnerReference> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let controller = owners.iter().find(|owner| owner["controller"] == true)?;
    serde_json::from_value(controller.clone()).ok()
}

/// A hash of everything that an apply of this part depends on: its content and the fields that our manager owns.
pub fn fingerprint(object: &Value, manager: &str, part: Part) -> u64 {
    let mut hasher = DefaultHasher::new();
    part.of(object).to_string().hash(&mut hasher);
    owned_fields(object, manager, part).map(Value::to_string).hash(&mut hasher);
    hasher.finish()
}

/// The managedFields after our manager took over the fields of [`PREDECESSOR`]; `None` if it owns none.
///
/// The predecessor wrote by update and patch. After an apply both managers would own every field, and a field that we
/// drop later would stay, because the predecessor still owns it. So its entry is moved to our manager before the first
/// apply. Only for objects that the desired owner controls: many unrelated operators use the field manager "manager",
/// too.
pub fn take_over(desired: &Value, live: &Value, manager: &str) -> Option<Vec<Value>> {
    if controller_of(live)?.uid != controller_of(desired)?.uid {
        return None;
    }
    let entries = live["metadata"]["managedFields"].as_array()?;
    let is_predecessor = |entry: &Value| {
        entry["manager"] == PREDECESSOR && entry["operation"] == "Update" && Part::Main.is_of(entry)
    };
    let is_ours = |entry: &Value| is_entry_of(entry, manager, Part::Main);
    let mut entry = entries.iter().find(|entry| is_predecessor(entry))?.clone();
    entry["manager"] = manager.into();
    entry["operation"] = "Apply".into();
    for other in entries.iter().filter(|entry| is_predecessor(entry) || is_ours(entry)) {
        union(&mut entry["fieldsV1"], &other["fieldsV1"]);
    }
    let others = entries.iter().filter(|entry| !is_predecessor(entry) && !is_ours(entry)).cloned();
    Some(others.chain([entry]).collect())
}

fn owned_fields<'a>(live: &'a Value, manager: &str, part: Part) -> Option<&'a Value> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    entries.iter().find(|entry| is_entry_of(entry, manager, part))?.get("fieldsV1")
}

fn is_entry_of(entry: &Value, manager: &str, part: Part) -> bool {
    entry["manager"] == manager && entry["operation"] == "Apply" && part.is_of(entry)
}

#[cfg(test)]
mod tests {
    use super::{Decision, Part, decide, fingerprint, missing_mark, needs_apply, take_over};
    use rstest::rstest;
    use serde_json::{Value, json};

    const MANAGER: &str = "flower-controller";

    fn owner(uid: &str) -> Value {
        json!([{"apiVersion": "v1", "kind": "Flower", "name": "rose", "uid": uid, "controller": true}])
    }

    fn desired() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "ownerReferences": owner("1")},
            "data": {"k": "v"},
        })
    }

    fn entry(manager: &str, operation: &str) -> Value {
        json!({"manager": manager, "operation": operation, "fieldsV1": {
            "f:metadata": {"f:ownerReferences": {r#"k:{"uid":"1"}"#: {}}},
            "f:data": {"f:k": {}},
        }})
    }

    fn live() -> Value {
        let mut live = desired();
        live["metadata"]["uid"] = "u".into();
        live["metadata"]["resourceVersion"] = "7".into();
        live["metadata"]["managedFields"] = json!([entry(MANAGER, "Apply")]);
        live
    }

    fn live_with(path: &str, value: Value) -> Value {
        let mut live = live();
        let (parent, field) = path.rsplit_once('/').unwrap();
        live.pointer_mut(parent).unwrap()[field] = value;
        live
    }

    #[rstest]
    #[case::as_desired(live(), Decision::Keep)]
    #[case::foreign_label(live_with("/metadata/labels", json!({"x": "y"})), Decision::Keep)]
    #[case::status_is_not_compared(live_with("/status", json!({"phase": "x"})), Decision::Keep)]
    #[case::changed(live_with("/data/k", "other".into()), Decision::Apply)]
    #[case::unknown_field_set(live_with("/metadata/managedFields", Value::Null), Decision::Apply)]
    #[case::field_set_of_another_manager(
        live_with("/metadata/managedFields", json!([entry("kubectl", "Apply")])), Decision::Apply)]
    #[case::field_set_of_our_update(
        live_with("/metadata/managedFields", json!([entry(MANAGER, "Update")])), Decision::Apply)]
    #[case::terminating(live_with("/metadata/deletionTimestamp", "now".into()), Decision::Terminating)]
    #[case::immutable(live_with("/immutable", true.into()), Decision::Immutable)]
    fn decision_depends_on_the_live_object(#[case] live: Value, #[case] expected: Decision) {
        assert_eq!(decide(&desired(), &live, MANAGER), expected);
    }

    #[test]
    fn object_with_another_controller_is_foreign_in_any_state() {
        for mut live in [live_with("/metadata/deletionTimestamp", "now".into()), live()] {
            live["metadata"]["ownerReferences"] = owner("2");
            let decision = decide(&desired(), &live, MANAGER);
            assert!(matches!(&decision, Decision::Foreign(owner) if owner.uid == "2"), "{decision:?}");
            let mut unowned = desired();
            unowned["metadata"]["ownerReferences"] = Value::Null;
            assert!(matches!(decide(&unowned, &live, MANAGER), Decision::Foreign(_)));
        }
    }

    fn labelled(values: [&str; 3]) -> Value {
        let keys = ["app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"];
        keys.into_iter().zip(values).map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
    }

    #[rstest]
    #[case::our_labels(labelled(["login", "front", "login"]), true)]
    #[case::of_a_helm_chart(json!({"app.kubernetes.io/name": "login", "app.kubernetes.io/instance": "front"}), false)]
    #[case::of_another_resource(labelled(["login", "back", "login"]), false)]
    #[case::no_labels(Value::Null, false)]
    fn object_without_owner_is_adopted_only_with_our_labels(#[case] labels: Value, #[case] is_adopted: bool) {
        let mut desired = desired();
        desired["metadata"]["labels"] = labelled(["login", "front", "login"]);
        for state in ["ready", "deletionTimestamp"] {
            let mut live = live_with("/metadata/ownerReferences", Value::Null);
            live["metadata"]["labels"] = labels.clone();
            live["metadata"][state] = "x".into();
            let decision = decide(&desired, &live, MANAGER);
            assert_eq!(!matches!(&decision, Decision::Unmarked(_)), is_adopted, "{decision:?}");
            let mark = "the labels app.kubernetes.io/name=login,app.kubernetes.io/instance=front,\
                app.kubernetes.io/component=login";
            assert!(is_adopted || decision == Decision::Unmarked(mark.to_owned()), "{decision:?}");
        }
    }

    #[rstest]
    #[case::one_of_several_owners(json!([{"uid": "1"}, {"uid": "2"}]), json!({"a": "other"}), None)]
    #[case::same_selector(json!([{"uid": "2"}]), json!({"a": "b"}), None)]
    #[case::other_selector(Value::Null, json!({"a": "other"}), Some(r#"the selector {"a":"b"}"#))]
    fn object_without_labels_is_identified_by_owner_or_selector(
        #[case] owners: Value,
        #[case] selector: Value,
        #[case] missing: Option<&str>,
    ) {
        let mut desired = desired();
        desired["metadata"]["ownerReferences"] = json!([{"uid": "1"}, {"uid": "3"}]);
        desired["spec"]["selector"] = json!({"a": "b"});
        let mut live = live_with("/metadata/ownerReferences", owners);
        live["spec"]["selector"] = selector;
        assert_eq!(missing_mark(&desired, &live).as_deref(), missing);
    }

    #[test]
    fn object_without_owner_labels_and_selector_is_not_adopted() {
        let live = live_with("/metadata/ownerReferences", Value::Null);
        assert_eq!(decide(&desired(), &live, MANAGER), Decision::Unmarked("an owner reference".to_owned()));
    }

    #[test]
    fn status_is_compared_by_the_field_set_of_the_status_subresource() {
        let desired_status = json!({"status": {"replicas": 1}});
        let mut object = live();
        object["status"] = json!({"replicas": 1});
        assert!(needs_apply(&desired_status, &object, MANAGER, Part::Status));
        object["metadata"]["managedFields"] = json!([
            entry(MANAGER, "Apply"),
            {"manager": MANAGER, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}},
        ]);
        assert!(!needs_apply(&desired_status, &object, MANAGER, Part::Status));
        object["status"]["replicas"] = 2.into();
        assert!(needs_apply(&desired_status, &object, MANAGER, Part::Status));
        assert_eq!(decide(&desired(), &object, MANAGER), Decision::Keep);
    }

    #[rstest]
    #[case::version(live_with("/metadata/resourceVersion", "8".into()), true)]
    #[case::status(live_with("/status", json!({"phase": "x"})), true)]
    #[case::data(live_with("/data/k", "other".into()), false)]
    #[case::foreign_label(live_with("/metadata/labels", json!({"x": "y"})), false)]
    #[case::ownership(live_with("/metadata/managedFields", json!([])), false)]
    fn fingerprint_covers_content_and_owned_fields_only(#[case] live: Value, #[case] equal: bool) {
        let (before, after) =
            (fingerprint(&self::live(), MANAGER, Part::Main), fingerprint(&live, MANAGER, Part::Main));
        assert_eq!(before == after, equal);
    }

    #[test]
    fn take_over_moves_the_predecessors_fields_to_our_manager_only() {
        let mut live = live();
        let mut old = entry("manager", "Update");
        old["fieldsV1"]["f:data"]["f:old"] = json!({});
        let status =
            json!({"manager": "manager", "operation": "Update", "subresource": "status", "fieldsV1": {}});
        let user = entry("kubectl-edit", "Update");
        live["metadata"]["managedFields"] = json!([user, old, status, entry(MANAGER, "Apply")]);
        let entries = take_over(&desired(), &live, MANAGER).expect("fields to take over");
        let mut ours = entry(MANAGER, "Apply");
        ours["fieldsV1"]["f:data"]["f:old"] = json!({});
        assert_eq!(entries, [user, status, ours]);
    }

    #[test]
    fn fields_of_an_object_without_our_owner_are_not_taken_over() {
        let mut live = live();
        live["metadata"]["managedFields"] = json!([entry("manager", "Update")]);
        assert!(take_over(&desired(), &live, MANAGER).is_some());
        live["metadata"]["ownerReferences"] = Value::Null;
        assert!(take_over(&desired(), &live, MANAGER).is_none());
    }
}
