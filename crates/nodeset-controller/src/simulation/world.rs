//! What all replicas share: the API server, the Slurm clusters, the network and the time.

use super::ledger::Ledger;
use super::process::NAMESPACE;
use super::random::Random;
use super::scenario::LONGEST_STOP;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use slurm_fake::FakeSlurm;
use slurm_rest::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use test_support::api_model::ApiModel;
use tokio::time::{Instant, sleep};

/// The longest time that a request takes to the API server or Slurm, faults aside.
const LATENCY: u64 = 30;

/// How often a process is stopped in the moment between the check of a batch's time and the sending of a write.
const STOPS_PER_100_WRITES: u64 = 2;

/// What all replicas share. Clones share it, too.
#[derive(Clone)]
pub struct World {
    pub api: ApiModel,
    pub clusters: Arc<[SlurmCluster]>,
    pub ledger: Arc<Ledger>,
    pub started: Instant,
    start: Timestamp,
    network: Arc<Mutex<Random>>,
    /// Whether there are no more faults.
    pub is_calm: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<String>>>,
}

/// A Slurm cluster, which has one NodeSet.
pub struct SlurmCluster {
    /// The name of its Controller.
    pub name: &'static str,
    pub nodeset: &'static str,
    pub slurm: FakeSlurm,
}

impl SlurmCluster {
    /// UID of its Controller.
    pub fn uid(&self) -> String {
        format!("uid-of-{}", self.name)
    }

    /// The name of its RestApi.
    pub fn restapi(&self) -> String {
        format!("{}-api", self.name)
    }

    pub fn controller_json(&self) -> Value {
        json!({
            "metadata": { "name": self.name, "namespace": NAMESPACE, "uid": self.uid() },
            "spec": { "slurmKeyRef": { "name": "auth", "key": "slurm" } },
        })
    }

    pub fn restapi_json(&self) -> Value {
        json!({
            "metadata": {
                "name": self.restapi(), "namespace": NAMESPACE, "creationTimestamp": "2027-01-01T00:00:00Z",
            },
            "spec": { "controllerRef": { "name": self.name } },
        })
    }
}

impl World {
    /// An API server without objects, and these clusters: names of Controller and NodeSet.
    pub fn new(seed: u64, clusters: &[(&'static str, &'static str)]) -> Self {
        let clusters: Arc<[SlurmCluster]> = clusters
            .iter()
            .map(|&(name, nodeset)| SlurmCluster { name, nodeset, slurm: FakeSlurm::new() })
            .collect();
        let (start, started) = (clusters[0].slurm.clock()(), Instant::now());
        let api = ApiModel::new(move || start + SignedDuration::from_secs(seconds(started)));
        Self {
            ledger: Arc::new(Ledger::new(api.clone())),
            api,
            clusters,
            started,
            start,
            network: Arc::new(Mutex::new(Random::new(seed ^ 0x1a7e))),
            is_calm: Arc::default(),
            log: Arc::default(),
        }
    }

    /// The wall clock.
    pub fn clock(&self) -> Clock {
        let (start, started) = (self.start, self.started);
        Arc::new(move || start + SignedDuration::try_from(started.elapsed()).unwrap_or_default())
    }

    /// The time that a request takes.
    pub async fn latency(&self) {
        let millis = self.network.lock().below(LATENCY);
        sleep(Duration::from_millis(millis)).await;
    }

    /// The time for which a process is stopped when it sends a write; `None` for most writes.
    pub fn stop_at_write(&self) -> Option<Duration> {
        let mut network = self.network.lock();
        let is_stopped = !self.is_calm.load(Ordering::Relaxed) && network.below(100) < STOPS_PER_100_WRITES;
        is_stopped.then(|| Duration::from_secs(1 + network.below(LONGEST_STOP)))
    }

    pub fn note(&self, action: impl Into<String>) {
        let line = format!("{:>4} s {}", seconds(self.started), action.into());
        tracing::info!("{line}");
        self.log.lock().push(line);
    }

    pub fn with_log(&self, failure: &str) -> String {
        format!("{failure}\n{}", self.log.lock().join("\n"))
    }
}

fn seconds(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_secs()).unwrap_or_default()
}
