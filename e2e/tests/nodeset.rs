//! The nodeset-controller against a real API server without kubelet. The tests report pods as ready themselves, only few
//! pods are scheduled, and there is no Slurm.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "nodeset/adoption.rs"]
mod adoption;
#[path = "nodeset/election.rs"]
mod election;
#[path = "nodeset/fixture.rs"]
mod fixture;
#[path = "nodeset/invalid.rs"]
mod invalid;
#[path = "nodeset/scaling.rs"]
mod scaling;
#[path = "nodeset/scheduling.rs"]
mod scheduling;
