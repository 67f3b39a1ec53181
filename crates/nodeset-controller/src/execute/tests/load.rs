//! What a batch costs, and what a part that fails costs the rest.

use super::*;
use crate::execute::{SeenByCache, mirror_pods};
use crate::plan::PodMirror;
use rstest::rstest;
use slurm_rest::ReservationRequest;
use std::collections::BTreeMap;

const MANY: usize = 60;

fn names() -> Vec<String> {
    (0..MANY).map(|number| format!("w-{number}")).collect()
}

/// A cluster with many nodes, and a pod for each.
async fn crowd(pod: &Value) -> (World, Vec<PodRef>) {
    let names = names();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let pods = names.iter().map(|name| world.pod(name, pod)).collect();
    (world, pods)
}

/// Kinds of requests, and how many there were.
fn requests(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in world.log.lines() {
        let kind = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

fn counted(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

/// One write for each pod, and a number of reads that does not depend on how many there are.
#[rstest]
#[case::marked_and_drained(json!({}), retire, &[("patch pods", MANY), ("GET nodes/", 1), ("POST nodes/", 1)])]
#[case::put_back_to_work(mark("scale-in"), |pod: &PodRef| restore(pod, true), &[("patch pods", MANY), ("GET nodes/", 1), ("POST nodes/", 1)])]
#[case::deleted(mark("scale-in"), delete_drained, &[("GET nodes/", 1), ("delete pods", MANY)])]
#[case::deleted_unseen(json!({}), |pod: &PodRef| delete(pod, Evidence::NotNeeded), &[("delete pods", MANY)])]
#[tokio::test(start_paused = true)]
async fn no_pod_costs_a_read_of_its_own(
    #[case] pod: Value,
    #[case] effect: fn(&PodRef) -> Effect,
    #[case] expected: &[(&str, usize)],
) {
    let (world, pods) = crowd(&pod).await;
    if !pod["metadata"].is_null() {
        for name in names() {
            world.drain(&name).await;
        }
    }
    world.log.0.lock().unwrap().clear();
    let report = world.perform(pods.iter().map(effect).collect()).await;
    assert_eq!((report.outcome, report.failures), (BatchOutcome::Performed { certain: true }, vec![]));
    assert_eq!(requests(&world), counted(expected));
}

#[tokio::test(start_paused = true)]
async fn new_pods_cost_one_write_each() {
    let world = World::new(&[]).await;
    world.perform(names().iter().map(|name| world.new_pod(name)).collect()).await;
    assert_eq!(requests(&world), counted(&[("create pods", MANY)]));
}

/// How many requests are under way at a time while pods are told something.
#[tokio::test(start_paused = true)]
async fn sixteen_pods_are_told_at_a_time() {
    let (world, pods) = crowd(&json!({})).await;
    let mirror = |pod| PodMirror {
        pod,
        labels: BTreeMap::from([("protect".to_owned(), Some("true".to_owned()))]),
        annotations: BTreeMap::new(),
        conditions: vec![],
        ended: vec![],
    };
    let mirrors: Vec<PodMirror> = pods.into_iter().map(mirror).collect();
    let moments = Arc::new(Mutex::new(BTreeMap::<Instant, usize>::new()));
    let seen = moments.clone();
    world.fate(move |_| {
        *seen.lock().unwrap().entry(Instant::now()).or_default() += 1;
        Fate::Late(Duration::from_millis(10))
    });
    assert_eq!(mirror_pods(&mirrors, &world.executor.client, "ns").await, []);
    let groups: Vec<usize> = moments.lock().unwrap().values().copied().collect();
    assert_eq!(groups, [16, 16, 16, 12]);
}

/// Slurm refuses a reservation of nodes that it does not have.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_slurm_refuses_keeps_nothing_else() {
    let world = World::new(&["w-0"]).await;
    let request = ReservationRequest {
        name: "maint".to_owned(),
        start: Timestamp::from_second(1_900_000_000).unwrap(),
        minutes: 60,
        flags: vec!["MAINT".to_owned()],
        users: vec!["slurm".to_owned()],
        nodes: vec!["nobody".to_owned()],
    };
    let effects = vec![
        Effect::PutReservation(Box::new(request)),
        Effect::SetReservationNodes { name: "none".to_owned(), nodes: vec!["w-0".to_owned()] },
        world.new_pod("w-1"),
        retire(&world.pod("w-0", &json!({}))),
    ];
    let report = world.perform(effects).await;
    let failed: Vec<&str> = report.failures.iter().map(|failure| failure.object.as_str()).collect();
    assert_eq!(failed, ["Slurm reservation maint", "Slurm reservation none"]);
    let done =
        [WriteKind::PodCreated, WriteKind::PodMarked, WriteKind::NodeDrained].map(|deed| report.count(deed));
    assert_eq!(done, [1, 1, 1]);
}

/// What was done for a NodeSet is no basis for the next one of that name.
#[tokio::test(start_paused = true)]
async fn a_nodeset_made_anew_inherits_no_basis() {
    let mut world = World::new(&[]).await;
    world.perform(vec![world.new_pod("w-0")]).await;
    assert!(matches!(world.executor.bases.seen("u"), SeenByCache::Waiting(_)));
    let mut successor = NodeSet::clone(&world.nodeset);
    successor.metadata.uid = Some("new".to_owned());
    world.nodeset = Arc::new(successor);
    assert_eq!(world.executor.bases.seen("new"), SeenByCache::Unknown);
    let report = world.perform_on(None, vec![world.new_pod("w-1")]).await;
    assert!(matches!(report.outcome, BatchOutcome::NeedFresh(_)), "{:?}", report.outcome);
}
