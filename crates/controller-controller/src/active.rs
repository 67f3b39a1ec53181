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
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// How often the daemons are polled.
const INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of one request. A daemon that hands over control does not answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The ordinal of the active daemon of each Controller with standbys; `None` if no daemon reports to be active.
pub type ActiveDaemons = Arc<PerObject<Option<i32>>>;

/// Starts to poll in the background. The stream has the Controllers whose active daemon changed.
pub fn watch(
    scope: &Scope,
    controllers: Store<Controller>,
    pods: Store<Pod>,
) -> anyhow::Result<(ActiveDaemons, impl Stream<Item = ObjectRef<Controller>> + use<>)> {
    let client = Client::builder().timeout(TIMEOUT).no_proxy().build()?;
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
        let answers = (0..controller.spec.daemons()).map(|ordinal| self.is_active(controller, ordinal));
        let active = first_active(&join_all(answers).await);
        let is_changed =
            self.active_daemons.with(controller, |known| std::mem::replace(known, active) != active);
        if is_changed {
            info!(
                controller = controller.name_any(),
                namespace = controller.namespace(),
                active,
                "Active slurmctld changed"
            );
            // Fails only during shutdown, when the receiver is dropped.
            let _ = self.changes.unbounded_send(ObjectRef::from_obj(controller));
        }
    }

    async fn is_active(&self, controller: &Controller, ordinal: i32) -> bool {
        let pod = names::pod(&controller.name_any(), ordinal);
        let pod = find(&self.pods, &controller.namespace().unwrap_or_default(), &pod);
        let address = pod.and_then(|pod| pod.status.as_ref()?.pod_ip.as_ref()?.parse::<IpAddr>().ok());
        let Some(address) = address else { return false };
        let port = u16::try_from(SLURMCTLD_PORT).unwrap_or_default();
        let url = format!("http://{}/readyz", SocketAddr::new(address, port));
        let answer = self.client.get(url).send().await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::NO_CONTENT)
    }
}

/// The lowest ordinal that reports to be active: while control returns to the primary, two daemons may.
fn first_active(answers: &[bool]) -> Option<i32> {
    answers.iter().position(|active| *active).and_then(|ordinal| i32::try_from(ordinal).ok())
}

#[cfg(test)]
mod tests {
    use super::first_active;

    #[test]
    fn lowest_active_ordinal_wins_and_no_answer_means_unknown() {
        assert_eq!(first_active(&[true, true]), Some(0));
        assert_eq!(first_active(&[false, true]), Some(1));
        assert_eq!(first_active(&[false, false]), None);
    }
}
