//! Runs a controller with the same deadline, backoff, logs, metrics and Events for every kind. Only this module decides
//! when an object is requeued after a failed reconcile.

use crate::backoff::ErrorBackoff;
use crate::error::{Class, Classify, chain};
use crate::events::{EventType, Events, NewEvent};
use crate::metrics::{ErrorLabels, KindLabel, METRICS};
use crate::per_object::ObjectKey;
use crate::resync::resync;
use crate::scope::Scope;
use crate::watched::Watched;
use futures::{FutureExt, StreamExt};
use kube::Resource;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, controller, watcher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

/// The deadline of one reconcile. It is cancelled at any await point, so it has to be safe to cancel.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// The action of Events about failed reconciles.
const ACTION: &str = "Reconcile";

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError<E> {
    /// It returned an error.
    #[error(transparent)]
    Failed(E),
    /// It exceeded [`DEADLINE`].
    #[error("the reconcile did not end within {} s", DEADLINE.as_secs())]
    TimedOut,
    /// It panicked; other objects are not affected.
    #[error("the reconcile panicked")]
    Panicked,
}

impl<E: Classify> Classify for ReconcileError<E> {
    fn class(&self) -> Class {
        match self {
            Self::Failed(error) => error.class(),
            Self::TimedOut | Self::Panicked => Class::Transient,
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Failed(error) => error.category(),
            Self::TimedOut => "ReconcileTimedOut",
            Self::Panicked => "ReconcilePanicked",
        }
    }

    fn requeue_after(&self) -> Option<Duration> {
        match self {
            Self::Failed(error) => error.requeue_after(),
            Self::TimedOut | Self::Panicked => None,
        }
    }
}

impl Scope {
    /// Runs a controller until shutdown. Reconciles start when every cache of this scope is filled, and are repeated about
    /// every ten minutes ([`crate::resync`]), whatever they return.
    pub async fn run_controller<K, C, E, F, R>(
        &self,
        controller: Controller<K>,
        reconcile: F,
        context: Arc<C>,
    ) where
        K: Watched,
        C: Send + Sync + 'static,
        E: Classify + Send + 'static,
        F: Fn(Arc<K>, Arc<C>) -> R,
        R: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let reporter =
            &Arc::new(ReconcileReporter { events: self.events().clone(), backoff: ErrorBackoff::default() });
        let resync = resync(controller.store());
        controller
            .reconcile_on(resync)
            .with_config(Config::default().concurrency(self.args().workers))
            .graceful_shutdown_on(self.shutdown())
            .run(
                |object, context| {
                    let (scope, reporter) = (self.clone(), reporter.clone());
                    let reconciled = reconcile(object.clone(), context);
                    async move {
                        tokio::select! {
                            () = scope.caches_filled() => {}
                            () = scope.shutdown() => return Ok(Action::await_change()),
                        }
                        let result = run_with_deadline::<K, _, _>(reconciled).await;
                        if result.is_ok() {
                            reporter.succeeded(object.as_ref());
                        }
                        result
                    }
                },
                |object, failure, _| reporter.failed(object.as_ref(), failure),
                context,
            )
            .for_each(|outcome| {
                if let Err(controller::Error::ObjectNotFound(object)) = &outcome {
                    reporter.forget(&ObjectKey::from(object.as_ref()));
                }
                log(&outcome);
                futures::future::ready(())
            })
            .await;
    }
}

/// Runs one reconcile with its deadline, catches panics and measures the duration.
async fn run_with_deadline<K, E, R>(reconcile: R) -> Result<Action, ReconcileError<E>>
where
    K: Resource<DynamicType = ()>,
    R: Future<Output = Result<Action, E>> + Send,
{
    let kind = KindLabel { kind: K::kind(&()).into_owned() };
    let running = METRICS.reconciles_running.get_or_create_owned(&kind);
    running.inc();
    let started = Instant::now();
    let result = tokio::time::timeout(DEADLINE, AssertUnwindSafe(reconcile).catch_unwind()).await;
    METRICS.reconcile_duration.get_or_create(&kind).observe(started.elapsed().as_secs_f64());
    running.dec();
    match result {
        Ok(Ok(result)) => result.map_err(ReconcileError::Failed),
        Ok(Err(_)) => Err(ReconcileError::Panicked),
        Err(_) => Err(ReconcileError::TimedOut),
    }
}

/// Handles the results of reconciles.
struct ReconcileReporter {
    events: Events,
    backoff: ErrorBackoff,
}

impl ReconcileReporter {
    /// Counts and publishes a failure, and returns when to requeue.
    fn failed<K, E>(&self, object: &K, failure: &E) -> Action
    where
        K: Resource<DynamicType = ()>,
        E: Classify + 'static,
    {
        let (type_, after) = match failure.class() {
            Class::Invalid => (EventType::Warning, None),
            Class::Waiting(after) => (EventType::Normal, Some(after)),
            Class::Transient => (EventType::Warning, Some(self.backoff.next(object))),
        };
        let labels = ErrorLabels { kind: K::kind(&()).into_owned(), reason: failure.category() };
        METRICS.reconcile_errors.get_or_create(&labels).inc();
        let event = NewEvent {
            type_,
            reason: failure.category().to_owned(),
            action: ACTION.to_owned(),
            note: chain(failure),
            related: None,
        };
        self.events.publish_change(object, event);
        let requeue_after = [after, failure.requeue_after()].into_iter().flatten().min();
        requeue_after.map_or_else(Action::await_change, Action::requeue)
    }

    /// Resets the backoff, and makes the next failure publish an Event.
    fn succeeded<K: Resource<DynamicType = ()>>(&self, object: &K) {
        self.backoff.forget(&ObjectKey::of(object));
        self.events.forget_action(object, ACTION);
    }

    /// Drops the state of a deleted object.
    fn forget(&self, object: &ObjectKey) {
        self.backoff.forget(object);
        self.events.forget(object);
    }
}

/// Logs one item of a controller's stream.
fn log<K: Resource<DynamicType = ()>, E: Classify + 'static>(
    outcome: &Result<(ObjectRef<K>, Action), controller::Error<E, watcher::Error>>,
) {
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
                Class::Waiting(after) => {
                    info!(%object, reason, error, ?after, "Reconcile is waiting; requeueing");
                }
                Class::Invalid => {
                    warn!(%object, reason, error, "Reconcile failed; waiting for an edit of the object");
                }
                Class::Transient => {
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

#[cfg(test)]
mod tests {
    use super::{DEADLINE, ReconcileError, ReconcileReporter, run_with_deadline};
    use crate::backoff::ErrorBackoff;
    use crate::error::{Class, Classify};
    use crate::events::{EventType, Events};
    use crate::resync::INTERVAL;
    use crate::testing::{scope, server};
    use futures::{StreamExt, stream};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::controller::Action;
    use kube::runtime::{Controller, reflector, watcher};
    use rstest::rstest;
    use serde_json::json;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;

    #[derive(Debug, thiserror::Error)]
    #[error("test failure")]
    struct TestError(Class, Option<Duration>);

    impl Classify for TestError {
        fn class(&self) -> Class {
            self.0
        }

        fn category(&self) -> &'static str {
            "TestError"
        }

        fn requeue_after(&self) -> Option<Duration> {
            self.1
        }
    }

    async fn hang() -> Result<Action, TestError> {
        std::future::pending().await
    }

    async fn panic() -> Result<Action, TestError> {
        tokio::task::yield_now().await;
        panic!("on purpose")
    }

    #[tokio::test(start_paused = true)]
    async fn reconcile_is_cancelled_at_its_deadline() {
        let started = tokio::time::Instant::now();
        let result = run_with_deadline::<ConfigMap, _, _>(hang()).await;
        assert!(matches!(result, Err(ReconcileError::TimedOut)), "{result:?}");
        assert_eq!(started.elapsed(), DEADLINE);
    }

    #[tokio::test]
    async fn panic_of_a_reconcile_is_an_error() {
        let result = run_with_deadline::<ConfigMap, _, _>(panic()).await;
        assert!(matches!(result, Err(ReconcileError::Panicked)), "{result:?}");
    }

    #[rstest]
    #[case::success(None)]
    #[case::invalid_spec(Some(Class::Invalid))]
    #[tokio::test(start_paused = true)]
    async fn object_is_reconciled_again_although_no_event_asks_for_it(#[case] failure: Option<Class>) {
        let (store, mut writer) = reflector::store::<ConfigMap>();
        let object: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
        for event in
            [watcher::Event::Init, watcher::Event::InitApply(object.clone()), watcher::Event::InitDone]
        {
            writer.apply_watcher_event(&event);
        }
        let first = stream::iter([Ok(object)]).chain(stream::pending());
        let controller = Controller::for_stream(first, store);
        let (reconciles, counter) = watch::channel(0);
        let reconcile = |_, reconciles: Arc<watch::Sender<u32>>| async move {
            reconciles.send_modify(|count| *count += 1);
            failure.map_or(Ok(Action::await_change()), |class| Err(TestError(class, None)))
        };
        let (client, _) = server(200, &json!({}));
        let scope = scope(client);
        tokio::select! {
            () = scope.run_controller(controller, reconcile, Arc::new(reconciles)) => {}
            () = tokio::time::sleep(3 * INTERVAL + Duration::from_secs(1)) => {}
        }
        let count = *counter.borrow();
        assert!((4..=5).contains(&count), "{count} reconciles in three intervals");
    }

    #[rstest]
    #[case::invalid(Class::Invalid, Action::await_change(), EventType::Warning)]
    #[case::waiting(
        Class::Waiting(Duration::from_secs(7)),
        Action::requeue(Duration::from_secs(7)),
        EventType::Normal
    )]
    fn class_decides_requeue_and_event_type(
        #[case] class: Class,
        #[case] expected: Action,
        #[case] type_: EventType,
    ) {
        let (events, mut published) = Events::unsent(9);
        let reporter = ReconcileReporter { events, backoff: ErrorBackoff::default() };
        assert_eq!(reporter.failed(&ConfigMap::default(), &TestError(class, None)), expected);
        let (_, event) = published.try_recv().expect("an Event");
        assert_eq!(
            (event.type_, event.reason.as_str(), event.note.as_str()),
            (type_, "TestError", "test failure")
        );
    }

    #[rstest]
    #[case::invalid(Class::Invalid)]
    #[case::waiting(Class::Waiting(Duration::from_secs(7)))]
    #[case::transient(Class::Transient)]
    fn requeue_after_of_the_error_shortens_the_delay(#[case] class: Class) {
        let (events, _published) = Events::unsent(9);
        let reporter = ReconcileReporter { events, backoff: ErrorBackoff::default() };
        let soon = Duration::from_millis(1);
        assert_eq!(
            reporter.failed(&ConfigMap::default(), &TestError(class, Some(soon))),
            Action::requeue(soon)
        );
    }

    #[test]
    fn repeated_failure_backs_off_and_is_published_once() {
        let (events, mut published) = Events::unsent(9);
        let reporter = ReconcileReporter { events, backoff: ErrorBackoff::default() };
        let object = ConfigMap::default();
        let fail = || reporter.failed(&object, &TestError(Class::Transient, None));
        assert_ne!(fail(), fail());
        assert!(published.try_recv().is_ok());
        assert!(published.try_recv().is_err(), "the same failure was published twice");
        reporter.succeeded(&object);
        reporter.failed(&object, &TestError(Class::Transient, None));
        assert!(published.try_recv().is_ok(), "a failure after a success has to be published");
    }
}
