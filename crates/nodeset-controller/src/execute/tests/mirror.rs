//! What pods and Slurm nodes say of each other.

use super::*;
use crate::execute::mirror_pods;
use crate::plan::{NodeMirror, PodMirror};
use k8s_openapi::api::core::v1::PodCondition;
use rstest::rstest;
use std::collections::BTreeMap;

fn condition(type_: &str) -> PodCondition {
    PodCondition { type_: type_.to_owned(), status: "True".to_owned(), ..PodCondition::default() }
}

/// A pod that was idle and is busy now.
fn mirror(pod: PodRef) -> PodMirror {
    PodMirror {
        pod,
        labels: BTreeMap::from([("protect".to_owned(), Some("true".to_owned()))]),
        annotations: BTreeMap::from([
            ("deadline".to_owned(), Some("soon".to_owned())),
            ("old".to_owned(), None),
        ]),
        conditions: vec![condition("SlurmNodeStateAllocated")],
        ended: vec!["SlurmNodeStateIdle".to_owned()],
    }
}

fn idle() -> Value {
    json!({
        "metadata": { "annotations": { "old": "1", "kept": "1" } },
        "status": { "conditions": [condition("Ready"), condition("SlurmNodeStateIdle")] },
    })
}

#[tokio::test(start_paused = true)]
async fn a_pod_says_what_its_node_is_and_keeps_what_others_said() {
    let world = World::new(&[]).await;
    let pod = world.pod("w-0", &idle());
    assert_eq!(mirror_pods(&[mirror(pod)], &world.executor.client, "ns").await, []);
    assert_eq!(world.writes(), ["patch pods w-0", "patch pods/status w-0"]);
    let pod = world.get::<Pod>("w-0").unwrap();
    assert_eq!(pod["metadata"]["labels"], json!({ "protect": "true" }));
    assert_eq!(pod["metadata"]["annotations"], json!({ "kept": "1", "deadline": "soon" }));
    let types: Vec<&str> = pod["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["Ready", "SlurmNodeStateAllocated"]);
}

#[rstest]
#[case::metadata(|mirror: &mut PodMirror| (mirror.conditions, mirror.ended) = (vec![], vec![]), "patch pods w-0")]
#[case::status(
    |mirror: &mut PodMirror| (mirror.labels, mirror.annotations) = (BTreeMap::new(), BTreeMap::new()),
    "patch pods/status w-0"
)]
#[tokio::test(start_paused = true)]
async fn only_what_changes_is_written(#[case] change: fn(&mut PodMirror), #[case] write: &str) {
    let world = World::new(&[]).await;
    let mut mirror = mirror(world.pod("w-0", &idle()));
    change(&mut mirror);
    mirror_pods(&[mirror], &world.executor.client, "ns").await;
    assert_eq!(world.writes(), [write]);
}

#[rstest]
#[case::changed(|world: &World| drop(world.api.edit::<Pod>("ns", "w-0", |pod| pod["spec"]["x"] = json!(1))))]
#[case::gone(|world: &World| world.forget::<Pod>("w-0"))]
#[case::another(|world: &World| {
    world.api.remove::<Pod>("ns", "w-0");
    world.pod("w-0", &json!({}));
})]
#[tokio::test(start_paused = true)]
async fn a_pod_that_changed_is_left_to_the_next_plan(#[case] change: fn(&World)) {
    let world = World::new(&[]).await;
    let pods = ["w-0", "w-1"].map(|name| mirror(world.pod(name, &idle())));
    change(&world);
    assert_eq!(mirror_pods(&pods, &world.executor.client, "ns").await, []);
    let labels = |name: &str| world.get::<Pod>(name).map(|pod| pod["metadata"]["labels"].clone());
    assert_eq!(labels("w-0").unwrap_or_default(), Value::Null);
    assert_eq!(labels("w-1"), Some(json!({ "protect": "true" })));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_told_keeps_no_other() {
    let world = World::new(&[]).await;
    let pods: Vec<PodMirror> =
        (0..40).map(|number| mirror(world.pod(&format!("w-{number}"), &idle()))).collect();
    world.fate(|call| match call.target.name.as_str() {
        "w-7" => Fate::Refused(Failure::InternalError),
        _ => Fate::Served,
    });
    let failures = mirror_pods(&pods, &world.executor.client, "ns").await;
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].object.as_str(), failures[0].category), ("Pod w-7", "ApiError"));
    assert_eq!(count(&world.writes(), "patch pods/status"), 39);
}

fn comment(node: &str, text: &str) -> NodeMirror {
    NodeMirror { node: node.to_owned(), update: NodeUpdate::Comment(text.to_owned()) }
}

async fn tell(world: &World, node_mirrors: Vec<NodeMirror>) -> Report {
    let work = PlannedWrites { nodeset: world.nodeset.clone(), effects: vec![], node_mirrors, basis: None };
    world.executor.perform(work).await
}

#[tokio::test(start_paused = true)]
async fn nodes_are_told_of_their_pods_without_a_batch_and_one_by_one() {
    let world = World::new(&["w-0", "w-2"]).await;
    let topology = NodeMirror { node: "w-2".to_owned(), update: NodeUpdate::Topology("bad:unit".to_owned()) };
    let mirrors = vec![comment("w-0", "zero"), comment("w-1", "one"), topology, comment("w-2", "two")];
    let report = tell(&world, mirrors).await;
    assert_eq!((report.outcome.clone(), report.count(WriteKind::NodeMirrored)), (BatchOutcome::Idle, 2));
    assert_eq!(report.failures.len(), 1, "one that is not there is no failure: {:?}", report.failures);
    assert_eq!(report.failures[0].object, "Slurm node w-2");
    let node = world.slurm.client().get_node("w-2").await.unwrap().unwrap();
    assert_eq!(node.comment, "two");
    assert_eq!(world.executor.coordination.batches.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_slurm_does_not_keep_a_nodeset_for_long() {
    let world = World::new(&["w-0"]).await;
    world.slurm.inject_on(Method::POST, "/nodes/", Fault::Slow(seconds(4)));
    let began = Instant::now();
    let report = tell(&world, (0..100).map(|_| comment("w-0", "x")).collect()).await;
    assert_eq!(report.count(WriteKind::NodeMirrored), 24, "8 at 0 s, 4 s and 8 s");
    assert_eq!(began.elapsed(), seconds(12));
    assert!(report.requeue_after.is_some());
}
