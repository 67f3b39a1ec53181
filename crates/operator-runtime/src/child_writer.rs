//! Writes the children of an object. A failed step does not stop the following ones; [`ChildWriter::finish`] returns
//! the errors of all steps.

use crate::apply::{Applied, Created, Deleted, Object};
use crate::error::{Class, Classify, chain};
use crate::events::{EventType, NewEvent};
use crate::scope::Scope;
use kube::{Resource, ResourceExt};
use slinky_api::ownership::is_controlled_by;
use std::convert::Infallible;
use std::fmt;

/// Writes the children of `owner` in one reconcile.
pub struct ChildWriter<'a, O> {
    scope: &'a Scope,
    owner: &'a O,
    failures: Vec<StepError>,
}

impl<'a, O: Resource<DynamicType = ()>> ChildWriter<'a, O> {
    /// A writer without failures.
    pub fn new(scope: &'a Scope, owner: &'a O) -> Self {
        Self { scope, owner, failures: Vec::new() }
    }

    /// Applies a child, unless building it failed. Returns the live child; `None` if the step failed or the old child
    /// is still terminating.
    pub async fn apply<K, E>(
        &mut self,
        step: &'static str,
        desired: Result<K, E>,
        live: Option<&K>,
    ) -> Option<K>
    where
        K: Object,
        E: Classify + Send + Sync + 'static,
    {
        let desired = self.record(step, desired)?;
        let applied = self.scope.applier().apply(&desired, live).await;
        match self.record(step, applied)? {
            Applied::Created(object) => {
                self.publish("Create", "Created", &object);
                Some(object)
            }
            Applied::Changed(object) => Some(object),
            Applied::Unchanged | Applied::Immutable => live.cloned(),
            Applied::Terminating => None,
        }
    }

    /// Creates a child that is never updated, unless building it failed. Returns the live child; `None` if the step
    /// failed or an old child of the same name is still terminating.
    pub async fn create<K, E>(&mut self, step: &'static str, desired: Result<K, E>) -> Option<K>
    where
        K: Object,
        E: Classify + Send + Sync + 'static,
    {
        let desired = self.record(step, desired)?;
        let created = self.scope.applier().create(&desired).await;
        match self.record(step, created)? {
            Created::New(object) => {
                self.publish("Create", "Created", &object);
                Some(object)
            }
            Created::Existing(object) => Some(object),
            Created::Terminating => None,
        }
    }

    /// Deletes a child that is no longer desired. It is an error if the owner does not control it.
    pub async fn delete<K: Object>(&mut self, step: &'static str, live: &K) {
        let deleted = self.scope.applier().delete_if_owned(live, self.owner).await;
        let is_requested = self.record(step, deleted) == Some(Deleted::Requested);
        if is_requested && live.meta().deletion_timestamp.is_none() {
            self.publish("Delete", "Deleted", live);
        }
    }

    /// Deletes a child that is no longer desired, if it exists and the owner controls it.
    pub async fn delete_if_controlled<K: Object>(&mut self, step: &'static str, live: Option<&K>) {
        if let Some(live) = live.filter(|live| is_controlled_by(live.meta(), self.owner)) {
            self.delete(step, live).await;
        }
    }

    /// The value of a step; its error is recorded for [`ChildWriter::finish`].
    pub fn record<T, E>(&mut self, step: &'static str, outcome: Result<T, E>) -> Option<T>
    where
        E: Classify + Send + Sync + 'static,
    {
        outcome.map_err(|error| self.failures.push(StepError { step, error: Box::new(error) })).ok()
    }

    /// The recorded errors, if there are any.
    pub fn finish(self) -> Result<(), StepErrors> {
        if self.failures.is_empty() { Ok(()) } else { Err(StepErrors(self.failures)) }
    }

    /// Publishes an Event about a write to a child.
    fn publish<K: Object>(&self, action: &str, done: &str, child: &K) {
        let kind = K::kind(&());
        let event = NewEvent {
            type_: EventType::Normal,
            reason: format!("{action}Succeeded"),
            action: action.to_owned(),
            note: format!("{done} {kind}: {}/{}", child.namespace().unwrap_or_default(), child.name_any()),
            related: Some(child.object_ref(&())),
        };
        self.scope.events().publish(self.owner, event);
    }
}

/// A step that failed.
#[derive(Debug)]
struct StepError {
    step: &'static str,
    error: Box<dyn Classify + Send + Sync>,
}

/// The failed steps of a reconcile, at least one.
#[derive(Debug)]
pub struct StepErrors(Vec<StepError>);

impl fmt::Display for StepErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, StepError { step, error }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}failed {step:?} step: {}", chain(error.as_ref()))?;
        }
        Ok(())
    }
}

impl std::error::Error for StepErrors {}

impl Classify for StepErrors {
    /// The class of the step that may be retried first.
    fn class(&self) -> Class {
        let classes = self.0.iter().map(|failure| failure.error.class());
        classes
            .min_by_key(|class| match class {
                Class::Transient => (0, None),
                Class::Waiting(after) => (1, Some(*after)),
                Class::Invalid => (2, None),
            })
            .unwrap_or(Class::Transient)
    }

    fn category(&self) -> &'static str {
        self.0.first().map_or("SyncFailed", |failure| failure.error.category())
    }
}

/// The error type of builders that cannot fail.
impl Classify for Infallible {
    fn class(&self) -> Class {
        match *self {}
    }

    fn category(&self) -> &'static str {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::time::Duration;

    #[derive(Debug, thiserror::Error)]
    #[error("{1}")]
    struct TestError(Class, &'static str);

    impl Classify for TestError {
        fn class(&self) -> Class {
            self.0
        }

        fn category(&self) -> &'static str {
            self.1
        }
    }

    const SOON: Class = Class::Waiting(Duration::from_secs(1));
    const LATE: Class = Class::Waiting(Duration::from_secs(9));

    fn step_errors(steps: &[(&'static str, Class)]) -> StepErrors {
        let error = |(step, class): &(&'static str, Class)| StepError {
            step,
            error: Box::new(TestError(*class, "Failed")),
        };
        StepErrors(steps.iter().map(error).collect())
    }

    #[rstest]
    #[case::transient_error_first(&[("a", Class::Invalid), ("b", Class::Transient), ("c", SOON)], Class::Transient)]
    #[case::shortest_wait_second(&[("a", LATE), ("b", Class::Invalid), ("c", SOON)], SOON)]
    #[case::invalid_last(&[("a", Class::Invalid)], Class::Invalid)]
    fn class_is_that_of_the_step_that_may_be_retried_first(
        #[case] steps: &[(&'static str, Class)],
        #[case] class: Class,
    ) {
        assert_eq!(step_errors(steps).class(), class);
    }

    #[test]
    fn message_names_every_failed_step() {
        let error = step_errors(&[("Service", SOON), ("Deployment", SOON)]);
        assert_eq!(error.to_string(), "failed \"Service\" step: Failed; failed \"Deployment\" step: Failed");
        assert_eq!(error.category(), "Failed");
    }
}
