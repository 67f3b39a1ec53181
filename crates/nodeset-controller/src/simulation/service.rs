//! The expectations service behind a network that loses, delays and repeats messages.

use super::ledger::Ledger;
use super::random::Random;
use expectations::client::{Members, changes_of};
use expectations::{
    Answer, Basis, BatchId, Begin, Epoch, Expectations, Heartbeat, Limits, Machine, Membership, Ownership,
    Parameters, Predecessor, ReplicaId, Timing, Unavailable,
};
use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use futures::stream::BoxStream;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// How often the machine is ticked.
const TICK: Duration = Duration::from_secs(1);

/// The process of the service that leads, if there is one, and the network to it.
pub struct Service {
    machine: Mutex<Option<Machine>>,
    epochs: Mutex<u64>,
    started: Instant,
    ledger: Arc<Ledger>,
    random: Mutex<Random>,
    /// Whether the network works.
    pub is_calm: AtomicBool,
}

/// What becomes of a message to the service.
enum Fate {
    Served,
    Refused,
    RequestLost,
    AnswerLost,
    /// It arrives late, whether or not the replica still waits.
    Late(Duration),
    /// It arrives at once, and a copy of it later.
    Repeated(Duration),
}

impl Service {
    /// A service that has just started.
    pub fn start(seed: u64, ledger: Arc<Ledger>) -> Arc<Self> {
        let service = Arc::new(Self {
            machine: Mutex::default(),
            epochs: Mutex::default(),
            started: Instant::now(),
            ledger,
            random: Mutex::new(Random::new(seed ^ 0x5e_4a1c)),
            is_calm: AtomicBool::new(false),
        });
        service.lead(Predecessor::Unknown);
        let ticking = service.clone();
        spawn(async move {
            loop {
                sleep(TICK).await;
                ticking.call(Machine::tick);
            }
        });
        service
    }

    /// A new process leads, in a new epoch.
    pub fn lead(&self, predecessor: Predecessor) {
        let mut epochs = self.epochs.lock();
        *epochs += 1;
        let parameters = Parameters {
            epoch: Epoch::from(format!("epoch {epochs}")),
            timing: Timing::default(),
            limits: Limits::default(),
            predecessor,
        };
        *self.machine.lock() = Some(Machine::new(parameters, self.started.elapsed()));
    }

    /// The process that leads dies.
    pub fn crash(&self) {
        *self.machine.lock() = None;
    }

    /// The process that leads grants nothing more.
    pub fn stop(&self) {
        self.call(|machine, _| machine.stop());
    }

    /// Whether the process that leads has stopped in good order, and may be followed by one that knows it.
    pub fn is_settled(&self) -> bool {
        self.call(Machine::is_settled) == Some(true)
    }

    /// Whether a process leads.
    pub fn leads(&self) -> bool {
        self.machine.lock().is_some()
    }

    fn call<T>(&self, method: impl FnOnce(&mut Machine, Duration) -> T) -> Option<T> {
        let now = self.started.elapsed();
        self.machine.lock().as_mut().map(|machine| method(machine, now))
    }

    fn begin(&self, request: &Begin) -> Result<Answer, Unavailable> {
        let answer = self.call(|machine, now| machine.begin(request, now)).ok_or_else(no_leader)?;
        if matches!(answer, Answer::Granted(_)) {
            self.ledger.granted(request);
        }
        Ok(answer)
    }

    fn done(&self, batch: &BatchId) -> Result<Option<Basis>, Unavailable> {
        self.call(|machine, now| machine.done(batch, now)).ok_or_else(no_leader)
    }

    fn below(&self, limit: u64) -> u64 {
        self.random.lock().below(limit)
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    fn fate(&self) -> Fate {
        if self.is_calm() {
            return Fate::Served;
        }
        match self.below(100) {
            0..=2 => Fate::Refused,
            3..=5 => Fate::RequestLost,
            6..=8 => Fate::AnswerLost,
            9..=13 => Fate::Late(Duration::from_millis(self.below(30_000))),
            14..=19 => Fate::Repeated(Duration::from_millis(self.below(90_000))),
            _ => Fate::Served,
        }
    }

    /// Carries a message to the service and its answer back.
    async fn carry<T: Send + 'static>(
        self: &Arc<Self>,
        deliver: impl Fn(&Self) -> Result<T, Unavailable> + Send + Sync + 'static,
    ) -> Result<T, Unavailable> {
        sleep(Duration::from_millis(1 + self.below(20))).await;
        let service = self.clone();
        match self.fate() {
            Fate::Served => deliver(self),
            Fate::Refused => Err(no_leader()),
            Fate::RequestLost => pending().await,
            Fate::AnswerLost => {
                let _ = deliver(self);
                pending().await
            }
            Fate::Late(delay) => {
                let (answer, answered) = futures::channel::oneshot::channel();
                spawn(async move {
                    sleep(delay).await;
                    let _ = answer.send(deliver(&service));
                });
                answered.await.unwrap_or_else(|_| Err(no_leader()))
            }
            Fate::Repeated(delay) => {
                let answer = deliver(self);
                spawn(async move {
                    sleep(delay).await;
                    let _ = deliver(&service);
                });
                answer
            }
        }
    }
}

fn no_leader() -> Unavailable {
    Unavailable("no process of the service leads".into())
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
    tokio::spawn(task);
}

/// The connection of one replica to the service.
pub struct Link {
    replica: ReplicaId,
    service: Arc<Service>,
    members: Mutex<Members>,
    ownership: watch::Sender<Ownership>,
    /// Until when no heartbeat arrives, and whether the replica notices.
    broken: Mutex<Option<(Instant, bool)>>,
}

impl Link {
    pub fn new(replica: &str, service: Arc<Service>) -> Self {
        let replica = ReplicaId::from(replica);
        let ownership = Ownership::Shared { replica: replica.clone(), members: Arc::default(), epoch: None };
        let (members, broken) = (Mutex::default(), Mutex::default());
        Self { replica, service, members, ownership: watch::Sender::new(ownership), broken }
    }

    /// No heartbeat arrives for a while.
    pub fn cut(&self, duration: Duration, is_noticed: bool) {
        *self.broken.lock() = Some((Instant::now() + duration, is_noticed));
    }

    pub fn repair(&self) {
        *self.broken.lock() = None;
    }

    /// The last heartbeat.
    pub fn leave(&self) {
        let heartbeat = Heartbeat { replica: self.replica.clone(), leaving: true };
        self.service.call(|machine, now| machine.heartbeat(&heartbeat, now));
    }

    /// Sends heartbeats and takes memberships, as long as the process runs.
    pub async fn join(&self) {
        loop {
            let broken = self.broken.lock().filter(|(until, _)| Instant::now() < *until);
            match broken {
                None => self.exchange().await,
                Some((_, true)) => self.publish(false),
                Some((_, false)) => {}
            }
            sleep(Timing::default().heartbeat).await;
        }
    }

    async fn exchange(&self) {
        let heartbeat = Heartbeat { replica: self.replica.clone(), leaving: false };
        let membership = self.service.call(|machine, now| {
            machine.heartbeat(&heartbeat, now);
            machine.membership()
        });
        let Some(membership) = membership else { return self.publish(false) };
        let delay = if !self.service.is_calm() && self.service.below(100) < 5 { 8_000 } else { 100 };
        sleep(Duration::from_millis(self.service.below(delay))).await;
        self.take(membership);
        self.publish(true);
    }

    fn take(&self, membership: Membership) {
        let dead_after = Timing::default().dead_after;
        self.members.lock().update(membership, self.service.started.elapsed(), dead_after);
    }

    fn publish(&self, is_joined: bool) {
        let members = self.members.lock();
        let epoch = members.epoch().filter(|_| is_joined).cloned();
        let live = members.live(self.service.started.elapsed());
        let current = Ownership::Shared { replica: self.replica.clone(), members: live, epoch };
        self.ownership.send_if_modified(|ownership| {
            let is_changed = *ownership != current;
            *ownership = current;
            is_changed
        });
    }
}

impl Expectations for Link {
    fn begin(&self, request: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>> {
        async move {
            let answer = self.service.carry(move |service| service.begin(&request)).await?;
            if let Answer::NotOwner(membership) = &answer {
                let is_current = self.members.lock().epoch() == Some(&membership.epoch);
                if is_current {
                    self.take(membership.clone());
                    self.publish(self.ownership().is_joined());
                }
            }
            Ok(answer)
        }
        .boxed()
    }

    fn done(&self, batch: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>> {
        self.service.carry(move |service| service.done(&batch)).boxed()
    }

    fn ownership(&self) -> Ownership {
        self.ownership.borrow().clone()
    }

    fn ownership_changes(&self) -> BoxStream<'static, ()> {
        changes_of(&self.ownership)
    }

    fn report_clusters(&self, _: Vec<String>) {}

    fn timing(&self) -> Timing {
        Timing::default()
    }
}
