//! The expectations service as a process against a real API server: election, authentication, limits, certificates,
//! failures, `expectations status`, and clients of the last released version.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "expectations/certificates.rs"]
mod certificates;
#[path = "expectations/failover.rs"]
mod failover;
#[path = "expectations/fixture.rs"]
mod fixture;
#[path = "expectations/flood.rs"]
mod flood;
#[path = "expectations/leading.rs"]
mod leading;
#[path = "expectations/messages.rs"]
mod messages;
#[path = "expectations/released.rs"]
mod released;
#[path = "expectations/shutdown.rs"]
mod shutdown;
#[path = "expectations/status.rs"]
mod status;
#[path = "expectations/tokens.rs"]
mod tokens;
