//! API types, names, labels and ownership of `slinky.slurm.net/v1beta1`.
//!
//! Everything here is a value or a pure function: no client, no clock, no file. Two rules shape the types:
//!
//! - **What the API server accepts, these types can read.** Parts that the CRDs leave open (pod templates,
//!   containers, durations) stay as the user wrote them ([`Raw`]) and are read on demand, so that one ill-typed
//!   field is an error of that field and never of the watch that delivers the object.
//! - **Defaults are functions.** A field's accessor gives its effective value, whether or not the API server
//!   has filled it in.

pub mod conditions;
pub mod crd;
mod duration;
pub mod labels;
pub mod names;
pub mod ownership;
mod raw;
mod schema;
pub mod v1beta1;

pub use duration::{Duration, DurationError};
pub use raw::{Raw, TypeMismatch};

/// The API group of all kinds.
pub const GROUP: &str = "slinky.slurm.net";
/// The only version of the group.
pub const VERSION: &str = "v1beta1";
