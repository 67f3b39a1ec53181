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
    /// By batch.
    grants: BTreeMap<String, Grant>,
}

/// A granted batch.
#[derive(Debug)]
struct Grant {
    at: Timestamp,
    nodeset: String,
    /// Whether it has nothing but creates.
    only_creates: bool,
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
            for (batch, grant) in log.lines().filter_map(grant) {
                // A request that is repeated is granted again.
                grants.entry(batch).or_insert(grant);
            }
        }
        let events = audit::events(|line| line.contains(env.name()) && line.contains("\"pods\""))?;
        let mut writes: Vec<Write> = events.iter().filter_map(write).collect();
        writes.sort_by_key(|write| write.at);
        Ok(Self { writes, grants })
    }

    /// What must not have happened.
    pub fn violations(&self) -> Vec<String> {
        let ours = self.writes.iter().filter(|write| write.is_ours);
        ours.filter_map(|write| self.violation(write)).chain(self.created_twice()).collect()
    }

    /// Why a replica should not have sent a write.
    fn violation(&self, write: &Write) -> Option<String> {
        let Some(batch) = self.grants.get(&write.audit_id) else {
            return Some(format!("outside of a batch: {write:?}"));
        };
        if write.at < batch.at {
            return Some(format!("before its batch was granted: {write:?}, {batch:?}"));
        }
        let is_later = |other: &&Grant| {
            other.nodeset == batch.nodeset
                && !other.only_creates
                && batch.at < other.at
                && other.at < write.at
        };
        let later = self.grants.values().find(is_later)?;
        Some(format!("after a later batch was granted: {write:?}, {batch:?}, {later:?}"))
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

/// A grant in the log of the service.
fn grant(line: &str) -> Option<(String, Grant)> {
    let (head, tail) = line.split_once("Batch granted batch=")?;
    let field =
        |name: &str| tail.split_once(name).map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
    let grant = Grant {
        at: head.split_whitespace().next()?.parse().ok()?,
        nodeset: field(" nodeset=")?.trim_matches('"').to_owned(),
        only_creates: field(" deletes=")? == "0" && field(" others=")? == "0",
    };
    Some((tail.split_whitespace().next()?.to_owned(), grant))
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

#[cfg(test)]
mod tests {
    use super::{History, grant, write};
    use rstest::rstest;
    use serde_json::json;

    /// A history with two batches, the second of which does more than create.
    fn history(writes: &[(&str, &str, &str, &str)]) -> History {
        let log = [
            r#"2026-11-18T12:00:10.000000Z  INFO expectations::service::api: Batch granted batch=r-0_1/7 namespace="ns" nodeset="gpu" creates=5 deletes=0 others=0"#,
            r#"2026-11-18T12:00:20.000000Z  INFO expectations::service::api: Batch granted batch=r-1_1/3 namespace="ns" nodeset="gpu" creates=0 deletes=2 others=1"#,
            r#"2026-11-18T12:00:20.000000Z  INFO expectations::service::api: Replica joined replica="r-1_1""#,
        ];
        let writes = writes.iter().map(|(at, verb, agent, id)| {
            write(&json!({
                "auditID": id,
                "verb": verb,
                "userAgent": agent,
                "objectRef": { "resource": "pods", "name": "gpu-0" },
                "responseStatus": { "code": if *verb == "create" { 201 } else { 200 } },
                "requestReceivedTimestamp": format!("2026-11-18T12:00:{at}.000000Z"),
                "stageTimestamp": format!("2026-11-18T12:00:{at}.000000Z"),
            }))
        });
        History {
            writes: writes.map(Option::unwrap).collect(),
            grants: log.into_iter().filter_map(grant).collect(),
        }
    }

    const OURS: &str = super::REPLICA;

    #[rstest]
    #[case::create_in_its_batch(&[("11", "create", OURS, "r-0_1/7")], None)]
    #[case::delete_in_its_batch(&[("21", "delete", OURS, "r-1_1/3")], None)]
    #[case::delete_by_a_kubelet(&[("05", "delete", "kubelet", "4b0e")], None)]
    #[case::no_batch(&[("21", "delete", OURS, "4b0e")], Some("outside of a batch"))]
    #[case::unknown_batch(&[("21", "delete", OURS, "r-1_1/4")], Some("outside of a batch"))]
    #[case::too_early(&[("19", "delete", OURS, "r-1_1/3")], Some("before its batch was granted"))]
    #[case::too_late(&[("21", "create", OURS, "r-0_1/7")], Some("after a later batch was granted"))]
    #[case::created_again(
        &[("11", "create", OURS, "r-0_1/7"), ("12", "delete", "kubelet", ""), ("13", "create", OURS, "r-0_1/7")],
        None
    )]
    #[case::created_twice(
        &[("11", "create", OURS, "r-0_1/7"), ("13", "create", OURS, "r-0_1/7")],
        Some("created twice")
    )]
    fn violations_are_found(#[case] writes: &[(&str, &str, &str, &str)], #[case] violation: Option<&str>) {
        let found = history(writes).violations();
        match violation {
            None => assert_eq!(found, Vec::<String>::new()),
            Some(text) => assert!(found.len() == 1 && found[0].starts_with(text), "{found:?}"),
        }
    }
}
