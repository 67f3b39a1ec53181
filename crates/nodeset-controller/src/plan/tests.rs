//! What is planned for whole NodeSets.

mod claims;
mod cordon;
mod course;
mod daemon_properties;
mod daemons;
mod frozen;
mod membership;
mod mirror;
mod pins;
mod properties;
mod records;
mod removal;
mod rest;
mod scale;
mod trimmed;
mod update;
