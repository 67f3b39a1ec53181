//! Edits of files that belong to the user.

use super::{applied_set, config_of, decision, leaves_stateful_set, obstacle, plan_now};
use crate::fixture::{DELAY, config_map, observed, pod, second};
use crate::observe::Observed;
use crate::plan::{Decision, Plan, Step, plan};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use operator_runtime::{Classify, RawObject};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::labels::annotations::{ACCEPTED_CONFIG, UNCHECKED_CONFIG};
use std::sync::Arc;

/// A Controller whose configuration has a file of the user with this text.
fn with_text(change: &Value, text: &str) -> Observed {
    Observed {
        config_maps: Ok([("files".to_owned(), config_map(&[("theirs", text)]))].into()),
        jwks: Ok(change.get("jwksKeyRef").map(|_| ByteString(text.as_bytes().to_vec()))),
        ..observed(change)
    }
}

/// The state after the plan of `first` was performed and slurmctld became ready, with the objects of `now` otherwise.
fn after(first: &Observed, now: Observed) -> Observed {
    let plan = plan_now(first);
    let mut set = applied_set(&plan).unwrap().as_json().clone();
    set["metadata"]["generation"] = json!(1);
    set["status"] = json!({ "observedGeneration": 1, "replicas": 1, "readyReplicas": 1,
        "currentRevision": "a", "updateRevision": "a" });
    Observed {
        config: Some(Arc::new(config_of(&plan).clone())),
        stateful_set: Some(Arc::new(RawObject::new(set).unwrap())),
        pods: vec![pod(0, true, &json!({}))],
        ..now
    }
}

fn spec(field: &str, reference: &Value, in_place: bool) -> Value {
    json!({ field: reference, "inplaceReconfigure": in_place })
}

#[rstest]
fn edit_of_a_user_file_waits_and_is_checked(
    #[values(
        ("configFileRefs", json!([{ "name": "files" }])),
        ("epilogScriptRefs", json!([{ "name": "files" }])),
        ("prologSlurmctldScriptRefs", json!([{ "name": "files" }])),
        ("jwksKeyRef", json!({ "name": "issuers", "key": "keys" })),
    )]
    reference: (&str, Value),
    #[values(true, false)] in_place: bool,
) {
    let change = spec(reference.0, &reference.1, in_place);
    let old = with_text(&change, "old");
    let idle = plan_now(&after(&old, with_text(&change, "old")));
    assert_eq!(*decision(&idle), Decision::Keep);

    let edited = || after(&old, with_text(&change, "new"));
    let first = plan_now(&edited());
    assert_eq!(*decision(&first), Decision::Settle(DELAY));
    assert!(leaves_stateful_set(&first), "slurmctld is not restarted before the check");

    let second_plan = plan(&Observed { pending: first.pending, ..edited() }, second(5));
    assert_eq!(*decision(&second_plan), Decision::Check);
    let candidate = candidate_of(&second_plan);
    assert!(format!("{candidate:?}").contains("new"), "the check pod gets the edited file");
    assert_eq!(config_of(&second_plan).data, config_of(&idle).data, "the files in force stay");
}

/// The ConfigMap of the check pod that a plan creates.
fn candidate_of(plan: &Plan) -> &ConfigMap {
    let mut candidates = plan.steps.iter().filter_map(|step| {
        if let Step::CreateCheck { candidate, .. } = step { Some(candidate.as_ref()) } else { None }
    });
    candidates.next().unwrap()
}

fn in_config_files() -> Value {
    spec("configFileRefs", &json!([{ "name": "files" }]), false)
}

/// slurmctld runs with the text "old"; its pods mount the file as those of another operator do.
fn with_mounted_file(in_place: bool, text: &str) -> Observed {
    let change = spec("configFileRefs", &json!([{ "name": "files" }]), in_place);
    let mut observed = after(&with_text(&change, "old"), with_text(&change, text));
    let mut set = observed.stateful_set.unwrap().as_json().clone();
    let volumes = set.pointer_mut("/spec/template/spec/volumes").unwrap().as_array_mut().unwrap();
    let etc = volumes.iter_mut().find(|volume| volume["name"] == "slurm-etc").unwrap();
    etc["projected"]["sources"].as_array_mut().unwrap().push(json!({ "configMap": { "name": "files" } }));
    observed.stateful_set = Some(Arc::new(RawObject::new(set).unwrap()));
    observed
}

fn template(set: &RawObject<k8s_openapi::api::apps::v1::StatefulSet>) -> &Value {
    &set.as_json()["spec"]["template"]
}

#[rstest]
fn pods_that_mount_the_users_files_are_replaced_only_to_keep_an_edit_away(
    #[values(true, false)] in_place: bool,
) {
    let taken_over = with_mounted_file(in_place, "old");
    let idle = plan_now(&taken_over);
    assert_eq!(*decision(&idle), Decision::Keep);
    let live = taken_over.stateful_set.as_ref().unwrap();
    assert_eq!(template(applied_set(&idle).unwrap()), template(live), "slurmctld is not restarted");

    let edited = with_mounted_file(in_place, "new");
    let plan = plan_now(&edited);
    assert_eq!(*decision(&plan), Decision::Settle(DELAY));
    let detached = template(applied_set(&plan).unwrap()).to_string();
    assert!(!detached.contains("\"files\""), "{detached}");
    assert_eq!(config_of(&plan).data.as_ref().unwrap()["theirs"], "old");
}

#[test]
fn files_that_pods_mount_are_copied_without_a_check() {
    let mut taken_over = with_mounted_file(true, "old");
    Arc::make_mut(taken_over.config.as_mut().unwrap()).data.as_mut().unwrap().remove("theirs");
    let plan = plan_now(&taken_over);
    assert_eq!(*decision(&plan), Decision::Keep);
    assert_eq!(config_of(&plan).data.as_ref().unwrap()["theirs"], "old");
    let live = taken_over.stateful_set.as_ref().unwrap();
    assert_eq!(template(applied_set(&plan).unwrap()), template(live), "slurmctld is not restarted");
}

/// slurmctld runs with "old", the check pod refused "new".
fn refused() -> Observed {
    let edited = || after(&with_text(&in_config_files(), "old"), with_text(&in_config_files(), "new"));
    let pending = plan_now(&edited()).pending;
    let checking = Observed { pending, ..edited() };
    let plan = plan(&checking, second(5));
    let mut pods = plan.steps.iter().filter_map(|step| {
        if let Step::CreateCheck { pod, .. } = step { Some(pod.as_json().clone()) } else { None }
    });
    let mut pod = pods.next().unwrap();
    let state = json!({ "terminated": { "exitCode": 3, "message": "fatal: no" } });
    pod["status"] = json!({ "phase": "Failed", "containerStatuses": [
        { "name": "check", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state },
    ] });
    Observed { check: Some(Arc::new(serde_json::from_value(pod).unwrap())), ..checking }
}

#[test]
fn annotation_lets_only_the_configuration_through_that_it_names() {
    let refusal = plan(&refused(), second(6));
    assert_eq!(*decision(&refusal), Decision::Refuse("fatal: no".to_owned()));
    let candidate = refusal.config.as_ref().unwrap().candidate.clone();
    let annotated = |value: &str| {
        let mut observed = refused();
        let controller = Arc::make_mut(&mut observed.controller);
        controller.annotations_mut().insert(ACCEPTED_CONFIG.to_owned(), value.to_owned());
        plan(&observed, second(6))
    };
    for value in [&candidate, &candidate[..12]] {
        let accepted = annotated(value);
        assert!(matches!(decision(&accepted), Decision::Write(Some(_))), "{value}");
        let config = config_of(&accepted);
        assert_eq!(config.data.as_ref().unwrap()["theirs"], "new");
        let record = &config.metadata.annotations.as_ref().unwrap()[UNCHECKED_CONFIG];
        assert!(record.starts_with(&candidate) && record.ends_with("(fatal: no)"), "{record}");
        let template = template(applied_set(&accepted).unwrap()).to_string();
        assert!(!template.contains(ACCEPTED_CONFIG), "{template}");

        let written = Observed { config: Some(Arc::new(config.clone())), check: None, ..refused() };
        let unchecked = plan(&written, second(9)).config.unwrap().unchecked;
        assert!(unchecked.unwrap().contains("fatal: no"), "as long as it is in force");
    }
    for value in ["", "true", &candidate[..11], "0123456789ab"] {
        assert!(matches!(decision(&annotated(value)), Decision::Refuse(_)), "{value:?}");
    }
}

#[test]
fn files_that_no_config_map_can_hold_are_an_obstacle() {
    let large = "x".repeat(1 << 20);
    let plan = plan_now(&with_text(&in_config_files(), &large));
    let found = obstacle(&plan, "Config").unwrap();
    assert_eq!(found.category(), "ConfigTooLarge");
    assert!(applied_set(&plan).is_none() && found.to_string().contains("configFileRefs"), "{found}");
}
