//! Several active nodeset-controllers, coordinated by the expectations service, as real processes against a real API server.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "replicas/audit.rs"]
mod audit;
#[path = "replicas/chaos.rs"]
mod chaos;
#[path = "replicas/cut.rs"]
mod cut;
#[path = "replicas/faults.rs"]
mod faults;
#[path = "replicas/operator.rs"]
mod operator;
#[path = "replicas/recovery.rs"]
mod recovery;
#[path = "replicas/workload.rs"]
mod workload;
