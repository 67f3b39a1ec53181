//! Summarizes a job list by node and by partition. Pure.

use super::view::Jobs;
use slurm_rest::{Deadline, Job, JobState};
use std::collections::BTreeSet;

/// The summary, and the hostlists of running jobs that cannot be parsed.
pub fn summarize(jobs: &[Job]) -> (Jobs, BTreeSet<String>) {
    let (mut summary, mut unreadable) = (Jobs::default(), BTreeSet::new());
    for job in jobs {
        let partitions: BTreeSet<&str> = job.partition.split(',').filter(|name| !name.is_empty()).collect();
        for partition in partitions {
            *summary.by_partition.entry(partition.to_owned()).or_default() += 1;
        }
        if !job.is(&JobState::Running) {
            continue;
        }
        // Without a time limit, or with an invalid one, the job may run for ever.
        let deadline = job.deadline().unwrap_or(Deadline::Never);
        let Ok(nodes) = job.node_names() else {
            unreadable.insert(job.nodes.clone());
            continue;
        };
        for node in nodes {
            let latest = summary.deadlines.entry(node).or_insert(deadline);
            *latest = deadline.max(*latest);
        }
    }
    (summary, unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use rstest::rstest;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn job(state: &str, nodes: &str, minutes: Option<i64>) -> Job {
        let limit = minutes.map_or(
            json!({ "set": true, "infinite": true, "number": 0 }),
            |minutes| json!({ "set": true, "infinite": false, "number": minutes }),
        );
        with(&json!({ "job_state": [state], "nodes": nodes, "time_limit": limit }))
    }

    fn with(members: &Value) -> Job {
        let mut job =
            json!({ "job_id": 1, "partition": "all", "start_time": { "set": true, "number": 600 } });
        job.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        serde_json::from_value(job).unwrap()
    }

    fn at(second: i64) -> Deadline {
        Deadline::At(Timestamp::from_second(second).unwrap())
    }

    #[rstest]
    #[case::latest_deadline(vec![job("RUNNING", "a", Some(5)), job("RUNNING", "a", Some(9)), job("RUNNING", "a", Some(7))],
        &[("a", at(600 + 9 * 60))])]
    #[case::every_node(vec![job("RUNNING", "w[0-1]", Some(1))], &[("w0", at(660)), ("w1", at(660))])]
    #[case::without_limit(vec![job("RUNNING", "a", None), job("RUNNING", "a", Some(5))], &[("a", Deadline::Never)])]
    #[case::limit_not_set(vec![with(&json!({ "job_state": ["RUNNING"], "nodes": "a", "time_limit": { "set": false } }))],
        &[("a", Deadline::Never)])]
    #[case::only_running(vec![job("COMPLETED", "a", Some(5)), job("PENDING", "b", Some(5))], &[])]
    #[case::unreadable_hostlist_is_skipped(vec![job("RUNNING", "w[0-", Some(1)), job("RUNNING", "a", Some(1))],
        &[("a", at(660))])]
    fn deadline_of_a_node_is_the_end_of_its_last_running_job(
        #[case] jobs: Vec<Job>,
        #[case] expected: &[(&str, Deadline)],
    ) {
        let expected: BTreeMap<String, Deadline> =
            expected.iter().map(|(name, deadline)| ((*name).to_owned(), *deadline)).collect();
        assert_eq!(summarize(&jobs).0.deadlines, expected);
    }

    #[test]
    fn unreadable_hostlists_of_running_jobs_are_returned() {
        let (_, unreadable) = summarize(&[job("RUNNING", "w[0-", Some(1)), job("COMPLETED", "x[", Some(1))]);
        assert_eq!(unreadable, BTreeSet::from(["w[0-".to_owned()]));
    }

    #[test]
    fn every_job_record_counts_once_for_each_partition() {
        let partition = |names: &str, state: &str| with(&json!({ "job_state": [state], "partition": names }));
        let jobs =
            [partition("all", "RUNNING"), partition("gpu,all,gpu", "PENDING"), partition("", "COMPLETED")];
        let counts = summarize(&jobs).0.by_partition;
        assert_eq!(counts, BTreeMap::from([("all".to_owned(), 2), ("gpu".to_owned(), 1)]));
    }
}
