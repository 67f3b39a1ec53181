//! Writes the pod mirrors of NodeSets in the background, one set at a time per NodeSet and for a limited time, so that neither
//! a reconcile nor an effect waits for them however many pods change.

use crate::coordination::Coordination;
use crate::execute::{Failure, mirror_pods};
use crate::observe::Sources;
use crate::plan::PodMirror;
use crate::timing::POD_MIRROR_TIME;
use futures::channel::mpsc::UnboundedSender;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use operator_runtime::backoff::ErrorBackoff;
use operator_runtime::{ObjectKey, PerObject, Scope};
use slinky_api::v1beta1::NodeSet;
use std::sync::Arc;
use tokio::time::Instant;

/// Writes pod mirrors in the background.
pub struct MirrorRunner {
    scope: Scope,
    sources: Arc<Sources>,
    coordination: Coordination,
    runs: PerObject<Run>,
    /// Consecutive runs in which mirrors failed.
    backoff: ErrorBackoff,
    /// Enqueues NodeSets with mirrors that are left to the next plan.
    enqueue: UnboundedSender<ObjectRef<NodeSet>>,
}

/// The state of the mirrors of one NodeSet.
#[derive(Default)]
struct Run {
    /// Whether a run is active, or pauses after failures.
    active: bool,
    /// Whether mirrors were planned during the run.
    is_outdated: bool,
    /// The failures of the last run.
    failures: Vec<Failure>,
}

impl MirrorRunner {
    /// A runner that enqueues NodeSets through `enqueue`.
    pub fn new(
        scope: Scope,
        sources: Arc<Sources>,
        coordination: Coordination,
        enqueue: UnboundedSender<ObjectRef<NodeSet>>,
    ) -> Self {
        let (runs, backoff) = (PerObject::default(), ErrorBackoff::default());
        Self { scope, sources, coordination, runs, backoff, enqueue }
    }

    /// The failures of the last run of a NodeSet.
    pub fn last_failures(&self, nodeset: &NodeSet) -> Vec<Failure> {
        self.runs.with(nodeset, |run| run.failures.clone())
    }

    /// Starts a run, unless one is active: its end enqueues the NodeSet then.
    pub fn start(self: &Arc<Self>, nodeset: &Arc<NodeSet>, mirrors: Vec<PodMirror>) {
        let is_started = self.runs.with(nodeset.as_ref(), |run| {
            let is_idle = !run.active;
            if mirrors.is_empty() {
                // Nothing is left of what failed.
                if is_idle {
                    run.failures.clear();
                }
                return false;
            }
            (run.active, run.is_outdated) = (true, !is_idle);
            is_idle
        });
        if is_started {
            let (runner, nodeset) = (self.clone(), nodeset.clone());
            self.scope.spawn("pod mirrors", async move { runner.run(&nodeset, &mirrors).await });
        }
    }

    async fn run(&self, nodeset: &NodeSet, mirrors: &[PodMirror]) {
        let began = Instant::now();
        let namespace = nodeset.namespace().unwrap_or_default();
        let failures = tokio::select! {
            failures = mirror_pods(mirrors, &self.sources.client, &namespace) => failures,
            () = self.scope.shutdown() => return,
        };
        let is_cut = began.elapsed() >= POD_MIRROR_TIME;
        let has_failed = !failures.is_empty();
        self.runs.with(nodeset, |run| run.failures = failures);
        if has_failed {
            // The status shows the failures while their mirrors wait.
            self.enqueue(nodeset);
            tokio::select! {
                () = tokio::time::sleep(self.backoff.next(nodeset)) => {}
                () = self.scope.shutdown() => return,
            }
        } else {
            self.backoff.forget(&ObjectKey::of(nodeset));
        }
        let is_outdated = self.runs.with(nodeset, |run| {
            run.active = false;
            std::mem::take(&mut run.is_outdated)
        });
        if !self.forget_if_gone(nodeset) && (is_cut || has_failed || is_outdated) {
            self.enqueue(nodeset);
        }
    }

    fn enqueue(&self, nodeset: &NodeSet) {
        // The receiver is dropped when the process ends.
        let _ = self.enqueue.unbounded_send(ObjectRef::from_obj(nodeset));
    }

    /// Drops the state of a NodeSet if it is deleted, or another replica owns it; returns whether that is so.
    pub fn forget_if_gone(&self, nodeset: &NodeSet) -> bool {
        let is_deleted = self.sources.is_deleted(nodeset);
        let is_lost = !is_deleted && !self.coordination.owns(nodeset);
        let is_over = is_lost && !self.runs.with(nodeset, |run| run.active);
        if is_over || is_deleted && self.sources.is_name_free(nodeset) {
            let key = ObjectKey::of(nodeset);
            self.runs.forget(&key);
            self.backoff.forget(&key);
        }
        is_deleted || is_lost
    }
}
