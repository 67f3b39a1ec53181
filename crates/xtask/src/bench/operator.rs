//! The processes that are measured: one program, or several replicas of it and the expectations service.

use super::background::Background;
use super::expectations::{Expectations, SERVICE};
use super::usage;
use super::workload::Workload;
use crate::cluster::{LocalCluster, until};
use anyhow::{Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for the start of service and replicas.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How often replicas are started until the clusters are spread evenly over their random identities.
const ATTEMPTS: usize = 60;

/// The running processes.
pub struct Operator {
    replicas: Vec<Background>,
    service: Option<Background>,
}

/// CPU time of each process.
pub struct CpuTimes {
    replicas: Vec<Duration>,
    service: Option<Duration>,
}

/// What the processes used in a phase.
pub struct Usage {
    /// CPU time of each replica.
    pub cpu: Vec<Duration>,
    /// CPU time of the service.
    pub service_cpu: Option<Duration>,
    /// Peak memory of the largest replica, in KiB.
    pub peak_memory: u32,
}

impl Operator {
    /// One process with the flags of our controllers.
    pub fn start(cluster: &LocalCluster, file: &Path) -> Result<Self> {
        let process = Background::start(&mut cluster.controller(file), log(cluster, "bench-operator")?)?;
        Ok(Self { replicas: vec![process], service: None })
    }

    /// Several replicas, of which each has as many clusters as any other, or one more or less.
    pub fn start_replicas(
        cluster: &LocalCluster,
        file: &Path,
        count: u8,
        workload: &Workload,
    ) -> Result<Self> {
        let service = Expectations::start(cluster, file.with_file_name(SERVICE), &[])?;
        for _ in 0..ATTEMPTS {
            let replicas = (0..count).map(|number| {
                let mut command = cluster.controller(file);
                command.args(["--expectations", &Expectations::endpoint()]);
                service.authorize(&mut command, "expectations-");
                Background::start(&mut command, log(cluster, &format!("bench-replica-{number}"))?)
            });
            let replicas: Vec<_> = replicas.collect::<Result<_>>()?;
            let owners = until(START_TIMEOUT, || {
                let owners = owners(&service)?;
                let is_complete = owners.len() == usize::from(count)
                    && owners.values().sum::<usize>() == workload.clusters();
                ensure!(is_complete, "clusters by replica: {owners:?}");
                Ok(owners)
            })?;
            if is_even(&owners) {
                return Ok(Self { replicas, service: Some(service.process) });
            }
        }
        anyhow::bail!("{ATTEMPTS} starts gave no even spread of {} clusters", workload.clusters())
    }

    /// Starts to measure.
    pub fn begin_phase(&self) -> Result<CpuTimes> {
        self.replicas.iter().try_for_each(|replica| usage::reset_peak_memory(replica.id()))?;
        self.cpu_times()
    }

    /// What was used since a phase began.
    pub fn usage_since(&self, before: &CpuTimes) -> Result<Usage> {
        let now = self.cpu_times()?;
        let peaks = self.replicas.iter().map(|replica| usage::peak_memory(replica.id()));
        let peaks: Vec<u32> = peaks.collect::<Result<_>>()?;
        let used = now.replicas.iter().zip(&before.replicas);
        Ok(Usage {
            cpu: used.map(|(now, before)| now.saturating_sub(*before)).collect(),
            service_cpu: now.service.zip(before.service).map(|(now, before)| now.saturating_sub(before)),
            peak_memory: peaks.into_iter().max().unwrap_or_default(),
        })
    }

    /// Fails if a process has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        self.replicas.iter_mut().chain(&mut self.service).try_for_each(Background::ensure_running)
    }

    fn cpu_times(&self) -> Result<CpuTimes> {
        let replicas = self.replicas.iter().map(|replica| usage::cpu(replica.id()));
        let service = self.service.as_ref().map(|service| usage::cpu(service.id()));
        Ok(CpuTimes { replicas: replicas.collect::<Result<_>>()?, service: service.transpose()? })
    }
}

/// Whether no replica has two clusters more than another.
fn is_even(owners: &BTreeMap<String, usize>) -> bool {
    let (most, least) = (owners.values().max(), owners.values().min());
    most.zip(least).is_some_and(|(most, least)| most - least <= 1)
}

fn log(cluster: &LocalCluster, name: &str) -> Result<PathBuf> {
    Ok(cluster.programs()?.join(format!("{name}.log")))
}

/// Number of clusters by replica.
fn owners(service: &Expectations) -> Result<BTreeMap<String, usize>> {
    #[derive(Deserialize)]
    struct Status {
        members: Vec<String>,
        clusters: Vec<Cluster>,
    }
    #[derive(Deserialize)]
    struct Cluster {
        owner: Option<String>,
    }
    let status: Status = serde_json::from_str(&service.status()?)?;
    let mut owners: BTreeMap<_, _> = status.members.into_iter().map(|replica| (replica, 0)).collect();
    for owner in status.clusters.into_iter().filter_map(|cluster| cluster.owner) {
        *owners.entry(owner).or_default() += 1;
    }
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::is_even;

    #[test]
    fn spread_is_even_if_no_replica_has_two_clusters_more_than_another() {
        let owners = |counts: &[usize]| {
            counts.iter().enumerate().map(|(number, count)| (number.to_string(), *count)).collect()
        };
        assert!(is_even(&owners(&[4, 3, 3])));
        assert!(!is_even(&owners(&[5, 3, 2])));
        assert!(is_even(&owners(&[10])));
        assert!(!is_even(&owners(&[])));
    }
}
