//! Checks names before the API server rejects them.

use super::error::BuildError;
use slinky_api::names::{check_hostname, check_label_value};

/// Checks the name of a volume or a hostname: both are a single part of a DNS name.
pub fn check_dns_label(what: &str, name: &str) -> Result<(), BuildError> {
    name_error(what, name, check_hostname(name))
}

/// Checks the name of a worker pod, which is also the value of a label.
pub fn check_pod_name(name: &str) -> Result<(), BuildError> {
    name_error("the name of a pod", name, check_label_value(name))
}

fn name_error(what: &str, name: &str, problem: Result<(), &'static str>) -> Result<(), BuildError> {
    problem.map_err(|problem| BuildError::Name { what: what.to_owned(), name: name.to_owned(), problem })
}
