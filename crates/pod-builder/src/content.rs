//! Restarts pods when content changes that they read at start and that no other annotation covers.
//!
//! A hash annotation on the pod template would suffice, except for pods that run when this operator takes over: their
//! template has none, and adding it would restart them. So the workload records the hash, and only a change of the hash
//! is written to the template.

use serde_json::Value;
use slinky_api::labels::annotations::CONTENT_HASH;

/// `workload` with the hash of its content. The template changes if `live` has recorded another hash.
#[must_use]
pub fn roll_on_change(mut workload: Value, live: Option<&Value>, hash: &str) -> Value {
    let recorded = live.map_or(&Value::Null, |live| &live["metadata"]["annotations"][CONTENT_HASH]);
    let template_hash =
        live.and_then(|live| live.pointer("/spec/template/metadata/annotations")?.get(CONTENT_HASH));
    let template = match recorded.as_str() {
        Some(recorded) if recorded != hash => Some(hash.into()),
        _ => template_hash.cloned(),
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
    fn template_changes_only_if_the_recorded_hash_changes() {
        let built = json!({ "metadata": {}, "spec": { "template": { "metadata": {} } } });
        let created = roll_on_change(built.clone(), None, "1");
        assert_eq!(*template(&created), Value::Null, "new pods read the current content");
        let taken_over = roll_on_change(built.clone(), Some(&built), "1");
        assert_eq!(taken_over, created, "running pods are not restarted");
        assert_eq!(roll_on_change(built.clone(), Some(&created), "1"), created);
        let changed = roll_on_change(built.clone(), Some(&created), "2");
        assert_eq!(*template(&changed), json!("2"));
        assert_eq!(roll_on_change(built.clone(), Some(&changed), "2"), changed);
        assert_eq!(*template(&roll_on_change(built, Some(&changed), "1")), json!("1"));
    }
}
