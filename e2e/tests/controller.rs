//! The controller-controller against a real API server.

#[path = "controller/children.rs"]
mod children;
#[path = "controller/configuration.rs"]
mod configuration;
#[path = "controller/fixture.rs"]
mod fixture;
#[path = "controller/monitoring.rs"]
mod monitoring;
#[path = "controller/references.rs"]
mod references;
