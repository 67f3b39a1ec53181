//! The operator and a Slurm cluster as users install them: our charts and images, in a cluster of their own.
//!
//! The tests run one after the other, since the operator manages the whole cluster.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "golden/case.rs"]
#[expect(dead_code, reason = "shared with the golden tests, which use more of it")]
mod case;
#[path = "install/fixture.rs"]
mod fixture;
#[path = "install/lifecycle.rs"]
mod lifecycle;
#[path = "install/permissions.rs"]
mod permissions;
#[path = "install/scopes.rs"]
mod scopes;
#[path = "install/takeover.rs"]
mod takeover;
