//! Keeps the pods that run when a new template means the same.

use crate::compare::{LastWriter, same_template};
use serde_json::Value;
use slinky_api::labels::{TRUE, annotations};

/// `workload` with the pod template of `live`, where the two mean the same.
///
/// All of it: to leave out what says nothing (kubectl's copy of the parent, an empty field) would take it from pods whose
/// template we wrote or took over, and so restart them.
///
/// `manager` is the field manager under which we write: with it `live` tells whether its template is ours. A template of
/// another operator becomes ours as soon as we write the workload, which therefore remembers whose it was.
#[must_use]
pub fn keep_running_template(mut workload: Value, live: Option<&Value>, manager: &str) -> Value {
    let Some(live) = live else { return workload };
    let Some(running) = live.pointer("/spec/template") else { return workload };
    let last_writer = last_writer(live, manager);
    if let Some(wanted) = workload.pointer_mut("/spec/template")
        && same_template(running, wanted, last_writer)
    {
        *wanted = running.clone();
        if last_writer == LastWriter::Another {
            workload["metadata"]["annotations"][annotations::INHERITED] = TRUE.into();
        }
    }
    workload
}

/// Who wrote the pod template of a workload.
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

    fn kept(live: &Value, wanted: Value) -> Value {
        keep_running_template(wanted, Some(live), "us")["spec"]["template"].clone()
    }

    #[test]
    fn a_script_of_another_operator_keeps_running() {
        let live = written_by("manager", workload("their script", "a:1", true));
        assert_eq!(kept(&live, workload(OURS, "a:1", false)), live["spec"]["template"]);
    }

    #[test]
    fn a_script_of_another_operator_keeps_running_when_all_fields_have_become_ours() {
        let live = written_by("manager", workload("their script", "a:1", true));
        let first = keep_running_template(workload(OURS, "a:1", false), Some(&live), "us");
        let mut taken_over = written_by("us", first.clone());
        taken_over["metadata"]["annotations"] = first["metadata"]["annotations"].clone();
        let second = keep_running_template(workload(OURS, "a:1", false), Some(&taken_over), "us");
        assert_eq!(second, first);
        let changed = keep_running_template(workload(OURS, "a:2", false), Some(&taken_over), "us");
        assert_eq!(changed, workload(OURS, "a:2", false), "nothing is inherited any more");
    }

    #[test]
    fn a_real_change_takes_effect() {
        let live = written_by("manager", workload("their script", "a:1", true));
        let wanted = workload(OURS, "a:2", false);
        assert_eq!(kept(&live, wanted.clone()), wanted["spec"]["template"]);
    }

    #[test]
    fn what_says_nothing_is_not_taken_away() {
        let mut live = workload(OURS, "a:1", true);
        live["spec"]["template"]["metadata"]["annotations"] = json!({ annotations::LAST_APPLIED: "{}" });
        live["spec"]["template"]["spec"]["affinity"] = json!({});
        for writer in ["manager", "us"] {
            let live = written_by(writer, live.clone());
            assert_eq!(kept(&live, workload(OURS, "a:1", false)), live["spec"]["template"], "{writer}");
        }
    }

    #[test]
    fn a_script_that_a_user_took_back_does_not_keep_running() {
        let live = written_by("us", workload("a script of the user", "a:1", true));
        let wanted = workload(OURS, "a:1", false);
        assert_eq!(kept(&live, wanted.clone()), wanted["spec"]["template"]);
    }

    #[test]
    fn nothing_that_runs_is_nothing_to_keep() {
        let wanted = workload(OURS, "a:1", false);
        assert_eq!(keep_running_template(wanted.clone(), None, "us"), wanted);
    }
}
