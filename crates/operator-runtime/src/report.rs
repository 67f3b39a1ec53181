//! Logs the results of a controller's reconciles.

use crate::error::{Classify, chain};
use kube::Resource;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use tracing::{debug, error, info, warn};

/// An item of a controller's stream.
pub type Outcome<K, E> = Result<(ObjectRef<K>, Action), controller::Error<E, watcher::Error>>;

/// Logs one outcome.
pub fn report<K: Resource<DynamicType = ()>, E: Classify + 'static>(outcome: &Outcome<K, E>) {
    let kind = K::kind(&());
    match outcome {
        Ok((object, action)) => debug!(%object, ?action, "Reconciled object"),
        // The owner of a changed child was deleted, or the object was deleted while it was queued.
        Err(controller::Error::ObjectNotFound(object)) => {
            debug!(%object, "Object was deleted before its reconcile");
        }
        Err(controller::Error::ReconcilerFailed(failure, object)) => {
            let (reason, error) = (failure.category(), chain(failure));
            match failure.class() {
                crate::Class::Waiting(after) => {
                    info!(%object, reason, error, ?after, "Reconcile is waiting; requeueing");
                }
                crate::Class::Invalid => {
                    warn!(%object, reason, error, "Reconcile failed; waiting for an edit of the object");
                }
                crate::Class::Transient => {
                    error!(%object, reason, error, "Reconcile failed; retrying with backoff");
                }
            }
        }
        // From a stream of the controller crate: streams of this crate yield no errors.
        Err(controller::Error::QueueError(error)) => {
            warn!(%kind, error = chain(error), "Trigger stream failed");
        }
        Err(controller::Error::RunnerError(error)) => {
            error!(%kind, error = chain(error), "Controller failed");
        }
    }
}
