//! Shared by all binaries of the operator: flags, client, apply, events, metrics, leader election, shutdown.
//!
//! The `main` of a binary calls [`run`], which passes a [`Runtime`]. [`Runtime::for_each_scope`] yields the namespaces
//! to watch, and [`Scope::run_controller`] runs a controller in each.

mod admin;
pub mod apply;
pub mod args;
pub mod backoff;
mod changed_objects;
mod child_writer;
pub mod client;
mod clock;
mod component;
mod component_error;
pub mod error;
pub mod events;
mod jitter;
pub mod lease;
pub mod metrics;
mod missing_reference;
mod obstacle;
mod per_object;
mod raw_object;
mod readable;
mod ready;
pub mod reconcile;
pub mod references;
mod resync;
pub mod retry;
mod run;
mod runtime;
mod scope;
pub mod serving;
mod tasks;
mod term;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod watched;

pub use admin::bind;
pub use args::{Args, LeaseArgs, ListenAddr, Namespaces, ProcessArgs, parse_duration};
pub use changed_objects::changed_objects;
pub use child_writer::{ChildWriter, StepErrors};
pub use clock::since_boot;
pub use component::{children_of, run_with_common_flags};
pub use component_error::ComponentError;
pub use error::{Class, Classify, Requeued, WATCH_FALLBACK};
pub use jitter::jitter;
pub use missing_reference::{MissingReference, config_map_value, secret_value};
pub use obstacle::Obstacle;
pub use per_object::{ObjectKey, PerObject};
pub use raw_object::RawObject;
pub use ready::Gate;
pub use references::get_secret;
pub use run::run;
pub use runtime::Runtime;
pub use scope::{
    MetadataEvents, Scope, SharedCache, cached_or_live, changed_by, find, referrers, spec_changes,
};
pub use watched::Watched;
