//! Checks the expectations protocol in every state that a small cluster can reach.
//!
//! A [`Scenario`] is one NodeSet with up to three workers, one to three replicas, the service, an API server and Slurm, the
//! steps that a user takes, and a budget of faults. [`check`] explores every order of their steps with stateright, and
//! looks for a state that violates an [`Invariant`]. Each [`Guard`] of the protocol can be taken away, which must lead to a
//! violation.
//!
//! | part | what it is here |
//! |---|---|
//! | service | the shipped [`Machine`](expectations::Machine) behind a Lease (`service.rs`). A guard inside of it is taken away by its parameters, by rewriting the basis of a request, or by moving its clock |
//! | replica | a step function for the replica's rules (`possible.rs`, `step.rs`), with the shipped [`BatchClock`](expectations::BatchClock) and a planner with one rule per case (`plan.rs`) |
//! | API server, Slurm | pods, claims and the NodeSet with UID and resourceVersion, Slurm nodes with drain, DOWN and one job (`world.rs`). A write is refused by its precondition or lands |
//! | network | a `Begin` arrives at any time until the replica gives up, or is lost. Its answer may be lost, and a copy of it may arrive at any time later |
//! | time | ticks that pass between any two steps (`ticks.rs`). So a pause of any process needs no action of its own |
//!
//! Time has no end: states that differ only in how much time has passed count as one (`symmetry.rs`), so that a scenario is
//! explored whole.
//!
//! # What is left out, and why
//!
//! - **Membership.** Every replica may request batches at any time, as if it owned the NodeSet. `NotOwner` only stops a
//!   replica, which may stop at any time here.
//! - **`Wait`** is not delivered: it changes nothing, and the replica requests again when it pleases.
//! - **Reads and the write after them** are one step, and so are `NeedFresh` and the live read after it, and a plan and the
//!   first sending of its `Begin`. What could happen in between can as well happen before, or while a write is on its way or
//!   a request not yet delivered.
//! - **Answered writes** land at once. A write that takes its time is one that was sent later, or one without an answer.
//! - **`Done`** and its answer are one step. A replica that does not get the answer has no basis, as one that crashed.
//! - **Deleted pods** are gone at once; other objects wait for the garbage collector.
//! - **The drift of clocks** is not modelled; the grace has a tick to spare in its place.
//! - **Repeats of a `Begin`** that was answered are copies that arrive late. **Shutdown** in good order is a replica that
//!   ends its batch and does nothing more.
//! - **Places in the queue** of budgets: there is one NodeSet. Batches of one create show that a grant may be smaller than
//!   the plan.

mod action;
mod check;
mod guard;
mod invariant;
mod model;
mod plan;
mod possible;
mod progress;
mod replica;
mod scenario;
pub mod scenarios;
mod service;
mod state;
mod step;
mod symmetry;
mod ticks;
mod world;

pub use check::{Bounds, Report, Violation, check};
pub use guard::{Guard, Guards};
pub use invariant::Invariant;
pub use scenario::{Faults, Scenario, Start, UserStep};
pub use ticks::Scale;
