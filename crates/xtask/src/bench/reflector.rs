//! Keeps the state of pods and NodeSets current by watches, which are immediate and cheap for the API server.

use super::api::Api;
use super::cluster_state::{ClusterState, Event};
use super::workload::{NODESETS, PODS, WORKER_SELECTOR};
use anyhow::Result;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// The state of the cluster, updated by watches.
pub struct Reflector {
    /// The state.
    pub state: ClusterState,
    events: Receiver<Result<(Kind, Event)>>,
}

/// A watched kind.
#[derive(Clone, Copy)]
enum Kind {
    Pods,
    NodeSets,
}

impl Reflector {
    /// Starts the watches.
    pub fn start(api: &Api) -> Self {
        let (sender, events) = channel();
        for kind in [Kind::Pods, Kind::NodeSets] {
            let (api, sender) = (api.clone(), sender.clone());
            thread::spawn(move || {
                if let Err(error) = watch(&api, kind, &sender) {
                    let _receiver_was_dropped = sender.send(Err(error));
                }
            });
        }
        Self { state: ClusterState::default(), events }
    }

    /// Applies the next event, if there is one within `timeout`.
    pub fn apply_next_event(&mut self, timeout: Duration) -> Result<()> {
        match self.events.recv_timeout(timeout) {
            Ok(Ok((Kind::Pods, event))) => self.state.apply_pod_event(event),
            Ok(Ok((Kind::NodeSets, event))) => self.state.apply_nodeset_event(event),
            Ok(Err(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(RecvTimeoutError::Disconnected.into()),
        }
        Ok(())
    }
}

/// Sends events until the receiver is dropped. The API server may end a watch at any time; the next watch continues from
/// the last resource version, so that no event is lost.
fn watch(api: &Api, kind: Kind, events: &Sender<Result<(Kind, Event)>>) -> Result<()> {
    let mut version = String::new();
    loop {
        for line in kind.watch(api, &version)?.split(b'\n') {
            let event = Event::parse(&line?)?;
            event.resource_version().clone_into(&mut version);
            if events.send(Ok((kind, event))).is_err() {
                return Ok(());
            }
        }
    }
}

impl Kind {
    /// Starts a watch; of pods it has the metadata only.
    fn watch(self, api: &Api, version: &str) -> Result<impl BufRead + use<>> {
        let (path, query, accept) = match self {
            Self::Pods => {
                (PODS, WORKER_SELECTOR, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
            }
            Self::NodeSets => (NODESETS, "", "application/json"),
        };
        api.watch(path, query, accept, version)
    }
}
