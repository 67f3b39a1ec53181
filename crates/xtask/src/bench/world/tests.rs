use super::{Event, Goal, Wish, World};
use serde_json::{Value, json};

/// A world in which these events of pods happened: what, uid, and whether it is being deleted.
fn pods(world: &mut World, events: &[(&str, &str, bool)]) {
    for (change, uid, ending) in events {
        let mut metadata = json!({"name": "pod", "uid": uid});
        if *ending {
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let event =
            json!({"type": change, "object": {"kind": "PartialObjectMetadata", "metadata": metadata}});
        world.observe_pod(parse(&event));
    }
}

fn nodeset(world: &mut World, name: &str, generation: i64, status: Value) {
    let mut object = json!({"metadata": {"name": name, "generation": generation}, "spec": {"replicas": 9}});
    if !status.is_null() {
        object["status"] = status;
    }
    let event = json!({"type": "MODIFIED", "object": object});
    world.observe_nodeset(parse(&event));
}

fn parse(event: &Value) -> Event {
    Event::parse(event.to_string().as_bytes()).unwrap()
}

fn goal(nodesets: &[(&str, i64, u32)]) -> Goal {
    let wish = |(name, generation, size): &(&str, i64, u32)| {
        (String::from(*name), Wish { generation: *generation, size: *size })
    };
    Goal(nodesets.iter().map(wish).collect())
}

#[test]
fn pods_of_all_nodesets_are_counted_together() {
    let (mut world, goal) = (World::default(), goal(&[("a", 1, 1), ("b", 1, 1)]));
    pods(&mut world, &[("ADDED", "1", false), ("MODIFIED", "1", false)]);
    assert!(!goal.is_populated(&world));
    pods(&mut world, &[("ADDED", "2", false)]);
    assert!(goal.is_populated(&world));
}

#[test]
fn a_pod_that_is_being_deleted_does_not_count_as_new() {
    let (mut world, goal) = (World::default(), goal(&[("a", 1, 1)]));
    pods(&mut world, &[("ADDED", "1", false), ("MODIFIED", "1", true)]);
    assert!(!goal.is_populated(&world));
    assert_eq!(goal.progress(&world), "0 new and 1 other pods, 0 of 1 NodeSets settled");
}

#[test]
fn pods_of_an_earlier_phase_do_not_count_as_new() {
    let (mut world, goal) = (World::default(), goal(&[("a", 2, 1)]));
    pods(&mut world, &[("ADDED", "1", false)]);
    world.begin_phase();
    pods(&mut world, &[("MODIFIED", "1", false)]);
    assert!(!goal.is_populated(&world));
    pods(&mut world, &[("DELETED", "1", true), ("ADDED", "2", false)]);
    assert!(goal.is_populated(&world));
}

#[test]
fn no_pods_means_that_also_those_being_deleted_are_gone() {
    let (mut world, goal) = (World::default(), goal(&[("a", 3, 0)]));
    pods(&mut world, &[("ADDED", "1", false)]);
    world.begin_phase();
    pods(&mut world, &[("ADDED", "2", false), ("MODIFIED", "1", true), ("MODIFIED", "2", true)]);
    for uid in ["1", "2"] {
        assert!(!goal.is_populated(&world), "{uid} is not gone");
        pods(&mut world, &[("DELETED", uid, true)]);
    }
    assert!(goal.is_populated(&world));
}

#[test]
fn a_nodeset_is_settled_when_all_counters_of_its_current_generation_say_so() {
    let counters = |replicas, updated, ready, observed| {
        json!({
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "observedGeneration": observed,
        })
    };
    let cases = [
        (2, counters(3, 3, 3, 2), true, "as wanted"),
        (3, counters(3, 3, 3, 3), true, "of a later generation that somebody else made"),
        (2, counters(3, 3, 3, 1), false, "of an older spec"),
        (1, counters(3, 3, 3, 1), false, "from before the change"),
        (2, counters(4, 3, 3, 2), false, "with one pod too many"),
        (2, counters(3, 2, 3, 2), false, "with an old pod"),
        (2, counters(3, 3, 2, 2), false, "with a pod that is not ready"),
        (2, counters(0, 0, 0, 2), false, "empty"),
        (2, Value::Null, false, "without a status"),
    ];
    for (generation, status, expected, what) in cases {
        let mut world = World::default();
        nodeset(&mut world, "a", generation, status);
        assert_eq!(goal(&[("a", 2, 3)]).is_settled(&world), expected, "a NodeSet {what}");
    }
}

#[test]
fn an_empty_nodeset_is_settled_with_counters_left_out() {
    let mut world = World::default();
    nodeset(&mut world, "a", 2, json!({"observedGeneration": 2}));
    assert!(goal(&[("a", 2, 0)]).is_settled(&world));
    nodeset(&mut world, "a", 2, json!({"observedGeneration": 2, "replicas": 1}));
    assert!(!goal(&[("a", 2, 0)]).is_settled(&world));
}

#[test]
fn all_nodesets_have_to_settle() {
    let mut world = World::default();
    nodeset(&mut world, "a", 1, json!({"observedGeneration": 1}));
    let goal = goal(&[("a", 1, 0), ("b", 1, 0)]);
    assert!(!goal.is_settled(&world));
    nodeset(&mut world, "b", 1, json!({"observedGeneration": 1}));
    assert!(goal.is_settled(&world));
    let event = json!({"type": "DELETED", "object": {"metadata": {"name": "b"}}});
    world.observe_nodeset(parse(&event));
    assert!(!goal.is_settled(&world));
}

#[test]
fn a_watch_goes_on_behind_its_last_event() {
    let event =
        parse(&json!({"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "17"}}}));
    assert_eq!(event.resource_version(), "17");
}

#[test]
fn a_watch_that_fails_or_talks_nonsense_is_an_error() {
    let expired = json!({"type": "ERROR", "object": {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410}});
    for line in [expired.to_string(), "{".to_owned(), "{}".to_owned()] {
        let error = Event::parse(line.as_bytes()).err().unwrap();
        assert!(error.to_string().contains(&line), "{error}");
    }
}
