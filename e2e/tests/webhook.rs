//! The admission webhook, called by a real API server.

#[path = "webhook/cases.rs"]
mod cases;
#[path = "webhook/hooks.rs"]
mod hooks;
#[path = "webhook/operation.rs"]
mod operation;
