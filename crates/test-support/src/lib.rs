//! Test support shared by several crates. A dev-dependency only.

#![expect(clippy::expect_used, reason = "a panic is how a test fails")]

pub mod api_model;
pub mod conformance;
mod eventually;
pub mod fixture;

pub use eventually::eventually;
