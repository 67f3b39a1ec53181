//! Follows pods and NodeSets by watches, which tell of every change at once and cost the API server little.

use super::api::Api;
use super::subject::{NODESETS, PODS, WORKERS};
use super::world::{Event, World};
use anyhow::Result;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// A view of the world that is kept current.
pub struct Observer {
    /// The view.
    pub world: World,
    events: Receiver<Result<(Kind, Event)>>,
}

/// What is watched.
#[derive(Clone, Copy)]
enum Kind {
    Pods,
    NodeSets,
}

impl Observer {
    /// Starts the watches.
    pub fn start(api: &Api) -> Self {
        let (sender, events) = channel();
        for kind in [Kind::Pods, Kind::NodeSets] {
            let (api, sender) = (api.clone(), sender.clone());
            thread::spawn(move || {
                if let Err(error) = watch(&api, kind, &sender) {
                    let _nobody_wants_to_know = sender.send(Err(error));
                }
            });
        }
        Self { world: World::default(), events }
    }

    /// Takes in the next change, if there is one within `limit`.
    pub fn observe(&mut self, limit: Duration) -> Result<()> {
        match self.events.recv_timeout(limit) {
            Ok(Ok((Kind::Pods, event))) => self.world.observe_pod(event),
            Ok(Ok((Kind::NodeSets, event))) => self.world.observe_nodeset(event),
            Ok(Err(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(RecvTimeoutError::Disconnected.into()),
        }
        Ok(())
    }
}

/// Passes events on until nobody wants them any more. The API server may end a watch whenever it is busy, which loses
/// nothing: the next one begins where it ended.
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
    /// Of pods the metadata is enough.
    fn watch(self, api: &Api, version: &str) -> Result<impl BufRead + use<>> {
        let (path, query, accept) = match self {
            Self::Pods => (PODS, WORKERS, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
            Self::NodeSets => (NODESETS, "", "application/json"),
        };
        api.watch(path, query, accept, version)
    }
}
