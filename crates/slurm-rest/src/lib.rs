//! Typed client of slurmrestd: nodes, jobs, partitions, reservations, controllers.
//!
//! [`SlurmClient`] returns Slurm's answers without interpretation: an answer that proves nothing (200 for an unknown
//! node, "not responding" from a slurmctld that rejects our token) never turns into proof. The client does not retry
//! and does not cache.
//!
//! A [`Transport`] carries its requests: HTTP in production ([`HttpTransport`]), an in-memory Slurm in tests.

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
