//! Runs a program through the phases and prints the figures of each.

#![expect(clippy::disallowed_types, reason = "elapsed time is what is measured")]

use super::api::Api;
use super::audit::AuditLog;
use super::background::Background;
use super::cluster_state::{ClusterState, DesiredNodeSet, Goal};
use super::operator::Operator;
use super::reflector::Reflector;
use super::report::{Line, mebibytes, seconds};
use super::workload::{IMAGES, NODESETS, Workload};
use crate::cluster::LocalCluster;
use crate::progress::step;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the program runs before the first phase.
const WARM_UP: Duration = Duration::from_secs(90);
/// The duration of the idle phase.
const IDLE: Duration = Duration::from_mins(1);
/// How long a phase continues after it has settled, so that late requests do not count for the next phase.
const COOL_DOWN: Duration = Duration::from_secs(5);
/// Timeout of a phase.
const TIMEOUT: Duration = Duration::from_hours(1);
/// How often the program is checked to be running.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

/// A running program with everything to measure it.
pub struct Measurement<'a> {
    /// The name of the program in the results, and the first part of its User-Agent.
    program: &'a str,
    workload: &'a Workload,
    operator: Operator,
    audit: AuditLog,
    reflector: Reflector,
    api: Api,
    _proxy: Background,
}

/// The times from a change to its effects.
struct Times {
    pods_exist: Option<Duration>,
    settled: Option<Duration>,
}

impl<'a> Measurement<'a> {
    /// Measures a program that runs in a cluster that has the objects of the workload.
    pub fn start(
        cluster: &LocalCluster,
        file: &'a Path,
        workload: &'a Workload,
        operator: Operator,
    ) -> Result<Self> {
        let program = name(file)?;
        let (api, proxy) = Api::start(cluster)?;
        let reflector = Reflector::start(&api);
        let audit = AuditLog::open(&cluster.layout.audit_log())?;
        Ok(Self { program, workload, operator, audit, reflector, api, _proxy: proxy })
    }

    /// Runs all phases.
    pub fn run(mut self) -> Result<()> {
        step(format!("let {} run for {} s", self.program, WARM_UP.as_secs()), || {
            self.follow(WARM_UP, |_| false)
        })?;
        self.phase("out", |bench| bench.change(|size| (json!({"spec": {"replicas": size}}), size)))?;
        self.phase("idle60", |bench| {
            bench.follow(IDLE, |_| false)?;
            Ok(Times { pods_exist: None, settled: None })
        })?;
        let update = json!({"spec": {"slurmd": {"image": IMAGES[1]}}});
        self.phase("update", |bench| bench.change(|size| (update.clone(), size)))?;
        self.phase("in", |bench| bench.change(|_| (json!({"spec": {"replicas": 0}}), 0)))
    }

    /// Runs a phase and prints its figures.
    fn phase(&mut self, phase: &str, work: impl FnOnce(&mut Self) -> Result<Times>) -> Result<()> {
        self.audit.read(self.program)?;
        let before = self.operator.begin_phase()?;
        let times = step(phase, || work(self))?;
        let usage = self.operator.usage_since(&before)?;
        let by = self.audit.read(self.program)?;
        let line = Line {
            who: self.program,
            phase,
            n: self.workload.pods(),
            nodesets: self.workload.nodesets.len(),
            pods_exist_s: times.pods_exist.map(seconds),
            settled_s: times.settled.map(seconds),
            replicas: usage.cpu.len(),
            cpu_s: seconds(usage.cpu.iter().sum()),
            busiest_cpu_s: seconds(usage.cpu.iter().copied().max().unwrap_or_default()),
            service_cpu_s: usage.service_cpu.map(seconds),
            peak_rss_mib: mebibytes(usage.peak_memory),
            requests: by.values().sum(),
            by,
        };
        println!("{}", serde_json::to_string(&line)?);
        Ok(())
    }

    /// Patches all NodeSets and waits until the change is done; `change` returns the patch and the new size for a full size.
    fn change(&mut self, change: impl Fn(u32) -> (Value, u32)) -> Result<Times> {
        self.reflector.state.begin_phase();
        let begin = Instant::now();
        let desired = self.workload.nodesets.iter().map(|(name, full_size)| {
            let (fields, size) = change(*full_size);
            let changed = self.api.patch(&format!("{NODESETS}/{name}"), &fields)?;
            let generation = changed["metadata"]["generation"].as_i64();
            Ok((name.clone(), DesiredNodeSet { generation: generation.context("no generation")?, size }))
        });
        let goal = Goal(desired.collect::<Result<_>>()?);
        let mut times = Times { pods_exist: None, settled: None };
        let is_done = self.follow(TIMEOUT, |state| {
            let now = begin.elapsed();
            times.pods_exist = times.pods_exist.or_else(|| goal.is_populated(state).then_some(now));
            times.settled = times.settled.or_else(|| goal.is_settled(state).then_some(now));
            times.pods_exist.is_some() && times.settled.is_some()
        })?;
        ensure!(is_done, "after {} s: {}", TIMEOUT.as_secs(), goal.progress(&self.reflector.state));
        self.follow(COOL_DOWN, |_| false)?;
        Ok(times)
    }

    /// Applies events until `is_done` or the timeout; returns whether it is done.
    fn follow(&mut self, timeout: Duration, mut is_done: impl FnMut(&ClusterState) -> bool) -> Result<bool> {
        let begin = Instant::now();
        while !is_done(&self.reflector.state) {
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            self.reflector.apply_next_event(left.min(LIVENESS_INTERVAL))?;
            self.operator.ensure_running()?;
        }
        Ok(true)
    }
}

/// The name of a program: that of its file.
fn name(file: &Path) -> Result<&str> {
    file.file_name().and_then(|name| name.to_str()).context("the program has no file name")
}

#[cfg(test)]
mod tests {
    use super::name;
    use std::path::Path;

    #[test]
    fn program_is_named_after_its_file() {
        assert_eq!(name(Path::new("/builds/other-operator")).unwrap(), "other-operator");
        assert!(name(Path::new("/")).is_err());
    }
}
