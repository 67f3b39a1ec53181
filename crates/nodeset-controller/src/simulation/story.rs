//! One story: who does what, by chance, and how it ends.

use super::chance::Chance;
use super::laws::{Laws, MAX_UNAVAILABLE, is_ready, pods, text};
use super::process::{NAMESPACE, NODESET, OPERATOR, Process};
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

/// Most workers that anybody wants.
const MOST: u64 = 4;
/// Where pods run.
const HOSTS: [&str; 2] = ["host-0", "host-1"];
/// How long everything may take to be in order after the last fault: batches that ran out, and what is waited for.
const PATIENCE: Duration = Duration::from_mins(15);

/// The time as the API server shows it.
fn time(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// A story as it is told.
pub struct Story {
    chance: Chance,
    api: ApiModel,
    slurm: FakeSlurm,
    began: Instant,
    start: i64,
    process: Option<Process>,
    lives: u32,
    jobs: Vec<i64>,
    slurm_fails_until: Option<Instant>,
    slurm_healed: Instant,
    laws: Laws,
    told: Vec<String>,
}

impl Story {
    /// A NodeSet, two hosts, an empty Slurm.
    pub fn begin(seed: u64) -> Self {
        let (slurm, began) = (FakeSlurm::new(), Instant::now());
        let start = slurm.clock()().as_second();
        let api = ApiModel::new(move || time(start + seconds(began.elapsed())));
        let mut nodeset = fixture::nodeset(&json!({
            "replicas": 2,
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": MAX_UNAVAILABLE } },
        }));
        nodeset.metadata.finalizers = Some(vec![WORKERS_FINALIZER.to_owned()]);
        api.put::<NodeSet>(nodeset);
        for host in HOSTS {
            api.put::<Node>(json!({ "metadata": { "name": host }, "spec": {} }));
        }
        let mut laws = Laws::default();
        laws.want(2);
        let process = Process::start(&api, &slurm, 0, began);
        let chance = Chance::new(seed);
        let story = Self {
            chance,
            api,
            slurm,
            began,
            start,
            process: Some(process),
            lives: 1,
            jobs: vec![],
            slurm_fails_until: None,
            slurm_healed: began,
            laws,
            told: vec![],
        };
        story.let_requests_fail(seed);
        story
    }

    fn now(&self) -> Timestamp {
        time(self.start + seconds(self.began.elapsed()))
    }

    fn note(&mut self, what: impl Into<String>) {
        let line = format!("{:>4} s {}", seconds(self.began.elapsed()), what.into());
        tracing::info!("{line}");
        self.told.push(line);
    }

    /// Some requests fail from now on.
    fn let_requests_fail(&self, seed: u64) {
        let mut chance = Chance::new(seed ^ 0xabcd);
        self.api.on_request(move |call| fate_of(call, &mut chance));
    }

    /// One turn: somebody does something, the operator makes a pass or not, time goes on.
    pub async fn turn(&mut self) -> Result<(), String> {
        match self.chance.below(16) {
            0 => self.scale(),
            1 => self.change_template(),
            2 => self.cordon(),
            3..=5 => self.use_slurm(),
            6 => self.drain_by_hand().await,
            7 => self.fail_slurm(),
            8 if self.chance.percent(30) => self.crash(),
            9 if self.chance.percent(30) => self.kill_a_pod(),
            _ => self.run_kubelet(false),
        }
        self.laws.check(&self.api, &self.slurm).map_err(|law| self.broken(&law))?;
        if self.chance.percent(80) {
            let (count, relist) = (self.chance.below(8), self.chance.percent(5));
            self.process().learn(usize::try_from(count).unwrap_or_default(), relist);
        }
        self.pass().await;
        let pause = Duration::from_millis(50 + self.chance.below(4_000));
        sleep(pause).await;
        if self.slurm_fails_until.is_some_and(|until| Instant::now() >= until) {
            self.heal_slurm();
        }
        self.laws.check(&self.api, &self.slurm).map_err(|law| self.broken(&law))
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    async fn pass(&mut self) {
        let (api, now) = (self.api.clone(), self.now());
        let plan = self.process().pass(&api, now, time).await;
        if let Some(plan) = plan.filter(|plan| !plan.effects.is_empty()) {
            let effects: Vec<_> = plan.effects.iter().map(crate::plan::short).collect();
            self.note(format!("plan {effects:?}"));
        }
    }

    fn broken(&self, law: &str) -> String {
        format!("{law}\n{}", self.told.join("\n"))
    }

    fn scale(&mut self) {
        let replicas = i64::try_from(self.chance.below(MOST + 1)).unwrap_or_default();
        self.note(format!("scale to {replicas}"));
        self.laws.want(replicas);
        self.api.edit::<NodeSet>(NAMESPACE, NODESET, |nodeset| nodeset["spec"]["replicas"] = json!(replicas));
    }

    fn change_template(&mut self) {
        let value = self.chance.below(3).to_string();
        self.note(format!("template {value}"));
        self.api.edit::<NodeSet>(NAMESPACE, NODESET, |nodeset| {
            nodeset["spec"]["slurmd"]["env"] = json!([{ "name": "V", "value": value }]);
        });
    }

    fn cordon(&mut self) {
        let host = *self.chance.one_of(&HOSTS).unwrap();
        let cordoned = self.chance.percent(50);
        self.note(format!("cordon {host} {cordoned}"));
        self.api.edit::<Node>("", host, |node| node["spec"]["unschedulable"] = json!(cordoned));
    }

    /// Jobs come and go.
    fn use_slurm(&mut self) {
        if self.chance.percent(60) {
            let ordinal = self.chance.below(MOST);
            let node = format!("{NODESET}-{ordinal}");
            self.note(format!("submit to {node}"));
            let job = self.slurm.submit_job(&[&node], 1, Some(10));
            self.jobs.push(job);
        } else if !self.jobs.is_empty() {
            let index = usize::try_from(self.chance.next()).unwrap_or_default() % self.jobs.len();
            let job = self.jobs.swap_remove(index);
            self.note(format!("end job {job}"));
            self.slurm.end_job(job);
        }
    }

    /// A person drains a node, or takes that back.
    async fn drain_by_hand(&mut self) {
        // A write of ours that is under way could not know of it: Slurm has no conditional ones.
        if self.slurm_fails_until.is_some() || self.slurm_healed.elapsed() < Duration::from_secs(6) {
            return;
        }
        let node = format!("{NODESET}-{}", self.chance.below(MOST));
        let client = self.slurm.client();
        if self.laws.drained_by_person.remove(&node) {
            self.note(format!("a person resumes {node}"));
            let _ = client.update_nodes(&[&node], &NodeUpdate::Undrain).await;
        } else if self.slurm.unavailable_reason(&node).is_none() {
            let update = NodeUpdate::Drain { reason: "person".to_owned() };
            if client.update_nodes(&[&node], &update).await.is_ok() {
                self.note(format!("a person drains {node}"));
                self.laws.drained_by_person.insert(node);
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
        let fault = self.chance.one_of(&faults).unwrap().clone();
        self.note(format!("Slurm: {fault:?}"));
        self.slurm.inject(fault);
        // A slurmctld that hangs for longer than writes are waited for is another story.
        let until = Instant::now() + Duration::from_secs(1 + self.chance.below(20));
        self.slurm_fails_until = Some(until);
    }

    fn heal_slurm(&mut self) {
        self.note("Slurm is back");
        self.slurm.recover();
        (self.slurm_fails_until, self.slurm_healed) = (None, Instant::now());
    }

    fn crash(&mut self) {
        self.note("the operator dies and starts again");
        self.process.take().unwrap().die();
        self.process = Some(Process::start(&self.api, &self.slurm, self.lives, self.began));
        self.lives += 1;
    }

    /// A person deletes a pod, job and all.
    fn kill_a_pod(&mut self) {
        let alive: Vec<_> = pods(&self.api).into_iter().filter(|(_, pod)| !is_ending(pod)).collect();
        let Some((name, pod)) = self.chance.one_of(&alive).cloned() else { return };
        self.note(format!("a person deletes {name}"));
        self.laws.killed.insert(text(&pod, "/metadata/uid"));
        let grace = json!("2027-01-15T08:00:00Z");
        self.api.edit::<Pod>(NAMESPACE, &name, |pod| pod["metadata"]["deletionTimestamp"] = grace);
    }

    /// The kubelet starts pods, finds them ready, and ends those that are to end. `all` at once, or some.
    fn run_kubelet(&mut self, all: bool) {
        for (name, pod) in pods(&self.api) {
            if !all && self.chance.percent(40) {
                continue;
            }
            if is_ending(&pod) {
                self.slurm.stop_slurmd(&name);
                self.end_jobs_of(&name);
                self.api.finish_deletion(NAMESPACE, &name);
                if self.api.get::<Pod>(NAMESPACE, &name).is_some() {
                    self.api.remove::<Pod>(NAMESPACE, &name);
                }
            } else if text(&pod, "/spec/nodeName").is_empty() {
                let host = *self.chance.one_of(&HOSTS).unwrap();
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
            } else if !all && self.chance.percent(3) {
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
            let told = json!({ "type": "Ready", "status": status, "lastTransitionTime": now });
            pod["status"]["conditions"] = others.chain([told]).collect();
        });
    }

    /// Whatever ran on a node ends with its slurmd.
    fn end_jobs_of(&mut self, node: &str) {
        if self.slurm.is_busy(node) {
            let jobs = std::mem::take(&mut self.jobs);
            for job in jobs {
                self.slurm.end_job(job);
            }
        }
    }

    /// No more faults, no more jobs, nobody changes anything: everything has to be as wanted before long.
    pub async fn end_well(&mut self) -> Result<(), String> {
        self.note("no more accidents");
        self.api.on_request(|_| Fate::Served);
        self.heal_slurm();
        for host in HOSTS {
            self.api.edit::<Node>("", host, |node| node["spec"]["unschedulable"] = json!(false));
        }
        for job in std::mem::take(&mut self.jobs) {
            self.slurm.end_job(job);
        }
        for node in std::mem::take(&mut self.laws.drained_by_person) {
            let _ = self.slurm.client().update_nodes(&[&node], &NodeUpdate::Undrain).await;
        }
        let until = Instant::now() + PATIENCE;
        loop {
            self.run_kubelet(true);
            self.process().learn(usize::MAX, false);
            self.pass().await;
            sleep(Duration::from_secs(3)).await;
            self.laws.check(&self.api, &self.slurm).map_err(|law| self.broken(&law))?;
            match self.disorder() {
                None => return Ok(()),
                Some(disorder) if Instant::now() > until => {
                    return Err(self.broken(&format!("not in order in the end: {disorder}")));
                }
                Some(_) => {}
            }
        }
    }

    /// What is not as it should be.
    fn disorder(&mut self) -> Option<String> {
        let nodeset = self.api.get::<NodeSet>(NAMESPACE, NODESET)?;
        let wanted = nodeset["spec"]["replicas"].as_u64().unwrap_or_default();
        let pods = pods(&self.api);
        if u64::try_from(pods.len()).ok() != Some(wanted) {
            return Some(format!("{} pods instead of {wanted}", pods.len()));
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
            if is_ending(pod) || !is_ready(pod) || !cordon.is_empty() {
                return Some(format!("{name} is ending, not ready or cordoned"));
            }
            if let Some(reason) = self.slurm.unavailable_reason(name) {
                return Some(format!("{name} is kept from work: {reason}"));
            }
        }
        None
    }
}

/// What becomes of a request. Reads either work or fail; writes may also be done without word, or late.
fn fate_of(call: &Call, chance: &mut Chance) -> Fate {
    if call.client != OPERATOR {
        return Fate::Served;
    }
    let read = matches!(call.verb, Verb::Get | Verb::List);
    match chance.below(100) {
        0..=2 => Fate::Refused(Failure::InternalError),
        3..=4 => Fate::Refused(Failure::TooManyRequests),
        5..=8 if !read => Fate::Refused(Failure::Conflict),
        9..=11 if !read => Fate::Misreported(Failure::Timeout),
        12..=13 if !read => Fate::Misreported(Failure::Disconnect),
        14..=15 if !read => Fate::Lost,
        16..=19 if !read => Fate::Late(Duration::from_millis(500 + chance.below(29_000))),
        _ => Fate::Served,
    }
}

fn is_ending(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or_default()
}
