//! Runs a controller: the same limits, delays, logs, metrics and Events for every kind. What a reconcile does is none of
//! its business; what becomes of its result is decided here and nowhere else.

use crate::backoff::ErrorBackoff;
use crate::error::{Class, Classify, chain};
use crate::events::{EventType, Events, NewEvent};
use crate::metrics::{ErrorLabels, KindLabel, METRICS};
use crate::per_object::ObjectKey;
use crate::report::report;
use crate::scope::{Scope, Watched};
use futures::{FutureExt, StreamExt};
use kube::Resource;
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, controller};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest that one reconcile may take. It is cut where it stands, so it has to be safe to be cut anywhere.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// The action that Events about failed reconciles name.
const ACTION: &str = "Reconcile";

/// Why a reconcile did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError<E> {
    /// It said so.
    #[error(transparent)]
    Failed(E),
    /// It did not end.
    #[error("the reconcile did not end within {} s", DEADLINE.as_secs())]
    TimedOut,
    /// It is broken; other objects go on.
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
    /// Runs a controller until shutdown. Nothing is reconciled before every cache of this scope is filled.
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
        controller
            .with_config(Config::default().concurrency(self.workers()))
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
                        let result = attempt::<K, _, _>(reconciled).await;
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
                report(&outcome);
                futures::future::ready(())
            })
            .await;
    }
}

/// One reconcile with its limits, measured.
async fn attempt<K, E, R>(reconcile: R) -> Result<Action, ReconcileError<E>>
where
    K: Resource<DynamicType = ()>,
    R: Future<Output = Result<Action, E>> + Send,
{
    let kind = KindLabel { kind: K::kind(&()).into_owned() };
    let running = METRICS.reconciles_running.get_or_create_owned(&kind);
    running.inc();
    let begun = Instant::now();
    let result = tokio::time::timeout(DEADLINE, AssertUnwindSafe(reconcile).catch_unwind()).await;
    METRICS.reconcile_duration.get_or_create(&kind).observe(begun.elapsed().as_secs_f64());
    running.dec();
    match result {
        Ok(Ok(result)) => result.map_err(ReconcileError::Failed),
        Ok(Err(_)) => Err(ReconcileError::Panicked),
        Err(_) => Err(ReconcileError::TimedOut),
    }
}

/// What follows from a reconcile's end.
struct ReconcileReporter {
    events: Events,
    backoff: ErrorBackoff,
}

impl ReconcileReporter {
    /// Tells of a failure and says when to try again.
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
        let notice = NewEvent {
            type_,
            reason: failure.category().to_owned(),
            action: ACTION.to_owned(),
            note: chain(failure),
            related: None,
        };
        self.events.publish_change(object, notice);
        let again = [after, failure.requeue_after()].into_iter().flatten().min();
        again.map_or_else(Action::await_change, Action::requeue)
    }

    /// The next failure is the first one again.
    fn succeeded<K: Resource<DynamicType = ()>>(&self, object: &K) {
        self.backoff.forget(&ObjectKey::of(object));
        self.events.forget_action(object, ACTION);
    }

    /// The object is gone.
    fn forget(&self, object: &ObjectKey) {
        self.backoff.forget(object);
        self.events.forget(object);
    }
}

#[cfg(test)]
mod tests {
    use super::{DEADLINE, ReconcileError, ReconcileReporter, attempt};
    use crate::backoff::ErrorBackoff;
    use crate::error::{Class, Classify};
    use crate::events::{EventType, Events};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::controller::Action;
    use rstest::rstest;
    use std::time::Duration;

    #[derive(Debug, thiserror::Error)]
    #[error("told to fail")]
    struct Told(Class, Option<Duration>);

    impl Classify for Told {
        fn class(&self) -> Class {
            self.0
        }

        fn category(&self) -> &'static str {
            "Told"
        }

        fn requeue_after(&self) -> Option<Duration> {
            self.1
        }
    }

    async fn hang() -> Result<Action, Told> {
        std::future::pending().await
    }

    async fn panic() -> Result<Action, Told> {
        tokio::task::yield_now().await;
        panic!("on purpose")
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_hangs_is_cut() {
        let begun = tokio::time::Instant::now();
        let result = attempt::<ConfigMap, _, _>(hang()).await;
        assert!(matches!(result, Err(ReconcileError::TimedOut)), "{result:?}");
        assert_eq!(begun.elapsed(), DEADLINE);
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_of_one_object() {
        let result = attempt::<ConfigMap, _, _>(panic()).await;
        assert!(matches!(result, Err(ReconcileError::Panicked)), "{result:?}");
    }

    #[rstest]
    #[case::only_an_edit_helps(Class::Invalid, Action::await_change(), EventType::Warning)]
    #[case::look_again(
        Class::Waiting(Duration::from_secs(7)),
        Action::requeue(Duration::from_secs(7)),
        EventType::Normal
    )]
    fn classes_decide_when_to_try_again(
        #[case] class: Class,
        #[case] expected: Action,
        #[case] type_: EventType,
    ) {
        let (events, mut told) = Events::unsent(9);
        let reporter = ReconcileReporter { events, backoff: ErrorBackoff::default() };
        assert_eq!(reporter.failed(&ConfigMap::default(), &Told(class, None)), expected);
        let (_, notice) = told.try_recv().expect("an Event");
        assert_eq!(
            (notice.type_, notice.reason.as_str(), notice.note.as_str()),
            (type_, "Told", "told to fail")
        );
    }

    #[rstest]
    #[case::only_an_edit_helps(Class::Invalid)]
    #[case::look_again(Class::Waiting(Duration::from_secs(7)))]
    #[case::later_and_later(Class::Transient)]
    fn what_else_there_is_to_do_does_not_wait_for_it(#[case] class: Class) {
        let (events, _told) = Events::unsent(9);
        let reporter = ReconcileReporter { events, backoff: ErrorBackoff::default() };
        let soon = Duration::from_millis(1);
        assert_eq!(reporter.failed(&ConfigMap::default(), &Told(class, Some(soon))), Action::requeue(soon));
    }

    #[test]
    fn failures_in_a_row_wait_longer_and_are_told_once() {
        let (events, mut told) = Events::unsent(9);
        let reporter = ReconcileReporter { events, backoff: ErrorBackoff::default() };
        let object = ConfigMap::default();
        let fail = || reporter.failed(&object, &Told(Class::Transient, None));
        assert_ne!(fail(), fail());
        assert!(told.try_recv().is_ok());
        assert!(told.try_recv().is_err(), "the same failure was told twice");
        reporter.succeeded(&object);
        reporter.failed(&object, &Told(Class::Transient, None));
        assert!(told.try_recv().is_ok(), "a failure after a success is news");
    }
}
