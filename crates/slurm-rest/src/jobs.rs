//! Jobs, as far as they hold nodes or name partitions. Read only.

use crate::client::{Call, SlurmClient};
use crate::error::Error;
use crate::wire::{Number, number, or_default, time};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use slurm_conf::hostlist::{HostlistError, expand};

/// A job that slurmctld remembers, a finished one too.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Job {
    /// Its number.
    pub job_id: i64,
    /// One base state and any number of flags.
    #[serde(rename = "job_state")]
    pub state: Vec<JobState>,
    /// Hostlist of the nodes that it holds, or held.
    #[serde(default, deserialize_with = "or_default")]
    pub nodes: String,
    /// Its partition; while it waits, perhaps several with commas between them.
    #[serde(default, deserialize_with = "or_default")]
    pub partition: String,
    /// When it started, or is thought to start.
    #[serde(default, deserialize_with = "time")]
    pub start_time: Option<Timestamp>,
    #[serde(rename = "time_limit", default, deserialize_with = "number")]
    limit_minutes: Number,
}

/// A base state or a flag.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "Slurm's own words; its documentation explains them")]
pub enum JobState {
    Completing,
    Pending,
    Running,
    Suspended,
    /// One that holds no node, `CANCELLED` for example.
    #[serde(untagged)]
    Other(String),
}

/// When a job is over at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deadline {
    /// At this moment.
    At(Timestamp),
    /// It may run for ever.
    Never,
}

impl Job {
    /// Whether it is in this state, or has this flag.
    pub fn is(&self, state: &JobState) -> bool {
        self.state.contains(state)
    }

    /// Whether it holds its nodes: it runs, is suspended, or is still being cleaned up.
    pub fn holds_nodes(&self) -> bool {
        [JobState::Running, JobState::Suspended, JobState::Completing].iter().any(|state| self.is(state))
    }

    /// The names in [`Self::nodes`].
    pub fn node_names(&self) -> Result<Vec<String>, HostlistError> {
        expand(&self.nodes)
    }

    /// Whether it names this partition.
    pub fn names_partition(&self, partition: &str) -> bool {
        self.partition.split(',').any(|name| name == partition)
    }

    /// When it is over at the latest; `None` if Slurm does not say.
    pub fn deadline(&self) -> Option<Deadline> {
        let minutes = match self.limit_minutes {
            Number::Infinite => return Some(Deadline::Never),
            Number::Unset => return None,
            Number::Value(minutes) => minutes,
        };
        let limit = SignedDuration::from_secs(minutes.checked_mul(60)?);
        self.start_time?.checked_add(limit).ok().map(Deadline::At)
    }
}

#[derive(Deserialize)]
struct JobsPayload {
    jobs: Vec<Job>,
}

impl SlurmClient {
    /// All jobs that slurmctld remembers. Large: several kilobytes per job.
    pub async fn list_jobs(&self) -> Result<Vec<Job>, Error> {
        // Never with update_time: "nothing changed" comes as an empty list.
        self.read(Call::get("/jobs/")).await.map(|payload: JobsPayload| payload.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn job(members: &Value) -> Job {
        let mut job =
            json!({ "job_id": 1, "job_state": ["RUNNING"], "start_time": { "set": true, "number": 1000 } });
        job.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        serde_json::from_value(job).unwrap()
    }

    #[rstest]
    #[case::limit(json!({ "set": true, "number": 5 }), Some(Deadline::At(Timestamp::from_second(1300).unwrap())))]
    #[case::unlimited(json!({ "set": false, "infinite": true, "number": 0 }), Some(Deadline::Never))]
    #[case::not_told(json!({ "set": false }), None)]
    #[case::absurd(json!({ "set": true, "number": i64::MAX }), None)]
    fn a_deadline_is_start_and_limit(#[case] limit: Value, #[case] expected: Option<Deadline>) {
        assert_eq!(job(&json!({ "time_limit": limit })).deadline(), expected);
    }

    #[test]
    fn never_is_later_than_any_moment() {
        assert!(Deadline::Never > Deadline::At(Timestamp::MAX));
    }

    #[rstest]
    #[case(&["RUNNING"], true)]
    #[case(&["SUSPENDED"], true)]
    #[case(&["CANCELLED", "COMPLETING"], true)]
    #[case(&["RUNNING", "CONFIGURING"], true)]
    #[case(&["COMPLETED"], false)]
    #[case(&["PENDING"], false)]
    fn a_job_holds_its_nodes_until_it_is_cleaned_up(#[case] states: &[&str], #[case] holds: bool) {
        assert_eq!(job(&json!({ "job_state": states })).holds_nodes(), holds);
    }

    #[test]
    fn nodes_and_partitions_are_lists() {
        let job = job(&json!({ "nodes": "w[0-1],x", "partition": "all,gpu" }));
        assert_eq!(job.node_names().unwrap(), ["w0", "w1", "x"]);
        assert!(job.names_partition("gpu") && !job.names_partition("gp"));
    }
}
