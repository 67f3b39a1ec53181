//! The number of requests that a batch sends, and how many of them run concurrently.

use super::*;
use crate::execute::mirror_pods;
use crate::plan::PodMirror;
use rstest::rstest;
use std::collections::BTreeMap;

const MANY: usize = 60;

fn names() -> Vec<String> {
    (0..MANY).map(|number| format!("w-{number}")).collect()
}

/// A cluster with many nodes, and a pod for each.
async fn many_workers(pod: &Value) -> (Fixture, Vec<PodRef>) {
    let names = names();
    let fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let pods = names.iter().map(|name| fixture.put_pod(name, pod)).collect();
    (fixture, pods)
}

/// The number of requests by verb and resource.
fn requests_by_kind(fixture: &Fixture) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in fixture.log.lines() {
        let kind = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

fn expected_counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

/// Each pod is written once; the number of reads does not depend on the number of pods.
#[rstest]
#[case::cordon(json!({}), cordon, &[("patch pods", MANY), ("GET nodes/", 1), ("GET jobs/state/", 2), ("POST nodes/", 1)])]
#[case::uncordon(
    mark("scale-in"), |pod: &PodRef| uncordon(pod, true),
    &[("patch pods", MANY), ("GET nodes/", 1), ("GET jobs/state/", 2), ("POST nodes/", 1)]
)]
#[case::delete(mark("scale-in"), delete_drained, &[("GET nodes/", 1), ("GET jobs/state/", 2), ("delete pods", MANY)])]
#[case::delete_without_evidence(json!({}), |pod: &PodRef| delete(pod, Evidence::NotNeeded), &[("delete pods", MANY)])]
#[tokio::test(start_paused = true)]
async fn batch_reads_slurm_at_most_once_for_all_pods(
    #[case] pod: Value,
    #[case] effect: fn(&PodRef) -> Effect,
    #[case] expected: &[(&str, usize)],
) {
    let (fixture, pods) = many_workers(&pod).await;
    if !pod["metadata"].is_null() {
        for name in names() {
            fixture.drain_node(&name).await;
        }
    }
    fixture.log.clear();
    let report = fixture.perform(pods.iter().map(effect).collect()).await;
    assert_eq!((report.outcome, report.failures), (BatchOutcome::Performed { certain: true }, vec![]));
    assert_eq!(requests_by_kind(&fixture), expected_counts(expected));
}

#[tokio::test(start_paused = true)]
async fn create_of_a_pod_is_one_request() {
    let fixture = Fixture::new(&[]).await;
    fixture.perform(names().iter().map(|name| fixture.create_pod(name)).collect()).await;
    assert_eq!(requests_by_kind(&fixture), expected_counts(&[("create pods", MANY)]));
}

#[tokio::test(start_paused = true)]
async fn pods_are_mirrored_16_at_a_time() {
    let (fixture, pods) = many_workers(&json!({})).await;
    let mirror = |pod| PodMirror {
        pod,
        labels: BTreeMap::from([("protect".to_owned(), Some("true".to_owned()))]),
        annotations: BTreeMap::new(),
        conditions: vec![],
        ended: vec![],
    };
    let mirrors: Vec<PodMirror> = pods.into_iter().map(mirror).collect();
    let started = Arc::new(Mutex::new(BTreeMap::<Instant, usize>::new()));
    let starts = started.clone();
    fixture.on_api_request(move |_| {
        *starts.lock().unwrap().entry(Instant::now()).or_default() += 1;
        Fate::Late(Duration::from_millis(10))
    });
    assert_eq!(mirror_pods(&mirrors, &fixture.executor.client, "ns").await, []);
    let groups: Vec<usize> = started.lock().unwrap().values().copied().collect();
    assert_eq!(groups, [16, 16, 16, 12]);
}
