//! Makes pods new when something changes that they read at start and that no other annotation stands for.
//!
//! An annotation on the pod template would do, but for the pods that run when we take over: they have none, and to give
//! them one would restart them. So the workload itself records the hash, and only a change of it reaches the template.

use serde_json::Value;
use slinky_api::labels::annotations::CONTENT_HASH;

/// `workload` with the hash of its content; its pods are made new if `live` has recorded another one.
#[must_use]
pub fn roll_on_change(mut workload: Value, live: Option<&Value>, hash: &str) -> Value {
    let recorded = live.map_or(&Value::Null, |live| &live["metadata"]["annotations"][CONTENT_HASH]);
    let rolled = live.and_then(|live| live.pointer("/spec/template/metadata/annotations")?.get(CONTENT_HASH));
    let template = match recorded.as_str() {
        Some(recorded) if recorded != hash => Some(hash.into()),
        _ => rolled.cloned(),
    };
    workload["metadata"]["annotations"][CONTENT_HASH] = hash.into();
    if let Some(template) = template {
        workload["spec"]["template"]["metadata"]["annotations"][CONTENT_HASH] = template;
    }
    workload
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(workload: &Value) -> &Value {
        &workload["spec"]["template"]["metadata"]["annotations"][CONTENT_HASH]
    }

    #[test]
    fn pods_are_made_new_by_changes_and_by_nothing_else() {
        let built = json!({ "metadata": {}, "spec": { "template": { "metadata": {} } } });
        let made = roll_on_change(built.clone(), None, "1");
        assert_eq!(*template(&made), Value::Null, "new pods read what there is");
        let taken_over = roll_on_change(built.clone(), Some(&built), "1");
        assert_eq!(taken_over, made, "pods that run go on");
        assert_eq!(roll_on_change(built.clone(), Some(&made), "1"), made);
        let changed = roll_on_change(built.clone(), Some(&made), "2");
        assert_eq!(*template(&changed), json!("2"));
        assert_eq!(roll_on_change(built.clone(), Some(&changed), "2"), changed);
        assert_eq!(*template(&roll_on_change(built, Some(&changed), "1")), json!("1"));
    }
}
