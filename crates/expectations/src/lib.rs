//! Keeps the batches of several active nodeset-controller replicas apart.

pub mod proto;
