use super::*;
use crate::fixture;
use crate::plan::{NewPod, NodeMirror};
use serde_json::{Value, json};
use slurm_rest::NodeUpdate;
use std::sync::Arc;

fn create(name: &str) -> Effect {
    let (name, pod) = (name.to_owned(), Value::Null);
    Effect::CreatePod(Box::new(NewPod { name, pod, names_its_node: true, claims: vec![] }))
}

fn reserve(name: &str) -> Effect {
    Effect::DeleteReservation(name.to_owned())
}

fn mirror(node: &str) -> NodeMirror {
    NodeMirror { node: node.to_owned(), update: NodeUpdate::Topology("default:rack".to_owned()) }
}

fn writes(generation: i64, effects: &[Effect], node_mirrors: &[NodeMirror]) -> PlannedWrites {
    let mut nodeset = fixture::nodeset(&json!({}));
    nodeset.metadata.generation = Some(generation);
    PlannedWrites {
        nodeset: Arc::new(nodeset),
        effects: effects.to_vec(),
        node_mirrors: node_mirrors.to_vec(),
        basis: None,
    }
}

fn refusing(names: &[&str]) -> Report {
    let error = |name: &&str| ((*name).to_owned(), ("Forbidden", format!("{name}: exceeded quota")));
    let mut report = Report::default();
    report.refused = names.iter().map(error).collect();
    report
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Refuses these writes whenever they are sent; returns the seconds at which they are within an hour.
fn attempts(effects: &[Effect], mirrors: &[NodeMirror], names: &[&str]) -> Vec<u64> {
    let (start, mut refusals, mut attempts) = (Instant::now(), Refusals::default(), vec![]);
    for second in 0..3600 {
        let (now, mut writes) = (start + seconds(second), writes(1, effects, mirrors));
        let held = refusals.hold_back(&mut writes, now);
        if held.is_none() {
            attempts.push(second);
            refusals.record(&refusing(names), now, now, 0.0);
        }
        assert_eq!(held.is_some(), writes.effects.is_empty() && writes.node_mirrors.is_empty());
    }
    attempts
}

#[test]
fn refused_writes_are_sent_less_and_less_often() {
    let quota = attempts(&[create("gpu-0"), create("gpu-1")], &[], &[CREATION_OF_PODS, "Pod gpu-0"]);
    assert_eq!(quota[..9], [0, 1, 3, 7, 15, 31, 63, 127, 255]);
    assert_eq!(quota.len(), 20, "{quota:?}");
    let rack = mirror("gpu-0");
    let topology = attempts(&[], std::slice::from_ref(&rack), &[&mirror_name(&rack)]);
    assert_eq!(topology, quota);
}

#[test]
fn other_effects_take_refused_ones_with_them_and_go_first() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    refusals.hold_back(&mut writes(1, &[], &[]), now);
    refusals.record(&refusing(&["Pod gpu-0"]), now, now, 0.0);
    let mut both = writes(1, &[create("gpu-0"), create("gpu-1"), reserve("maint")], &[mirror("gpu-2")]);
    assert_eq!(refusals.hold_back(&mut both, now), None);
    assert_eq!(both.effects, [create("gpu-1"), reserve("maint"), create("gpu-0")]);
    assert_eq!(both.node_mirrors.len(), 1);
    let mut rest = writes(1, &[create("gpu-0")], &[mirror("gpu-2")]);
    assert_eq!(refusals.hold_back(&mut rest, now), Some(seconds(1)));
    assert_eq!((rest.effects.len(), rest.node_mirrors.len()), (0, 1), "mirrors do not wait for effects");
    assert_eq!(refusals.errors().count(), 1, "the status goes on showing what is held back");
}

#[test]
fn success_and_another_spec_end_the_pause() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    let sent = |refusals: &mut Refusals, generation, now| {
        refusals.hold_back(&mut writes(generation, &[create("gpu-0")], &[]), now).is_none()
    };
    assert!(sent(&mut refusals, 1, now));
    for _ in 0..5 {
        refusals.record(&refusing(&["Pod gpu-0"]), now, now, 0.0);
    }
    assert!(!sent(&mut refusals, 1, now + seconds(15)) && sent(&mut refusals, 1, now + seconds(16)));
    let mut waiting = Report::default();
    waiting.outcome = BatchOutcome::NotOwner;
    refusals.record(&waiting, now + seconds(16), now + seconds(16), 0.0);
    assert_eq!(refusals.errors().count(), 1, "the write was not sent");
    assert!(sent(&mut refusals, 2, now), "the spec has changed");
    refusals.record(&refusing(&["Pod gpu-0"]), now, now, 0.0);
    refusals.record(&Report::default(), now + seconds(1), now + seconds(1), 0.0);
    assert_eq!(refusals.errors().count(), 0, "the write succeeded");
}
