//! Partitions, as far as they take jobs. Read only.

use crate::client::{Call, SlurmClient};
use crate::error::Error;
use crate::wire::or_default;
use serde::Deserialize;

/// States in which a partition refuses new jobs. One that is down still puts them into its queue.
const CLOSED: [&str; 2] = ["DRAIN", "INACTIVE"];

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Partition {
    /// Its name.
    pub name: String,
    #[serde(rename = "partition", default, deserialize_with = "or_default")]
    condition: Condition,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Condition {
    #[serde(default, deserialize_with = "or_default")]
    state: Vec<String>,
}

impl Partition {
    /// Whether jobs may be submitted to it.
    pub fn takes_jobs(&self) -> bool {
        !self.condition.state.iter().any(|state| CLOSED.contains(&state.as_str()))
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
    #[case::not_told(json!({}), true)]
    #[case::nothing_told(Value::Null, true)]
    fn only_a_partition_that_says_so_refuses_jobs(#[case] condition: Value, #[case] takes: bool) {
        let partition = json!({ "name": "gpu", "partition": condition });
        let partition: Partition = serde_json::from_value(partition).unwrap();
        assert_eq!(partition.takes_jobs(), takes);
    }
}
