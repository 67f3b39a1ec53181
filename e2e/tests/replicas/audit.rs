//! What the audit log of the API server and the log of the expectations service prove together. Every request of a batch
//! carries the batch id as its audit id.

use crate::operator::Operator;
use anyhow::{Context, Result};
use e2e::audit;
use e2e::expectations::ExpectationsEnv;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// The program whose writes are checked.
const REPLICA: &str = "nodeset-controller";

/// Creates and deletes of pods, and granted batches.
pub struct History {
    /// By time.
    writes: Vec<Write>,
    /// The time of the grant of each batch.
    grants: BTreeMap<String, Timestamp>,
}

/// A successful create or delete of a pod.
#[derive(Debug)]
struct Write {
    at: Timestamp,
    pod: String,
    is_create: bool,
    /// Whether a replica sent it.
    is_ours: bool,
    /// The batch, if a replica sent it.
    audit_id: String,
}

impl History {
    /// Reads the logs.
    pub fn read(env: &ExpectationsEnv, operator: &Operator<'_>) -> Result<Self> {
        let mut grants = BTreeMap::new();
        for log in &operator.service_logs {
            let log = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
            grants.extend(log.lines().filter_map(grant));
        }
        let events = audit::events(|line| line.contains(env.name()) && line.contains("\"pods\""))?;
        let mut writes: Vec<Write> = events.iter().filter_map(write).collect();
        writes.sort_by_key(|write| write.at);
        Ok(Self { writes, grants })
    }

    /// What must not have happened.
    pub fn violations(&self) -> Vec<String> {
        self.outside_of_batches().chain(self.created_twice()).collect()
    }

    /// Writes of replicas that no batch was granted for.
    fn outside_of_batches(&self) -> impl Iterator<Item = String> {
        let ours = self.writes.iter().filter(|write| write.is_ours);
        ours.filter_map(|write| match self.grants.get(&write.audit_id) {
            None => Some(format!("outside of a batch: {write:?}")),
            Some(granted) if write.at < *granted => Some(format!("before its batch was granted: {write:?}")),
            Some(_) => None,
        })
    }

    /// Creates of a pod whose predecessor had not been deleted.
    fn created_twice(&self) -> impl Iterator<Item = String> {
        let mut is_alive = BTreeMap::new();
        let mut violations = vec![];
        for write in &self.writes {
            let was_alive = is_alive.insert(&write.pod, write.is_create).unwrap_or_default();
            if write.is_create && was_alive {
                violations.push(format!("created twice: {write:?}"));
            }
        }
        violations.into_iter()
    }
}

impl Display for History {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let count = |is_create: bool| {
            self.writes.iter().filter(|write| write.is_ours && write.is_create == is_create).count()
        };
        let (creates, deletes) = (count(true), count(false));
        write!(formatter, "{creates} creates and {deletes} deletes of pods in {} batches", self.grants.len())
    }
}

/// Batch and time of a grant in the log of the service.
fn grant(line: &str) -> Option<(String, Timestamp)> {
    let (head, tail) = line.split_once("Batch granted batch=")?;
    let at = head.split_whitespace().next()?.parse().ok()?;
    Some((tail.split_whitespace().next()?.to_owned(), at))
}

fn write(event: &Value) -> Option<Write> {
    let object = &event["objectRef"];
    let code = event["responseStatus"]["code"].as_u64()?;
    let is_pod = object["resource"] == "pods" && object["subresource"].is_null();
    let is_create = event["verb"] == "create";
    let is_ours = event["userAgent"] == REPLICA;
    if !is_pod || !(is_create || event["verb"] == "delete") || !(200..300).contains(&code) {
        return None;
    }
    Some(Write {
        // A delete of another client, such as a kubelet, may finish an earlier one.
        at: event[if is_ours { "requestReceivedTimestamp" } else { "stageTimestamp" }]
            .as_str()?
            .parse()
            .ok()?,
        pod: object["name"].as_str()?.to_owned(),
        is_create,
        is_ours,
        audit_id: event["auditID"].as_str()?.to_owned(),
    })
}
