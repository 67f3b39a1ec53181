//! Partitions and whether they accept jobs. Read only.

use crate::client::{Call, SlurmClient};
use crate::error::Error;
use crate::wire::or_default;
use serde::Deserialize;

/// States in which a partition rejects new jobs. A partition that is DOWN still queues them.
const CLOSED: [&str; 2] = ["DRAIN", "INACTIVE"];

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Partition {
    /// Its name.
    pub name: String,
    #[serde(rename = "partition", default, deserialize_with = "or_default")]
    info: Info,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Info {
    #[serde(default, deserialize_with = "or_default")]
    state: Vec<String>,
}

impl Partition {
    /// Whether jobs may be submitted to it.
    pub fn takes_jobs(&self) -> bool {
        !self.info.state.iter().any(|state| CLOSED.contains(&state.as_str()))
    }
}

#[derive(Deserialize)]
struct PartitionsPayload {
    partitions: Vec<Partition>,
}

impl SlurmClient {
    /// All partitions.
    pub async fn list_partitions(&self) -> Result<Vec<Partition>, Error> {
        self.read(Call::get("/partitions/")).await.map(|payload: PartitionsPayload| payload.partitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::up(json!({ "state": ["UP"] }), true)]
    #[case::down(json!({ "state": ["DOWN"] }), true)]
    #[case::draining(json!({ "state": ["DRAIN"] }), false)]
    #[case::inactive(json!({ "state": ["INACTIVE"] }), false)]
    #[case::state_absent(json!({}), true)]
    #[case::null(Value::Null, true)]
    fn only_drain_and_inactive_partitions_reject_jobs(#[case] info: Value, #[case] takes: bool) {
        let partition = json!({ "name": "gpu", "partition": info });
        let partition: Partition = serde_json::from_value(partition).unwrap();
        assert_eq!(partition.takes_jobs(), takes);
    }
}
