use super::{ClusterState, DesiredNodeSet, Event, Goal};
use serde_json::{Value, json};

/// Applies events of pods: type, UID, and whether the pod is being deleted.
fn apply_pods(state: &mut ClusterState, events: &[(&str, &str, bool)]) {
    for (change, uid, ending) in events {
        let mut metadata = json!({"name": "pod", "uid": uid});
        if *ending {
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let event =
            json!({"type": change, "object": {"kind": "PartialObjectMetadata", "metadata": metadata}});
        state.apply_pod_event(parse(&event));
    }
}

fn apply_nodeset(state: &mut ClusterState, name: &str, generation: i64, status: Value) {
    let mut object = json!({"metadata": {"name": name, "generation": generation}, "spec": {"replicas": 9}});
    if !status.is_null() {
        object["status"] = status;
    }
    let event = json!({"type": "MODIFIED", "object": object});
    state.apply_nodeset_event(parse(&event));
}

fn parse(event: &Value) -> Event {
    Event::parse(event.to_string().as_bytes()).unwrap()
}

fn goal(nodesets: &[(&str, i64, u32)]) -> Goal {
    let desired = |(name, generation, size): &(&str, i64, u32)| {
        (String::from(*name), DesiredNodeSet { generation: *generation, size: *size })
    };
    Goal(nodesets.iter().map(desired).collect())
}

#[test]
fn pods_of_all_nodesets_are_counted_together() {
    let (mut state, goal) = (ClusterState::default(), goal(&[("a", 1, 1), ("b", 1, 1)]));
    apply_pods(&mut state, &[("ADDED", "1", false), ("MODIFIED", "1", false)]);
    assert!(!goal.is_populated(&state));
    apply_pods(&mut state, &[("ADDED", "2", false)]);
    assert!(goal.is_populated(&state));
}

#[test]
fn terminating_pod_does_not_count_as_new() {
    let (mut state, goal) = (ClusterState::default(), goal(&[("a", 1, 1)]));
    apply_pods(&mut state, &[("ADDED", "1", false), ("MODIFIED", "1", true)]);
    assert!(!goal.is_populated(&state));
    assert_eq!(goal.progress(&state), "0 new and 1 other pods, 0 of 1 NodeSets settled");
}

#[test]
fn pods_of_an_earlier_phase_do_not_count_as_new() {
    let (mut state, goal) = (ClusterState::default(), goal(&[("a", 2, 1)]));
    apply_pods(&mut state, &[("ADDED", "1", false)]);
    state.begin_phase();
    apply_pods(&mut state, &[("MODIFIED", "1", false)]);
    assert!(!goal.is_populated(&state));
    apply_pods(&mut state, &[("DELETED", "1", true), ("ADDED", "2", false)]);
    assert!(goal.is_populated(&state));
}

#[test]
fn zero_pods_requires_terminating_pods_to_be_deleted() {
    let (mut state, goal) = (ClusterState::default(), goal(&[("a", 3, 0)]));
    apply_pods(&mut state, &[("ADDED", "1", false)]);
    state.begin_phase();
    apply_pods(&mut state, &[("ADDED", "2", false), ("MODIFIED", "1", true), ("MODIFIED", "2", true)]);
    for uid in ["1", "2"] {
        assert!(!goal.is_populated(&state), "pod {uid} still exists");
        apply_pods(&mut state, &[("DELETED", uid, true)]);
    }
    assert!(goal.is_populated(&state));
}

#[test]
fn nodeset_is_settled_when_all_counters_of_its_current_generation_match() {
    let counters = |replicas, updated, ready, observed| {
        json!({
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "observedGeneration": observed,
        })
    };
    let cases = [
        (2, counters(3, 3, 3, 2), true, "in the desired state"),
        (3, counters(3, 3, 3, 3), true, "with a later generation by another client"),
        (2, counters(3, 3, 3, 1), false, "with an outdated status"),
        (1, counters(3, 3, 3, 1), false, "before the change"),
        (2, counters(4, 3, 3, 2), false, "with one pod too many"),
        (2, counters(3, 2, 3, 2), false, "with an old pod"),
        (2, counters(3, 3, 2, 2), false, "with a pod that is not ready"),
        (2, counters(0, 0, 0, 2), false, "empty"),
        (2, Value::Null, false, "without a status"),
    ];
    for (generation, status, expected, what) in cases {
        let mut state = ClusterState::default();
        apply_nodeset(&mut state, "a", generation, status);
        assert_eq!(goal(&[("a", 2, 3)]).is_settled(&state), expected, "a NodeSet {what}");
    }
}

#[test]
fn empty_nodeset_is_settled_without_counters() {
    let mut state = ClusterState::default();
    apply_nodeset(&mut state, "a", 2, json!({"observedGeneration": 2}));
    assert!(goal(&[("a", 2, 0)]).is_settled(&state));
    apply_nodeset(&mut state, "a", 2, json!({"observedGeneration": 2, "replicas": 1}));
    assert!(!goal(&[("a", 2, 0)]).is_settled(&state));
}

#[test]
fn goal_is_settled_when_all_nodesets_are() {
    let mut state = ClusterState::default();
    apply_nodeset(&mut state, "a", 1, json!({"observedGeneration": 1}));
    let goal = goal(&[("a", 1, 0), ("b", 1, 0)]);
    assert!(!goal.is_settled(&state));
    apply_nodeset(&mut state, "b", 1, json!({"observedGeneration": 1}));
    assert!(goal.is_settled(&state));
    let event = json!({"type": "DELETED", "object": {"metadata": {"name": "b"}}});
    state.apply_nodeset_event(parse(&event));
    assert!(!goal.is_settled(&state));
}

#[test]
fn event_has_the_resource_version_to_continue_from() {
    let event =
        parse(&json!({"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "17"}}}));
    assert_eq!(event.resource_version(), "17");
}

#[test]
fn error_event_or_invalid_line_is_an_error() {
    let expired = json!({"type": "ERROR", "object": {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410}});
    for line in [expired.to_string(), "{".to_owned(), "{}".to_owned()] {
        let error = Event::parse(line.as_bytes()).err().unwrap();
        assert!(error.to_string().contains(&line), "{error}");
    }
}
