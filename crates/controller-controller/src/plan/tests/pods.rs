//! Labels, annotations and deletions of slurmctld pods.

use super::super::pods::{POD_REVISION, stuck_pods};
use super::{files, plan_now};
use crate::active::Poll;
use crate::build::Reconfiguration;
use crate::fixture::{high_availability, observed, pod, running, second, stateful_set, with_record};
use crate::observe::{Observed, Report};
use crate::plan::{Plan, Step, plan};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use operator_runtime::RawObject;
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::labels::{CONTROLLER_ACTIVE, annotations};
use slinky_api::names::controller as names;
use std::sync::Arc;

fn labelled(value: &str) -> Value {
    json!({ "labels": { CONTROLLER_ACTIVE: value } })
}

fn planned_labels(observed: &Observed) -> Vec<(String, bool)> {
    let steps = plan_now(observed).steps;
    let label =
        |step| if let Step::LabelPod { pod, is_active } = step { Some((pod, is_active)) } else { None };
    steps.into_iter().filter_map(label).collect()
}

#[rstest]
#[case::unlabelled(None, false, &[("slurm-controller-0", true)])]
#[case::labelled(Some("true"), false, &[])]
#[case::wrong_value(Some("false"), false, &[("slurm-controller-0", true)])]
#[case::second_pod(Some("true"), true, &[("slurm-controller-1", false)])]
fn single_daemon_is_always_active(
    #[case] label: Option<&str>,
    #[case] has_second: bool,
    #[case] expected: &[(&str, bool)],
) {
    let mut pods = vec![pod(0, true, &label.map_or_else(|| json!({}), labelled))];
    pods.extend(has_second.then(|| pod(1, true, &labelled("true"))));
    let labels = planned_labels(&Observed { pods, poll: Poll::of(Some(1), &[]), ..observed(&json!({})) });
    assert_eq!(labels, expected.iter().map(|(pod, is)| ((*pod).to_owned(), *is)).collect::<Vec<_>>());
}

#[rstest]
#[case::unknown_at_first([false, false], None, &[(0, true)])]
#[case::unknown_later([false, true], None, &[])]
#[case::failover_sets_the_label_before_it_is_removed([true, false], Some(1), &[(1, true), (0, false)])]
#[case::unknown_with_two_labels([true, true], None, &[(1, false)])]
fn label_follows_the_active_daemon(
    #[case] has_label: [bool; 2],
    #[case] active: Option<i32>,
    #[case] expected: &[(i32, bool)],
) {
    let metadata = |has_label| if has_label { labelled("true") } else { json!({}) };
    let pods = vec![pod(0, true, &metadata(has_label[0])), pod(1, true, &metadata(has_label[1]))];
    let labels =
        planned_labels(&Observed { pods, poll: Poll::of(active, &[]), ..observed(&high_availability()) });
    assert_eq!(labels, expected.iter().map(|(pod, is)| (names::pod("slurm", *pod), *is)).collect::<Vec<_>>());
}

#[rstest]
#[case::primary_runs([true, true], &[0, 1], &[])]
#[case::primary_is_down([false, true], &[1], &[(1, true), (0, false)])]
#[case::standby_answers([true, true], &[0], &[])]
#[case::daemons_that_are_not_ready_need_not_answer([false, true], &[0], &[])]
#[case::none_is_ready([false, false], &[0, 1], &[])]
fn label_follows_readiness_where_daemons_do_not_answer_the_operator(
    #[case] is_ready: [bool; 2],
    #[case] silent: &[i32],
    #[case] expected: &[(i32, bool)],
) {
    let pods = vec![pod(0, is_ready[0], &labelled("true")), pod(1, is_ready[1], &json!({}))];
    let poll = Poll::of(None, silent);
    let labels = planned_labels(&Observed { pods, poll, ..observed(&high_availability()) });
    assert_eq!(labels, expected.iter().map(|(pod, is)| (names::pod("slurm", *pod), *is)).collect::<Vec<_>>());
}

#[rstest]
#[case::own_service(json!({ CONTROLLER_ACTIVE: "true" }), json!({}), true)]
#[case::unlabelled_pod(json!({ "app": "slurmctld" }), json!({}), false)]
#[case::labelled_pod(json!({ "app": "slurmctld" }), labelled("true"), true)]
fn service_of_another_operator_selects_the_label_only_once_a_pod_has_it(
    #[case] selector: Value,
    #[case] metadata: Value,
    #[case] is_applied: bool,
) {
    let service = json!({ "metadata": { "name": "slurm-controller" }, "spec": { "selector": selector } });
    let observed = Observed {
        service: Some(Arc::new(RawObject::new(service).unwrap())),
        pods: vec![pod(0, true, &metadata)],
        ..observed(&json!({}))
    };
    let steps = plan_now(&observed).steps;
    let position = |is_step: fn(&Step) -> bool| steps.iter().position(is_step);
    let service = position(|step| matches!(step, Step::ApplyService(_)));
    assert_eq!(service.is_some(), is_applied);
    let label = position(|step| matches!(step, Step::LabelPod { .. }));
    assert!(label.is_none() || service.is_none() || label < service, "the label is set first");
}

fn in_place() -> Value {
    json!({ "inplaceReconfigure": true })
}

/// slurmctld runs with the rendered configuration, whose hash is the second value.
fn in_force() -> (Observed, String) {
    let observed = running(&in_place(), &files(&json!({})));
    let hash = observed.in_force().unwrap().hash();
    (observed, hash)
}

fn annotations_of(plan: Plan) -> Vec<(String, String)> {
    let annotation =
        |step| if let Step::AnnotatePod { pod, config } = step { Some((pod, config)) } else { None };
    plan.steps.into_iter().filter_map(annotation).collect()
}

/// A pod that was annotated with a configuration.
fn annotated(config: &str, at: i64) -> Arc<Pod> {
    let annotations = json!({ annotations::CONFIG: format!("{config} {}", second(at)) });
    pod(0, true, &json!({ "annotations": annotations }))
}

#[rstest]
#[case::never_annotated(pod(0, true, &json!({})), 100, true)]
#[case::other_configuration(annotated("other", 99), 100, true)]
#[case::recently(annotated("", 90), 100, false)]
#[case::reminder_is_due(annotated("", 84), 100, true)]
#[case::after_the_timeout(annotated("", 84), 181, false)]
#[case::other_configuration_after_the_timeout(annotated("other", 0), 181, true)]
fn pods_are_annotated_again_until_the_timeout(
    #[case] mut pod: Arc<Pod>,
    #[case] now: i64,
    #[case] is_annotated: bool,
) {
    let (observed, hash) = in_force();
    if let Some(text) = Arc::make_mut(&mut pod).annotations_mut().get_mut(annotations::CONFIG)
        && text.starts_with(' ')
    {
        text.insert_str(0, &hash);
    }
    let record = Reconfiguration { config: hash.clone(), awaited_since: Some(second(0)) };
    let observed = Observed { pods: vec![pod], ..with_record(observed, &record) };
    let expected = is_annotated.then(|| ("slurm-controller-0".to_owned(), format!("{hash} {}", second(now))));
    assert_eq!(annotations_of(plan(&observed, second(now))), expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn confirmed_configuration_needs_no_annotation() {
    let (observed, hash) = in_force();
    let confirmed = with_record(observed, &Reconfiguration { config: hash, awaited_since: None });
    assert_eq!(annotations_of(plan_now(&confirmed)), []);
}

#[rstest]
#[case::in_place(in_place(), true)]
#[case::by_restart(json!({}), false)]
#[case::pending_change(json!({ "inplaceReconfigure": true, "extraConf": "MinJobAge=2" }), false)]
fn pods_are_annotated_only_with_a_configuration_in_force(#[case] change: Value, #[case] is_annotated: bool) {
    let plan = plan_now(&running(&change, &files(&json!({}))));
    assert_eq!(annotations_of(plan).len(), usize::from(is_annotated));
}

#[test]
fn report_about_the_configuration_ends_the_annotations() {
    let (observed, hash) = in_force();
    let plan_with = |report| plan_now(&Observed { report: Some(report), ..in_force().0 });
    assert_eq!(annotations_of(plan_now(&observed)).len(), 1);
    assert_eq!(annotations_of(plan_with(Report::Applied(hash))), []);
    assert_eq!(annotations_of(plan_with(Report::Applied("other".to_owned()))).len(), 1);
}

#[rstest]
#[case::waiting("a", json!({ "waiting": {} }), true)]
#[case::unscheduled("a", json!(null), true)]
#[case::running("a", json!({ "running": {} }), false)]
#[case::desired_revision("b", json!({ "waiting": {} }), false)]
fn pod_of_an_old_revision_that_does_not_start_is_deleted(
    #[case] revision: &str,
    #[case] state: Value,
    #[case] is_deleted: bool,
) {
    let mut pod =
        serde_json::to_value(pod(0, false, &json!({ "labels": { POD_REVISION: revision } })).as_ref())
            .unwrap();
    if !state.is_null() {
        pod["status"]["containerStatuses"] = json!([{ "name": "slurmctld", "image": "", "imageID": "",
            "ready": false, "restartCount": 0, "state": state }]);
    }
    let mut set = stateful_set(&json!({}), false).as_json().clone();
    set["status"]["updateRevision"] = json!("b");
    let observed = Observed {
        stateful_set: Some(Arc::new(RawObject::new(set.clone()).unwrap())),
        pods: vec![Arc::new(serde_json::from_value(pod).unwrap())],
        ..observed(&json!({}))
    };
    assert_eq!(stuck_pods(&observed).len() == 1, is_deleted);
    set["metadata"]["generation"] = json!(2);
    let behind = Observed { stateful_set: Some(Arc::new(RawObject::new(set).unwrap())), ..observed };
    assert!(stuck_pods(&behind).is_empty(), "the StatefulSet controller has not observed the change");
}
