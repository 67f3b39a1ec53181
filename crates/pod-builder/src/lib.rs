//! Builds child objects and merges user overrides over the defaults of the operator.
//!
//! Pure functions from a custom resource to the JSON of a child. The operator's defaults are typed structs; the user's
//! overrides stay JSON, so that fields unknown to this build are not lost ([`build_container`], [`Template`]).
//! [`keep_running_template`] prevents a restart of pods if the new template means the same as the live one.
//!
//! The merge is Kubernetes' strategic merge. It deviates where that would ignore a value of the user or produce an
//! object that the API server rejects:
//!
//! - an explicit `false`, `0` or `""` replaces a default;
//! - a probe keeps the default's handler unless the user gives one;
//! - a volume with another source, or an environment variable with another kind of value, loses the default one;
//! - container ports of different protocols do not collapse into one.

mod compare;
mod component_service;
mod container;
mod content;
mod error;
mod hash;
mod merge;
mod metadata;
pub mod parts;
mod quantity;
mod resources;
mod rollout;
mod running;
mod schema;
mod service;
mod template;
mod typed;

pub use compare::{LastWriter, same_template, says_nothing_when_empty};
pub use component_service::{ComponentService, build_component_service};
pub use container::{append_args, build_container};
pub use content::roll_on_change;
pub use error::BuildError;
pub use hash::{hash_bytes, hash_files, hash_secret, hash_values};
pub use metadata::{child_metadata, component_metadata, merge_annotations, merge_labels, pod_metadata};
pub use quantity::{InvalidQuantity, Quantity};
pub use resources::{EffectiveLimits, LimitError, effective_limits};
pub use rollout::{Rollout, deployment_rollout, stateful_set_rollout};
pub use running::keep_running_template;
pub use service::{ComponentPort, build_headless_spec, build_service_spec};
pub use template::{Containers, DNS_SEARCHES, REQUIRED_ANTI_AFFINITY, TOLERATIONS, Template};
pub use typed::{TypeMismatch, read};
