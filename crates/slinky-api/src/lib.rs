//! API types, names, labels and ownership of `slinky.slurm.net/v1beta1`.
//!
//! Values and pure functions only: no client, no clock, no file access. Two rules shape the types:
//!
//! - **Every object that the API server accepts can be deserialized.** Parts that the CRDs leave open (pod templates,
//!   containers, durations) keep the user's JSON ([`Raw`]) and are parsed on demand, so that an ill-typed field is an
//!   error of that field and never of the watch that delivers the object.
//! - **Defaults are functions.** A field's accessor returns its effective value, whether or not the API server has
//!   set the default.

pub mod conditions;
pub mod crd;
mod duration;
pub mod labels;
pub mod names;
pub mod ownership;
mod raw;
mod schema;
pub mod v1beta1;
pub mod workers;

pub use duration::{Duration, DurationError};
pub use raw::{Raw, TypeMismatch};

/// The API group of all kinds.
pub const GROUP: &str = "slinky.slurm.net";
/// The only version of the group.
pub const VERSION: &str = "v1beta1";
