//! Runs a program through the phases and says what each took.

#![expect(clippy::disallowed_types, reason = "elapsed time is what is measured")]

use super::api::Api;
use super::audit::AuditLog;
use super::background::Background;
use super::observer::Observer;
use super::report::{Line, mebibytes, seconds};
use super::subject::{IMAGES, NODESETS, Subject, Workload};
use super::usage;
use super::world::{Goal, Wish, World};
use crate::cluster::LocalCluster;
use crate::progress::step;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long the program is up before the first phase.
const WARM_UP: Duration = Duration::from_secs(90);
/// How long the phase without work is.
const IDLE: Duration = Duration::from_mins(1);
/// How long after it has settled a phase ends, so that what it still causes is not counted in the next one.
const AFTERMATH: Duration = Duration::from_secs(5);
/// How long a phase may take.
const LIMIT: Duration = Duration::from_hours(1);
/// How long it may take to notice that the program has ended.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// A program that runs, and the means to measure it.
pub struct Measurement<'a> {
    subject: &'a Subject,
    workload: &'a Workload,
    program: Background,
    audit: AuditLog,
    observer: Observer,
    api: Api,
    _proxy: Background,
}

/// What was seen of a change, as time since it was made.
struct Times {
    populated: Option<Duration>,
    settled: Option<Duration>,
}

impl<'a> Measurement<'a> {
    /// Starts the program on a cluster that has its objects.
    pub fn start(cluster: &LocalCluster, subject: &'a Subject, workload: &'a Workload) -> Result<Self> {
        let (api, proxy) = Api::start(cluster)?;
        let observer = Observer::start(&api);
        let log = cluster.programs()?.join(format!("bench-{}.log", subject.who));
        let mut command = cluster.command(&subject.program);
        let program = Background::start(command.args(&subject.arguments), log)?;
        let audit = AuditLog::open(&cluster.layout.audit_log())?;
        Ok(Self { subject, workload, program, audit, observer, api, _proxy: proxy })
    }

    /// All phases.
    pub fn run(mut self) -> Result<()> {
        step(format!("let {} be up for {} s", self.subject.who, WARM_UP.as_secs()), || {
            self.follow(WARM_UP, |_| false)
        })?;
        self.phase("out", |bench| bench.change(|size| (json!({"spec": {"replicas": size}}), size)))?;
        self.phase("idle60", |bench| {
            bench.follow(IDLE, |_| false)?;
            Ok(Times { populated: None, settled: None })
        })?;
        let update = json!({"spec": {"slurmd": {"image": IMAGES[1]}}});
        self.phase("update", |bench| bench.change(|size| (update.clone(), size)))?;
        self.phase("in", |bench| bench.change(|_| (json!({"spec": {"replicas": 0}}), 0)))
    }

    /// Does some work and prints what it cost.
    fn phase(&mut self, phase: &str, work: impl FnOnce(&mut Self) -> Result<Times>) -> Result<()> {
        let process = self.program.id();
        self.audit.read(&self.subject.who)?;
        usage::forget_peak_memory(process)?;
        let cpu = usage::cpu(process)?;
        let times = step(phase, || work(self))?;
        let cpu = usage::cpu(process)?.saturating_sub(cpu);
        let by = self.audit.read(&self.subject.who)?;
        let line = Line {
            who: &self.subject.who,
            phase,
            n: self.workload.pods(),
            nodesets: self.workload.nodesets.len(),
            pods_exist_s: times.populated.map(seconds),
            settled_s: times.settled.map(seconds),
            cpu_s: seconds(cpu),
            peak_rss_mib: mebibytes(usage::peak_memory(process)?),
            requests: by.values().sum(),
            by,
        };
        println!("{}", serde_json::to_string(&line)?);
        Ok(())
    }

    /// Changes all NodeSets, to fields and a size that follow from their full size, and waits until that is done.
    fn change(&mut self, change: impl Fn(u32) -> (Value, u32)) -> Result<Times> {
        self.observer.world.begin_phase();
        let begin = Instant::now();
        let wishes = self.workload.nodesets.iter().map(|(name, full_size)| {
            let (fields, size) = change(*full_size);
            let changed = self.api.patch(&format!("{NODESETS}/{name}"), &fields)?;
            let generation = changed["metadata"]["generation"].as_i64();
            Ok((name.clone(), Wish { generation: generation.context("no generation")?, size }))
        });
        let goal = Goal(wishes.collect::<Result<_>>()?);
        let mut times = Times { populated: None, settled: None };
        let is_done = self.follow(LIMIT, |world| {
            let now = begin.elapsed();
            times.populated = times.populated.or_else(|| goal.is_populated(world).then_some(now));
            times.settled = times.settled.or_else(|| goal.is_settled(world).then_some(now));
            times.populated.is_some() && times.settled.is_some()
        })?;
        ensure!(is_done, "after {} s: {}", LIMIT.as_secs(), goal.progress(&self.observer.world));
        self.follow(AFTERMATH, |_| false)?;
        Ok(times)
    }

    /// Takes in what happens until `is_done` says so, which is whether, or `limit` has passed.
    fn follow(&mut self, limit: Duration, mut is_done: impl FnMut(&World) -> bool) -> Result<bool> {
        let begin = Instant::now();
        while !is_done(&self.observer.world) {
            let left = limit.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            self.observer.observe(left.min(HEARTBEAT))?;
            self.program.ensure_runs()?;
        }
        Ok(true)
    }
}
