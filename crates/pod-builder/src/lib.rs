//! Builds child objects and merges user overrides over the defaults of the operator.
//!
//! Pure functions: custom resource in, JSON of the child out. The operator's part is written with typed structs;
//! the user's part stays the JSON that it is, so that nothing in it is lost ([`build_container`], [`Template`]).
//! The result is JSON as well; [`keep_running_template`] keeps the pods that run when it means the same.
//!
//! The merge is Kubernetes' strategic merge, and differs from it on purpose where that would ignore what the user
//! wrote or build what the API server refuses:
//!
//! - an explicit `false`, `0` or `""` replaces a default;
//! - a probe keeps the default's handler unless the user gives one;
//! - a volume given another source, or an environment variable given another kind of value, loses the former one;
//! - container ports of different protocols do not collapse into one.

mod compare;
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
pub use container::{append_args, build_container};
pub use content::roll_on_change;
pub use error::BuildError;
pub use hash::{hash_bytes, hash_files, hash_values};
pub use metadata::{child_metadata, merge_annotations, merge_labels, pod_metadata};
pub use quantity::{InvalidQuantity, Quantity};
pub use resources::{EffectiveLimits, LimitError, effective_limits};
pub use rollout::{Rollout, deployment_rollout, stateful_set_rollout};
pub use running::keep_running_template;
pub use service::{ComponentPort, ServiceError, build_headless_spec, build_service_spec};
pub use template::{Containers, DNS_SEARCHES, REQUIRED_ANTI_AFFINITY, TOLERATIONS, Template};
pub use typed::{TypeMismatch, read};
