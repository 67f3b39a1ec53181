use super::*;
use crate::plan::testing::{minute, pod};
use rstest::rstest;
use serde_json::{Value, json};

fn worker(change: &Value) -> Worker {
    Worker::new(pod("foo-0", change))
}

fn annotated(annotations: &Value) -> Worker {
    worker(&json!({ "metadata": { "annotations": annotations } }))
}

#[rstest]
#[case::plain("foo-0", Some(("foo", 0)))]
#[case::padded("foo-007", Some(("foo", 7)))]
#[case::longer_nodeset_name("foo-gpu-1234", Some(("foo-gpu", 1234)))]
#[case::nodeset_name_ends_in_a_number("foo-1-2", Some(("foo-1", 2)))]
#[case::two_dashes("foo--3", Some(("foo-", 3)))]
#[case::maximum("foo-2147483647", Some(("foo", i32::MAX)))]
#[case::above_maximum("foo-2147483648", None)]
#[case::far_above_maximum("foo-99999999999999999999", None)]
#[case::not_a_number("foo-abc", None)]
#[case::signed("foo-+1", None)]
#[case::not_only_digits("foo-1a", None)]
#[case::other_digits("foo-١", None)]
#[case::nothing_after_the_dash("foo-", None)]
#[case::no_dash("foo7", None)]
#[case::empty("", None)]
fn ordinal_is_the_number_after_the_last_dash(#[case] name: &str, #[case] expected: Option<(&str, i32)>) {
    assert_eq!(ordinal_of(name), expected);
    assert_eq!(Worker::new(pod(name, &json!({}))).ordinal, expected.map(|(_, ordinal)| ordinal));
}

fn labelled(mode: Option<&str>, spec: &Value) -> Value {
    let mode = mode.map_or(Value::Null, Value::from);
    json!({ "metadata": { "labels": { "nodeset.slinky.slurm.net/scaling-mode": mode } }, "spec": spec })
}

#[rstest]
#[case::hostname(Some("StatefulSet"), json!({ "hostname": "gpu-0" }), "gpu-0")]
#[case::pod_name(Some("StatefulSet"), json!({ "hostname": null }), "foo-0")]
#[case::pod_name_for_empty_hostname(Some("StatefulSet"), json!({ "hostname": "" }), "foo-0")]
#[case::node_name_on_host_network(Some("StatefulSet"), json!({ "hostNetwork": true }), "node-a")]
#[case::short_node_name_on_host_network(Some("StatefulSet"), json!({ "hostNetwork": true, "nodeName": "n1.example.com" }), "n1")]
#[case::unbound_on_host_network(Some("StatefulSet"), json!({ "hostNetwork": true, "nodeName": null }), "")]
#[case::daemon_hostname(Some("DaemonSet"), json!({ "hostname": "node-1" }), "node-1")]
#[case::daemon_hostname_on_host_network(Some("DaemonSet"), json!({ "hostname": "node-1", "hostNetwork": true }), "node-1")]
#[case::daemon_without_hostname(Some("DaemonSet"), json!({ "hostname": null }), "")]
#[case::hostname_without_mode_label(None, json!({ "hostname": "x" }), "x")]
#[case::hostname_in_unknown_mode(Some("ReplicaSet"), json!({ "hostname": "x", "hostNetwork": true }), "x")]
fn slurm_node_name_follows_hostname_and_mode(
    #[case] mode: Option<&str>,
    #[case] spec: Value,
    #[case] expected: &str,
) {
    assert_eq!(worker(&labelled(mode, &spec)).slurm_name, expected);
}

#[rstest]
#[case(Some("StatefulSet"), Some(ScalingMode::StatefulSet))]
#[case(Some("DaemonSet"), Some(ScalingMode::DaemonSet))]
#[case(Some("statefulset"), None)]
fn mode_comes_from_the_label(#[case] label: Option<&str>, #[case] expected: Option<ScalingMode>) {
    assert_eq!(worker(&labelled(label, &json!({}))).mode, expected);
}

#[rstest]
#[case::ordinal("gpu-0", false, Some(ScalingMode::StatefulSet))]
#[case::pinned_ordinal("gpu-0", true, Some(ScalingMode::StatefulSet))]
#[case::random("gpu-x7k2p", true, Some(ScalingMode::DaemonSet))]
#[case::random_digits("gpu-24689", true, Some(ScalingMode::DaemonSet))]
#[case::large_ordinal("gpu-24689", false, Some(ScalingMode::StatefulSet))]
#[case::neither("gpu-x", false, None)]
fn mode_without_label_comes_from_name_and_affinity(
    #[case] name: &str,
    #[case] bound: bool,
    #[case] expected: Option<ScalingMode>,
) {
    let field = json!({ "key": "metadata.name", "operator": "In", "values": ["node-a"] });
    let required = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
    let spec = if bound { json!({ "affinity": affinity }) } else { json!({}) };
    assert_eq!(Worker::new(pod(name, &labelled(None, &spec))).mode, expected);
}

#[rstest]
#[case("0", 0)]
#[case("7", 7)]
#[case("-10", -10)]
#[case("2147483647", i32::MAX)]
#[case("-2147483648", i32::MIN)]
#[case::above_maximum("2147483648", 0)]
#[case::plus("+7", 0)]
#[case::leading_zero("07", 0)]
#[case::leading_zero_below_zero("-07", 0)]
#[case::zeros("00", 0)]
#[case::negative_zero("-0", 0)]
#[case::leading_blank(" 7", 0)]
#[case::fraction("7.5", 0)]
#[case::text("cheap", 0)]
#[case::dash("-", 0)]
#[case::empty("", 0)]
fn invalid_deletion_cost_counts_as_zero(#[case] text: &str, #[case] expected: i32) {
    assert_eq!(annotated(&json!({ "nodeset.slinky.slurm.net/pod-deletion-cost": text })).cost, expected);
}

#[test]
fn pod_without_annotations_has_defaults() {
    let worker = worker(&json!({}));
    assert_eq!((worker.cost, worker.job_state, worker.cordon), (0, JobState::None, Cordon::None));
    assert!(!worker.cordoned_by_person);
}

#[rstest]
#[case::utc("2026-07-01T10:00:00Z", Some("2026-07-01T10:00:00Z"))]
#[case::zone("2026-07-01T10:00:00+02:00", Some("2026-07-01T08:00:00Z"))]
#[case::job_without_end("9999-01-01T00:00:00Z", Some("9999-01-01T00:00:00Z"))]
#[case::job_without_end_in_nanoseconds("2318-10-11T09:47:16Z", Some("2318-10-11T09:47:16Z"))]
#[case::text("tomorrow", None)]
#[case::empty("", None)]
fn invalid_deadline_is_ignored(#[case] text: &str, #[case] expected: Option<&str>) {
    let expected = expected.map_or(JobState::None, |time| JobState::Until(time.parse().unwrap()));
    assert_eq!(annotated(&json!({ "nodeset.slinky.slurm.net/pod-deadline": text })).job_state, expected);
}

#[rstest]
#[case::none(None, None, Cordon::None, false)]
#[case::by_a_person(Some("true"), None, Cordon::Person, true)]
#[case::by_another_program(Some("true"), Some("autoscaler"), Cordon::Person, true)]
#[case::for_scale_in(Some("true"), Some("scale-in"), Cordon::Ours(Cause::ScaleIn), false)]
#[case::for_an_update(Some("true"), Some("update"), Cordon::Ours(Cause::Update), false)]
#[case::for_its_node(Some("true"), Some("node"), Cordon::Ours(Cause::Node), false)]
#[case::by_both(Some("true"), Some("person,update"), Cordon::Ours(Cause::Update), true)]
#[case::by_a_person_and_a_program(Some("true"), Some("person,autoscaler"), Cordon::Person, true)]
#[case::switched_off_by_a_person(Some("false"), Some("scale-in"), Cordon::None, false)]
#[case::not_exactly_true(Some("True"), None, Cordon::None, false)]
#[case::removed_by_a_person(None, Some("scale-in"), Cordon::None, false)]
fn cordon_belongs_to_the_author_of_the_mark(
    #[case] cordon: Option<&str>,
    #[case] by: Option<&str>,
    #[case] expected: Cordon,
    #[case] person: bool,
) {
    let worker = annotated(&json!({
        "nodeset.slinky.slurm.net/pod-cordon": cordon,
        "nodeset.slinky.slurm.net/pod-cordon-by": by,
    }));
    assert_eq!((worker.cordon, worker.cordoned_by_person), (expected, person));
    for cause in [Cause::ScaleIn, Cause::Update, Cause::Node] {
        assert_eq!(worker.is_marked(cause), expected == Cordon::Ours(cause));
    }
}

#[rstest]
#[case(Cause::ScaleIn)]
#[case(Cause::Update)]
#[case(Cause::Node)]
fn cause_round_trips(#[case] cause: Cause) {
    assert_eq!(Cause::parse(cause.as_str()), Some(cause));
}

fn conditions(conditions: &Value) -> Worker {
    worker(&json!({ "status": { "conditions": conditions } }))
}

#[rstest]
#[case::without_min_ready(0, 0, true)]
#[case::negative_min_ready(-5, 0, true)]
#[case::too_early(60, 30, false)]
#[case::exactly_min_ready(60, 60, false)]
#[case::long_enough(60, 61, true)]
#[case::ready_in_the_future(60, -10, false)]
fn worker_is_available_after_min_ready(#[case] min_ready: i64, #[case] age: i64, #[case] expected: bool) {
    let worker = conditions(&json!([{ "type": "Ready", "status": "True", "lastTransitionTime": minute(0) }]));
    let now = minute(0) + SignedDuration::from_secs(age);
    assert_eq!(worker.is_available(SignedDuration::from_secs(min_ready), now), expected);
}

#[rstest]
#[case::without_transition_time(json!([{ "type": "Ready", "status": "True" }]), true, false)]
#[case::not_ready(json!([{ "type": "Ready", "status": "False", "lastTransitionTime": minute(-60) }]), false, false)]
#[case::unknown(json!([{ "type": "Ready", "status": "Unknown", "lastTransitionTime": minute(-60) }]), false, false)]
#[case::no_condition(json!([]), false, false)]
#[case::another_condition(json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": minute(-60) }]), false, false)]
#[case::at_maximum_time(json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "9999-12-30T22:00:00Z" }]), true, false)]
fn unready_worker_is_not_available(
    #[case] change: Value,
    #[case] at_once: bool,
    #[case] after_a_second: bool,
) {
    let worker = conditions(&change);
    assert_eq!(worker.is_available(SignedDuration::ZERO, minute(0)), at_once);
    assert_eq!(worker.is_available(SignedDuration::from_secs(1), minute(0)), after_a_second);
}

#[rstest]
#[case::pending("Pending", false, Phase::Pending, [true, false, false])]
#[case::not_reported("", false, Phase::Pending, [true, false, false])]
#[case::running("Running", false, Phase::Running, [true, false, true])]
#[case::terminating("Running", true, Phase::Running, [false, false, false])]
#[case::failed("Failed", false, Phase::Failed, [false, true, false])]
#[case::succeeded("Succeeded", false, Phase::Succeeded, [false, true, false])]
#[case::unknown("Unknown", false, Phase::Unknown, [true, false, false])]
fn phase_decides_alive_finished_and_healthy(
    #[case] text: &str,
    #[case] terminating: bool,
    #[case] phase: Phase,
    #[case] alive_finished_healthy: [bool; 3],
) {
    let deleted = if terminating { json!(minute(0)) } else { Value::Null };
    let worker =
        worker(&json!({ "metadata": { "deletionTimestamp": deleted }, "status": { "phase": text } }));
    assert_eq!(worker.phase, phase);
    assert_eq!([worker.is_alive(), worker.is_finished(), worker.is_healthy()], alive_finished_healthy);
    assert_eq!(worker.is_ready(), phase == Phase::Running);
}

#[rstest]
#[case::no_statuses(json!(null), false)]
#[case::waiting(json!([{ "state": { "waiting": { "reason": "ContainerCreating" } } }]), false)]
#[case::running(json!([{ "state": { "running": {} } }]), true)]
#[case::exited(json!([{ "state": { "terminated": { "exitCode": 0 } } }]), true)]
#[case::waiting_after_exit(json!([{ "state": { "waiting": {} }, "lastState": { "terminated": { "exitCode": 1 } } }]), true)]
#[case::restarted(json!([{ "state": { "waiting": {} }, "restartCount": 1 }]), true)]
#[case::one_of_two(json!([{ "state": { "waiting": {} } }, { "state": { "running": {} } }]), true)]
fn worker_has_started_once_a_container_ran(#[case] statuses: Value, #[case] expected: bool) {
    let mut statuses = statuses;
    for status in statuses.as_array_mut().into_iter().flatten() {
        for (key, value) in
            [("name", json!("slurmd")), ("image", json!("")), ("imageID", json!("")), ("ready", json!(false))]
        {
            status[key] = value;
        }
        if status.get("restartCount").is_none() {
            status["restartCount"] = json!(0);
        }
    }
    assert_eq!(worker(&json!({ "status": { "containerStatuses": statuses } })).started, expected);
}

#[rstest]
#[case::never_registered(&[], &[("Ready", "True")], false)]
#[case::idle(&["Idle", "Drain"], &[("SlurmNodeStateIdle", "True"), ("SlurmNodeStateDrain", "True")], false)]
#[case::allocated(&["Allocated"], &[("SlurmNodeStateAllocated", "True")], true)]
#[case::mixed(&["Mixed"], &[("SlurmNodeStateMixed", "True")], true)]
#[case::completing(&["Idle", "Completing"], &[("SlurmNodeStateIdle", "True"), ("SlurmNodeStateCompleting", "True")], true)]
#[case::no_longer(&["Idle"], &[("SlurmNodeStateIdle", "True"), ("SlurmNodeStateAllocated", "False")], false)]
fn mirrored_states_are_read_from_pod_conditions(
    #[case] mirrored: &[&str],
    #[case] present: &[(&str, &str)],
    #[case] busy: bool,
) {
    let list: Vec<_> =
        present.iter().map(|(type_, status)| json!({ "type": type_, "status": status })).collect();
    let worker = conditions(&json!(list));
    assert_eq!(worker.mirrored, mirrored);
    assert_eq!((worker.was_registered(), worker.was_busy()), (!mirrored.is_empty(), busy));
}

#[test]
fn reference_identifies_one_version_of_one_pod() {
    let change = json!({ "metadata": { "uid": "u", "resourceVersion": "7" } });
    let expected = PodRef { name: "foo-0".to_owned(), uid: "u".to_owned(), version: "7".to_owned() };
    assert_eq!(worker(&change).reference(), expected);
}
