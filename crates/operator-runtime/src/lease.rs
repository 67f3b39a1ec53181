//! Leader election by a Lease: at most one of several processes is active, most of the time.
//!
//! A Lease cannot fence: a process that was frozen, or a request that was delayed, may write after another process took
//! over. Writes are therefore safe with two leaders (server-side apply, UID and resourceVersion preconditions,
//! deterministic names); the Lease only avoids duplicate work. A server that must not answer after its time is over
//! checks its [`Term`] with every answer.
//!
//! Every write to the Lease carries the resourceVersion that was read, so of two candidates one gets 409. Clocks of
//! different hosts are not compared: a Lease has expired when a candidate observed it unchanged for its duration on its
//! own clock. The holder stops when it could not renew for a while, before the Lease expires ([`LeaseTiming`]).
//! Candidates watch the Lease, so that they know of a renewal at once and take over as soon as it expires.
//!
//! A container that was restarted in its pod takes over from its predecessor at once: kubelet starts a container when
//! the one before it has ended.
//!
//! Our own because kube 5 has no leader election, and kubert and the leader-election crates lag behind kube 5; a
//! release for kube 5 that compares no clocks would replace it.

mod candidate;

pub use crate::term::Term;

use crate::args::{LeaseArgs, parse_duration};
use crate::clock::since_boot;
use crate::error::chain;
use crate::metrics::METRICS;
use crate::runtime::Runtime;
use candidate::Candidate;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{info, warn};

/// Annotation of a released Lease: what its last holder left for the next one.
const RELEASED: &str = "slinky.slurm.net/released";

/// Largest difference of two clocks' rates, in percent.
const CLOCK_DRIFT: u32 = 1;

/// The time limits of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Process")]
#[group(skip)]
pub struct LeaseTiming {
    /// Time after which a Lease that was not renewed may be taken by another process.
    #[arg(long = "leader-elect-lease-duration", default_value = "15s", value_parser = parse_duration)]
    pub duration: Duration,

    /// Time after which a leader that cannot renew its Lease stops.
    #[arg(long = "leader-elect-renew-deadline", default_value = "10s", value_parser = parse_duration)]
    pub renew_deadline: Duration,

    /// Interval at which a leader renews its Lease, and at which a candidate repeats an attempt that failed.
    #[arg(long = "leader-elect-retry-period", default_value = "2s", value_parser = parse_duration)]
    pub retry_period: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { duration: seconds(15), renew_deadline: seconds(10), retry_period: seconds(2) }
    }
}

/// Time limits with which two processes could lead at once, or a leader would stop without need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseTimingError {
    /// The term of a leader could outlast its Lease.
    #[error("the renew deadline is {0:?}, too long for a Lease of {1:?}: clocks may differ by 1 %")]
    RenewDeadline(Duration, Duration),
    /// One renewal that fails would end the term.
    #[error("the retry period is {0:?}, more than half of the renew deadline of {1:?}")]
    RetryPeriod(Duration, Duration),
    /// The API server stores whole seconds.
    #[error("the Lease duration is {0:?}, and has to be whole seconds")]
    Fraction(Duration),
}

impl LeaseTiming {
    /// Refuses time limits that contradict each other.
    pub fn check(&self) -> Result<(), LeaseTimingError> {
        let Self { duration, renew_deadline, retry_period } = *self;
        if duration.subsec_nanos() != 0 {
            return Err(LeaseTimingError::Fraction(duration));
        }
        let slowest = renew_deadline.saturating_mul(100 + CLOCK_DRIFT);
        if slowest >= duration.saturating_mul(100 - CLOCK_DRIFT) {
            return Err(LeaseTimingError::RenewDeadline(renew_deadline, duration));
        }
        if retry_period.is_zero() || retry_period.saturating_mul(2) > renew_deadline {
            return Err(LeaseTimingError::RetryPeriod(retry_period, renew_deadline));
        }
        Ok(())
    }
}

/// Why leadership was lost.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Another process holds the Lease, or it was deleted.
    #[error("the Lease was taken by {holder:?}")]
    Taken {
        /// The identity of the new holder.
        holder: Option<String>,
    },
    /// The API server could not be reached in time.
    #[error("the Lease could not be renewed for {0:?}")]
    NotRenewed(Duration),
}

/// The identity of a process in a Lease.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Unique among all processes.
    text: String,
    /// What the identities of all processes of the same pod start with, if the pod is known.
    pod: Option<String>,
}

impl Identity {
    /// A new identity for this process. `instance` is the name of its pod or host.
    pub fn new(instance: &str, pod_uid: Option<&str>) -> Self {
        let pod = pod_uid.map(|uid| format!("{instance}_{uid}_"));
        let process = format!("{:08x}", rand::random::<u32>());
        let text = match &pod {
            Some(pod) => format!("{pod}{process}"),
            None => format!("{instance}_{process}"),
        };
        Self { text, pod }
    }

    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a holder is this process, or one that ran in this pod before it.
    fn may_replace(&self, holder: &str) -> bool {
        holder == self.text || self.pod.as_ref().is_some_and(|pod| holder.starts_with(pod))
    }
}

/// A candidate for a Lease.
#[derive(Clone, Debug)]
pub struct Elector {
    api: Api<Lease>,
    name: String,
    identity: Identity,
    timing: LeaseTiming,
}

/// A held Lease. [`Leadership::lost`] has to be polled to renew it.
#[derive(Debug)]
pub struct Leadership {
    elector: Elector,
    lease: Lease,
    renewed: Instant,
    term: Term,
    message: Option<String>,
}

impl Elector {
    /// A candidate. The client must not retry requests: a request that it repeats may have been applied.
    pub fn new(client: Client, namespace: &str, name: &str, identity: Identity, timing: LeaseTiming) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity, timing }
    }

    /// A candidate for the Lease of these flags, by default one with the name of the binary in the namespace of the
    /// process.
    pub fn of_process(runtime: &Runtime, args: &LeaseArgs, binary: &str, timing: LeaseTiming) -> Self {
        let or = |flag: &str, default: &str| if flag.is_empty() { default } else { flag }.to_owned();
        let (namespace, name) = (or(&args.namespace, runtime.namespace()), or(&args.name, binary));
        let pod_uid = std::env::var("POD_UID").ok().filter(|uid| !uid.is_empty());
        let identity = Identity::new(runtime.instance(), pod_uid.as_deref());
        Self::new(runtime.no_retry_client(), &namespace, &name, identity, timing)
    }

    /// Waits until the Lease is acquired. `on_standby` is called once, when another process is first observed to hold
    /// it.
    pub async fn acquire(self, on_standby: impl FnOnce()) -> Leadership {
        let this_lease = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(self.api.clone(), this_lease).default_backoff().boxed();
        let mut candidate = Candidate::new(self.identity.clone());
        let mut on_standby = Some(on_standby);
        loop {
            let due = candidate.attempt_at();
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => candidate.observe(event, Instant::now()),
                    Some(Err(error)) => {
                        warn!(lease = self.name, error = chain(&error), "Watching the Lease failed");
                    }
                    // A watch of kube never ends.
                    None => pending().await,
                },
                () = is_due => {
                    let (started, sent) = (Instant::now(), since_boot());
                    match self.try_acquire(candidate.lease()).await {
                        Ok(lease) => {
                            info!(lease = self.name, identity = self.identity.text, "Acquired the Lease");
                            METRICS.leading.set(1);
                            let message = candidate.message();
                            let term = Term::new(sent, self.timing.renew_deadline);
                            return Leadership { elector: self, lease, renewed: started, term, message };
                        }
                        Err(error) => {
                            warn!(lease = self.name, error, "Acquiring the Lease failed");
                            let retry = self.timing.retry_period;
                            candidate.retry_after(retry.mul_f64(1.0 + 0.2 * rand::random::<f64>()));
                        }
                    }
                }
            }
            if candidate.is_standby()
                && let Some(on_standby) = on_standby.take()
            {
                on_standby();
            }
        }
    }

    /// Writes this process into the observed Lease, or into a new one.
    async fn try_acquire(&self, observed: Option<&Lease>) -> Result<Lease, String> {
        let mut lease = observed.cloned().unwrap_or_default();
        let spec = lease.spec.take().unwrap_or_default();
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.managed_fields = None;
        lease.annotations_mut().remove(RELEASED);
        lease.spec = Some(spec_held_by(&spec, &self.identity.text, self.timing.duration, now()));
        let params = PostParams::default();
        let write = async {
            match observed {
                Some(_) => self.api.replace(&self.name, &params, &lease).await,
                None => self.api.create(&params, &lease).await,
            }
        };
        let limit = self.timing.renew_deadline;
        let late = |_| format!("no answer within {limit:?}");
        timeout(limit, write).await.map_err(late)?.map_err(|error| chain(&error))
    }
}

impl Leadership {
    /// How long this process may act as the holder.
    pub fn term(&self) -> Term {
        self.term.clone()
    }

    /// The identity of this process in the Lease.
    pub fn identity(&self) -> &str {
        self.elector.identity.as_str()
    }

    /// What the last holder left when it [released](Self::release) the Lease.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Renews the Lease and resolves when it is lost.
    pub async fn lost(&mut self) -> Lost {
        let LeaseTiming { renew_deadline, retry_period, .. } = self.elector.timing;
        let lost = loop {
            sleep(retry_period).await;
            let (started, sent) = (Instant::now(), since_boot());
            // After a pause of the process a renewal could succeed, and make candidates wait for a holder that stops.
            if !self.term.covers(sent) {
                break Lost::NotRenewed(renew_deadline);
            }
            match timeout_at(self.renewed + renew_deadline, self.renew()).await {
                Ok(Ok(None)) => {
                    self.renewed = started;
                    self.term.extend(sent);
                }
                Ok(Ok(Some(lost))) => break lost,
                Ok(Err(error)) => warn!(error = chain(&error), "Renewing the Lease failed"),
                Err(_) => break Lost::NotRenewed(renew_deadline),
            }
        };
        METRICS.leading.set(0);
        self.term.end();
        lost
    }

    /// Renews once; `Some` if the Lease is lost for good.
    async fn renew(&mut self) -> Result<Option<Lost>, kube::Error> {
        let spec = self.lease.spec.clone().unwrap_or_default();
        let identity = self.elector.identity.as_str();
        self.lease.spec = Some(spec_held_by(&spec, identity, self.elector.timing.duration, now()));
        match self.elector.api.replace(&self.elector.name, &PostParams::default(), &self.lease).await {
            Ok(lease) => {
                self.lease = lease;
                Ok(None)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                // A label may have changed, or the response to an earlier renewal was lost: read the holder first.
                let lease = self.elector.api.get_opt(&self.elector.name).await?;
                let holder = lease.as_ref().and_then(|lease| lease.spec.as_ref()?.holder_identity.clone());
                match lease {
                    Some(lease) if holder.as_deref() == Some(self.elector.identity.as_str()) => {
                        self.lease = lease;
                        Err(kube::Error::Api(status))
                    }
                    _ => Ok(Some(Lost::Taken { holder })),
                }
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Some(Lost::Taken { holder: None })),
            Err(error) => Err(error),
        }
    }

    /// Ends the term and releases the Lease, so that another process need not wait until it expires. The next holder
    /// finds the message.
    pub async fn release(self, message: Option<&str>) {
        METRICS.leading.set(0);
        self.term.end();
        let lease = &self.elector.name;
        match timeout(self.elector.timing.retry_period, self.try_release(message)).await {
            Ok(Ok(())) => info!(lease, message, "Released the Lease"),
            Ok(Err(error)) => {
                warn!(lease, error = chain(&error), "Releasing the Lease failed; it will expire");
            }
            Err(_) => warn!(lease, "Releasing the Lease timed out; it will expire"),
        }
    }

    /// Reads the Lease first: an interrupted renewal may have written a version that is not known here.
    async fn try_release(&self, message: Option<&str>) -> Result<(), kube::Error> {
        let Elector { api, name, identity, .. } = &self.elector;
        let mut lease = api.get(name).await?;
        if let Some(spec) = &mut lease.spec
            && spec.holder_identity.as_deref() == Some(identity.as_str())
        {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            if let Some(message) = message {
                lease.annotations_mut().insert(RELEASED.to_owned(), message.to_owned());
            }
            api.replace(name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }
}

/// The spec after `identity` acquired or renewed the Lease.
fn spec_held_by(spec: &LeaseSpec, identity: &str, duration: Duration, now: Timestamp) -> LeaseSpec {
    let is_renewal = spec.holder_identity.as_deref() == Some(identity);
    let earlier = spec.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(duration.as_secs()).ok(),
        renew_time: Some(MicroTime(now)),
        acquire_time: if is_renewal { spec.acquire_time.clone() } else { Some(MicroTime(now)) },
        lease_transitions: Some(if is_renewal { earlier } else { earlier.saturating_add(1) }),
        ..spec.clone()
    }
}

#[expect(clippy::disallowed_methods, reason = "renewTime is informational: no decision depends on it")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::{LeaseTiming, LeaseTimingError, spec_held_by};
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case::default(15_000, 10_000, 2_000, None)]
    #[case::deadline_as_long_as_clocks_allow(15_000, 14_702, 2_000, None)]
    #[case::deadline_too_long(15_000, 14_703, 2_000, Some("the renew deadline is 14.703s"))]
    #[case::retries_as_rare_as_possible(15_000, 10_000, 5_000, None)]
    #[case::retries_too_rare(15_000, 10_000, 5_001, Some("the retry period is 5.001s"))]
    #[case::no_retries(15_000, 10_000, 0, Some("the retry period is 0ns"))]
    #[case::fraction_of_a_second(15_500, 10_000, 2_000, Some("the Lease duration is 15.5s"))]
    fn contradictory_time_limits_are_refused(
        #[case] duration: u64,
        #[case] renew_deadline: u64,
        #[case] retry_period: u64,
        #[case] error: Option<&str>,
    ) {
        let millis = Duration::from_millis;
        let timing = LeaseTiming {
            duration: millis(duration),
            renew_deadline: millis(renew_deadline),
            retry_period: millis(retry_period),
        };
        let refused = timing.check().map_err(|error: LeaseTimingError| error.to_string()).err();
        match error {
            Some(error) => {
                assert!(refused.as_ref().is_some_and(|text| text.starts_with(error)), "{refused:?}");
            }
            None => assert_eq!(refused, None),
        }
    }

    #[test]
    fn renewal_does_not_count_as_a_transition() {
        let early = Timestamp::UNIX_EPOCH;
        let later = early + Duration::from_secs(9);
        let duration = Duration::from_secs(15);
        let first = spec_held_by(&LeaseSpec::default(), "a", duration, early);
        let renewed = spec_held_by(&first, "a", duration, later);
        assert_eq!(renewed.lease_transitions, first.lease_transitions);
        assert_eq!(renewed.acquire_time, first.acquire_time);
        assert_ne!(renewed.renew_time, first.renew_time);
        let taken = spec_held_by(&renewed, "b", duration, later);
        assert_eq!(taken.lease_transitions, Some(2));
        assert_eq!(taken.acquire_time, taken.renew_time);
        assert_eq!(taken.holder_identity.as_deref(), Some("b"));
    }
}
