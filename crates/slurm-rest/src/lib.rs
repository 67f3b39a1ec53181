//! Typed client of slurmrestd: nodes, jobs, partitions, reservations, controllers.
//!
//! [`SlurmClient`] says what was asked and what was answered, and never more: what carries no proof (an unknown node
//! is answered with 200, a controller that refuses our token looks dead) stays visibly without proof. It repeats
//! nothing, waits for nothing but an answer, and keeps no copy of what Slurm said.
//!
//! What carries its requests is a [`Transport`]: HTTP in production ([`HttpTransport`]), a Slurm in memory in tests.

mod answer;
mod client;
mod controllers;
mod error;
mod http_transport;
mod jobs;
mod nodes;
mod partitions;
mod reservations;
mod token;
mod transport;
mod version;
mod wire;

pub use client::{Limits, SlurmClient};
pub use controllers::Ping;
pub use error::{Error, errno};
pub use http_transport::{EndpointError, HttpTransport};
pub use jobs::{Deadline, Job, JobState};
pub use nodes::{Node, NodeList, NodeState, NodeUpdate};
pub use partitions::Partition;
pub use reservations::{Reservation, ReservationList, ReservationRequest};
pub use token::{Clock, TOKEN_HEADER, TokenSource};
pub use transport::{Transport, TransportError};
