//! A NodeSet with its Slurm cluster: what happens to it besides the operator, and the final state.

use super::invariants::{Invariants, MAX_UNAVAILABLE, annotation, is_ready, pods, text};
use super::process::NAMESPACE;
use super::random::Random;
use super::world::World;
use crate::fixture;
use jiff::Timestamp;
use serde_json::{Value, json};
use slinky_api::labels::annotations::POD_CORDON;
use slinky_api::labels::{REVISION_HASH, WORKERS_FINALIZER};
use slinky_api::v1beta1::NodeSet;
use slurm_fake::{FakeSlurm, Fault};
use slurm_rest::NodeUpdate;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use test_support::api_model::ApiModel;
use tokio::time::Instant;

/// Maximum number of desired workers.
pub const MAX_REPLICAS: u64 = 4;
/// Kubernetes nodes.
pub const HOSTS: [&str; 2] = ["host-0", "host-1"];

/// A NodeSet with its Slurm cluster.
pub struct Site {
    pub nodeset: &'static str,
    pub controller_uid: String,
    pub random: Random,
    pub api: ApiModel,
    pub slurm: FakeSlurm,
    pub jobs: Vec<i64>,
    pub slurm_fails_until: Option<Instant>,
    pub slurm_recovered: Instant,
    pub invariants: Invariants,
    pub world: World,
}

impl Site {
    /// The NodeSet of the cluster with this number, and an empty Slurm.
    pub fn new(seed: u64, world: &World, index: usize) -> Self {
        let cluster = &world.clusters[index];
        let mut nodeset = fixture::nodeset(&json!({
            "replicas": 2,
            "controllerRef": { "name": cluster.name },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": MAX_UNAVAILABLE } },
        }));
        nodeset.metadata.name = Some(cluster.nodeset.to_owned());
        nodeset.metadata.uid = Some(format!("uid-of-{}", cluster.nodeset));
        nodeset.metadata.finalizers = Some(vec![WORKERS_FINALIZER.to_owned()]);
        world.api.put::<NodeSet>(nodeset);
        let mut invariants = Invariants::new(cluster.nodeset, world.ledger.clone());
        invariants.set_desired(2);
        Self {
            nodeset: cluster.nodeset,
            controller_uid: cluster.uid(),
            random: Random::new(seed.wrapping_add(u64::try_from(index).unwrap_or_default() << 32)),
            api: world.api.clone(),
            slurm: cluster.slurm.clone(),
            jobs: vec![],
            slurm_fails_until: None,
            slurm_recovered: world.started,
            invariants,
            world: world.clone(),
        }
    }

    pub fn now(&self) -> Timestamp {
        (self.world.clock())()
    }

    pub fn note(&self, action: impl Into<String>) {
        self.world.note(format!("{}: {}", self.nodeset, action.into()));
    }

    pub fn pods(&self) -> BTreeMap<String, Arc<Value>> {
        pods(&self.api, self.nodeset)
    }

    /// A random action of users, Kubernetes or Slurm.
    pub async fn act(&mut self) {
        match self.random.below(20) {
            0 => self.scale(),
            1 => self.change_template(),
            2 => self.cordon(),
            3..=5 => self.use_slurm(),
            6 => self.drain_by_hand().await,
            7 => self.fail_slurm(),
            9 if self.random.percent(30) => self.delete_pod_by_hand(),
            10 => self.cordon_pod(),
            11 => self.suspend_or_resume(),
            12 if self.random.percent(15) => self.delete_nodeset(),
            13 if self.random.percent(40) => self.fail_probes(),
            _ => self.run_kubelet(false),
        }
        if self.slurm_fails_until.is_some() {
            self.invariants.forgive_drains(Duration::ZERO);
        }
    }

    /// Checks the changes since the last call.
    pub fn check(&mut self) -> Result<(), String> {
        self.collect_garbage()?;
        self.invariants.check(&self.api, &self.slurm)
    }

    fn fail_slurm(&mut self) {
        let faults = [
            Fault::Refused,
            Fault::Lost { applied: true },
            Fault::Lost { applied: false },
            Fault::ControllerDown,
            Fault::ControllerHangs,
            Fault::OnlyNodes(0),
            Fault::OnlyNodes(1),
            Fault::Slow(Duration::from_secs(4)),
        ];
        let fault = self.random.one_of(&faults).unwrap().clone();
        self.note(format!("Slurm: {fault:?}"));
        self.slurm.inject(fault);
        // An outage longer than the timeout of writes is out of scope.
        let until = Instant::now() + Duration::from_secs(1 + self.random.below(20));
        self.slurm_fails_until = Some(until);
    }

    /// Ends the outage of Slurm when its time is over, or `now`.
    pub fn recover_slurm(&mut self, now: bool) {
        if now || self.slurm_fails_until.is_some_and(|until| Instant::now() >= until) {
            self.note("Slurm recovers");
            self.slurm.recover();
            (self.slurm_fails_until, self.slurm_recovered) = (None, Instant::now());
        }
    }

    /// Slurm works, jobs end, and people undo what they did.
    pub async fn calm_down(&mut self) {
        self.recover_slurm(true);
        for job in std::mem::take(&mut self.jobs) {
            self.slurm.end_job(job);
        }
        self.correct_names().await;
        for node in std::mem::take(&mut self.invariants.drained_by_person) {
            let _ = self.slurm.client().update_nodes(&[&node], &NodeUpdate::Undrain).await;
        }
    }

    /// A difference from the desired state.
    pub fn deviation(&self) -> Option<String> {
        let pods = self.pods();
        let nodeset = self.api.get::<NodeSet>(NAMESPACE, self.nodeset).unwrap_or_default();
        let desired = nodeset["spec"]["replicas"].as_u64().unwrap_or_default();
        if is_terminating(&nodeset) {
            return Some(format!("{} is not deleted yet", self.nodeset));
        }
        if u64::try_from(pods.len()).ok() != Some(desired) {
            return Some(format!("{} pods of {} instead of {desired}", pods.len(), self.nodeset));
        }
        let revision = format!("/metadata/labels/{}", REVISION_HASH.replace('/', "~1"));
        let hashes: BTreeSet<_> = pods.values().map(|pod| text(pod, &revision)).collect();
        if hashes.len() > 1 {
            return Some(format!("pods of several revisions {hashes:?}"));
        }
        for (name, pod) in &pods {
            let cordon = text(pod, &annotation(POD_CORDON));
            if is_terminating(pod) || !is_ready(pod) || !cordon.is_empty() {
                return Some(format!("{name} is terminating, not ready or cordoned"));
            }
            if let Some(reason) = self.slurm.unavailable_reason(name) {
                return Some(format!("{name} is out of service: {reason}"));
            }
        }
        None
    }
}

/// Whether an object is being deleted.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}
