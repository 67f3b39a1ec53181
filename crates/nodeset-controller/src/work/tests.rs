//! Orders against an API server and a Slurm in memory, under paused time.

use super::*;
use crate::fixture::{self, Reached};
use expectations::{Limits, Predecessor};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use slurm_fake::FakeSlurm;
use test_support::api_model::{ApiModel, Failure, Fate, Verb};
use tokio::time::Instant;

/// A NodeSet at an API server, and its Slurm cluster.
fn world(api: &ApiModel) -> (World, Reached, Arc<NodeSet>) {
    let (slurm, began) = (FakeSlurm::new(), Instant::now());
    let clock: expectations::Clock = Arc::new(move || began.elapsed());
    #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
    let spawn = |task: BoxFuture<'static, ()>| drop(tokio::spawn(task));
    let reached = fixture::reached(slurm.clone(), slurm.clock(), spawn);
    let service = fixture::embedded("r", Limits::default(), Predecessor::Settled, clock.clone());
    let edges = fixture::edges("r", api.client("operator"), reached.clusters.clone(), service, clock);
    let nodeset = api.put::<NodeSet>(fixture::nodeset(&json!({})));
    let nodeset = serde_json::from_value(Value::clone(&nodeset)).unwrap();
    (fixture::world(edges, reached.controllers.clone()), reached, Arc::new(nodeset))
}

#[tokio::test(start_paused = true)]
async fn that_nothing_could_be_read_live_is_remembered_and_no_reason_to_hurry() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (world, _reached, nodeset) = world(&api);
    api.on_request(|call| match call.verb {
        Verb::List => Fate::Refused(Failure::InternalError),
        _ => Fate::Served,
    });
    world.memory.with(nodeset.as_ref(), |memory| memory.effects.errors = vec![("Old", "long over".to_owned())]);
    let effects = vec![Effect::Unreserve("maint".to_owned())];
    let order = Order { nodeset: nodeset.clone(), effects, node_mirrors: vec![] };
    let report = carry_out(order, None, &world, &|| Timestamp::UNIX_EPOCH).await;
    assert_eq!(report.failures.len(), 1, "so that the next attempt comes later and later");
    let remembered = world.memory.with(nodeset.as_ref(), |memory| memory.effects.clone());
    let [(_, error)] = remembered.errors.as_slice() else { panic!("{:?}", remembered.errors) };
    assert!(error.starts_with("a live view of the workers: "), "{error}");
    assert_eq!(remembered.waiting.as_deref(), Some("a live view of the workers"));
}
