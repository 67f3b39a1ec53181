//! One pass over the children of an object: each step is tried, whatever becomes of the others, and everything that
//! went wrong is told.

use crate::apply::{Applied, Created, Deleted, Object};
use crate::error::{Class, Classify, chain};
use crate::events::{EventType, NewEvent};
use crate::scope::Scope;
use kube::{Resource, ResourceExt};
use slinky_api::ownership::is_controlled_by;
use std::convert::Infallible;
use std::fmt;

/// A pass over the children of `owner`.
pub struct ChildWriter<'a, O> {
    scope: &'a Scope,
    owner: &'a O,
    failures: Vec<StepError>,
}

impl<'a, O: Resource<DynamicType = ()>> ChildWriter<'a, O> {
    /// Begins a pass.
    pub fn new(scope: &'a Scope, owner: &'a O) -> Self {
        Self { scope, owner, failures: Vec::new() }
    }

    /// Makes a child what it should be, if it could be built. Gives the child as it is now; `None` if the step failed,
    /// or if there is no child to speak of yet.
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

    /// Makes a child that is never changed afterwards, if it could be built. Gives the child as it is now; `None` if the
    /// step failed, or if an older one is on its way out.
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

    /// Deletes a child that is not wanted any more.
    pub async fn delete<K: Object>(&mut self, step: &'static str, live: &K) {
        let deleted = self.scope.applier().delete_if_owned(live, self.owner).await;
        let is_asked_for = self.record(step, deleted) == Some(Deleted::Requested);
        if is_asked_for && live.meta().deletion_timestamp.is_none() {
            self.publish("Delete", "Deleted", live);
        }
    }

    /// Deletes a child that is not wanted any more, if there is one. What is somebody else's was never wanted.
    pub async fn delete_if_controlled<K: Object>(&mut self, step: &'static str, live: Option<&K>) {
        if let Some(live) = live.filter(|live| is_controlled_by(live.meta(), self.owner)) {
            self.delete(step, live).await;
        }
    }

    /// What a step gave; its error is kept for the end of the pass.
    pub fn record<T, E>(&mut self, step: &'static str, outcome: Result<T, E>) -> Option<T>
    where
        E: Classify + Send + Sync + 'static,
    {
        outcome.map_err(|error| self.failures.push(StepError { step, error: Box::new(error) })).ok()
    }

    /// Ends the pass.
    pub fn finish(self) -> Result<(), StepErrors> {
        if self.failures.is_empty() { Ok(()) } else { Err(StepErrors(self.failures)) }
    }

    /// Tells what was done to a child.
    fn publish<K: Object>(&self, action: &str, done: &str, child: &K) {
        let kind = K::kind(&());
        let notice = NewEvent {
            type_: EventType::Normal,
            reason: format!("{action}Succeeded"),
            action: action.to_owned(),
            note: format!("{done} {kind}: {}/{}", child.namespace().unwrap_or_default(), child.name_any()),
            related: Some(child.object_ref(&())),
        };
        self.scope.events().publish(self.owner, notice);
    }
}

/// A step that failed.
#[derive(Debug)]
struct StepError {
    step: &'static str,
    error: Box<dyn Classify + Send + Sync>,
}

/// The steps of a pass that failed, at least one.
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
    /// The one that is worth trying again first.
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

/// The error of children that can always be built.
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
    struct Told(Class, &'static str);

    impl Classify for Told {
        fn class(&self) -> Class {
            self.0
        }

        fn category(&self) -> &'static str {
            self.1
        }
    }

    const SOON: Class = Class::Waiting(Duration::from_secs(1));
    const LATE: Class = Class::Waiting(Duration::from_secs(9));

    fn failed(steps: &[(&'static str, Class)]) -> StepErrors {
        let error =
            |(step, class): &(&'static str, Class)| StepError { step, error: Box::new(Told(*class, "Told")) };
        StepErrors(steps.iter().map(error).collect())
    }

    #[rstest]
    #[case::a_fault_may_pass_at_any_time(&[("a", Class::Invalid), ("b", Class::Transient), ("c", SOON)], Class::Transient)]
    #[case::the_soonest(&[("a", LATE), ("b", Class::Invalid), ("c", SOON)], SOON)]
    #[case::only_an_edit_helps(&[("a", Class::Invalid)], Class::Invalid)]
    fn the_next_try_is_that_of_the_most_hopeful_step(
        #[case] steps: &[(&'static str, Class)],
        #[case] class: Class,
    ) {
        assert_eq!(failed(steps).class(), class);
    }

    #[test]
    fn every_failed_step_is_named() {
        let error = failed(&[("Service", SOON), ("Deployment", SOON)]);
        assert_eq!(error.to_string(), "failed \"Service\" step: Told; failed \"Deployment\" step: Told");
        assert_eq!(error.category(), "Told");
    }
}
