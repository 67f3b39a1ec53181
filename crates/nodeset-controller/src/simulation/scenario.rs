//! One scenario: random actions of users, Kubernetes, Slurm and the processes of the operator, and the final state.

use super::process::{Process, REPLICA};
use super::random::Random;
use super::service::{Link, Service};
use super::site::{HOSTS, Site};
use super::world::World;
use expectations::{Predecessor, Timing};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use test_support::api_model::{Call, Failure, Fate, Verb};
use tokio::time::{Instant, sleep};

/// How long it may take to converge after the last fault: expired batches, and timeouts.
const CONVERGE_TIMEOUT: Duration = Duration::from_mins(15);
/// The longest wait that the expectations service asks for after half-open time, and a few reconciles.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// The longest time for which a process is stopped: longer than any deadline of the protocol.
pub const LONGEST_STOP: u64 = 150;
/// The longest time without heartbeats.
const LONGEST_CUT: u64 = 40;

/// For how long a batch without faults runs, in milliseconds.
const LONGEST_BATCH: u64 = 300;

/// How the operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// One process with the expectations service inside, and one Slurm cluster.
    Embedded,
    /// Three replicas, the expectations service, and two Slurm clusters.
    ThreeReplicas,
}

/// A running scenario.
pub struct Scenario {
    random: Random,
    world: World,
    /// The expectations service, if it is a process of its own.
    service: Option<Arc<Service>>,
    service_returns: Option<Instant>,
    replicas: Vec<Process>,
    /// Number of processes that were started.
    started: u32,
    sites: Vec<Site>,
}

impl Scenario {
    /// NodeSets, two Kubernetes nodes, empty Slurm clusters.
    pub fn new(seed: u64, deployment: Deployment) -> Self {
        let (clusters, replicas): (&[_], _) = match deployment {
            Deployment::Embedded => (&[("slurm", "gpu")], 1),
            Deployment::ThreeReplicas => (&[("slurm", "gpu"), ("other", "cpu")], 3),
        };
        let world = World::new(seed, clusters);
        for host in HOSTS {
            world.api.put::<Node>(json!({ "metadata": { "name": host }, "spec": {} }));
        }
        let sites = (0..clusters.len()).map(|index| Site::new(seed, &world, index)).collect();
        let service = match deployment {
            Deployment::Embedded => None,
            Deployment::ThreeReplicas => Some(Service::start(seed, world.ledger.clone())),
        };
        let mut random = Random::new(seed ^ 0xabcd);
        world.api.on_request(move |call| fate_of(call, &mut random));
        let mut scenario = Self {
            random: Random::new(seed),
            world,
            service,
            service_returns: None,
            replicas: vec![],
            started: 0,
            sites,
        };
        for _ in 0..replicas {
            let replica = scenario.start_replica();
            scenario.replicas.push(replica);
        }
        scenario
    }

    fn start_replica(&mut self) -> Process {
        let name = format!("{REPLICA}-{}", self.started);
        self.started += 1;
        let link = self.service.as_ref().map(|service| Arc::new(Link::new(&name, service.clone())));
        Process::start(&self.world, &name, link)
    }

    /// One step: random actions, a delivery of watch events or none, reconciles, and a pause.
    pub async fn step(&mut self) -> Result<(), String> {
        let site = usize::try_from(self.random.next()).unwrap_or_default() % self.sites.len();
        self.sites[site].act().await;
        self.check()?;
        for process in &mut self.replicas {
            if self.random.percent(80) && process.gate.is_running() {
                let (count, relist) = (self.random.below(8), self.random.percent(5));
                process.deliver(usize::try_from(count).unwrap_or_default(), relist);
            }
            process.record_ownership(&self.world);
            if process.gate.is_running() {
                process.reconcile(&self.world);
            }
        }
        // In the middle of batches.
        sleep(Duration::from_millis(self.random.below(LONGEST_BATCH))).await;
        self.act_on_processes();
        sleep(Duration::from_millis(50 + self.random.below(4_000))).await;
        for site in &mut self.sites {
            site.recover_slurm(false);
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), String> {
        for until in self.replicas.iter().filter_map(|process| process.gate.stopped_until()) {
            for site in &mut self.sites {
                site.invariants.forgive_late_writes(until);
            }
        }
        if let Some(until) = self.replicas.iter().filter_map(|process| process.gate.stopped_until()).max() {
            self.forgive_drains(until.duration_since(Instant::now()));
        }
        let checked = self.sites.iter_mut().try_for_each(Site::check);
        let checked = checked.and_then(|()| self.world.ledger.violation().map_or(Ok(()), Err));
        checked.map_err(|violation| self.world.with_log(&violation))
    }

    /// Without faults, jobs and changes by users, the desired state must be reached before the timeout.
    pub async fn converge(&mut self) -> Result<(), String> {
        self.world.note("no more faults");
        self.world.api.on_request(|_| Fate::Served);
        self.world.is_calm.store(true, Ordering::Relaxed);
        if let Some(service) = &self.service {
            service.is_calm.store(true, Ordering::Relaxed);
            if !service.leads() {
                service.lead(Predecessor::Unknown);
            }
        }
        for host in HOSTS {
            self.world.api.edit::<Node>("", host, |node| node["spec"]["unschedulable"] = json!(false));
        }
        for process in &self.replicas {
            process.gate.go_on();
            process.link.iter().for_each(|link| link.repair());
        }
        for site in &mut self.sites {
            site.calm_down().await;
        }
        let until = Instant::now() + CONVERGE_TIMEOUT;
        loop {
            for site in &mut self.sites {
                site.run_kubelet(true);
                site.lift_cordons();
            }
            self.follow_settled_service();
            for process in &mut self.replicas {
                process.deliver(usize::MAX, false);
                process.reconcile(&self.world);
            }
            sleep(Duration::from_secs(3)).await;
            self.check()?;
            match self.sites.iter().find_map(Site::deviation) {
                None => return self.check_state(),
                Some(deviation) if Instant::now() > until => {
                    return Err(self.world.with_log(&format!("not converged: {deviation}")));
                }
                Some(_) => {}
            }
        }
    }

    /// Replicas have dropped the state of the NodeSets that they lost.
    fn check_state(&self) -> Result<(), String> {
        let stale = self.replicas.iter().find_map(|process| process.stale_state(&self.world));
        stale.map_or(Ok(()), |stale| Err(self.world.with_log(&stale)))
    }

    /// A random fault of a replica or of the expectations service.
    fn act_on_processes(&mut self) {
        self.follow_settled_service();
        let busy = |process: &Process| self.world.ledger.is_busy(&process.name);
        // Faults of a replica matter most while it writes.
        let (index, odds) = match self.replicas.iter().position(busy) {
            Some(index) if self.random.percent(70) => (index, 20),
            _ => (usize::try_from(self.random.next()).unwrap_or_default() % self.replicas.len(), 60),
        };
        match self.random.below(odds) {
            0 => self.crash(index),
            1..=2 if self.service.is_some() => self.stop(index),
            3 if self.service.is_some() => self.leave(index),
            4..=5 if self.service.is_some() => self.cut(index),
            6 if self.service.is_some() => self.crash_service(),
            7 if self.service.is_some() && self.random.percent(50) => self.stop_service(),
            _ => {}
        }
    }

    fn crash(&mut self, index: usize) {
        let process = &self.replicas[index];
        self.world.note(format!("{} crashes", process.name));
        process.gate.kill();
        self.replicas[index] = self.start_replica();
        // In half-open time after its start the operator only creates.
        self.forgive_drains(Duration::ZERO);
    }

    fn stop(&mut self, index: usize) {
        let time = Duration::from_secs(1 + self.random.below(LONGEST_STOP));
        self.world.note(format!("{} is stopped for {time:?}", self.replicas[index].name));
        self.replicas[index].gate.stop_for(time);
    }

    fn leave(&mut self, index: usize) {
        let process = &self.replicas[index];
        if process.gate.is_running() {
            self.world.note(format!("{} shuts down", process.name));
            process.leave();
            self.replicas[index] = self.start_replica();
            self.forgive_drains(Duration::ZERO);
        }
    }

    fn cut(&mut self, index: usize) {
        let cut = Duration::from_secs(1 + self.random.below(LONGEST_CUT));
        let is_noticed = self.random.percent(50);
        let process = &self.replicas[index];
        self.world.note(format!("no heartbeats of {} for {cut:?}, noticed: {is_noticed}", process.name));
        process.link.iter().for_each(|link| link.cut(cut, is_noticed));
        self.forgive_drains(cut);
    }

    fn crash_service(&mut self) {
        let returns = Duration::from_secs(self.random.below(20));
        if let Some(service) = &self.service {
            self.world.note(format!("the service crashes, and returns in {returns:?}"));
            service.crash();
            self.service_returns = Some(Instant::now() + returns);
            self.forgive_drains(returns);
        }
    }

    fn stop_service(&mut self) {
        if let Some(service) = &self.service {
            self.world.note("the service stops in good order");
            service.stop();
            self.forgive_drains(Timing::default().hold());
        }
    }

    /// A new process of the service leads when the one before has died, or has stopped in good order.
    fn follow_settled_service(&mut self) {
        let Some(service) = &self.service else { return };
        if service.is_settled() {
            self.world.note("the service restarts");
            service.lead(Predecessor::Settled);
        } else if !service.leads() && self.service_returns.is_none_or(|at| at <= Instant::now()) {
            self.world.note("the service is back");
            service.lead(Predecessor::Unknown);
        }
    }

    /// Forgives surplus drains for the time of a fault, and until what may be in flight has landed.
    fn forgive_drains(&mut self, fault: Duration) {
        for site in &mut self.sites {
            site.invariants.forgive_drains(fault + Timing::default().hold() + LONGEST_WAIT);
        }
    }
}

/// What becomes of a request. Reads succeed or fail; writes may also be applied without response, or late.
fn fate_of(call: &Call, random: &mut Random) -> Fate {
    if !call.client.starts_with(REPLICA) {
        return Fate::Served;
    }
    let read = matches!(call.verb, Verb::Get | Verb::List);
    match random.below(100) {
        0..=2 => Fate::Refused(Failure::InternalError),
        3..=4 => Fate::Refused(Failure::TooManyRequests),
        // As of a quota that changes.
        5..=8 if call.verb == Verb::Create => Fate::Refused(Failure::Conflict),
        5..=8 if !read => Fate::Overtaken,
        9..=11 if !read => Fate::Misreported(Failure::Timeout),
        12..=13 if !read => Fate::Misreported(Failure::Disconnect),
        14..=15 if !read => Fate::Lost,
        16..=19 if !read => Fate::Late(Duration::from_millis(500 + random.below(29_000))),
        _ => Fate::Served,
    }
}
