//! Jobs, and a scheduler that starts a job as soon as its required nodes are free.

use super::{Cluster, Node};

/// Seconds until a requeued job may start.
const REQUEUE_DELAY: i64 = 120;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The nodes it needs.
    pub required_nodes: Vec<String>,
    /// The nodes it holds, or held.
    pub nodes: Vec<String>,
    /// CPUs on each of them.
    pub cpus: u32,
    pub partition: String,
    /// `None`: no limit.
    pub limit_minutes: Option<i64>,
    pub state: &'static str,
    /// Ended, but not yet cleaned up on its nodes.
    pub completing: bool,
    /// When it started, or its earliest start.
    pub start: i64,
}

impl Job {
    pub fn holds(&self, node: &str) -> bool {
        (matches!(self.state, "RUNNING" | "SUSPENDED") || self.completing) && self.is_on(node)
    }

    /// Whether it uses CPUs of a node. A suspended job holds its nodes without using any.
    fn uses(&self, node: &str) -> bool {
        (self.state == "RUNNING" || self.completing) && self.is_on(node)
    }

    fn is_on(&self, node: &str) -> bool {
        self.nodes.iter().any(|name| name == node)
    }
}

impl Cluster {
    /// Queues a job.
    pub fn submit(
        &mut self,
        required_nodes: Vec<String>,
        cpus: u32,
        limit_minutes: Option<i64>,
        now: i64,
    ) -> i64 {
        let id = self.jobs.keys().next_back().map_or(1, |last| last + 1);
        let partition = "all".to_owned();
        let (state, start, nodes) = ("PENDING", 0, Vec::new());
        let job =
            Job { required_nodes, nodes, cpus, partition, limit_minutes, state, completing: false, start };
        self.jobs.insert(id, job);
        self.jobs_changed = now;
        self.start_pending_jobs(now);
        id
    }

    /// Starts the pending jobs whose nodes are free.
    pub fn start_pending_jobs(&mut self, now: i64) {
        let ids: Vec<i64> = self.jobs.keys().copied().collect();
        for id in ids {
            let Some(job) = self.jobs.get(&id) else { continue };
            let fits = |name: &String| {
                let room = |node: &Node| self.used_cpus(name) + job.cpus <= node.cpus;
                self.nodes.get(name).is_some_and(|node| node.flags.is_empty() && room(node))
            };
            if job.state == "PENDING" && job.start <= now && job.required_nodes.iter().all(fits) {
                let nodes = job.required_nodes.clone();
                self.change_job(id, now, |job| (job.state, job.start, job.nodes) = ("RUNNING", now, nodes));
            }
        }
    }

    /// Ends a job; with `completing` it keeps its nodes until another call ends it.
    pub fn end_job(&mut self, id: i64, state: &'static str, completing: bool, now: i64) -> bool {
        self.jobs.contains_key(&id)
            && self.change_job(id, now, |job| {
                (job.state, job.completing) = (state, completing && !job.nodes.is_empty());
            })
    }

    /// Requeues the jobs of a node that goes down.
    pub fn requeue_jobs_of(&mut self, node: &str, now: i64) {
        let ids = self.jobs.iter().filter(|(_, job)| job.holds(node)).map(|(id, _)| *id).collect::<Vec<_>>();
        for id in ids {
            self.change_job(id, now, |job| {
                (job.state, job.completing, job.start) = ("PENDING", false, now + REQUEUE_DELAY);
                job.nodes.clear();
            });
        }
    }

    /// Suspends a running job, or resumes a suspended one.
    pub fn set_suspended(&mut self, id: i64, suspended: bool, now: i64) {
        let (from, to) = if suspended { ("RUNNING", "SUSPENDED") } else { ("SUSPENDED", "RUNNING") };
        if self.jobs.get(&id).is_some_and(|job| job.state == from) {
            self.change_job(id, now, |job| job.state = to);
        }
    }

    /// CPUs of a node that jobs use.
    pub fn used_cpus(&self, node: &str) -> u32 {
        self.jobs.values().filter(|job| job.uses(node)).map(|job| job.cpus).sum()
    }

    fn change_job(&mut self, id: i64, now: i64, change: impl FnOnce(&mut Job)) -> bool {
        (self.jobs_changed, self.nodes_changed) = (now, now);
        self.jobs.get_mut(&id).map(change).is_some()
    }
}
