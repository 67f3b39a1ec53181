//! Decides what to do about a NodeSet. No I/O, no clock.

mod claims;
mod cordon_reason;
pub mod effect;
mod features;
pub mod fit;
mod order;
mod revision;

pub use effect::{Drain, Effect, Evidence, NewPod, NodeMirror, PodMirror, Removal, Undo, Why};
