//! Mirrors: labels, annotations and conditions of pods; comments and topologies of Slurm nodes.

use super::*;
use crate::execute::mirror_pods;
use crate::plan::{NodeMirror, PodMirror};
use k8s_openapi::api::core::v1::PodCondition;
use rstest::rstest;
use std::collections::BTreeMap;

fn condition(type_: &str) -> PodCondition {
    PodCondition { type_: type_.to_owned(), status: "True".to_owned(), ..PodCondition::default() }
}

/// The mirror of a pod whose Slurm node was idle and is allocated now.
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

fn idle_pod() -> Value {
    json!({
        "metadata": { "annotations": { "old": "1", "kept": "1" } },
        "status": { "conditions": [condition("Ready"), condition("SlurmNodeStateIdle")] },
    })
}

#[tokio::test(start_paused = true)]
async fn mirror_sets_the_state_of_the_node_and_keeps_foreign_annotations_and_conditions() {
    let fixture = Fixture::new(&[]).await;
    let pod = fixture.put_pod("w-0", &idle_pod());
    assert_eq!(mirror_pods(&[mirror(pod)], &fixture.executor.client, "ns").await, []);
    assert_eq!(fixture.writes(), ["patch pods w-0", "patch pods/status w-0"]);
    let pod = fixture.get::<Pod>("w-0").unwrap();
    assert_eq!(pod["metadata"]["labels"], json!({ "protect": "true" }));
    assert_eq!(pod["metadata"]["annotations"], json!({ "kept": "1", "deadline": "soon" }));
    let types: Vec<&str> = pod["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["Ready", "SlurmNodeStateAllocated"]);
}

#[tokio::test(start_paused = true)]
async fn mirrors_of_many_pods_end_in_time() {
    let fixture = Fixture::new(&[]).await;
    let mirrors: Vec<_> =
        (0..200).map(|number| mirror(fixture.put_pod(&format!("w-{number}"), &idle_pod()))).collect();
    fixture.on_api_request(|_| Fate::Late(seconds(1)));
    let began = Instant::now();
    assert_eq!(mirror_pods(&mirrors, &fixture.executor.client, "ns").await, []);
    // Two writes for each pod, 16 pods at a time.
    assert_eq!((began.elapsed(), fixture.writes().len()), (seconds(10), 160));
}

#[rstest]
#[case::metadata(|mirror: &mut PodMirror| (mirror.conditions, mirror.ended) = (vec![], vec![]), "patch pods w-0")]
#[case::status(
    |mirror: &mut PodMirror| (mirror.labels, mirror.annotations) = (BTreeMap::new(), BTreeMap::new()),
    "patch pods/status w-0"
)]
#[tokio::test(start_paused = true)]
async fn mirror_writes_only_the_resource_that_changes(
    #[case] change: fn(&mut PodMirror),
    #[case] write: &str,
) {
    let fixture = Fixture::new(&[]).await;
    let mut mirror = mirror(fixture.put_pod("w-0", &idle_pod()));
    change(&mut mirror);
    mirror_pods(&[mirror], &fixture.executor.client, "ns").await;
    assert_eq!(fixture.writes(), [write]);
}

#[rstest]
#[case::changed(|fixture: &Fixture| drop(fixture.api.edit::<Pod>("ns", "w-0", |pod| pod["spec"]["x"] = json!(1))))]
#[case::deleted(|fixture: &Fixture| fixture.remove::<Pod>("w-0"))]
#[case::replaced_by_a_pod_of_the_same_name(|fixture: &Fixture| {
    fixture.api.remove::<Pod>("ns", "w-0");
    fixture.put_pod("w-0", &json!({}));
})]
#[tokio::test(start_paused = true)]
async fn pod_changed_since_the_plan_is_not_mirrored(#[case] change: fn(&Fixture)) {
    let fixture = Fixture::new(&[]).await;
    let pods = ["w-0", "w-1"].map(|name| mirror(fixture.put_pod(name, &idle_pod())));
    change(&fixture);
    assert_eq!(mirror_pods(&pods, &fixture.executor.client, "ns").await, []);
    let labels = |name: &str| fixture.get::<Pod>(name).map(|pod| pod["metadata"]["labels"].clone());
    assert_eq!(labels("w-0").unwrap_or_default(), Value::Null);
    assert_eq!(labels("w-1"), Some(json!({ "protect": "true" })));
}

#[tokio::test(start_paused = true)]
async fn failed_mirror_of_a_pod_does_not_block_others() {
    let fixture = Fixture::new(&[]).await;
    let pods: Vec<PodMirror> =
        (0..40).map(|number| mirror(fixture.put_pod(&format!("w-{number}"), &idle_pod()))).collect();
    fixture.on_api_request(|call| match call.target.name.as_str() {
        "w-7" => Fate::Refused(Failure::InternalError),
        _ => Fate::Served,
    });
    let failures = mirror_pods(&pods, &fixture.executor.client, "ns").await;
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].object.as_str(), failures[0].category), ("Pod w-7", "ApiError"));
    assert_eq!(count_with_prefix(&fixture.writes(), "patch pods/status"), 39);
}

fn comment(node: &str, text: &str) -> NodeMirror {
    NodeMirror { node: node.to_owned(), update: NodeUpdate::Comment(text.to_owned()) }
}

async fn mirror_nodes(fixture: &Fixture, node_mirrors: Vec<NodeMirror>) -> Report {
    let writes =
        PlannedWrites { nodeset: fixture.nodeset.clone(), effects: vec![], node_mirrors, basis: None };
    fixture.executor.perform(writes).await
}

#[tokio::test(start_paused = true)]
async fn nodes_are_mirrored_without_a_batch_and_independently() {
    let fixture = Fixture::new(&["w-0", "w-2"]).await;
    let topology = NodeMirror { node: "w-2".to_owned(), update: NodeUpdate::Topology("bad:unit".to_owned()) };
    let mirrors = vec![comment("w-0", "zero"), comment("w-1", "one"), topology, comment("w-2", "two")];
    let report = mirror_nodes(&fixture, mirrors).await;
    assert_eq!((report.outcome.clone(), report.count(WriteKind::NodeMirrored)), (BatchOutcome::Idle, 2));
    assert_eq!(report.failures.len(), 1, "a node that does not exist is no failure: {:?}", report.failures);
    assert_eq!(report.failures[0].object, "Slurm node w-2");
    let refused = r#"Topology("bad:unit") of Slurm node w-2"#;
    assert!(report.refused.contains_key(refused), "{:?}", report.refused);
    let node = fixture.slurm.client().get_node("w-2").await.unwrap().unwrap();
    assert_eq!(node.comment, "two");
    assert_eq!(fixture.executor.coordination.batches.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn mirrors_to_a_slow_slurm_stop_after_12_seconds() {
    let fixture = Fixture::new(&["w-0"]).await;
    fixture.slurm.inject_on(Method::POST, "/nodes/", Fault::Slow(seconds(4)));
    let began = Instant::now();
    let report = mirror_nodes(&fixture, (0..100).map(|_| comment("w-0", "x")).collect()).await;
    assert_eq!(report.count(WriteKind::NodeMirrored), 24, "8 requests at 0 s, 4 s and 8 s");
    assert_eq!(began.elapsed(), seconds(12));
    assert!(report.requeue_after.is_some());
}
