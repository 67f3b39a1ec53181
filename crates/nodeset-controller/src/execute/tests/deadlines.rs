//! Deadlines of a batch, and the retries of conditional writes within them.

use super::*;
use crate::execute::SeenByCache;
use rstest::rstest;

#[tokio::test(start_paused = true)]
async fn write_that_could_be_answered_after_the_deadline_is_not_sent() {
    let fixture = Fixture::new(&["w-9"]).await;
    // Groups of 1, 2, 4: at 0 s, 6 s, 12 s; the next would be sent at 18 s, and only up to 15 s is allowed.
    fixture
        .on_api_request(|call| if call.verb == Verb::Create { Fate::Late(seconds(6)) } else { Fate::Served });
    let mut effects: Vec<Effect> = (0..9).map(|number| fixture.create_pod(&format!("w-{number}"))).collect();
    effects.push(cordon(&fixture.put_pod("w-9", &json!({}))));
    let report = fixture.perform(effects).await;
    assert_eq!(report.count(WriteKind::PodCreated), 7);
    assert_eq!(count_with_prefix(&fixture.writes(), "create pods"), 7);
    assert_eq!(count_with_prefix(&fixture.writes(), "patch"), 0);
    assert_eq!((report.outcome, report.failures), (BatchOutcome::Performed { certain: true }, vec![]));
    assert!(report.requeue_after.is_some(), "the remaining effects are planned again");
    assert!(!fixture.has_open_batch());
}

#[tokio::test(start_paused = true)]
async fn stopping_process_sends_no_more_writes_and_closes_its_batch() {
    let fixture = Fixture::new(&[]).await;
    let stopping = fixture.stopping.clone();
    fixture.on_api_request(move |_| {
        stopping.store(true, Relaxed);
        Fate::Served
    });
    let report =
        fixture.perform((0..3).map(|number| fixture.create_pod(&format!("w-{number}"))).collect()).await;
    assert_eq!(fixture.writes(), ["create pods "]);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert!(!fixture.has_open_batch());
}

#[rstest]
#[case::patch(Verb::Patch, Failure::ServiceUnavailable)]
#[case::delete(Verb::Delete, Failure::Disconnect)]
#[tokio::test(start_paused = true)]
async fn ambiguous_conditional_write_is_retried_until_it_is_answered(
    #[case] verb: Verb,
    #[case] failure: Failure,
) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    let effect = if verb == Verb::Patch { uncordon(&pod, true) } else { delete_drained(&pod) };
    let mut failures = 3;
    fixture.on_api_request(move |call| {
        let fails = call.verb == verb && failures > 0;
        failures -= usize::from(fails);
        if fails { Fate::Refused(failure) } else { Fate::Served }
    });
    let began = Instant::now();
    let report = fixture.perform(vec![effect]).await;
    assert_eq!(count_with_prefix(&fixture.writes(), &format!("{verb:?}").to_lowercase()), 4);
    assert_eq!(began.elapsed(), Duration::from_millis(700), "pauses of 0.1 s, 0.2 s and 0.4 s");
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert!(!fixture.has_open_batch());
    assert_eq!(fixture.is_terminating("w-0"), verb == Verb::Delete);
    assert_eq!(
        fixture.executor.bases.seen("u"),
        SeenByCache::Unknown,
        "the answers do not tell which copy was applied"
    );
}

#[rstest]
#[case::patch(Verb::Patch)]
#[case::delete(Verb::Delete)]
#[tokio::test(start_paused = true)]
async fn unanswered_conditional_write_keeps_the_batch_open(#[case] verb: Verb) {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    let effect = if verb == Verb::Patch { uncordon(&pod, true) } else { delete_drained(&pod) };
    fixture.on_api_request(move |call| if call.verb == verb { Fate::Lost } else { Fate::Served });
    let began = Instant::now();
    let report = fixture.perform(vec![effect]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: false });
    assert_eq!(
        count_with_prefix(&fixture.writes(), &format!("{verb:?}").to_lowercase()),
        2,
        "sent at 0 s and at 10.1 s"
    );
    assert!(began.elapsed() <= seconds(25), "{:?}", began.elapsed());
    assert!(fixture.has_open_batch());
    assert_eq!(fixture.executor.bases.seen("u"), SeenByCache::Unknown);
}

#[tokio::test(start_paused = true)]
async fn refused_retry_keeps_the_batch_open_while_the_first_copy_may_be_applied() {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_pod("w-0", &json!({}));
    let mut copies = 0;
    fixture.on_api_request(move |call| {
        copies += usize::from(call.verb == Verb::Patch);
        match (call.verb, copies) {
            (Verb::Patch, 1) => Fate::Late(seconds(30)),
            (Verb::Patch, _) => Fate::Refused(Failure::TooManyRequests),
            _ => Fate::Served,
        }
    });
    let report = fixture.perform(vec![cordon(&pod)]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: false });
    assert!(fixture.has_open_batch());
    sleep(seconds(30)).await;
    assert_eq!(
        fixture.annotation("w-0", POD_CORDON_BY).as_deref(),
        Some("scale-in"),
        "the first copy was applied late"
    );
}

#[tokio::test(start_paused = true)]
async fn unanswered_delete_is_retried_only_on_new_evidence() {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    fixture.on_api_request(|call| if call.verb == Verb::Delete { Fate::Lost } else { Fate::Served });
    let slurm = fixture.slurm.client();
    let undrain = async {
        sleep(seconds(8)).await;
        slurm.update_nodes(&["w-0"], &NodeUpdate::Undrain).await.unwrap();
    };
    let (report, ()) = futures::future::join(fixture.perform(vec![delete_drained(&pod)]), undrain).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "delete"), 1);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: false });
}

#[tokio::test(start_paused = true)]
async fn applied_delete_whose_answer_was_lost_counts_as_deleted() {
    let fixture = Fixture::new(&["w-0"]).await;
    let pod = fixture.put_drained_pod("w-0").await;
    fixture.misreport_once(Verb::Delete);
    let report = fixture.perform(vec![delete_drained(&pod)]).await;
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (1, vec![]));
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
}

#[tokio::test(start_paused = true)]
async fn open_batch_blocks_the_next_batch_until_it_expires() {
    let fixture = Fixture::new(&["w-0"]).await;
    fixture.slurm.inject_on(Method::POST, "/nodes/", Fault::Lost { applied: true });
    fixture.perform(vec![Effect::Drain(drain_of("w-0"))]).await;
    let next = fixture.perform(vec![fixture.create_pod("w-1")]).await;
    assert!(matches!(next.outcome, BatchOutcome::Wait(expectations::WaitReason::OpenBatch)), "{next:?}");
    sleep(seconds(61)).await;
    let next = fixture.perform(vec![fixture.create_pod("w-1")]).await;
    assert_eq!(next.outcome, BatchOutcome::Performed { certain: true });
}
