//! Leader election by a Lease: at most one process of several is active, most of the time.
//!
//! A Lease cannot fence: a process that was frozen, or a request that was long under way, may write after another one
//! took over. Writes are therefore safe under two leaders by themselves (server-side apply, UID and resourceVersion
//! preconditions, names that are functions of the object); the Lease only saves the work of doing everything twice.
//!
//! Every write to the Lease carries the resourceVersion that was read, so of two claimants one gets 409. Nobody compares
//! clocks: a Lease has run out when it was seen unchanged for its duration on the observer's own clock. The holder
//! renews every [`RETRY`] and gives up after [`RENEW_DEADLINE`] without success, before anyone else may take over.

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

/// How long others leave a Lease alone that was not renewed.
const DURATION: Duration = Duration::from_secs(15);
/// How long a holder may fail to renew.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often a holder renews, and others look.
const RETRY: Duration = Duration::from_secs(2);

/// Why a leader stopped being one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Somebody else holds the Lease, or it was deleted.
    #[error("the Lease was taken by {holder:?}")]
    Taken {
        /// Who holds it now.
        holder: Option<String>,
    },
    /// The API server could not be reached in time.
    #[error("the Lease could not be renewed for {} s", RENEW_DEADLINE.as_secs())]
    NotRenewed,
}

/// A claimant for a Lease.
#[derive(Clone, Debug)]
pub struct Elector {
    api: Api<Lease>,
    name: String,
    identity: String,
}

/// A Lease that is held. To keep it, [`Leadership::lost`] has to be polled.
#[derive(Debug)]
pub struct Leadership {
    elector: Elector,
    lease: Lease,
    renewed: Instant,
}

/// The version of a Lease that was seen last, and since when.
#[derive(Debug)]
struct Sighting {
    version: Option<String>,
    since: Instant,
}

impl Elector {
    /// A claimant; the identity has to differ from that of any other process. The client must not repeat requests.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), identity: identity.to_owned() }
    }

    /// Waits until the Lease is ours. `on_standby` is called once, when it was first seen to be another's.
    pub async fn acquire(self, on_standby: impl FnOnce()) -> Leadership {
        let mut on_standby = Some(on_standby);
        let mut sighting = None;
        loop {
            let begun = Instant::now();
            let attempt = timeout(RENEW_DEADLINE, self.try_acquire(&mut sighting)).await;
            match attempt {
                Ok(Ok(Some(lease))) => {
                    info!(lease = self.name, identity = self.identity, "Leading");
                    METRICS.leading.set(1);
                    return Leadership { elector: self, lease, renewed: begun };
                }
                Ok(Ok(None)) => {
                    if let Some(on_standby) = on_standby.take() {
                        on_standby();
                    }
                }
                Ok(Err(error)) => {
                    warn!(lease = self.name, error = chain(&error), "Cannot claim the Lease");
                }
                Err(_) => warn!(lease = self.name, "Cannot claim the Lease: no answer"),
            }
            sleep(RETRY.mul_f64(1.0 + 0.2 * rand::random::<f64>())).await;
        }
    }

    /// One look, and one claim if the Lease is free. `None` when somebody else has it.
    async fn try_acquire(&self, sighting: &mut Option<Sighting>) -> Result<Option<Lease>, kube::Error> {
        let params = PostParams::default();
        let claimed = match self.api.get_opt(&self.name).await? {
            None => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.name.clone());
                lease.spec = Some(claim(&LeaseSpec::default(), &self.identity, now()));
                self.api.create(&params, &lease).await
            }
            Some(mut lease) => {
                let spec = lease.spec.take().unwrap_or_default();
                if !is_free(&spec, &self.identity, lease.resource_version(), sighting, Instant::now()) {
                    return Ok(None);
                }
                lease.spec = Some(claim(&spec, &self.identity, now()));
                self.api.replace(&self.name, &params, &lease).await
            }
        };
        match claimed {
            Ok(lease) => Ok(Some(lease)),
            // Another claimant was faster.
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
            let begun = Instant::now();
            match timeout_at(self.renewed + RENEW_DEADLINE, self.renew()).await {
                Ok(Ok(None)) => self.renewed = begun,
                Ok(Ok(Some(lost))) => break lost,
                Ok(Err(error)) => warn!(error = chain(&error), "Cannot renew the Lease"),
                Err(_) => break Lost::NotRenewed,
            }
        };
        METRICS.leading.set(0);
        lost
    }

    /// One renewal; `Some` when it can never succeed again.
    async fn renew(&mut self) -> Result<Option<Lost>, kube::Error> {
        let spec = self.lease.spec.clone().unwrap_or_default();
        self.lease.spec = Some(claim(&spec, &self.elector.identity, now()));
        match self.elector.api.replace(&self.elector.name, &PostParams::default(), &self.lease).await {
            Ok(lease) => {
                self.lease = lease;
                Ok(None)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                // Perhaps only a label changed, or an answer of ours was lost: look before giving up.
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

    /// Frees the Lease, so that another process need not wait for it to run out.
    pub async fn release(self) {
        METRICS.leading.set(0);
        let lease = &self.elector.name;
        match timeout(RETRY, self.try_release()).await {
            Ok(Ok(())) => info!(lease, "Released the Lease"),
            Ok(Err(error)) => {
                warn!(lease, error = chain(&error), "Cannot release the Lease, it will run out");
            }
            Err(_) => warn!(lease, "Cannot release the Lease, it will run out"),
        }
    }

    /// Reads the Lease first: a renewal that was cut short may have made a version that is not known here.
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

/// Whether the Lease may be claimed: it has no holder, is ours, or was seen unchanged for its whole duration.
fn is_free(
    spec: &LeaseSpec,
    identity: &str,
    version: Option<String>,
    sighting: &mut Option<Sighting>,
    now: Instant,
) -> bool {
    if spec.holder_identity.as_deref().is_none_or(|holder| holder.is_empty() || holder == identity) {
        return true;
    }
    match sighting {
        Some(sighting) if sighting.version == version => {
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            now - sighting.since > seconds.map_or(DURATION, Duration::from_secs)
        }
        _ => {
            *sighting = Some(Sighting { version, since: now });
            false
        }
    }
}

/// The spec of a Lease that `identity` holds since now, or goes on holding.
fn claim(spec: &LeaseSpec, identity: &str, now: Timestamp) -> LeaseSpec {
    let held = spec.holder_identity.as_deref() == Some(identity);
    let earlier = spec.lease_transitions.unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        renew_time: Some(MicroTime(now)),
        acquire_time: if held { spec.acquire_time.clone() } else { Some(MicroTime(now)) },
        lease_transitions: Some(if held { earlier } else { earlier.saturating_add(1) }),
        ..spec.clone()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the Lease shows people when it was renewed; nothing decides on it"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::{DURATION, Sighting, claim, is_free};
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
    #[case::our_own(Some("me"), true)]
    #[case::just_seen(Some("other"), false)]
    fn at_first_sight(#[case] holder: Option<&str>, #[case] free: bool) {
        let version = Some("1".to_owned());
        assert_eq!(is_free(&held_by(holder), "me", version, &mut None, Instant::now()), free);
    }

    #[test]
    fn a_lease_runs_out_on_the_observers_clock_and_each_renewal_starts_it_anew() {
        let start = Instant::now();
        let mut sighting: Option<Sighting> = None;
        let mut look = |version: &str, after: Duration| {
            is_free(&held_by(Some("other")), "me", Some(version.into()), &mut sighting, start + after)
        };
        let (soon, tick) = (Duration::from_secs(2), Duration::from_millis(1));
        assert!(!look("1", Duration::ZERO));
        assert!(!look("1", DURATION));
        assert!(!look("2", DURATION + soon));
        assert!(!look("2", DURATION + DURATION + soon));
        assert!(look("2", DURATION + DURATION + soon + tick));
    }

    #[test]
    fn transitions_count_changes_of_the_holder_only() {
        let early = Timestamp::UNIX_EPOCH;
        let later = early + Duration::from_secs(9);
        let first = claim(&LeaseSpec::default(), "a", early);
        let renewed = claim(&first, "a", later);
        assert_eq!(renewed.lease_transitions, first.lease_transitions);
        assert_eq!(renewed.acquire_time, first.acquire_time);
        assert_ne!(renewed.renew_time, first.renew_time);
        let taken = claim(&renewed, "b", later);
        assert_eq!(taken.lease_transitions, Some(2));
        assert_eq!(taken.acquire_time, taken.renew_time);
        assert_eq!(taken.holder_identity.as_deref(), Some("b"));
    }
}
