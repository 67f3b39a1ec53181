//! Polls the slurmctld daemons of Controllers with standbys to find the active one.
//!
//! slurmctld answers `/readyz` on its own port, without a token, with 204 if it is in control. Unlike a question to
//! slurmrestd, this works without slurmrestd and while slurmrestd itself is not sure.

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::join_all;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use operator_runtime::{PerObject, Scope, find};
use reqwest::{Client, StatusCode};
use slinky_api::names::{SLURMCTLD_PORT, controller as names};
use slinky_api::v1beta1::Controller;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// How often the daemons are polled.
const INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of one request. A daemon that hands over control does not answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// After so many polls without an answer a daemon counts as silent: one that hands over control does not answer for a while.
const SILENT_AFTER: u32 = 5;

/// The answers of the daemons of each Controller with standbys.
pub type ActiveDaemons = Arc<PerObject<Poll>>;

/// The answers of the daemons of one Controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// The ordinal of the daemon that reports to be active.
    pub active: Option<i32>,
    /// The ordinals of daemons that have not answered for a while, although they have an address.
    pub silent: BTreeSet<i32>,
    /// How many polls each daemon has not answered, up to [`SILENT_AFTER`].
    unanswered: BTreeMap<i32, u32>,
}

/// The answer of one daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It is in control.
    Active,
    /// It is not in control.
    Standby,
    /// It does not answer.
    Nothing,
    /// It has no address.
    Absent,
}

impl Poll {
    /// The state after these answers, by ordinal.
    fn after(&self, answers: &[Answer]) -> Self {
        let mut poll = Self::default();
        for (ordinal, answer) in (0_i32..).zip(answers) {
            match answer {
                // While control returns to the primary, two daemons may report to be active; the lowest ordinal wins.
                Answer::Active => poll.active = poll.active.or(Some(ordinal)),
                Answer::Nothing => {
                    let before = self.unanswered.get(&ordinal).copied().unwrap_or_default();
                    let unanswered = (before + 1).min(SILENT_AFTER);
                    poll.unanswered.insert(ordinal, unanswered);
                    if unanswered == SILENT_AFTER {
                        poll.silent.insert(ordinal);
                    }
                }
                Answer::Standby | Answer::Absent => {}
            }
        }
        poll
    }

    #[cfg(test)]
    pub fn of(active: Option<i32>, silent: &[i32]) -> Self {
        Self { active, silent: silent.iter().copied().collect(), unanswered: BTreeMap::new() }
    }
}

/// Starts to poll in the background. The stream has the Controllers whose active daemon changed.
pub fn watch(
    scope: &Scope,
    controllers: Store<Controller>,
    pods: Store<Pod>,
) -> anyhow::Result<(ActiveDaemons, impl Stream<Item = ObjectRef<Controller>> + use<>)> {
    // Plain HTTP. Otherwise it would need certificates of authorities, which the image does not have.
    let client = Client::builder().timeout(TIMEOUT).no_proxy().tls_certs_only([]).build()?;
    let (changes, receiver) = unbounded();
    let active_daemons = ActiveDaemons::default();
    let poller = Poller { client, controllers, pods, active_daemons: active_daemons.clone(), changes };
    let shutdown = scope.shutdown();
    scope.spawn("active slurmctld", async move {
        tokio::select! {
            () = poller.run() => {}
            () = shutdown => {}
        }
    });
    Ok((active_daemons, receiver.boxed()))
}

struct Poller {
    client: Client,
    controllers: Store<Controller>,
    pods: Store<Pod>,
    active_daemons: ActiveDaemons,
    changes: UnboundedSender<ObjectRef<Controller>>,
}

impl Poller {
    async fn run(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let controllers = self.controllers.state();
            let several = controllers.iter().filter(|controller| controller.spec.is_highly_available());
            // All at once: a daemon that does not answer must not delay the poll of other clusters.
            join_all(several.map(|controller| self.poll(controller))).await;
        }
    }

    async fn poll(&self, controller: &Controller) {
        let answers = (0..controller.spec.daemons()).map(|ordinal| self.ask(controller, ordinal));
        let answers = join_all(answers).await;
        let (before, after) = self.active_daemons.with(controller, |known| {
            let after = known.after(&answers);
            (std::mem::replace(known, after.clone()), after)
        });
        if (before.active, &before.silent) != (after.active, &after.silent) {
            info!(
                controller = controller.name_any(),
                namespace = controller.namespace(),
                active = after.active,
                silent = ?after.silent,
                "Active slurmctld changed"
            );
            // Fails only during shutdown, when the receiver is dropped.
            let _ = self.changes.unbounded_send(ObjectRef::from_obj(controller));
        }
    }

    async fn ask(&self, controller: &Controller, ordinal: i32) -> Answer {
        let pod = names::pod(&controller.name_any(), ordinal);
        let pod = find(&self.pods, &controller.namespace().unwrap_or_default(), &pod);
        let address = pod.and_then(|pod| pod.status.as_ref()?.pod_ip.as_ref()?.parse::<IpAddr>().ok());
        let Some(address) = address else { return Answer::Absent };
        let port = u16::try_from(SLURMCTLD_PORT).unwrap_or_default();
        let url = format!("http://{}/readyz", SocketAddr::new(address, port));
        match self.client.get(url).send().await {
            Ok(answer) if answer.status() == StatusCode::NO_CONTENT => Answer::Active,
            Ok(_) => Answer::Standby,
            Err(_) => Answer::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_active_ordinal_wins_and_no_answer_means_unknown() {
        let active = |answers: &[Answer]| Poll::default().after(answers).active;
        assert_eq!(active(&[Answer::Active, Answer::Active]), Some(0));
        assert_eq!(active(&[Answer::Standby, Answer::Active]), Some(1));
        assert_eq!(active(&[Answer::Nothing, Answer::Absent]), None);
    }

    #[test]
    fn daemon_is_silent_after_several_polls_without_an_answer_in_a_row() {
        let silent_after = |answers: &[Answer]| {
            let poll = answers.iter().fold(Poll::default(), |poll, answer| poll.after(&[*answer]));
            !poll.silent.is_empty()
        };
        assert!(silent_after(&[Answer::Nothing; 5]) && silent_after(&[Answer::Nothing; 50]));
        assert!(!silent_after(&[Answer::Nothing; 4]) && !silent_after(&[Answer::Absent; 9]));
        let interrupted = [[Answer::Nothing; 4].as_slice(), &[Answer::Standby], &[Answer::Nothing; 4]];
        assert!(!silent_after(&interrupted.concat()));
    }
}
