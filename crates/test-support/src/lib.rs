//! What tests of several crates share. A dev-dependency only.

#![expect(clippy::expect_used, reason = "a panic is how a test fails")]

pub mod api_model;
pub mod conformance;
mod eventually;

pub use eventually::eventually;
