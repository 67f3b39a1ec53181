//! Leader election by a Lease: at most one of several processes is active, most of the time.
//!
//! A Lease cannot fence: a process that was frozen, or a request that was delayed, may write after another process took
//! over. Writes are therefore safe with two leaders (server-side apply, UID and resourceVersion preconditions,
//! deterministic names); the Lease only avoids duplicate work.
//!
//! Every write to the Lease carries the resourceVersion that was read, so of two candidates one gets 409. Clocks of
//! different hosts are not compared: a Lease has expired when a candidate observed it unchanged for its duration on its
//! own clock. The holder renews every [`RETRY`] and stops after [`RENEW_DEADLINE`] without success, before the Lease
//! expires.
//!
//! Our own because kube 5 has no leader election, and kubert and the leader-election crates lag behind kube 5; a
//! release for kube 5 that compares no clocks would replace it.

use crate::error::chain;
use crate::metrics::METRICS;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

/// The time after which a Lease that was not renewed expires.
const DURATION: Duration = Duration::from_secs(15);
/// The time after which a holder that cannot renew stops.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// The interval at which the holder renews and candidates read the Lease.
const RETRY: Duration = Duration::from_secs(2);

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
    #[error("the Lease could not be renewed for {} s", RENEW_DEADLINE.as_secs())]
    NotRenewed,
}

/// A candidate for a Lease.
#[derive(Clone, Debug)]
pub struct Elector {
    api: Api<Lease>,
    name: String,
    identity: String,
}

/// A held Lease. [`Leadership::lost`] has to be polled to renew it.
#[derive(Debug)]
pub struct Leadership {
    elector: Elector,
    lease: Lease,
    renewed: Instant,
}

/// The last observed version of a Lease, and when it was first observed.
#[derive(Debug)]
struct ObservedVersion {
    version: Option<String>,
    since: Instant,
}

impl Elector {
    /// A candidate. The identity has to be unique among all processes. The client must not retry requests.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity: identity.to_owned() }
    }

    /// Waits until the Lease is acquired. `on_standby` is called once, when another process is first observed to hold
    /// it.
    pub async fn acquire(self, on_standby: impl FnOnce()) -> Leadership {
        let mut on_standby = Some(on_standby);
        let mut observed = None;
        loop {
            let started = Instant::now();
            let attempt = timeout(RENEW_DEADLINE, self.try_acquire(&mut observed)).await;
            match attempt {
                Ok(Ok(Some(lease))) => {
                    info!(lease = self.name, identity = self.identity, "Acquired the Lease");
                    METRICS.leading.set(1);
                    return Leadership { elector: self, lease, renewed: started };
                }
                Ok(Ok(None)) => {
                    if let Some(on_standby) = on_standby.take() {
                        on_standby();
                    }
                }
                Ok(Err(error)) => {
                    warn!(lease = self.name, error = chain(&error), "Acquiring the Lease failed");
                }
                Err(_) => warn!(lease = self.name, "Acquiring the Lease timed out"),
            }
            sleep(RETRY.mul_f64(1.0 + 0.2 * rand::random::<f64>())).await;
        }
    }

    /// Reads the Lease and acquires it if it is free. `None` if another process holds it.
    async fn try_acquire(
        &self,
        observed: &mut Option<ObservedVersion>,
    ) -> Result<Option<Lease>, kube::Error> {
        let found = self.api.get_opt(&self.name).await?;
        let is_new = found.is_none();
        let mut lease = found.unwrap_or_default();
        let spec = lease.spec.take().unwrap_or_default();
        if !is_free(&spec, &self.identity, lease.resource_version(), observed, Instant::now()) {
            return Ok(None);
        }
        lease.metadata.name = Some(self.name.clone());
        lease.spec = Some(spec_held_by(&spec, &self.identity, now()));
        let params = PostParams::default();
        let acquired = if is_new {
            self.api.create(&params, &lease).await
        } else {
            self.api.replace(&self.name, &params, &lease).await
        };
        match acquired {
            Ok(lease) => Ok(Some(lease)),
            // Another candidate was faster.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Leadership {
    /// Renews the Lease and resolves when it is lost.
    pub async fn lost(&mut self) -> Lost {
        let lost = loop {
            sleep(RETRY).await;
            let started = Instant::now();
            match timeout_at(self.renewed + RENEW_DEADLINE, self.renew()).await {
                Ok(Ok(None)) => self.renewed = started,
                Ok(Ok(Some(lost))) => break lost,
                Ok(Err(error)) => warn!(error = chain(&error), "Renewing the Lease failed"),
                Err(_) => break Lost::NotRenewed,
            }
        };
        METRICS.leading.set(0);
        lost
    }

    /// Renews once; `Some` if the Lease is lost for good.
    async fn renew(&mut self) -> Result<Option<Lost>, kube::Error> {
        let spec = self.lease.spec.clone().unwrap_or_default();
        self.lease.spec = Some(spec_held_by(&spec, &self.elector.identity, now()));
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
                    Some(lease) if holder.as_ref() == Some(&self.elector.identity) => {
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

    /// Releases the Lease, so that another process need not wait until it expires.
    pub async fn release(self) {
        METRICS.leading.set(0);
        let lease = &self.elector.name;
        match timeout(RETRY, self.try_release()).await {
            Ok(Ok(())) => info!(lease, "Released the Lease"),
            Ok(Err(error)) => {
                warn!(lease, error = chain(&error), "Releasing the Lease failed; it will expire");
            }
            Err(_) => warn!(lease, "Releasing the Lease timed out; it will expire"),
        }
    }

    /// Reads the Lease first: an interrupted renewal may have written a version that is not known here.
    async fn try_release(&self) -> Result<(), kube::Error> {
        let Elector { api, name, identity } = &self.elector;
        let mut lease = api.get(name).await?;
        if let Some(spec) = &mut lease.spec
            && spec.holder_identity.as_ref() == Some(identity)
        {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            api.replace(name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }
}

/// Whether the Lease may be acquired: it has no holder, we hold it, or it was observed unchanged for its whole
/// duration.
fn is_free(
    spec: &LeaseSpec,
    identity: &str,
    version: Option<String>,
    observed: &mut Option<ObservedVersion>,
    now: Instant,
) -> bool {
    if spec.holder_identity.as_deref().is_none_or(|holder| holder.is_empty() || holder == identity) {
        return true;
    }
    match observed {
        Some(observed) if observed.version == version => {
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            now - observed.since > seconds.map_or(DURATION, Duration::from_secs)
        }
        _ => {
            *observed = Some(ObservedVersion { version, since: now });
            false
        }
    }
}

/// The spec after `identity` acquired or renewed the Lease.
fn spec_held_by(spec: &LeaseSpec, identity: &str, now: Timestamp) -> LeaseSpec {
    let is_renewal = spec.holder_identity.as_deref() == Some(identity);
    let earlier = spec.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
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
    use super::{DURATION, ObservedVersion, is_free, spec_held_by};
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use rstest::rstest;
    use std::time::Duration;
    use tokio::time::Instant;

    fn held_by(holder: Option<&str>) -> LeaseSpec {
        LeaseSpec {
            holder_identity: holder.map(Into::into),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        }
    }

    #[rstest]
    #[case::never_held(None, true)]
    #[case::released(Some(""), true)]
    #[case::held_by_us(Some("me"), true)]
    #[case::first_observed(Some("other"), false)]
    fn lease_of_another_holder_is_not_free_when_first_observed(
        #[case] holder: Option<&str>,
        #[case] free: bool,
    ) {
        let version = Some("1".to_owned());
        assert_eq!(is_free(&held_by(holder), "me", version, &mut None, Instant::now()), free);
    }

    #[test]
    fn lease_expires_after_its_duration_without_a_renewal_on_the_observers_clock() {
        let start = Instant::now();
        let mut observed: Option<ObservedVersion> = None;
        let mut is_free_after = |version: &str, after: Duration| {
            is_free(&held_by(Some("other")), "me", Some(version.into()), &mut observed, start + after)
        };
        let (soon, tick) = (Duration::from_secs(2), Duration::from_millis(1));
        assert!(!is_free_after("1", Duration::ZERO));
        assert!(!is_free_after("1", DURATION));
        assert!(!is_free_after("2", DURATION + soon));
        assert!(!is_free_after("2", DURATION + DURATION + soon));
        assert!(is_free_after("2", DURATION + DURATION + soon + tick));
    }

    #[test]
    fn renewal_does_not_count_as_a_transition() {
        let early = Timestamp::UNIX_EPOCH;
        let later = early + Duration::from_secs(9);
        let first = spec_held_by(&LeaseSpec::default(), "a", early);
        let renewed = spec_held_by(&first, "a", later);
        assert_eq!(renewed.lease_transitions, first.lease_transitions);
        assert_eq!(renewed.acquire_time, first.acquire_time);
        assert_ne!(renewed.renew_time, first.renew_time);
        let taken = spec_held_by(&renewed, "b", later);
        assert_eq!(taken.lease_transitions, Some(2));
        assert_eq!(taken.acquire_time, taken.renew_time);
        assert_eq!(taken.holder_identity.as_deref(), Some("b"));
    }
}
