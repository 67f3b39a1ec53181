//! When a candidate may take a Lease: a function of the observed versions and of the candidate's own clock.

use super::{Identity, RELEASED};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use std::time::Duration;
use tokio::time::Instant;

/// What a candidate has observed.
#[derive(Debug)]
pub struct Candidate {
    identity: Identity,
    /// The Lease in a list that is not complete yet.
    listed: Option<Lease>,
    /// The last version, and when it was first observed; `None` before the first list.
    observed: Option<Observed>,
    /// No attempt before this time.
    paused_until: Option<Instant>,
}

#[derive(Debug)]
struct Observed {
    /// `None` if there is no Lease.
    lease: Option<Lease>,
    since: Instant,
}

impl Candidate {
    pub fn new(identity: Identity) -> Self {
        Self { identity, listed: None, observed: None, paused_until: None }
    }

    /// Takes an event of the watch of the Lease.
    pub fn observe(&mut self, event: Event<Lease>, now: Instant) {
        match event {
            Event::Init => self.listed = None,
            Event::InitApply(lease) => self.listed = Some(lease),
            Event::InitDone => {
                let listed = self.listed.take();
                self.set(listed, now);
            }
            Event::Apply(lease) => self.set(Some(lease), now),
            Event::Delete(_) => self.set(None, now),
        }
    }

    /// A list that shows the version that was observed before does not renew it.
    fn set(&mut self, lease: Option<Lease>, now: Instant) {
        let version = |lease: &Option<Lease>| lease.as_ref().and_then(ResourceExt::resource_version);
        let is_same = self
            .observed
            .as_ref()
            .is_some_and(|observed| observed.lease.is_some() && version(&observed.lease) == version(&lease));
        if !is_same {
            self.observed = Some(Observed { lease, since: now });
            // An attempt that failed was one for the version before.
            self.paused_until = None;
        }
    }

    /// The last observed Lease.
    pub fn lease(&self) -> Option<&Lease> {
        self.observed.as_ref()?.lease.as_ref()
    }

    /// What the last holder left, if it released the Lease.
    pub fn message(&self) -> Option<String> {
        let lease = self.lease()?;
        let is_released = holder(lease).is_none();
        lease.annotations().get(RELEASED).filter(|_| is_released).cloned()
    }

    /// Whether another process holds the Lease, as far as is known.
    pub fn is_standby(&self) -> bool {
        self.lease().and_then(holder).is_some_and(|holder| !self.identity.may_replace(holder))
    }

    /// When the Lease may be taken, by what is known now; `None` before the first list.
    pub fn attempt_at(&self) -> Option<Instant> {
        let observed = self.observed.as_ref()?;
        let duration = self.lease().filter(|_| self.is_standby()).map_or(Duration::ZERO, duration);
        Some((observed.since + duration).max(self.paused_until.unwrap_or(observed.since)))
    }

    /// Makes the next attempt no sooner than after this time.
    pub fn retry_after(&mut self, pause: Duration) {
        self.paused_until = Some(Instant::now() + pause);
    }
}

/// How long a Lease without a duration is valid.
const DEFAULT_DURATION: Duration = Duration::from_secs(15);

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// How long a Lease is valid after a renewal.
fn duration(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(DEFAULT_DURATION, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::super::Identity;
    use super::{Candidate, DEFAULT_DURATION as DURATION};
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::runtime::watcher::Event;
    use rstest::rstest;
    use serde_json::json;
    use std::time::Duration;
    use tokio::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    fn candidate() -> Candidate {
        Candidate::new(Identity { text: "pod_uid_2".into(), pod: Some("pod_uid_".into()) })
    }

    fn lease(version: &str, holder: Option<&str>) -> Lease {
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 15 });
        serde_json::from_value(json!({ "metadata": { "resourceVersion": version }, "spec": spec })).unwrap()
    }

    fn listed(candidate: &mut Candidate, lease: Option<Lease>, now: Instant) {
        candidate.observe(Event::Init, now);
        if let Some(lease) = lease {
            candidate.observe(Event::InitApply(lease), now);
        }
        candidate.observe(Event::InitDone, now);
    }

    #[test]
    fn candidate_waits_for_the_first_list() {
        assert_eq!(candidate().attempt_at(), None);
    }

    #[rstest]
    #[case::absent(None, Duration::ZERO)]
    #[case::never_held(Some(lease("1", None)), Duration::ZERO)]
    #[case::released(Some(lease("1", Some(""))), Duration::ZERO)]
    #[case::held_by_this_process(Some(lease("1", Some("pod_uid_2"))), Duration::ZERO)]
    #[case::held_by_the_container_before_in_this_pod(Some(lease("1", Some("pod_uid_1"))), Duration::ZERO)]
    #[case::held_by_another_pod(Some(lease("1", Some("pod_other_1"))), DURATION)]
    #[case::held_by_a_process_without_pod(Some(lease("1", Some("pod_1"))), DURATION)]
    fn lease_of_another_pod_is_taken_when_it_expires(#[case] held: Option<Lease>, #[case] after: Duration) {
        let (mut candidate, now) = (candidate(), Instant::now());
        listed(&mut candidate, held, now);
        assert_eq!(candidate.attempt_at(), Some(now + after));
        assert_eq!(candidate.is_standby(), !after.is_zero());
    }

    #[test]
    fn process_of_an_unknown_pod_waits_for_every_other_process() {
        let mut candidate = Candidate::new(Identity { text: "host_2".into(), pod: None });
        let now = Instant::now();
        listed(&mut candidate, Some(lease("1", Some("host_1"))), now);
        assert_eq!(candidate.attempt_at(), Some(now + DURATION));
    }

    #[test]
    fn renewal_prolongs_the_lease_and_a_list_of_the_same_version_does_not() {
        let (mut candidate, now) = (candidate(), Instant::now());
        listed(&mut candidate, Some(lease("1", Some("other"))), now);
        candidate.observe(Event::Apply(lease("2", Some("other"))), now + SECOND * 2);
        assert_eq!(candidate.attempt_at(), Some(now + SECOND * 2 + DURATION));
        listed(&mut candidate, Some(lease("2", Some("other"))), now + SECOND * 9);
        assert_eq!(candidate.attempt_at(), Some(now + SECOND * 2 + DURATION));
    }

    #[test]
    fn deleted_lease_is_free() {
        let (mut candidate, now) = (candidate(), Instant::now());
        listed(&mut candidate, Some(lease("1", Some("other"))), now);
        candidate.observe(Event::Delete(lease("2", Some("other"))), now + SECOND);
        assert_eq!(candidate.attempt_at(), Some(now + SECOND));
        assert!(candidate.lease().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn failed_attempt_is_repeated_after_a_pause_or_for_the_next_version() {
        let (mut candidate, now) = (candidate(), Instant::now());
        listed(&mut candidate, Some(lease("1", None)), now);
        candidate.retry_after(SECOND * 2);
        assert_eq!(candidate.attempt_at(), Some(now + SECOND * 2));
        candidate.observe(Event::Apply(lease("2", None)), now + SECOND);
        assert_eq!(candidate.attempt_at(), Some(now + SECOND));
    }

    #[rstest]
    #[case::released(None, Some("settled"))]
    #[case::held(Some("other"), None)]
    fn message_of_the_last_holder_is_that_of_a_released_lease(
        #[case] holder: Option<&str>,
        #[case] message: Option<&str>,
    ) {
        let mut held = lease("1", holder);
        let annotation = ("slinky.slurm.net/released".to_owned(), "settled".to_owned());
        held.metadata.annotations = Some([annotation].into());
        let mut candidate = candidate();
        listed(&mut candidate, Some(held), Instant::now());
        assert_eq!(candidate.message().as_deref(), message);
    }
}
