//! Names that Kubernetes would refuse, found before it is asked.

use super::error::BuildError;
use slinky_api::names::check_object_name;

/// Longest part between the dots of a DNS name, and longest value of a label.
pub const LONGEST_LABEL: usize = 63;

/// Refuses what cannot be the name of a volume or a hostname: both are a single part of a DNS name.
pub fn check_dns_label(what: &str, name: &str) -> Result<(), BuildError> {
    let problem = if name.contains('.') { Err("it must not contain dots") } else { check(name) };
    refuse(what, name, problem)
}

/// Refuses what cannot be the name of a worker, which has it in a label too.
pub fn check_pod_name(name: &str) -> Result<(), BuildError> {
    refuse("the name of a pod", name, check(name))
}

fn check(name: &str) -> Result<(), &'static str> {
    if name.len() > LONGEST_LABEL { Err("longer than 63 characters") } else { check_object_name(name) }
}

fn refuse(what: &str, name: &str, problem: Result<(), &'static str>) -> Result<(), BuildError> {
    problem.map_err(|problem| BuildError::Name { what: what.to_owned(), name: name.to_owned(), problem })
}
