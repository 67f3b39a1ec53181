//! What is asked of the expectations service, and what becomes of its answers.

use super::*;
use crate::execute::SeenByCache;
use expectations::{Answer, BatchId, Begin, Expectations, Ops, Unavailable, WaitReason};
use rstest::rstest;

#[tokio::test(start_paused = true)]
async fn without_work_nobody_is_asked() {
    let world = World::new(&[]).await;
    let report = world.perform(vec![]).await;
    assert_eq!((report.outcome, report.requeue_after), (BatchOutcome::Idle, None));
    assert_eq!(world.executor.coordination.batches.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_view_of_unknown_age_has_to_be_made_anew() {
    let world = World::new(&[]).await;
    let report = world.perform_on(None, vec![world.new_pod("w-0")]).await;
    assert!(matches!(report.outcome, BatchOutcome::NeedFresh(_)));
    assert_eq!(world.log.lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_batch_ends_with_its_last_answer_and_its_basis_is_good_for_the_next() {
    let world = World::new(&[]).await;
    world.perform(vec![world.new_pod("w-0")]).await;
    assert!(!world.has_open_batch());
    let made = world.get::<Pod>("w-0").unwrap();
    world.executor.bases.observe(&Event::Apply(serde_json::from_value(Value::clone(&made)).unwrap()));
    let SeenByCache::Everything(basis) = world.executor.bases.seen("u") else { panic!("not seen") };
    let report = world.perform_on(Some(basis), vec![world.new_pod("w-1")]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
}

#[tokio::test(start_paused = true)]
async fn while_only_creates_are_granted_creates_go_on() {
    let world = World::with(&["w-0"], Limits::default(), Predecessor::Unknown).await;
    let pod = world.pod("w-0", &json!({}));
    let report = world.perform(vec![retire(&pod), world.new_pod("w-1"), world.new_pod("w-2")]).await;
    assert_eq!(world.writes(), ["create pods ", "create pods "]);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert!(report.requeue_after.is_some_and(|again| again > seconds(50)), "{:?}", report.requeue_after);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_meet_another_in_slurm_is_more_than_a_create() {
    let world = World::with(&[], Limits::default(), Predecessor::Unknown).await;
    let Effect::CreatePod(mut new) = world.new_pod("w-1") else { unreachable!() };
    new.names_its_node = false;
    let report = world.perform(vec![Effect::CreatePod(new)]).await;
    assert_eq!((report.outcome, world.writes()), (BatchOutcome::Wait(WaitReason::HalfOpen), vec![]));
}

#[tokio::test(start_paused = true)]
async fn of_what_is_not_granted_the_last_of_the_plan_is_left() {
    let world =
        World::with(&["d-0", "d-1", "d-2"], Limits { creates: 4, deletes: 2 }, Predecessor::Settled).await;
    let mut effects: Vec<Effect> = (0..5).map(|number| world.new_pod(&format!("w-{number}"))).collect();
    for name in ["d-0", "d-1", "d-2"] {
        effects.push(delete_drained(&world.drained(name).await));
    }
    let report = world.perform(effects).await;
    assert_eq!((report.count(WriteKind::PodCreated), report.count(WriteKind::PodDeleted)), (2, 1));
    assert!(world.get::<Pod>("w-1").is_some() && world.get::<Pod>("w-2").is_none());
    assert!(world.is_terminating("d-0") && !world.is_terminating("d-1"));
    assert!(report.requeue_after.is_some());
}

/// A service that is hard to reach.
struct Flaky {
    service: Arc<Embedded>,
    /// What becomes of the next calls: lost on the way, or on the way back; after the last they arrive.
    fates: Mutex<Vec<Way>>,
    begun: Mutex<Vec<(BatchId, Ops)>>,
    done: Mutex<Vec<BatchId>>,
}

#[derive(Clone, Copy)]
enum Way {
    Refused,
    Lost,
    AnswerLost,
    Slow,
}

impl Flaky {
    async fn call<T>(&self, call: BoxFuture<'_, Result<T, Unavailable>>) -> Result<T, Unavailable> {
        let way = self.fates.lock().unwrap().pop();
        match way {
            None => call.await,
            Some(Way::Refused) => Err(Unavailable("refused".into())),
            Some(Way::Lost) => std::future::pending().await,
            Some(Way::AnswerLost) => {
                call.await?;
                std::future::pending().await
            }
            Some(Way::Slow) => {
                sleep(Duration::from_millis(1950)).await;
                call.await
            }
        }
    }
}

impl Expectations for Flaky {
    fn begin(&self, request: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>> {
        self.begun.lock().unwrap().push((request.batch.clone(), request.ops));
        self.call(self.service.begin(request)).boxed()
    }

    fn done(&self, batch: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>> {
        self.done.lock().unwrap().push(batch.clone());
        self.call(self.service.done(batch)).boxed()
    }

    fn owns(&self, cluster_key: &str) -> bool {
        self.service.owns(cluster_key)
    }

    fn timing(&self) -> Timing {
        self.service.timing()
    }
}

/// A world whose service treats the calls after the first so.
async fn flaky(fates: &[Way]) -> (World, Arc<Flaky>, Basis) {
    let mut world = World::new(&[]).await;
    let report = world.perform_on(None, vec![world.new_pod("w-0")]).await;
    let BatchOutcome::NeedFresh(basis) = report.outcome else { panic!("{report:?}") };
    let service = Arc::new(Flaky {
        service: world.service.clone(),
        fates: Mutex::new(fates.iter().rev().copied().collect()),
        begun: Mutex::default(),
        done: Mutex::default(),
    });
    world.executor.coordination.expectations = service.clone();
    (world, service, basis)
}

#[rstest]
#[case::request_lost(&[Way::Lost])]
#[case::answer_lost(&[Way::AnswerLost])]
#[case::several_times(&[Way::Refused, Way::Lost, Way::AnswerLost, Way::Refused])]
#[tokio::test(start_paused = true)]
async fn a_request_is_repeated_as_it_was(#[case] fates: &[Way]) {
    let (world, service, basis) = flaky(fates).await;
    let report = world.perform_on(Some(basis), vec![world.new_pod("w-0")]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    let begun = service.begun.lock().unwrap();
    assert_eq!(begun.len(), fates.len() + 1);
    assert!(begun.iter().all(|begin| begin == &begun[0]), "{begun:?}");
    assert_eq!(world.service.status().unwrap().counters.granted, 1);
}

#[tokio::test(start_paused = true)]
async fn without_service_nothing_is_done_and_that_is_said() {
    let (world, service, basis) = flaky(&[Way::Lost; 99]).await;
    let began = Instant::now();
    let report = world.perform_on(Some(basis), vec![world.new_pod("w-0")]).await;
    assert!(matches!(&report.outcome, BatchOutcome::Unavailable(why) if why.contains("no answer within 2s")));
    assert!((seconds(15)..seconds(20)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!((world.writes(), service.done.lock().unwrap().len()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_is_given_back_unused() {
    use Way::{Lost, Slow};
    // The sixth copy is sent after 13.1 s.
    let (world, service, basis) = flaky(&[Lost, Lost, Lost, Lost, Lost, Slow]).await;
    let report = world.perform_on(Some(basis), vec![world.new_pod("w-0")]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert_eq!(service.begun.lock().unwrap().len(), 6);
    assert_eq!((world.writes(), world.has_open_batch()), (vec![], false));
    assert!(report.requeue_after.is_some());
}

#[rstest]
#[case::request_lost(&[Way::Lost, Way::Lost])]
#[case::answer_lost(&[Way::AnswerLost, Way::Refused])]
#[tokio::test(start_paused = true)]
async fn the_end_of_a_batch_is_said_until_it_is_heard(#[case] fates: &[Way]) {
    let (world, service, basis) = flaky(&[]).await;
    let (flaky, fates) = (service.clone(), fates.to_vec());
    world.fate(move |_| {
        *flaky.fates.lock().unwrap() = fates.clone();
        Fate::Served
    });
    world.perform_on(Some(basis), vec![world.new_pod("w-0")]).await;
    assert_eq!(service.done.lock().unwrap().len(), 3);
    assert!(!world.has_open_batch());
    assert!(matches!(world.executor.bases.seen("u"), SeenByCache::Waiting(_)));
}
