//! Finds out which of several slurmctld daemons is active, by asking each of them.
//!
//! A daemon tells on its own port, without a token, whether it is in control. That is true when slurmrestd is not there
//! and when it is not sure itself.

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

/// How often the daemons are asked.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long an answer may take. A daemon that hands over gives none.
const PATIENCE: Duration = Duration::from_secs(2);

/// The ordinal of the active daemon of each Controller that has several; nothing if nobody can tell.
pub type Actives = Arc<PerObject<Option<i32>>>;

/// Keeps asking, in the background. Gives the Controllers whose active daemon changed.
pub fn watch(
    scope: &Scope,
    controllers: Store<Controller>,
    pods: Store<Pod>,
) -> anyhow::Result<(Actives, impl Stream<Item = ObjectRef<Controller>> + use<>)> {
    let client = Client::builder().timeout(PATIENCE).no_proxy().build()?;
    let (changes, told) = unbounded();
    let actives = Actives::default();
    let watcher = Watcher { client, controllers, pods, actives: actives.clone(), changes };
    let shutdown = scope.shutdown();
    scope.spawn("active slurmctld", async move {
        tokio::select! {
            () = watcher.run() => {}
            () = shutdown => {}
        }
    });
    Ok((actives, told.boxed()))
}

struct Watcher {
    client: Client,
    controllers: Store<Controller>,
    pods: Store<Pod>,
    actives: Actives,
    changes: UnboundedSender<ObjectRef<Controller>>,
}

impl Watcher {
    async fn run(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let controllers = self.controllers.state();
            let several = controllers.iter().filter(|controller| controller.spec.is_highly_available());
            // All at once: daemons that do not answer hold up nobody else's.
            join_all(several.map(|controller| self.look(controller))).await;
        }
    }

    async fn look(&self, controller: &Controller) {
        let asked = (0..controller.spec.daemons()).map(|ordinal| self.is_active(controller, ordinal));
        let active = first_active(&join_all(asked).await);
        let is_news = self.actives.with(controller, |known| std::mem::replace(known, active) != active);
        if is_news {
            info!(
                controller = controller.name_any(),
                namespace = controller.namespace(),
                active,
                "The active slurmctld"
            );
            // Nobody listens any more at shutdown.
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

/// The first daemon that says it is in control: while control goes back to the primary two may say so.
fn first_active(answers: &[bool]) -> Option<i32> {
    answers.iter().position(|active| *active).and_then(|ordinal| i32::try_from(ordinal).ok())
}

#[cfg(test)]
mod tests {
    use super::first_active;

    #[test]
    fn the_primary_comes_first_and_silence_tells_nothing() {
        assert_eq!(first_active(&[true, true]), Some(0));
        assert_eq!(first_active(&[false, true]), Some(1));
        assert_eq!(first_active(&[false, false]), None);
    }
}
