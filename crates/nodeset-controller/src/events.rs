//! Kubernetes Events about NodeSets. No I/O: what is published is returned to the caller.
//!
//! [`plan_events`] announces what a plan starts, [`ObjectEvents`] reports what was done to single objects, and
//! [`condition_events`] reports condition transitions.

mod condition_events;
mod object_events;
mod plan_events;

pub use condition_events::condition_events;
pub use object_events::{ObjectEvents, Subject, Topic};
pub use plan_events::{Published, plan_events};
