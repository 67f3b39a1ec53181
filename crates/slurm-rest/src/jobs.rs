//! Jobs: the nodes they hold and the partitions they name. Read only.

use crate::client::{Call, SlurmClient, escaped};
use crate::error::{Error, errno};
use crate::wire::{Number, or_default, time};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use slurm_conf::hostlist::{HostlistError, expand};
use std::collections::BTreeSet;

/// A job in slurmctld's memory; finished jobs included.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Job {
    /// Its id.
    pub job_id: i64,
    /// One base state and any number of flags.
    #[serde(rename = "job_state")]
    pub state: Vec<JobState>,
    /// Hostlist of the nodes that it holds, or held.
    #[serde(default, deserialize_with = "or_default")]
    pub nodes: String,
    /// Its partition; a pending job may name several, separated by commas.
    #[serde(default, deserialize_with = "or_default")]
    pub partition: String,
    /// When it started, or is expected to start.
    #[serde(default, deserialize_with = "time")]
    pub start_time: Option<Timestamp>,
    #[serde(rename = "time_limit", default, deserialize_with = "or_default")]
    limit_minutes: Number,
}

/// A base state or a flag.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "Slurm's own names, explained in its documentation")]
pub enum JobState {
    Completing,
    Pending,
    Running,
    StageOut,
    Suspended,
    /// Any other state; none of them holds a node (for example `CANCELLED`).
    #[serde(untagged)]
    Other(String),
}

/// The latest end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deadline {
    /// At this time.
    At(Timestamp),
    /// The job has no time limit.
    Never,
}

impl Job {
    /// Whether it is in this state, or has this flag.
    pub fn is(&self, state: &JobState) -> bool {
        self.state.contains(state)
    }

    /// Whether it holds its nodes: it is running, suspended, completing, or stages data out.
    pub fn holds_nodes(&self) -> bool {
        let holding = [JobState::Running, JobState::Suspended, JobState::Completing, JobState::StageOut];
        holding.iter().any(|state| self.is(state))
    }

    /// The names in [`Self::nodes`].
    pub fn node_names(&self) -> Result<Vec<String>, HostlistError> {
        expand(&self.nodes)
    }

    /// Whether it names this partition.
    pub fn names_partition(&self, partition: &str) -> bool {
        self.partition.split(',').any(|name| name == partition)
    }

    /// Its latest end; `None` if Slurm reports no start or limit.
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

/// The states of a job, without its nodes and times.
#[derive(Debug, Deserialize)]
struct JobStates {
    /// Its id; `12_1` for a task of an array.
    job_id: String,
    state: Vec<JobState>,
}

#[derive(Deserialize)]
struct JobStatesPayload {
    jobs: Vec<JobStates>,
}

impl SlurmClient {
    /// The ids of the jobs that may hold nodes whose states do not show it. slurmctld releases the CPUs of a suspended
    /// job, and those of a job that stages data out: without another job the node is IDLE.
    pub(crate) async fn list_hidden_jobs(&self) -> Result<BTreeSet<String>, Error> {
        // Less than 100 bytes for each job, so that it can accompany every node list.
        let payload: JobStatesPayload = self.read(Call::get("/jobs/state/")).await?;
        let is_hidden = |job: &JobStates| {
            [JobState::Suspended, JobState::StageOut].iter().any(|state| job.state.contains(state))
        };
        Ok(payload.jobs.into_iter().filter(is_hidden).map(|job| job.job_id).collect())
    }

    /// One job; `None` if slurmctld has forgotten it.
    pub(crate) async fn get_job(&self, id: &str) -> Result<Option<Job>, Error> {
        match self.read(Call::get(format!("/job/{}", escaped(id)))).await {
            Ok(JobsPayload { jobs }) => Ok(jobs.into_iter().next()),
            Err(error) if error.is_rejected_with(errno::INVALID_JOB_ID) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All jobs in slurmctld's memory. Large: several kilobytes per job.
    pub async fn list_jobs(&self) -> Result<Vec<Job>, Error> {
        // Never with update_time: slurmrestd answers "nothing changed" with an empty list.
        self.read(Call::get("/jobs/")).await.map(|payload: JobsPayload| payload.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn job(fields: &Value) -> Job {
        let mut job =
            json!({ "job_id": 1, "job_state": ["RUNNING"], "start_time": { "set": true, "number": 1000 } });
        job.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(job).unwrap()
    }

    #[rstest]
    #[case::limit(json!({ "set": true, "number": 5 }), Some(Deadline::At(Timestamp::from_second(1300).unwrap())))]
    #[case::unlimited(json!({ "set": false, "infinite": true, "number": 0 }), Some(Deadline::Never))]
    #[case::unset(json!({ "set": false }), None)]
    #[case::overflow(json!({ "set": true, "number": i64::MAX }), None)]
    fn deadline_is_start_plus_limit(#[case] limit: Value, #[case] expected: Option<Deadline>) {
        assert_eq!(job(&json!({ "time_limit": limit })).deadline(), expected);
    }

    #[test]
    fn never_is_later_than_any_time() {
        assert!(Deadline::Never > Deadline::At(Timestamp::MAX));
    }

    #[rstest]
    #[case(&["RUNNING"], true)]
    #[case(&["SUSPENDED"], true)]
    #[case(&["COMPLETED", "STAGE_OUT"], true)]
    #[case(&["CANCELLED", "COMPLETING"], true)]
    #[case(&["RUNNING", "CONFIGURING"], true)]
    #[case(&["COMPLETED"], false)]
    #[case(&["PENDING"], false)]
    fn job_holds_its_nodes_until_it_has_completed(#[case] states: &[&str], #[case] holds: bool) {
        assert_eq!(job(&json!({ "job_state": states })).holds_nodes(), holds);
    }

    #[test]
    fn nodes_are_a_hostlist_and_partitions_a_list() {
        let job = job(&json!({ "nodes": "w[0-1],x", "partition": "all,gpu" }));
        assert_eq!(job.node_names().unwrap(), ["w0", "w1", "x"]);
        assert!(job.names_partition("gpu") && !job.names_partition("gp"));
    }
}
