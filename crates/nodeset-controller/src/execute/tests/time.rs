//! Deadlines, and what is repeated within them.

use super::*;
use crate::execute::SeenByCache;
use rstest::rstest;

#[tokio::test(start_paused = true)]
async fn what_could_be_answered_after_the_deadline_is_not_sent() {
    let world = World::new(&["w-9"]).await;
    // Groups of 1, 2, 4: at 0 s, 6 s, 12 s; the next would be sent at 18 s, and only up to 15 s is allowed.
    world.fate(|call| if call.verb == Verb::Create { Fate::Late(seconds(6)) } else { Fate::Served });
    let mut effects: Vec<Effect> = (0..9).map(|number| world.new_pod(&format!("w-{number}"))).collect();
    effects.push(retire(&world.pod("w-9", &json!({}))));
    let report = world.perform(effects).await;
    assert_eq!(report.count(WriteKind::PodCreated), 7);
    assert_eq!(count(&world.writes(), "create pods"), 7);
    assert_eq!(count(&world.writes(), "patch"), 0);
    assert_eq!((report.outcome, report.failures), (BatchOutcome::Performed { certain: true }, vec![]));
    assert!(report.requeue_after.is_some(), "the rest needs another plan");
    assert!(!world.has_open_batch());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_sends_no_more_and_ends_its_batch() {
    let world = World::new(&[]).await;
    let stopping = world.stopping.clone();
    world.fate(move |_| {
        stopping.store(true, Relaxed);
        Fate::Served
    });
    let report = world.perform((0..3).map(|number| world.new_pod(&format!("w-{number}"))).collect()).await;
    assert_eq!(world.writes(), ["create pods "]);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert!(!world.has_open_batch());
}

#[rstest]
#[case::patch(Verb::Patch, Failure::ServiceUnavailable)]
#[case::delete(Verb::Delete, Failure::Disconnect)]
#[tokio::test(start_paused = true)]
async fn conditional_writes_are_repeated_until_they_are_answered(
    #[case] verb: Verb,
    #[case] failure: Failure,
) {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    let effect = if verb == Verb::Patch { restore(&pod, true) } else { delete_drained(&pod) };
    let mut left = 3;
    world.fate(move |call| {
        let fails = call.verb == verb && left > 0;
        left -= usize::from(fails);
        if fails { Fate::Refused(failure) } else { Fate::Served }
    });
    let began = Instant::now();
    let report = world.perform(vec![effect]).await;
    assert_eq!(count(&world.writes(), &format!("{verb:?}").to_lowercase()), 4);
    assert_eq!(began.elapsed(), Duration::from_millis(700), "0.1 s, 0.2 s and 0.4 s between them");
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
    assert!(!world.has_open_batch());
    assert_eq!(world.is_terminating("w-0"), verb == Verb::Delete);
    assert_eq!(world.executor.bases.seen("u"), SeenByCache::Unknown, "nobody told which copy was the one");
}

#[rstest]
#[case::patch(Verb::Patch)]
#[case::delete(Verb::Delete)]
#[tokio::test(start_paused = true)]
async fn conditional_writes_that_stay_unanswered_leave_the_batch_open(#[case] verb: Verb) {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    let effect = if verb == Verb::Patch { restore(&pod, true) } else { delete_drained(&pod) };
    world.fate(move |call| if call.verb == verb { Fate::Lost } else { Fate::Served });
    let began = Instant::now();
    let report = world.perform(vec![effect]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: false });
    assert_eq!(count(&world.writes(), &format!("{verb:?}").to_lowercase()), 2, "at 0 s and at 10.1 s");
    assert!(began.elapsed() <= seconds(25), "{:?}", began.elapsed());
    assert!(world.has_open_batch());
    assert_eq!(world.executor.bases.seen("u"), SeenByCache::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_leaves_an_earlier_copy_on_its_way_settles_nothing() {
    let world = World::new(&["w-0"]).await;
    let pod = world.pod("w-0", &json!({}));
    let mut copies = 0;
    world.fate(move |call| {
        copies += usize::from(call.verb == Verb::Patch);
        match (call.verb, copies) {
            (Verb::Patch, 1) => Fate::Late(seconds(30)),
            (Verb::Patch, _) => Fate::Refused(Failure::TooManyRequests),
            _ => Fate::Served,
        }
    });
    let report = world.perform(vec![retire(&pod)]).await;
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: false });
    assert!(world.has_open_batch());
    sleep(seconds(30)).await;
    assert_eq!(world.annotation("w-0", POD_CORDON_BY).as_deref(), Some("scale-in"), "the first copy landed");
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_sent_again_on_new_evidence_only() {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    world.fate(|call| if call.verb == Verb::Delete { Fate::Lost } else { Fate::Served });
    let slurm = world.slurm.client();
    let undrain = async {
        sleep(seconds(8)).await;
        slurm.update_nodes(&["w-0"], &NodeUpdate::Undrain).await.unwrap();
    };
    let (report, ()) = futures::future::join(world.perform(vec![delete_drained(&pod)]), undrain).await;
    assert_eq!(count(&world.writes(), "delete"), 1);
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: false });
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_was_done_and_not_told_is_found_done() {
    let world = World::new(&["w-0"]).await;
    let pod = world.drained("w-0").await;
    world.misreport_once(Verb::Delete);
    let report = world.perform(vec![delete_drained(&pod)]).await;
    assert_eq!((report.count(WriteKind::PodDeleted), report.failures), (1, vec![]));
    assert_eq!(report.outcome, BatchOutcome::Performed { certain: true });
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_left_open_keeps_the_next_one_waiting() {
    let world = World::new(&["w-0"]).await;
    world.slurm.inject_on(Method::POST, "/nodes/", Fault::Lost { applied: true });
    world.perform(vec![Effect::Drain(drain_of("w-0"))]).await;
    let next = world.perform(vec![world.new_pod("w-1")]).await;
    assert!(matches!(next.outcome, BatchOutcome::Wait(expectations::WaitReason::OpenBatch)), "{next:?}");
    sleep(seconds(61)).await;
    let next = world.perform(vec![world.new_pod("w-1")]).await;
    assert_eq!(next.outcome, BatchOutcome::Performed { certain: true });
}
