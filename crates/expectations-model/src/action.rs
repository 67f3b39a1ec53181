//! What can happen.

/// One step of one part of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time goes on.
    Tick,
    /// The user of the NodeSet takes the next step.
    UserStep,
    /// A user undrains the Slurm node of this ordinal.
    UserUndrains(usize),
    /// Slurm starts a job on the node of this ordinal.
    JobStarts(usize),
    /// The job on the node of this ordinal ends.
    JobEnds(usize),
    /// The garbage collector deletes what is left of this ordinal.
    CollectGarbage(usize),
    /// A replica receives all events of pods, claims and Slurm nodes.
    SyncWorkers(usize),
    /// A replica receives all events of the NodeSet.
    SyncNodeSet(usize),
    /// A replica reads, plans and sends `Begin` for the first time.
    Plan(usize, Source, Scope),
    /// A `Begin` reaches a leader, and its answer the replica.
    Deliver(usize, Recipient),
    /// A `Begin` reaches a leader; its answer is lost.
    LoseAnswer(usize, Recipient),
    /// The network keeps a copy of a `Begin`.
    CopyBegin(usize),
    /// A late copy reaches the leader.
    DeliverCopy(usize),
    /// A replica stops repeating `Begin`.
    GiveUp(usize),
    /// A replica performs the next effect of its batch.
    Execute(usize, Fate),
    /// A replica ends its batch: with `Done` if it is certain of every write.
    Finish(usize),
    /// An unanswered write lands.
    Land(usize),
    /// A replica restarts.
    Crash(usize),
    /// The leader's renewals fail from now on.
    StopRenewing,
    /// The leader stops in good order.
    StopLeader,
    /// A new leader starts.
    TakeOver,
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Reads that begin now.
    Live,
    /// Watch caches.
    Cache,
}

/// Which effects of a plan are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// Only creates, which are granted in half-open time.
    Creates,
}

/// Which service pod a request reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The one that holds the Lease.
    Leader,
    /// The one before it.
    OldLeader,
}

/// What becomes of a write that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It lands and is answered.
    Answered,
    /// It is not answered, and lands within the landing time or never.
    Unanswered,
    /// The process freezes after the check and sends at any time later.
    Frozen,
}
