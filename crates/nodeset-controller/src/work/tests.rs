//! Orders against an API server and a Slurm in memory, under paused time.

use super::*;
use crate::fixture::{self, Reached};
use expectations::{Limits, Predecessor};
use futures::future::BoxFuture;
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use slurm_fake::FakeSlurm;
use test_support::api_model::{ApiModel, Failure, Fate, Verb};
use tokio::time::Instant;

/// What fills caches.
struct Kept {
    nodesets: Writer<NodeSet>,
    _reached: Reached,
}

/// A NodeSet at an API server, and its Slurm cluster.
fn world(api: &ApiModel) -> (World, Kept, Arc<NodeSet>) {
    let (slurm, began) = (FakeSlurm::new(), Instant::now());
    let clock: expectations::Clock = Arc::new(move || began.elapsed());
    #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
    let spawn = |task: BoxFuture<'static, ()>| drop(tokio::spawn(task));
    let reached = fixture::reached(slurm.clone(), slurm.clock(), spawn);
    let service = fixture::embedded("r", Limits::default(), Predecessor::Settled, clock.clone());
    let edges = fixture::edges("r", api.client("operator"), reached.clusters.clone(), service, clock);
    let nodeset = api.put::<NodeSet>(fixture::nodeset(&json!({})));
    let nodeset: NodeSet = serde_json::from_value(Value::clone(&nodeset)).unwrap();
    let (nodesets, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Apply(nodeset.clone()));
    let world = World { nodesets, ..fixture::world(edges, reached.controllers.clone()) };
    (world, Kept { nodesets: writer, _reached: reached }, Arc::new(nodeset))
}

#[tokio::test(start_paused = true)]
async fn that_nothing_could_be_read_live_is_remembered_and_no_reason_to_hurry() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (world, _kept, nodeset) = world(&api);
    api.on_request(|call| {
        if call.verb == Verb::List { Fate::Refused(Failure::InternalError) } else { Fate::Served }
    });
    world
        .memory
        .with(nodeset.as_ref(), |memory| memory.effects.errors = vec![("Old", "long over".to_owned())]);
    let effects = vec![Effect::DeleteReservation("maint".to_owned())];
    let order = Order { nodeset: nodeset.clone(), effects, node_mirrors: vec![] };
    let report = carry_out(order, None, &world, &|| Timestamp::UNIX_EPOCH).await;
    assert_eq!(report.failures.len(), 1, "so that the next attempt comes later and later");
    let remembered = world.memory.with(nodeset.as_ref(), |memory| memory.effects.clone());
    let [(_, error)] = remembered.errors.as_slice() else { panic!("{:?}", remembered.errors) };
    assert!(error.starts_with("a live view of the workers: "), "{error}");
    assert_eq!(remembered.waiting.as_deref(), Some("a live view of the workers"));
}

#[tokio::test(start_paused = true)]
async fn that_the_cache_is_behind_is_told_and_remembered() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (world, _kept, nodeset) = world(&api);
    // There is no Controller, so that nothing is to be done whatever the cache may have had.
    let effects = vec![Effect::DeleteReservation("maint".to_owned())];
    let order = Order { nodeset: nodeset.clone(), effects, node_mirrors: vec![] };
    let report = carry_out(order, None, &world, &|| Timestamp::UNIX_EPOCH).await;
    assert_eq!(report.verdict, Verdict::Overtaken);
    let remembered = world.memory.with(nodeset.as_ref(), |memory| memory.effects.clone());
    assert_eq!(remembered.waiting.as_deref(), Some("the watch of pods to catch up"));
}

fn is_busy(world: &World, nodeset: &NodeSet) -> bool {
    world.memory.with(nodeset, |memory| memory.busy)
}

#[tokio::test(start_paused = true)]
async fn a_nodeset_that_is_gone_is_forgotten_and_its_successor_is_not() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (world, mut kept, nodeset) = world(&api);
    world.memory.with(nodeset.as_ref(), |memory| memory.busy = true);
    assert!(!world.forget_gone(&nodeset) && is_busy(&world, &nodeset), "it is there");
    kept.nodesets.apply_watcher_event(&Event::Delete(nodeset.as_ref().clone()));
    assert!(world.forget_gone(&nodeset) && !is_busy(&world, &nodeset));
    let mut successor = nodeset.as_ref().clone();
    successor.metadata.uid = Some("successor".to_owned());
    kept.nodesets.apply_watcher_event(&Event::Apply(successor.clone()));
    world.memory.with(&successor, |memory| memory.busy = true);
    assert!(world.forget_gone(&nodeset) && is_busy(&world, &successor));
}

#[tokio::test(start_paused = true)]
async fn the_last_order_of_a_nodeset_that_is_gone_leaves_nothing_behind() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (world, mut kept, nodeset) = world(&api);
    kept.nodesets.apply_watcher_event(&Event::Delete(nodeset.as_ref().clone()));
    api.remove::<NodeSet>("ns", "gpu");
    let mut successor = nodeset.as_ref().clone();
    successor.metadata.uid = Some("successor".to_owned());
    world.memory.with(&successor, |memory| memory.busy = true);
    let effects = vec![Effect::DeleteReservation("maint".to_owned())];
    carry_out(Order { nodeset, effects, node_mirrors: vec![] }, None, &world, &|| Timestamp::UNIX_EPOCH)
        .await;
    assert!(is_busy(&world, &successor), "what is remembered of a successor is its own");
}
