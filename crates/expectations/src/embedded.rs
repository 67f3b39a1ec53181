//! The service inside the only active nodeset-controller replica.

use crate::machine::{Machine, Parameters};
use crate::messages::{Answer, Basis, BatchId, Begin, Heartbeat, ReplicaId, Status};
use crate::ownership::Ownership;
use crate::timing::{Timing, TimingError};
use crate::{Expectations, Unavailable};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The time since an arbitrary fixed moment, on a clock that runs during suspend.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A [`Machine`] whose only member is the replica that it runs in.
pub struct Embedded {
    /// A `std` mutex because it is poisoned by a panic: a machine that panicked in the middle of a change may have lost
    /// track of an open batch, so it must not answer any more.
    machine: Mutex<Machine>,
    clock: Clock,
    timing: Timing,
    is_leading: IsLeading,
}

/// Whether this process leads at this time.
type IsLeading = Box<dyn Fn(Duration) -> bool + Send + Sync>;

impl Embedded {
    /// A service that leads from now on; an error if the timing constants do not keep batches apart.
    pub fn new(parameters: Parameters, clock: Clock, replica: ReplicaId) -> Result<Self, TimingError> {
        let timing = parameters.timing;
        timing.check()?;
        let now = clock();
        let mut machine = Machine::new(parameters, now);
        // The machine is never ticked, so the replica stays live without further heartbeats.
        machine.heartbeat(&Heartbeat { replica, leaving: false }, now);
        Ok(Self { machine: Mutex::new(machine), clock, timing, is_leading: Box::new(|_| true) })
    }

    /// Answers only at times at which `is_leading` holds: another process may grant batches at others.
    #[must_use]
    pub fn while_leading(self, is_leading: impl Fn(Duration) -> bool + Send + Sync + 'static) -> Self {
        Self { is_leading: Box::new(is_leading), ..self }
    }

    /// State of the service.
    pub fn status(&self) -> Result<Status, Unavailable> {
        self.call(Machine::status)
    }

    /// Calls the machine with the present time, which is read after the lock was acquired.
    fn call<T>(&self, method: impl FnOnce(&mut Machine, Duration) -> T) -> Result<T, Unavailable> {
        let mut machine = self.machine.lock().map_err(|poisoned| Unavailable(poisoned.to_string().into()))?;
        let now = (self.clock)();
        if !(self.is_leading)(now) {
            return Err(Unavailable("this process does not lead any more".into()));
        }
        Ok(method(&mut machine, now))
    }
}

impl Expectations for Embedded {
    fn begin(&self, request: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>> {
        async move { self.call(|machine, now| machine.begin(&request, now)) }.boxed()
    }

    fn done(&self, batch: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>> {
        async move { self.call(|machine, now| machine.done(&batch, now)) }.boxed()
    }

    /// The only member owns everything.
    fn ownership(&self) -> Ownership {
        Ownership::All
    }

    fn ownership_changes(&self) -> BoxStream<'static, ()> {
        stream::pending().boxed()
    }

    fn report_clusters(&self, _cluster_keys: Vec<String>) {}

    fn timing(&self) -> Timing {
        self.timing
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Embedded};
    use crate::messages::{
        Answer, Basis, BatchId, Begin, Granted, NodeSetName, Ops, ReplicaId, Wait, WaitReason,
    };
    use crate::{Expectations, Limits, Parameters, Predecessor, Timing, TimingError};
    use futures::FutureExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const REPLICA: &str = "r-0";

    fn parameters(timing: Timing) -> Parameters {
        Parameters { epoch: "e".into(), timing, limits: Limits::default(), predecessor: Predecessor::Unknown }
    }

    /// A service on a clock that the test sets, in seconds.
    fn embedded(seconds: &Arc<AtomicU64>) -> Embedded {
        let seconds = Arc::clone(seconds);
        let clock: Clock = Arc::new(move || Duration::from_secs(seconds.load(Ordering::Relaxed)));
        Embedded::new(parameters(Timing::default()), clock, REPLICA.into()).unwrap()
    }

    fn request(replica: &str, counter: u64, basis: Option<Basis>, ops: Ops) -> Begin {
        Begin {
            batch: BatchId { replica: replica.into(), counter },
            cluster_key: "slurm/cluster".into(),
            nodeset: NodeSetName { namespace: "slurm".into(), name: "gpu".into() },
            uid: "u".into(),
            generation: 1,
            basis,
            ops,
        }
    }

    fn begin(service: &Embedded, request: Begin) -> Answer {
        service.begin(request).now_or_never().unwrap().unwrap()
    }

    fn need_fresh(answer: Answer) -> Basis {
        let Answer::NeedFresh(basis) = answer else { panic!("{answer:?}") };
        basis
    }

    #[test]
    fn after_start_creates_are_granted_at_once_and_deletes_after_hold() {
        let seconds = Arc::new(AtomicU64::new(1_000_000));
        let service = embedded(&seconds);
        let creates = Ops { creates: 3, ..Ops::default() };
        let deletes = Ops { deletes: 2, ..Ops::default() };

        let basis = need_fresh(begin(&service, request(REPLICA, 1, None, creates)));
        let granted = begin(&service, request(REPLICA, 2, Some(basis), creates));
        assert_eq!(granted, Answer::Granted(Granted { creates: 3, deletes: 0 }));
        let batch = BatchId { replica: REPLICA.into(), counter: 2 };
        let closed = service.done(batch.clone()).now_or_never().unwrap().unwrap();
        assert_eq!(service.done(batch).now_or_never().unwrap().unwrap(), closed);

        let answer = begin(&service, request(REPLICA, 3, closed.clone(), deletes));
        assert!(matches!(answer, Answer::Wait(Wait { reason: WaitReason::HalfOpen, .. })), "{answer:?}");
        seconds.fetch_add(60, Ordering::Relaxed);
        let basis = need_fresh(begin(&service, request(REPLICA, 4, closed, deletes)));
        let granted = begin(&service, request(REPLICA, 5, Some(basis), deletes));
        assert_eq!(granted, Answer::Granted(Granted { creates: 0, deletes: 2 }));
    }

    #[test]
    fn replica_stays_the_only_member_without_heartbeats() {
        let seconds = Arc::new(AtomicU64::new(0));
        let service = embedded(&seconds);
        seconds.fetch_add(86_400, Ordering::Relaxed);
        assert_eq!(service.status().unwrap().membership.live, [ReplicaId::from(REPLICA)]);
        assert!(service.ownership().owns("slurm/any"));
        assert_eq!(service.timing(), Timing::default());
        let answer = begin(&service, request("r-1", 1, None, Ops::default()));
        assert!(matches!(answer, Answer::NotOwner(_)), "{answer:?}");
    }

    #[test]
    fn begin_has_no_effect_until_it_is_polled() {
        let service = embedded(&Arc::new(AtomicU64::new(0)));
        drop(service.begin(request(REPLICA, 1, None, Ops::default())));
        assert_eq!(service.status().unwrap().counters.need_fresh, 0);
        begin(&service, request(REPLICA, 1, None, Ops::default()));
        assert_eq!(service.status().unwrap().counters.need_fresh, 1);
    }

    #[test]
    fn process_that_does_not_lead_any_more_grants_nothing() {
        let seconds = Arc::new(AtomicU64::new(0));
        let service = embedded(&seconds).while_leading(|now| now < Duration::from_secs(10));
        assert!(service.status().is_ok());
        seconds.store(10, Ordering::Relaxed);
        let refused = service.begin(request(REPLICA, 1, None, Ops::default())).now_or_never().unwrap();
        assert!(refused.is_err(), "{refused:?}");
    }

    #[test]
    fn invalid_timing_constants_are_refused() {
        let timing = Timing { grace: Duration::ZERO, ..Timing::default() };
        let refused = Embedded::new(parameters(timing), Arc::new(|| Duration::ZERO), REPLICA.into()).err();
        assert!(matches!(refused, Some(TimingError::Grace(_))), "{refused:?}");
    }

    #[test]
    fn machine_that_panicked_does_not_answer_any_more() {
        let fault = Arc::new(AtomicU64::new(0));
        let clock: Clock = {
            let fault = Arc::clone(&fault);
            Arc::new(move || {
                assert_eq!(fault.load(Ordering::Relaxed), 0, "injected panic");
                Duration::ZERO
            })
        };
        let service = Embedded::new(parameters(Timing::default()), clock, REPLICA.into()).unwrap();
        fault.store(1, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| service.status())).is_err());
        fault.store(0, Ordering::Relaxed);
        let answer = service.begin(request(REPLICA, 1, None, Ops::default())).now_or_never().unwrap();
        assert_eq!(answer.unwrap_err().to_string(), "the expectations service did not answer");
    }
}
