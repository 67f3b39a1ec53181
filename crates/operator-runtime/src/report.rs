//! Turns what a controller's stream yields into log lines. It decides nothing.

use crate::error::{Classify, chain};
use kube::Resource;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use tracing::{debug, error, info, warn};

/// What a controller's stream yields.
pub type Outcome<K, E> = Result<(ObjectRef<K>, Action), controller::Error<E, watcher::Error>>;

/// Reports one outcome.
pub fn report<K: Resource<DynamicType = ()>, E: Classify + 'static>(outcome: &Outcome<K, E>) {
    let kind = K::kind(&());
    match outcome {
        Ok((object, action)) => debug!(%object, ?action, "Reconciled"),
        // A child outlived its owner for a moment, or the object was deleted while it waited.
        Err(controller::Error::ObjectNotFound(object)) => debug!(%object, "Gone before it was reconciled"),
        Err(controller::Error::ReconcilerFailed(failure, object)) => {
            let (reason, error) = (failure.category(), chain(failure));
            match failure.class() {
                crate::Class::Waiting(after) => info!(%object, reason, error, ?after, "Waiting"),
                crate::Class::Invalid => warn!(%object, reason, error, "Cannot reconcile until it is edited"),
                crate::Class::Transient => error!(%object, reason, error, "Reconcile failed"),
            }
        }
        // From a stream that was not made by the runtime, whose own yield no errors.
        Err(controller::Error::QueueError(error)) => warn!(%kind, error = chain(error), "A trigger failed"),
        Err(controller::Error::RunnerError(error)) => {
            error!(%kind, error = chain(error), "Controller is broken");
        }
    }
}
