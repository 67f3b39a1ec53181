//! Tests of whole plans.

mod claims;
mod cluster_model;
mod convergence;
mod cordon;
mod daemon_properties;
mod daemons;
mod membership;
mod messages;
mod mirror;
mod obstacles;
mod pins;
mod properties;
mod records;
mod removal;
mod scale;
mod trimmed;
mod update;
