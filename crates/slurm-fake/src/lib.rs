//! An in-memory slurmctld and slurmrestd for tests, and a suite that compares it with a real one.
//!
//! [`FakeSlurm`] answers requests as slurmrestd 26.05 does, including its quirks, and can inject every failure that
//! was observed on a real one. It is a [`Transport`](slurm_rest::Transport), so a client uses it without a socket and
//! with paused time; [`FakeSlurm::serve`] serves it on a socket. [`suite`] tests the behaviour that both must share.
//! For tests only: no binary links it.

mod fake;
mod fault;
mod model;
mod render;
mod routes;
mod server;
pub mod suite;

pub use fake::{FakeSlurm, KEY, RecordedRequest};
pub use fault::Fault;
