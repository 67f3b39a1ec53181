//! The state as tables, in the style of kubectl.

use expectations::proto::{OpenBatch, StatusResponse, WaitReason, WaitingNodeSet};
use prost_types::Duration;
use std::io::Write;
use tabwriter::TabWriter;

/// Spaces between two columns.
const GAP: usize = 3;

/// The state of the service.
pub fn render(status: &StatusResponse) -> String {
    let membership = status.membership.clone().unwrap_or_default();
    let half_open = match age(status.half_open_left.as_ref()).as_str() {
        "0s" => "-".to_owned(),
        left => format!("{left} left"),
    };
    let service = [vec![membership.epoch, status.leader.clone(), half_open]];
    let clusters_of = |replica: &String| {
        status.clusters.iter().filter(|cluster| cluster.owner.as_ref() == Some(replica)).count()
    };
    let members = membership.replica_ids.iter();
    let members = members.map(|replica| vec![replica.clone(), clusters_of(replica).to_string()]);
    let clusters = status.clusters.iter().map(|cluster| {
        vec![cluster.key.clone(), cluster.owner.clone().unwrap_or_else(|| "<none>".to_owned())]
    });
    let tables = [
        table(&["EPOCH", "LEADER", "HALF OPEN"], service),
        table(&["REPLICA", "CLUSTERS"], members),
        table(&["CLUSTER", "OWNER"], clusters),
        table(
            &["NAMESPACE", "NODESET", "BATCH OF", "NUMBER", "AGE", "CREATES", "DELETES", "OTHERS"],
            status.open_batches.iter().map(open_batch),
        ),
        table(&["NAMESPACE", "NODESET", "WAITS FOR", "AGE"], status.waiting.iter().map(waiting)),
    ];
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// A table; `None` without rows.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Option<String> {
    let rows: Vec<_> = rows.into_iter().map(|row| row.join("\t")).collect();
    if rows.is_empty() {
        return None;
    }
    let mut writer = TabWriter::new(Vec::new()).padding(GAP);
    writeln!(writer, "{}\n{}", head.join("\t"), rows.join("\n")).ok()?;
    String::from_utf8(writer.into_inner().ok()?).ok()
}

fn open_batch(batch: &OpenBatch) -> Vec<String> {
    let id = batch.batch_id.clone().unwrap_or_default();
    let ops = [batch.creates, batch.deletes, batch.others].map(|count| count.to_string());
    let head = [
        batch.namespace.clone(),
        batch.name.clone(),
        id.replica_id,
        id.counter.to_string(),
        age(batch.age.as_ref()),
    ];
    head.into_iter().chain(ops).collect()
}

fn waiting(waiting: &WaitingNodeSet) -> Vec<String> {
    let reason = match waiting.reason() {
        WaitReason::OpenBatch => "its open batch",
        WaitReason::HalfOpen => "writes of an earlier batch that may still land",
        WaitReason::Budget => "creates or deletes in flight to end",
        WaitReason::Stopping => "the next leader: this one is shutting down",
        WaitReason::Unspecified => "a reason that this version does not know",
    };
    vec![waiting.namespace.clone(), waiting.name.clone(), reason.to_owned(), age(waiting.age.as_ref())]
}

fn age(duration: Option<&Duration>) -> String {
    let seconds = duration.map_or(0, |duration| duration.seconds);
    if seconds < 120 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::status::json;
    use expectations::proto::{
        BatchId, Cluster, Counter, Membership, OpenBatch, StatusResponse, WaitReason, WaitingNodeSet,
    };
    use prost_types::Duration;
    use serde_json::json;

    fn seconds(seconds: i64) -> Duration {
        Duration { seconds, nanos: 500_000_000 }
    }

    fn status() -> StatusResponse {
        StatusResponse {
            membership: Some(Membership {
                epoch: "8f3c".into(),
                version: 3,
                replica_ids: vec!["a".into(), "b".into()],
                lease: Some(seconds(25)),
                grace: Some(seconds(35)),
            }),
            open_batches: vec![OpenBatch {
                namespace: "slurm".into(),
                name: "gpu".into(),
                batch_id: Some(BatchId { replica_id: "a".into(), counter: 17 }),
                age: Some(seconds(3)),
                creates: 120,
                deletes: 0,
                others: 2,
            }],
            waiting: vec![WaitingNodeSet {
                namespace: "slurm".into(),
                name: "cpu".into(),
                reason: WaitReason::HalfOpen.into(),
                age: Some(seconds(130)),
            }],
            counters: vec![Counter { name: "granted".into(), value: 9 }],
            leader: "expectations-0".into(),
            clusters: vec![
                Cluster { key: "slurm/blue".into(), owner: Some("a".into()) },
                Cluster { key: "slurm/red".into(), owner: None },
            ],
            half_open_left: Some(seconds(41)),
        }
    }

    #[test]
    fn tables_have_aligned_columns() {
        let expected = "\
EPOCH   LEADER           HALF OPEN
8f3c    expectations-0   41s left

REPLICA   CLUSTERS
a         1
b         0

CLUSTER      OWNER
slurm/blue   a
slurm/red    <none>

NAMESPACE   NODESET   BATCH OF   NUMBER   AGE   CREATES   DELETES   OTHERS
slurm       gpu       a          17       3s    120       0         2

NAMESPACE   NODESET   WAITS FOR                                        AGE
slurm       cpu       writes of an earlier batch that may still land   2m10s
";
        assert_eq!(render(&status()), expected);
    }

    #[test]
    fn empty_tables_are_left_out() {
        let idle = StatusResponse { leader: "l".into(), ..StatusResponse::default() };
        assert_eq!(render(&idle), "EPOCH   LEADER   HALF OPEN\n        l        -\n");
    }

    #[test]
    fn json_has_ages_in_seconds() {
        let expected = json!({
            "epoch": "8f3c",
            "leader": "expectations-0",
            "halfOpenSeconds": 41.5,
            "members": ["a", "b"],
            "clusters": [{ "key": "slurm/blue", "owner": "a" }, { "key": "slurm/red", "owner": null }],
            "openBatches": [{
                "namespace": "slurm", "nodeset": "gpu", "batch": "a/17", "holder": "a", "ageSeconds": 3.5,
                "creates": 120, "deletes": 0, "others": 2
            }],
            "waiting": [
                { "namespace": "slurm", "nodeset": "cpu", "reason": "halfOpen", "ageSeconds": 130.5 }
            ],
            "counters": { "granted": 9 }
        });
        assert_eq!(serde_json::to_value(json::Status::from(&status())).unwrap(), expected);
    }
}
