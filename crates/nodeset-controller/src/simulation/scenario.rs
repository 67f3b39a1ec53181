//! One scenario: random actions of users, kubelet, Slurm and the operator, and the final state.

use super::invariants::{Invariants, MAX_UNAVAILABLE, is_ready, pods, text};
use super::process::{NAMESPACE, NODESET, OPERATOR, Process};
use super::random::Random;
use crate::fixture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
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
const MAX_REPLICAS: u64 = 4;
/// Kubernetes nodes.
const HOSTS: [&str; 2] = ["host-0", "host-1"];
/// How long it may take to converge after the last fault: expired batches, and timeouts.
const CONVERGE_TIMEOUT: Duration = Duration::from_mins(15);

/// The time at the API server.
fn time(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// A running scenario.
pub struct Scenario {
    random: Random,
    api: ApiModel,
    slurm: FakeSlurm,
    started: Instant,
    start: i64,
    process: Option<Process>,
    restarts: u32,
    jobs: Vec<i64>,
    slurm_fails_until: Option<Instant>,
    slurm_recovered: Instant,
    invariants: Invariants,
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

    fn now(&self) -> Timestamp {
        time(self.start + seconds(self.started.elapsed()))
    }

    fn note(&mut self, action: impl Into<String>) {
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
        match self.random.below(16) {
            0 => self.scale(),
            1 => self.change_template(),
            2 => self.cordon(),
            3..=5 => self.use_slurm(),
            6 => self.drain_by_hand().await,
            7 => self.fail_slurm(),
            8 if self.random.percent(30) => self.crash(),
            9 if self.random.percent(30) => self.delete_pod_by_hand(),
            _ => self.run_kubelet(false),
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

    fn with_log(&self, failure: &str) -> String {
        format!("{failure}\n{}", self.log.join("\n"))
    }

    fn scale(&mut self) {
        let replicas = i64::try_from(self.random.below(MAX_REPLICAS + 1)).unwrap_or_default();
        self.note(format!("scale to {replicas}"));
        self.invariants.set_desired(replicas);
        self.api.edit::<NodeSet>(NAMESPACE, NODESET, |nodeset| nodeset["spec"]["replicas"] = json!(replicas));
    }

    fn change_template(&mut self) {
        let value = self.random.below(3).to_string();
        self.note(format!("template {value}"));
        self.api.edit::<NodeSet>(NAMESPACE, NODESET, |nodeset| {
            nodeset["spec"]["slurmd"]["env"] = json!([{ "name": "V", "value": value }]);
        });
    }

    fn cordon(&mut self) {
        let host = *self.random.one_of(&HOSTS).unwrap();
        let cordoned = self.random.percent(50);
        self.note(format!("cordon {host} {cordoned}"));
        self.api.edit::<Node>("", host, |node| node["spec"]["unschedulable"] = json!(cordoned));
    }

    /// Submits or ends a job.
    fn use_slurm(&mut self) {
        if self.random.percent(60) {
            let ordinal = self.random.below(MAX_REPLICAS);
            let node = format!("{NODESET}-{ordinal}");
            self.note(format!("submit to {node}"));
            let job = self.slurm.submit_job(&[&node], 1, Some(10));
            self.jobs.push(job);
        } else if !self.jobs.is_empty() {
            let index = usize::try_from(self.random.next()).unwrap_or_default() % self.jobs.len();
            let job = self.jobs.swap_remove(index);
            self.note(format!("end job {job}"));
            self.slurm.end_job(job);
        }
    }

    /// A person drains or undrains a Slurm node.
    async fn drain_by_hand(&mut self) {
        // A concurrent write of the operator could not detect it: Slurm has no conditional writes.
        if self.slurm_fails_until.is_some() || self.slurm_recovered.elapsed() < Duration::from_secs(6) {
            return;
        }
        let node = format!("{NODESET}-{}", self.random.below(MAX_REPLICAS));
        let client = self.slurm.client();
        if self.invariants.drained_by_person.remove(&node) {
            self.note(format!("a person resumes {node}"));
            let _ = client.update_nodes(&[&node], &NodeUpdate::Undrain).await;
        } else if self.slurm.unavailable_reason(&node).is_none() {
            let update = NodeUpdate::Drain { reason: "person".to_owned() };
            if client.update_nodes(&[&node], &update).await.is_ok() {
                self.note(format!("a person drains {node}"));
                self.invariants.drained_by_person.insert(node);
            }
        }
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
        self.process = Some(Process::start(&self.api, &self.slurm, self.restarts, self.started));
        self.restarts += 1;
    }

    /// A person deletes a pod, whether or not it has a job.
    fn delete_pod_by_hand(&mut self) {
        let alive: Vec<_> = pods(&self.api).into_iter().filter(|(_, pod)| !is_terminating(pod)).collect();
        let Some((name, pod)) = self.random.one_of(&alive).cloned() else { return };
        self.note(format!("a person deletes {name}"));
        self.invariants.deleted_by_person.insert(text(&pod, "/metadata/uid"));
        let grace = json!("2027-01-15T08:00:00Z");
        self.api.edit::<Pod>(NAMESPACE, &name, |pod| pod["metadata"]["deletionTimestamp"] = grace);
    }

    /// The kubelet starts pods, sets them ready, and removes terminating ones: `all` of them, or some.
    fn run_kubelet(&mut self, all: bool) {
        for (name, pod) in pods(&self.api) {
            if !all && self.random.percent(40) {
                continue;
            }
            if is_terminating(&pod) {
                self.slurm.stop_slurmd(&name);
                self.end_jobs_of(&name);
                self.api.finish_deletion(NAMESPACE, &name);
                if self.api.get::<Pod>(NAMESPACE, &name).is_some() {
                    self.api.remove::<Pod>(NAMESPACE, &name);
                }
            } else if text(&pod, "/spec/nodeName").is_empty() {
                let host = *self.random.one_of(&HOSTS).unwrap();
                let second = self.now();
                self.slurm.start_slurmd(&name);
                self.api.edit::<Pod>(NAMESPACE, &name, |pod| {
                    pod["spec"]["nodeName"] = json!(host);
                    pod["status"]["phase"] = json!("Running");
                    pod["status"]["containerStatuses"] = json!([{ "name": "slurmd", "image": "", "imageID": "",
                        "ready": true, "restartCount": 0, "state": { "running": { "startedAt": second } } }]);
                });
            } else if !is_ready(&pod) {
                self.set_ready(&name, true);
            } else if !all && self.random.percent(3) {
                self.note(format!("{name} is not ready"));
                self.set_ready(&name, false);
            }
        }
    }

    fn set_ready(&mut self, name: &str, ready: bool) {
        let now = self.now();
        self.api.edit::<Pod>(NAMESPACE, name, |pod| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let others = conditions.into_iter().filter(|condition| condition["type"] != "Ready");
            let status = if ready { "True" } else { "False" };
            let condition = json!({ "type": "Ready", "status": status, "lastTransitionTime": now });
            pod["status"]["conditions"] = others.chain([condition]).collect();
        });
    }

    /// Jobs on a node end with its slurmd.
    fn end_jobs_of(&mut self, node: &str) {
        if self.slurm.is_busy(node) {
            let jobs = std::mem::take(&mut self.jobs);
            for job in jobs {
                self.slurm.end_job(job);
            }
        }
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
        for node in std::mem::take(&mut self.invariants.drained_by_person) {
            let _ = self.slurm.client().update_nodes(&[&node], &NodeUpdate::Undrain).await;
        }
        let until = Instant::now() + CONVERGE_TIMEOUT;
        loop {
            self.run_kubelet(true);
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
        let nodeset = self.api.get::<NodeSet>(NAMESPACE, NODESET)?;
        let desired = nodeset["spec"]["replicas"].as_u64().unwrap_or_default();
        let pods = pods(&self.api);
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
            let cordon = text(pod, &format!("/metadata/annotations/{}", POD_CORDON.replace('/', "~1")));
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

fn is_terminating(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or_default()
}
