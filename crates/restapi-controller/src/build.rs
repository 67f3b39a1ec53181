//! Builds the children of a RestApi. Pure.

mod deployment;
mod service;

pub use deployment::build_deployment;
pub use service::build_service;
