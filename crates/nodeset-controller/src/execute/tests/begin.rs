//! Begin and Done: requests to the expectations service, their retries, and the handling of its answers.

use super::*;
use crate::execute::{SeenByCache, ops};
use expectations::{
    Answer, BatchId, Begin, Expectations, OPS_PER_BATCH, Ops, Ownership, Unavailable, WaitReason,
};
use futures::stream::BoxStream;
use rstest::rstest;

#[tokio::test(start_paused = true)]
async fn plan_without_effects_requests_no_batch() {
    let fixture = Fixture::new(&[]).await;
    let report = fixture.perform(vec![]).await;
    assert_eq!((report.outcome, report.requeue_after), (BatchOutcome::Idle, None));
    assert_eq!(fixture.executor.coordination.batches.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn plan_without_basis_needs_a_fresh_view() {
    let fixture = Fixture::new(&[]).await;
    let report = fixture.perform_on(None, vec![fixture.create_pod("w-0")]).await;
    assert!(matches!(report.outcome, BatchOutcome::NeedFresh(_)));
    assert_eq!(fixture.log.lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn answered_batch_is_closed_and_its_basis_admits_the_next_batch() {
    let fixture = Fixture::new(&[]).await;
    fixture.perform(vec![fixture.create_pod("w-0")]).await;
    assert!(!fixture.has_open_batch());
    let created = fixture.get::<Pod>("w-0").unwrap();
    fixture.executor.bases.observe(&Event::Apply(serde_json::from_value(Value::clone(&created)).unwrap()));
    let SeenByCache::Everything(basis) = fixture.executor.bases.seen("u") else {
        panic!("the cache has not caught up with the batch")
    };
    let report = fixture.perform_on(Some(basis), vec![fixture.create_pod("w-1")]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
}

#[tokio::test(start_paused = true)]
async fn half_open_service_grants_only_creates() {
    let fixture = Fixture::with(&["w-0"], Limits::default(), Predecessor::Unknown).await;
    let pod = fixture.put_pod("w-0", &json!({}));
    let report =
        fixture.perform(vec![cordon(&pod), fixture.create_pod("w-1"), fixture.create_pod("w-2")]).await;
    assert_eq!(fixture.writes(), ["create pods ", "create pods "]);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert!(report.wait.is_some_and(|wait| wait.after > seconds(50)), "{:?}", report.wait);
}

#[tokio::test(start_paused = true)]
async fn half_open_service_grants_no_create_of_a_pod_that_may_share_its_slurm_node() {
    let fixture = Fixture::with(&[], Limits::default(), Predecessor::Unknown).await;
    let Effect::CreatePod(mut new) = fixture.create_pod("w-1") else { unreachable!() };
    new.names_its_node = false;
    let report = fixture.perform(vec![Effect::CreatePod(new)]).await;
    assert_eq!((report.outcome, fixture.writes()), (BatchOutcome::Wait(WaitReason::HalfOpen), vec![]));
}

#[tokio::test(start_paused = true)]
async fn partial_grant_drops_the_last_creates_and_deletes_of_the_plan() {
    let fixture =
        Fixture::with(&["d-0", "d-1", "d-2"], Limits { creates: 4, deletes: 2 }, Predecessor::Settled).await;
    let mut effects: Vec<Effect> = (0..5).map(|number| fixture.create_pod(&format!("w-{number}"))).collect();
    for name in ["d-0", "d-1", "d-2"] {
        effects.push(delete_drained(&fixture.put_drained_pod(name).await));
    }
    let report = fixture.perform(effects).await;
    assert_eq!((report.count(WriteKind::PodCreated), report.count(WriteKind::PodDeleted)), (2, 1));
    assert!(fixture.get::<Pod>("w-1").is_some() && fixture.get::<Pod>("w-2").is_none());
    assert!(fixture.is_terminating("d-0") && !fixture.is_terminating("d-1"));
    assert!(report.requeue_after.is_some());
}

/// An expectations service behind an unreliable connection.
struct FlakyService {
    service: Arc<Embedded>,
    /// Faults of the next calls, in reverse order; later calls succeed.
    faults: Mutex<Vec<CallFault>>,
    begin_calls: Mutex<Vec<(BatchId, Ops)>>,
    done_calls: Mutex<Vec<BatchId>>,
}

#[derive(Clone, Copy)]
enum CallFault {
    Refused,
    RequestLost,
    AnswerLost,
    Slow,
}

impl FlakyService {
    async fn call<T>(&self, call: BoxFuture<'_, Result<T, Unavailable>>) -> Result<T, Unavailable> {
        let fault = self.faults.lock().unwrap().pop();
        match fault {
            None => call.await,
            Some(CallFault::Refused) => Err(Unavailable("refused".into())),
            Some(CallFault::RequestLost) => std::future::pending().await,
            Some(CallFault::AnswerLost) => {
                call.await?;
                std::future::pending().await
            }
            Some(CallFault::Slow) => {
                sleep(Duration::from_millis(1950)).await;
                call.await
            }
        }
    }
}

impl Expectations for FlakyService {
    fn begin(&self, request: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>> {
        self.begin_calls.lock().unwrap().push((request.batch.clone(), request.ops));
        self.call(self.service.begin(request)).boxed()
    }

    fn done(&self, batch: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>> {
        self.done_calls.lock().unwrap().push(batch.clone());
        self.call(self.service.done(batch)).boxed()
    }

    fn ownership(&self) -> Ownership {
        self.service.ownership()
    }

    fn ownership_changes(&self) -> BoxStream<'static, ()> {
        self.service.ownership_changes()
    }

    fn report_clusters(&self, cluster_keys: Vec<String>) {
        self.service.report_clusters(cluster_keys);
    }

    fn timing(&self) -> Timing {
        self.service.timing()
    }
}

/// A fixture, its service with these faults, and the basis of a first Begin that came before them.
async fn flaky_fixture(faults: &[CallFault]) -> (Fixture, Arc<FlakyService>, Basis) {
    let mut fixture = Fixture::new(&[]).await;
    let report = fixture.perform_on(None, vec![fixture.create_pod("w-0")]).await;
    let BatchOutcome::NeedFresh(basis) = report.outcome else { panic!("{report:?}") };
    let service = Arc::new(FlakyService {
        service: fixture.service.clone(),
        faults: Mutex::new(faults.iter().rev().copied().collect()),
        begin_calls: Mutex::default(),
        done_calls: Mutex::default(),
    });
    fixture.executor.coordination.expectations = service.clone();
    (fixture, service, basis)
}

#[rstest]
#[case::request_lost(&[CallFault::RequestLost])]
#[case::answer_lost(&[CallFault::AnswerLost])]
#[case::several_faults_in_a_row(
    &[CallFault::Refused, CallFault::RequestLost, CallFault::AnswerLost, CallFault::Refused]
)]
#[tokio::test(start_paused = true)]
async fn unanswered_begin_is_retried_unchanged(#[case] faults: &[CallFault]) {
    let (fixture, service, basis) = flaky_fixture(faults).await;
    let report = fixture.perform_on(Some(basis), vec![fixture.create_pod("w-0")]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    let begin_calls = service.begin_calls.lock().unwrap();
    assert_eq!(begin_calls.len(), faults.len() + 1);
    assert!(begin_calls.iter().all(|begin| begin == &begin_calls[0]), "{begin_calls:?}");
    assert_eq!(fixture.service.status().unwrap().counters.granted, 1);
}

#[tokio::test(start_paused = true)]
async fn unreachable_service_is_reported_and_nothing_is_written() {
    let (fixture, service, basis) = flaky_fixture(&[CallFault::RequestLost; 99]).await;
    let began = Instant::now();
    let report = fixture.perform_on(Some(basis), vec![fixture.create_pod("w-0")]).await;
    assert!(matches!(&report.outcome, BatchOutcome::Unavailable(why) if why.contains("no answer within 2s")));
    assert!((seconds(15)..seconds(20)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!((fixture.writes(), service.done_calls.lock().unwrap().len()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn grant_without_time_left_is_returned_unused() {
    use CallFault::{RequestLost, Slow};
    // The sixth Begin is sent after 13.1 s and answered after 15 s, when no write may be sent any more.
    let (fixture, service, basis) =
        flaky_fixture(&[RequestLost, RequestLost, RequestLost, RequestLost, RequestLost, Slow]).await;
    let report = fixture.perform_on(Some(basis), vec![fixture.create_pod("w-0")]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert_eq!(service.begin_calls.lock().unwrap().len(), 6);
    assert_eq!((fixture.writes(), fixture.has_open_batch()), (vec![], false));
    assert!(report.requeue_after.is_some());
}

#[rstest]
#[case::request_lost(&[CallFault::RequestLost, CallFault::RequestLost])]
#[case::answer_lost(&[CallFault::AnswerLost, CallFault::Refused])]
#[tokio::test(start_paused = true)]
async fn unanswered_done_is_retried_until_it_is_acknowledged(#[case] faults: &[CallFault]) {
    let (fixture, service, basis) = flaky_fixture(&[]).await;
    let (flaky_service, faults) = (service.clone(), faults.to_vec());
    fixture.on_api_request(move |_| {
        *flaky_service.faults.lock().unwrap() = faults.clone();
        Fate::Served
    });
    fixture.perform_on(Some(basis), vec![fixture.create_pod("w-0")]).await;
    assert_eq!(service.done_calls.lock().unwrap().len(), 3);
    assert!(!fixture.has_open_batch());
    assert!(matches!(fixture.executor.bases.seen("u"), SeenByCache::Waiting(_)));
}

#[tokio::test(start_paused = true)]
async fn begin_counts_creates_deletes_and_other_effects() {
    let fixture = Fixture::new(&[]).await;
    let pod = fixture.put_pod("d", &json!({}));
    let Effect::CreatePod(mut sharing) = fixture.create_pod("w-1") else { unreachable!() };
    sharing.names_its_node = false;
    let creates = vec![fixture.create_pod("w-0")];
    assert!(ops(&creates).only_creates());
    let effects = [
        fixture.create_pod("w-0"),
        Effect::CreatePod(sharing),
        cordon(&pod),
        delete_drained(&pod),
        Effect::DeleteReservation("r".to_owned()),
    ];
    assert_eq!(ops(&effects), Ops { creates: 2, deletes: 1, others: 3 });
}

#[tokio::test(start_paused = true)]
async fn plan_beyond_the_batch_size_is_truncated_at_its_end() {
    let fixture = Fixture::new(&[]).await;
    let limit = usize::try_from(OPS_PER_BATCH).unwrap();
    let names: Vec<String> = (0..=limit).map(|number| number.to_string()).collect();
    let report = fixture.perform(names.into_iter().map(Effect::DeleteReservation).collect()).await;
    assert_eq!(
        (report.count(WriteKind::ReservationWritten), report.requeue_after),
        (limit, Some(seconds(1)))
    );
    assert_eq!(fixture.writes().last(), Some(&format!("DELETE reservation/{}", limit - 1)));
}
