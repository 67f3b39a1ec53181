//! One scenario: random actions of users, kubelet, Slurm and the operator, and the final state.

use super::invariants::{Invariants, MAX_UNAVAILABLE, annotation, is_ready, pods, text};
use super::process::{NAMESPACE, NODESET, OPERATOR, Process};
use super::random::Random;
use crate::fixture;
use expectations::Timing;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use slinky_api::labels::annotations::POD_CORDON;
use slinky_api::labels::{REVISION_HASH, WORKERS_FINALIZER};
use slinky_api::v1beta1::NodeSet;
use slurm_fake::{FakeSlurm, Fault};
use slurm_rest::NodeUpdate;
use std::time::Duration;
use test_support::api_model::{ApiModel, Call, Failure, Fate, Verb};
use tokio::time::{Instant, sleep};

/// Maximum number of desired workers.
pub const MAX_REPLICAS: u64 = 4;
/// Kubernetes nodes.
pub const HOSTS: [&str; 2] = ["host-0", "host-1"];
/// How long it may take to converge after the last fault: expired batches, and timeouts.
const CONVERGE_TIMEOUT: Duration = Duration::from_mins(15);

/// The longest wait that the expectations service asks for after half-open time, and a few reconciles.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// The time at the API server.
fn time(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// A running scenario.
pub struct Scenario {
    pub random: Random,
    pub api: ApiModel,
    pub slurm: FakeSlurm,
    started: Instant,
    start: i64,
    process: Option<Process>,
    restarts: u32,
    pub jobs: Vec<i64>,
    pub slurm_fails_until: Option<Instant>,
    pub slurm_recovered: Instant,
    pub invariants: Invariants,
    log: Vec<String>,
}

impl Scenario {
    /// A NodeSet, two Kubernetes nodes, an empty Slurm.
    pub fn new(seed: u64) -> Self {
        let (slurm, started) = (FakeSlurm::new(), Instant::now());
        let start = slurm.clock()().as_second();
        let api = ApiModel::new(move || time(start + seconds(started.elapsed())));
        let mut nodeset = fixture::nodeset(&json!({
            "replicas": 2,
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": MAX_UNAVAILABLE } },
        }));
        nodeset.metadata.finalizers = Some(vec![WORKERS_FINALIZER.to_owned()]);
        api.put::<NodeSet>(nodeset);
        for host in HOSTS {
            api.put::<Node>(json!({ "metadata": { "name": host }, "spec": {} }));
        }
        let mut invariants = Invariants::default();
        invariants.set_desired(2);
        let process = Process::start(&api, &slurm, 0, started);
        let random = Random::new(seed);
        let scenario = Self {
            random,
            api,
            slurm,
            started,
            start,
            process: Some(process),
            restarts: 1,
            jobs: vec![],
            slurm_fails_until: None,
            slurm_recovered: started,
            invariants,
            log: vec![],
        };
        scenario.inject_request_failures(seed);
        scenario
    }

    pub fn now(&self) -> Timestamp {
        time(self.start + seconds(self.started.elapsed()))
    }

    pub fn note(&mut self, action: impl Into<String>) {
        let line = format!("{:>4} s {}", seconds(self.started.elapsed()), action.into());
        tracing::info!("{line}");
        self.log.push(line);
    }

    /// Makes some requests to the API server fail from now on.
    fn inject_request_failures(&self, seed: u64) {
        let mut random = Random::new(seed ^ 0xabcd);
        self.api.on_request(move |call| fate_of(call, &mut random));
    }

    /// One step: a random action, a delivery of watch events or none, a reconcile, and a pause.
    pub async fn step(&mut self) -> Result<(), String> {
        match self.random.below(20) {
            0 => self.scale(),
            1 => self.change_template(),
            2 => self.cordon(),
            3..=5 => self.use_slurm(),
            6 => self.drain_by_hand().await,
            7 => self.fail_slurm(),
            8 if self.random.percent(30) => self.crash(),
            9 if self.random.percent(30) => self.delete_pod_by_hand(),
            10 => self.cordon_pod(),
            11 => self.suspend_or_resume(),
            12 if self.random.percent(15) => self.delete_nodeset(),
            13 if self.random.percent(40) => self.fail_probes(),
            _ => self.run_kubelet(false),
        }
        self.collect_garbage()?;
        if self.slurm_fails_until.is_some() {
            self.invariants.forgive_drains(Duration::ZERO);
        }
        self.invariants.check(&self.api, &self.slurm).map_err(|violation| self.with_log(&violation))?;
        if self.random.percent(80) {
            let (count, relist) = (self.random.below(8), self.random.percent(5));
            self.process().deliver(usize::try_from(count).unwrap_or_default(), relist);
        }
        self.reconcile().await;
        let pause = Duration::from_millis(50 + self.random.below(4_000));
        sleep(pause).await;
        if self.slurm_fails_until.is_some_and(|until| Instant::now() >= until) {
            self.recover_slurm();
        }
        self.invariants.check(&self.api, &self.slurm).map_err(|violation| self.with_log(&violation))
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    async fn reconcile(&mut self) {
        let (api, now) = (self.api.clone(), self.now());
        let plan = self.process().reconcile(&api, now, time).await;
        if let Some(plan) = plan.filter(|plan| !plan.effects.is_empty()) {
            let effects: Vec<_> = plan.effects.iter().map(crate::plan::summarize).collect();
            self.note(format!("plan {effects:?}"));
        }
    }

    pub fn with_log(&self, failure: &str) -> String {
        format!("{failure}\n{}", self.log.join("\n"))
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

    fn recover_slurm(&mut self) {
        self.note("Slurm recovers");
        self.slurm.recover();
        (self.slurm_fails_until, self.slurm_recovered) = (None, Instant::now());
    }

    fn crash(&mut self) {
        self.note("the operator crashes and restarts");
        self.process.take().unwrap().crash();
        // In half-open time after its start the operator only creates.
        self.invariants.forgive_drains(Timing::default().hold() + LONGEST_WAIT);
        self.process = Some(Process::start(&self.api, &self.slurm, self.restarts, self.started));
        self.restarts += 1;
    }

    /// Without faults, jobs and changes by users, the desired state must be reached before the timeout.
    pub async fn converge(&mut self) -> Result<(), String> {
        self.note("no more faults");
        self.api.on_request(|_| Fate::Served);
        self.recover_slurm();
        for host in HOSTS {
            self.api.edit::<Node>("", host, |node| node["spec"]["unschedulable"] = json!(false));
        }
        for job in std::mem::take(&mut self.jobs) {
            self.slurm.end_job(job);
        }
        self.correct_names().await;
        for node in std::mem::take(&mut self.invariants.drained_by_person) {
            let _ = self.slurm.client().update_nodes(&[&node], &NodeUpdate::Undrain).await;
        }
        let until = Instant::now() + CONVERGE_TIMEOUT;
        loop {
            self.run_kubelet(true);
            self.lift_cordons();
            self.collect_garbage()?;
            self.process().deliver(usize::MAX, false);
            self.reconcile().await;
            sleep(Duration::from_secs(3)).await;
            self.invariants.check(&self.api, &self.slurm).map_err(|violation| self.with_log(&violation))?;
            match self.deviation() {
                None => return Ok(()),
                Some(deviation) if Instant::now() > until => {
                    return Err(self.with_log(&format!("not converged: {deviation}")));
                }
                Some(_) => {}
            }
        }
    }

    /// A difference from the desired state.
    fn deviation(&mut self) -> Option<String> {
        let pods = pods(&self.api);
        let nodeset = self.api.get::<NodeSet>(NAMESPACE, NODESET).unwrap_or_default();
        let desired = nodeset["spec"]["replicas"].as_u64().unwrap_or_default();
        if !nodeset["metadata"]["deletionTimestamp"].is_null() {
            return Some("the NodeSet is not deleted yet".to_owned());
        }
        if u64::try_from(pods.len()).ok() != Some(desired) {
            return Some(format!("{} pods instead of {desired}", pods.len()));
        }
        let hashes: std::collections::BTreeSet<_> = pods
            .values()
            .map(|pod| text(pod, &format!("/metadata/labels/{}", REVISION_HASH.replace('/', "~1"))))
            .collect();
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

/// What becomes of a request. Reads succeed or fail; writes may also be applied without response, or late.
fn fate_of(call: &Call, random: &mut Random) -> Fate {
    if call.client != OPERATOR {
        return Fate::Served;
    }
    let read = matches!(call.verb, Verb::Get | Verb::List);
    match random.below(100) {
        0..=2 => Fate::Refused(Failure::InternalError),
        3..=4 => Fate::Refused(Failure::TooManyRequests),
        5..=8 if !read => Fate::Refused(Failure::Conflict),
        9..=11 if !read => Fate::Misreported(Failure::Timeout),
        12..=13 if !read => Fate::Misreported(Failure::Disconnect),
        14..=15 if !read => Fate::Lost,
        16..=19 if !read => Fate::Late(Duration::from_millis(500 + random.below(29_000))),
        _ => Fate::Served,
    }
}

/// Whether an object is being deleted.
pub fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or_default()
}
