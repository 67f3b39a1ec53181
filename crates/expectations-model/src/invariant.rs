//! What the protocol promises.

/// A property of every reachable state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// No effect of a batch lands after a later batch of the same NodeSet name was granted, unless the later one only
    /// creates and was granted half-open.
    Exclusion,
    /// Every granted batch was planned from a view that contains all effects of all earlier batches (if it only creates
    /// and was granted half-open: all that had landed when the batch before it ended), and from no older generation.
    Completeness,
    /// No batch deletes a pod that the spec of its view wants, or creates more pods than that spec wants. Pods whose
    /// create landed after the end of its batch do not count, until the next batch that does more than create.
    Budget,
    /// A delete or DOWN lands only on a Slurm node that is drained and has no job, unless a user undrained the node after
    /// the batch had read it.
    Jobs,
    /// There are never two pods for one ordinal.
    Names,
    /// A delete lands only on the version of the pod that it was decided on, hence never after a later batch sent an
    /// undrain of its node.
    Mark,
    /// A pod is never created on a claim that is about to be deleted with the pod before.
    Claims,
    /// A pod is never created for a NodeSet whose finalizer is removed.
    Finalizer,
    /// From every state, without further faults, batches are granted within the hold until the cluster is as the spec
    /// wants it.
    Progress,
}

impl Invariant {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion",
            Self::Completeness => "completeness",
            Self::Budget => "budget",
            Self::Jobs => "jobs",
            Self::Names => "names",
            Self::Mark => "mark",
            Self::Claims => "claims",
            Self::Finalizer => "finalizer",
            Self::Progress => "progress",
        }
    }
}
