//! The state as JSON. Ages are in seconds.

use expectations::proto::{self, StatusResponse};
use prost_types::Duration;
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of the service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status<'a> {
    epoch: &'a str,
    leader: &'a str,
    half_open_seconds: f64,
    members: &'a [String],
    clusters: Vec<Cluster<'a>>,
    open_batches: Vec<OpenBatch<'a>>,
    waiting: Vec<Waiting<'a>>,
    counters: BTreeMap<&'a str, u64>,
}

#[derive(Debug, Serialize)]
struct Cluster<'a> {
    key: &'a str,
    owner: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OpenBatch<'a> {
    namespace: &'a str,
    nodeset: &'a str,
    batch: String,
    holder: &'a str,
    age_seconds: f64,
    creates: u32,
    deletes: u32,
    others: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting<'a> {
    namespace: &'a str,
    nodeset: &'a str,
    reason: &'static str,
    age_seconds: f64,
}

impl<'a> From<&'a StatusResponse> for Status<'a> {
    fn from(status: &'a StatusResponse) -> Self {
        let membership = status.membership.as_ref();
        Self {
            epoch: membership.map_or("", |membership| &membership.epoch),
            leader: &status.leader,
            half_open_seconds: seconds(status.half_open_left.as_ref()),
            members: membership.map_or(&[], |membership| &membership.replica_ids),
            clusters: status.clusters.iter().map(Cluster::from).collect(),
            open_batches: status.open_batches.iter().map(OpenBatch::from).collect(),
            waiting: status.waiting.iter().map(Waiting::from).collect(),
            counters: status.counters.iter().map(|counter| (counter.name.as_str(), counter.value)).collect(),
        }
    }
}

impl<'a> From<&'a proto::Cluster> for Cluster<'a> {
    fn from(cluster: &'a proto::Cluster) -> Self {
        Self { key: &cluster.key, owner: cluster.owner.as_deref() }
    }
}

impl<'a> From<&'a proto::OpenBatch> for OpenBatch<'a> {
    fn from(batch: &'a proto::OpenBatch) -> Self {
        let holder = batch.batch_id.as_ref().map_or("", |id| &id.replica_id);
        Self {
            namespace: &batch.namespace,
            nodeset: &batch.name,
            batch: format!("{holder}/{}", batch.batch_id.as_ref().map_or(0, |id| id.counter)),
            holder,
            age_seconds: seconds(batch.age.as_ref()),
            creates: batch.creates,
            deletes: batch.deletes,
            others: batch.others,
        }
    }
}

impl<'a> From<&'a proto::WaitingNodeSet> for Waiting<'a> {
    fn from(waiting: &'a proto::WaitingNodeSet) -> Self {
        Self {
            namespace: &waiting.namespace,
            nodeset: &waiting.name,
            reason: match waiting.reason() {
                proto::WaitReason::OpenBatch => "openBatch",
                proto::WaitReason::HalfOpen => "halfOpen",
                proto::WaitReason::Budget => "budget",
                proto::WaitReason::Stopping => "stopping",
                proto::WaitReason::Unspecified => "unknown",
            },
            age_seconds: seconds(waiting.age.as_ref()),
        }
    }
}

fn seconds(duration: Option<&Duration>) -> f64 {
    let duration = duration.copied().and_then(|duration| std::time::Duration::try_from(duration).ok());
    duration.unwrap_or_default().as_secs_f64()
}
