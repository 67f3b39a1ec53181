//! Keeps the live pod template if the desired one means the same, so that pods are not restarted.

use crate::compare::{LastWriter, same_template};
use serde_json::Value;
use slinky_api::labels::{TRUE, annotations};

/// `workload` with the pod template of `live`, if the two mean the same.
///
/// The live template is copied completely: omitting fields without effect (kubectl's last-applied configuration, an
/// empty field) would remove them from a template that our field manager owns, and so restart the pods.
///
/// `manager` is our field manager: the managedFields of `live` show whether we wrote its template. As soon as we write
/// the workload we own the template of another operator, too, so an annotation records that it was inherited.
#[must_use]
pub fn keep_running_template(mut workload: Value, live: Option<&Value>, manager: &str) -> Value {
    let Some(live) = live else { return workload };
    let Some(running) = live.pointer("/spec/template") else { return workload };
    let last_writer = last_writer(live, manager);
    if let Some(desired) = workload.pointer_mut("/spec/template")
        && same_template(running, desired, last_writer)
    {
        *desired = running.clone();
        if last_writer == LastWriter::Another {
            workload["metadata"]["annotations"][annotations::INHERITED] = TRUE.into();
        }
    }
    workload
}

/// The last writer of a workload's pod template.
fn last_writer(workload: &Value, manager: &str) -> LastWriter {
    let entries = workload.pointer("/metadata/managedFields").and_then(Value::as_array);
    let is_managed = entries
        .into_iter()
        .flatten()
        .any(|entry| entry["manager"] == manager && entry.pointer("/fieldsV1/f:spec/f:template").is_some());
    let is_inherited = workload["metadata"]["annotations"][annotations::INHERITED] == TRUE;
    if is_managed && !is_inherited { LastWriter::Us } else { LastWriter::Another }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OURS: &str = "# Script of the Slurm operator: logs\ncat";

    fn workload(script: &str, image: &str, defaults: bool) -> Value {
        let mut container = json!({ "name": "logfile", "image": image, "command": ["sh", "-c", script] });
        if defaults {
            container["terminationMessagePolicy"] = json!("File");
        }
        json!({ "spec": { "template": { "spec": { "initContainers": [container] } } } })
    }

    fn written_by(manager: &str, mut workload: Value) -> Value {
        workload["metadata"] = json!({
            "managedFields": [{ "manager": manager, "fieldsV1": { "f:spec": { "f:template": {} } } }],
        });
        workload
    }

    fn template_with(live: &Value, desired: Value) -> Value {
        keep_running_template(desired, Some(live), "us")["spec"]["template"].clone()
    }

    #[test]
    fn script_of_another_operator_is_kept() {
        let live = written_by("manager", workload("their script", "a:1", true));
        assert_eq!(template_with(&live, workload(OURS, "a:1", false)), live["spec"]["template"]);
    }

    #[test]
    fn script_of_another_operator_is_kept_after_we_own_all_fields() {
        let live = written_by("manager", workload("their script", "a:1", true));
        let first = keep_running_template(workload(OURS, "a:1", false), Some(&live), "us");
        let mut taken_over = written_by("us", first.clone());
        taken_over["metadata"]["annotations"] = first["metadata"]["annotations"].clone();
        let second = keep_running_template(workload(OURS, "a:1", false), Some(&taken_over), "us");
        assert_eq!(second, first);
        let changed = keep_running_template(workload(OURS, "a:2", false), Some(&taken_over), "us");
        assert_eq!(changed, workload(OURS, "a:2", false), "a changed template is not inherited");
    }

    #[test]
    fn changed_template_is_not_kept() {
        let live = written_by("manager", workload("their script", "a:1", true));
        let desired = workload(OURS, "a:2", false);
        assert_eq!(template_with(&live, desired.clone()), desired["spec"]["template"]);
    }

    #[test]
    fn fields_without_effect_are_kept() {
        let mut live = workload(OURS, "a:1", true);
        live["spec"]["template"]["metadata"]["annotations"] = json!({ annotations::LAST_APPLIED: "{}" });
        live["spec"]["template"]["spec"]["affinity"] = json!({});
        for writer in ["manager", "us"] {
            let live = written_by(writer, live.clone());
            assert_eq!(
                template_with(&live, workload(OURS, "a:1", false)),
                live["spec"]["template"],
                "{writer}"
            );
        }
    }

    #[test]
    fn new_version_of_the_chart_alone_changes_nothing() {
        let of_chart = |version: &str, image: &str| {
            let mut workload = workload(OURS, image, false);
            let labels =
                json!({ "helm.sh/chart": format!("slurm-{version}"), "app.kubernetes.io/version": version });
            workload["spec"]["template"]["metadata"]["labels"] = labels;
            workload
        };
        let live = written_by("us", of_chart("1.0.0", "a:1"));
        for same in [of_chart("1.1.0", "a:1"), workload(OURS, "a:1", false)] {
            assert_eq!(template_with(&live, same), live["spec"]["template"]);
        }
        let changed = of_chart("1.1.0", "a:2");
        assert_eq!(template_with(&live, changed.clone()), changed["spec"]["template"]);
    }

    #[test]
    fn script_that_the_user_removed_is_not_kept() {
        let live = written_by("us", workload("a script of the user", "a:1", true));
        let desired = workload(OURS, "a:1", false);
        assert_eq!(template_with(&live, desired.clone()), desired["spec"]["template"]);
    }

    #[test]
    fn workload_without_a_live_object_is_unchanged() {
        let desired = workload(OURS, "a:1", false);
        assert_eq!(keep_running_template(desired.clone(), None, "us"), desired);
    }
}
