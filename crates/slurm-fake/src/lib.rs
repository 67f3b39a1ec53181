//! An in-memory Slurm behind the face of slurmrestd, for tests; and the suite that holds it to the real one.
//!
//! [`FakeSlurm`] answers requests as slurmrestd 26.05 does, its surprises included, and can be told to fail in every
//! way the real one was seen to fail. It is a [`Transport`](slurm_rest::Transport), so that a client speaks with it
//! without a socket and under paused time; [`FakeSlurm::serve`] puts it behind one. [`suite`] says what both must do
//! alike. Tests only: nothing here is linked into a binary.

mod fake;
mod fault;
mod model;
mod render;
mod routes;
mod server;
pub mod suite;

pub use fake::{FakeSlurm, KEY, Recorded};
pub use fault::Fault;
