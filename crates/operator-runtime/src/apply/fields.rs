//! Compares a live object with a desired one, by the field set that the API server keeps for our manager in
//! `metadata.managedFields`. The set shows which lists are keyed and which values are atomic, so no schema is needed.
//!
//! In a field set, `f:NAME` is a field, `k:{..}` an item of a keyed list, `v:VALUE` a member of a set, `.` the object
//! or item itself; an empty set is a leaf: a value that is owned as a whole.

use serde_json::{Map, Value};

/// Whether applying `desired` would change nothing: `live` has all its values, and our manager owns exactly its fields.
pub fn is_applied(desired: &Value, live: &Value, owned: &Value) -> bool {
    match (desired, live, owned.as_object()) {
        (Value::Object(desired), Value::Object(live), Some(owned)) if !owned.is_empty() => {
            object_is_applied(desired, live, owned)
        }
        (Value::Array(desired), Value::Array(live), Some(owned)) if !owned.is_empty() => {
            list_is_applied(desired, live, owned)
        }
        (desired, live, _) => is_part_of(desired, live),
    }
}

fn object_is_applied(
    desired: &Map<String, Value>,
    live: &Map<String, Value>,
    owned: &Map<String, Value>,
) -> bool {
    let all_owned_are_desired =
        owned.keys().filter_map(|key| key.strip_prefix("f:")).all(|field| desired.contains_key(field));
    all_owned_are_desired
        && desired.iter().all(|(field, value)| match (live.get(field), owned.get(&format!("f:{field}"))) {
            (Some(live), Some(owned)) => is_applied(value, live, owned),
            (None, Some(_)) => is_empty(value),
            (_, None) => false,
        })
}

fn list_is_applied(desired: &[Value], live: &[Value], owned: &Map<String, Value>) -> bool {
    let items: Vec<(&String, &Value)> = owned.iter().filter(|(key, _)| *key != ".").collect();
    // The items have to be in the desired order: in lists such as `env` the order matters.
    let mut next = 0;
    items.len() == desired.len()
        && desired.iter().all(|item| {
            let Some((key, owned)) = items.iter().find(|(key, _)| identifies(key, item, true)) else {
                return false;
            };
            let found = live.iter().skip(next).position(|live| identifies(key, live, false));
            found.is_some_and(|offset| {
                let position = next + offset;
                next = position + 1;
                is_applied(item, &live[position], owned)
            })
        })
}

/// Whether a key of a field set identifies this list item. A desired item may omit key fields that have a default.
fn identifies(key: &str, item: &Value, absent_matches: bool) -> bool {
    if let Some(Ok(value)) = key.strip_prefix("v:").map(serde_json::from_str::<Value>) {
        return value == *item;
    }
    let Some(Ok(Value::Object(keys))) = key.strip_prefix("k:").map(serde_json::from_str) else {
        return false;
    };
    keys.iter().all(|(field, value)| item.get(field).map_or(absent_matches, |found| found == value))
}

/// Whether `live` contains all of `desired`. It may have more fields, because the API server sets defaults, but not
/// more list items, because the list is owned as a whole.
fn is_part_of(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => desired.iter().all(|(field, value)| {
            live.get(field).map_or_else(|| is_empty(value), |live| is_part_of(value, live))
        }),
        (Value::Array(desired), Value::Array(live)) => {
            desired.len() == live.len()
                && desired.iter().zip(live).all(|(desired, live)| is_part_of(desired, live))
        }
        (desired, live) => desired == live,
    }
}

/// Empty maps and lists, some of which the API server drops.
fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// The fields that are in either set.
pub fn union(left: &mut Value, right: &Value) {
    if let (Value::Object(left), Value::Object(right)) = (left, right) {
        for (key, fields) in right {
            union(left.entry(key).or_insert_with(|| Value::Object(Map::new())), fields);
        }
    }
}

/// Removes null fields: for the API server they are absent.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{drop_nulls, is_applied, union};
    use proptest::prelude::{Just, Strategy, prop, prop_assert, prop_oneof, proptest};
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::equal(json!({"data": {"a": "1"}}), json!({"data": {"a": "1"}}), true)]
    #[case::key_of_another_manager(json!({"data": {"a": "1"}}), json!({"data": {"a": "1", "x": "y"}}), true)]
    #[case::changed_value(json!({"data": {"a": "2"}}), json!({"data": {"a": "1"}}), false)]
    #[case::removed_key(json!({"data": {}}), json!({"data": {"a": "1"}}), false)]
    #[case::removed_field(json!({}), json!({"data": {"a": "1"}}), false)]
    #[case::added_key(json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": "1", "b": "2"}}), false)]
    #[case::lost_value(json!({"data": {"a": "1"}}), json!({"data": {}}), false)]
    #[case::lost_field(json!({"data": {"a": "1"}}), json!({}), false)]
    fn map_is_compared_by_owned_keys(#[case] desired: Value, #[case] live: Value, #[case] expected: bool) {
        let owned = json!({"f:data": {".": {}, "f:a": {}}});
        assert_eq!(is_applied(&desired, &live, &owned), expected);
    }

    #[rstest]
    #[case::dropped(json!({"a": {}}), json!({}), true)]
    #[case::dropped_inside(json!({"a": {"b": []}}), json!({"a": {}}), true)]
    #[case::lost(json!({"a": {"b": 0}}), json!({"a": {}}), false)]
    #[case::not_owned(json!({"a": {}, "c": {}}), json!({}), false)]
    fn empty_value_equals_a_value_that_the_server_dropped(
        #[case] desired: Value,
        #[case] live: Value,
        #[case] expected: bool,
    ) {
        assert_eq!(is_applied(&desired, &live, &json!({"f:a": {}})), expected);
    }

    #[rstest]
    #[case::default_in_live(json!([{"port": 80}]), json!([{"port": 80, "protocol": "TCP"}]), true)]
    #[case::item_of_another_manager(json!([{"port": 80}]), json!([{"port": 1, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}]), true)]
    #[case::missing_item(json!([{"port": 80}]), json!([{"port": 1, "protocol": "TCP"}]), false)]
    #[case::added_item(json!([{"port": 80}, {"port": 81}]), json!([{"port": 80, "protocol": "TCP"}]), false)]
    #[case::removed_item(json!([]), json!([{"port": 80, "protocol": "TCP"}]), false)]
    #[case::item_is_not_owned(json!([{"port": 81}]), json!([{"port": 81, "protocol": "TCP"}]), false)]
    fn keyed_list_is_compared_by_owned_items(
        #[case] desired: Value,
        #[case] live: Value,
        #[case] expected: bool,
    ) {
        let owned = json!({r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}}});
        assert_eq!(is_applied(&desired, &live, &owned), expected);
    }

    #[test]
    fn order_of_keyed_items_matters() {
        let owned = json!({r#"k:{"name":"a"}"#: {"f:name": {}}, r#"k:{"name":"b"}"#: {"f:name": {}}});
        let desired = json!([{"name": "a"}, {"name": "b"}]);
        assert!(is_applied(&desired, &json!([{"name": "a"}, {"name": "x"}, {"name": "b"}]), &owned));
        assert!(!is_applied(&desired, &json!([{"name": "b"}, {"name": "a"}]), &owned));
    }

    #[rstest]
    #[case::member(json!(["a"]), json!(["x", "a"]), true)]
    #[case::not_a_member(json!(["a"]), json!(["x"]), false)]
    fn set_is_compared_by_owned_members(#[case] desired: Value, #[case] live: Value, #[case] expected: bool) {
        assert_eq!(is_applied(&desired, &live, &json!({"v:\"a\"": {}})), expected);
    }

    #[rstest]
    #[case::default_inside(json!({"fieldPath": "p"}), json!({"fieldPath": "p", "apiVersion": "v1"}), true)]
    #[case::changed_inside(json!({"fieldPath": "p"}), json!({"fieldPath": "q"}), false)]
    #[case::same_list(json!([{"a": 1}]), json!([{"a": 1, "b": 2}]), true)]
    #[case::longer_list(json!([{"a": 1}]), json!([{"a": 1}, {"a": 2}]), false)]
    fn atomic_list_is_compared_by_all_items(
        #[case] desired: Value,
        #[case] live: Value,
        #[case] expected: bool,
    ) {
        assert_eq!(is_applied(&desired, &live, &json!({})), expected);
    }

    #[test]
    fn union_has_the_fields_of_both() {
        let mut left = json!({"f:spec": {"f:a": {}}});
        union(&mut left, &json!({"f:spec": {"f:b": {".": {}}}, "f:data": {}}));
        assert_eq!(left, json!({"f:spec": {"f:a": {}, "f:b": {".": {}}}, "f:data": {}}));
    }

    #[test]
    fn nulls_are_dropped_at_every_depth() {
        let mut value = json!({"a": null, "b": {"c": null, "d": [{"e": null}]}});
        drop_nulls(&mut value);
        assert_eq!(value, json!({"b": {"d": [{}]}}));
    }

    /// Objects of nested maps and atomic lists.
    fn objects() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![any_scalar(), prop::collection::vec(any_scalar(), 0..3).prop_map(Value::Array)];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop::collection::btree_map("[a-d]", inner, 1..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        })
        .prop_filter("an object", Value::is_object)
    }

    fn any_scalar() -> impl Strategy<Value = Value> {
        prop_oneof![Just(json!("x")), Just(json!("y")), Just(json!(1)), Just(json!(true))]
    }

    /// The field set that the server would record for an apply of `value`; lists are owned as a whole.
    fn field_set(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (format!("f:{name}"), field_set(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => json!({}),
        }
    }

    /// Applies `desired` to `live` as the API server does: removes owned fields that are not desired, sets desired
    /// ones.
    fn merge(live: &mut Value, owned: &Value, desired: &Value) {
        match (live, desired) {
            (Value::Object(live), Value::Object(desired)) => {
                for (key, owned) in owned.as_object().into_iter().flatten() {
                    let field = key.trim_start_matches("f:");
                    if !desired.contains_key(field)
                        && owned.as_object().is_some_and(serde_json::Map::is_empty)
                    {
                        live.remove(field);
                    }
                }
                for (field, value) in desired {
                    let owned = owned.get(format!("f:{field}")).cloned().unwrap_or_default();
                    merge(live.entry(field).or_insert(Value::Null), &owned, value);
                }
            }
            (live, desired) => *live = desired.clone(),
        }
    }

    proptest! {
        #[test]
        fn applied_object_needs_no_apply(mut live in objects(), before in objects(), desired in objects()) {
            merge(&mut live, &json!({}), &before);
            merge(&mut live, &field_set(&before), &desired);
            prop_assert!(is_applied(&desired, &live, &field_set(&desired)), "{desired} on {live}");
        }

        #[test]
        fn changed_desired_object_needs_an_apply(live in objects(), before in objects(), desired in objects()) {
            let mut live = live;
            merge(&mut live, &json!({}), &before);
            prop_assert!(before == desired || !is_applied(&desired, &live, &field_set(&before)), "{desired} on {live}");
        }
    }
}
