//! What is planned for whole NodeSets.

mod cordon;
mod daemons;
mod properties;
mod removal;
mod scale;
mod update;
