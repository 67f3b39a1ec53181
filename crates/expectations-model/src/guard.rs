//! The guards of the protocol, each of which can be taken away.

/// A rule of the protocol without which an [`Invariant`](crate::Invariant) breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// A batch without `Done` blocks others for the grace after its lease.
    Grace,
    /// No write is sent after the deadline of its batch.
    Deadline,
    /// The deadline counts from the first sending of `Begin`, not from its answer.
    DeadlineFromFirstSending,
    /// At the start of an epoch every NodeSet is half-open for the hold.
    HoldAtStart,
    /// A leader stops answering when its term ends.
    TermEnd,
    /// `Done` is sent only if every write was answered.
    DoneWhenAnswered,
    /// Deletes carry the resourceVersion, not only the UID.
    ResourceVersion,
    /// A pod is unmarked before its Slurm node is undrained.
    UnmarkBeforeUndrain,
    /// A delete follows a read of the Slurm node in the same batch.
    ReadBeforeDelete,
    /// A cached view counts only if its snapshot contains the results of the replica's last batch.
    ResultsInSnapshot,
    /// A delete was seen if its event was; the absence of the pod proves nothing.
    DeleteEvent,
    /// The basis of another epoch is void.
    FreshViewInNewEpoch,
    /// A replica that was not the last holder needs a fresh view.
    FreshViewAfterHandOver,
    /// A live view counts only for the number it was requested for; without this guard, any live view of the epoch does.
    Number,
    /// A batch that only creates leaves its NodeSet half-open when its lease ran out.
    HalfOpenAfterLease,
    /// The end of half-open time takes a new number.
    NumberAtHalfOpenEnd,
    /// Half-open time does not end under an open batch.
    HalfOpenUnderOpenBatch,
    /// Setting a node DOWN follows a read of it in the same batch.
    ReadBeforeDown,
    /// The NodeSet's finalizer is removed in a batch.
    FinalizerInBatch,
    /// A pod is created only when the claim of its predecessor is gone.
    StaleClaim,
    /// The name of a pod is a function of the NodeSet and the ordinal, so that the API server admits one.
    FixedName,
}

/// All guards, or all but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    removed: Option<Guard>,
}

impl Guards {
    /// All guards but this one.
    pub fn without(guard: Guard) -> Self {
        Self { removed: Some(guard) }
    }

    /// Whether the guard is in place.
    pub fn has(self, guard: Guard) -> bool {
        self.removed != Some(guard)
    }
}
