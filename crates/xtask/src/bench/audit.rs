//! Counts a program's requests in the API server's audit log.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The number of a program's requests by verb and resource.
pub type Requests = BTreeMap<String, u64>;

/// An audit log that is read while it grows.
pub struct AuditLog<R = BufReader<File>> {
    log: R,
    /// The beginning of a line that is not complete yet.
    rest: Vec<u8>,
}

impl AuditLog {
    /// Opens the log in a file, from its beginning.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Ok(Self { log: BufReader::new(file), rest: Vec::new() })
    }
}

impl<R: BufRead> AuditLog<R> {
    /// Reads the requests of a program since the last call, without watches.
    pub fn read(&mut self, program: &str) -> Result<Requests> {
        let mut requests = Requests::new();
        while self.log.read_until(b'\n', &mut self.rest)? > 0 && self.rest.ends_with(b"\n") {
            if let Some(request) = request(&String::from_utf8_lossy(&self.rest), program)? {
                *requests.entry(request).or_default() += 1;
            }
            self.rest.clear();
        }
        Ok(requests)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    verb: String,
    #[serde(default)]
    user_agent: String,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<ObjectRef>,
}

#[derive(Deserialize)]
struct ObjectRef {
    resource: String,
    subresource: Option<String>,
}

/// Verb and resource of a request, if it is a request of the program other than a watch.
fn request(line: &str, program: &str) -> Result<Option<String>> {
    // Most lines are of other clients; parsing all of them would take longer than some phases.
    if !line.contains(program) {
        return Ok(None);
    }
    let entry: Entry = serde_json::from_str(line).with_context(|| line.to_owned())?;
    // A program may add its version: `program/v1.2.3 (linux/amd64)`.
    if entry.verb == "watch" || entry.user_agent.split('/').next() != Some(program) {
        return Ok(None);
    }
    let resource = match entry.object_ref {
        Some(ObjectRef { resource, subresource: Some(subresource) }) => format!("{resource}/{subresource}"),
        Some(ObjectRef { resource, .. }) => resource,
        None => entry.uri.split('?').next().unwrap_or_default().to_owned(),
    };
    Ok(Some(format!("{} {resource}", entry.verb)))
}

#[cfg(test)]
mod tests {
    use super::{AuditLog, Requests};
    use serde_json::{Value, json};
    use std::collections::VecDeque;
    use std::io::{BufReader, Read};

    fn entry(user_agent: &str, verb: &str, object: &Value) -> String {
        let mut entry = json!({"verb": verb, "userAgent": user_agent, "requestURI": "/version?timeout=32s"});
        if !object.is_null() {
            entry["objectRef"] = object.clone();
        }
        format!("{entry}\n")
    }

    fn count(log: &str) -> Requests {
        AuditLog { log: log.as_bytes(), rest: Vec::new() }.read("operator").unwrap()
    }

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let pods = json!({"resource": "pods", "name": "operator", "namespace": "bench"});
        let status = json!({"resource": "nodesets", "subresource": "status"});
        let log = [
            entry("operator", "create", &pods),
            entry("operator/v1.3 (linux/amd64)", "create", &pods),
            entry("operator", "patch", &status),
            entry("operator", "get", &Value::Null),
        ];
        let expected = [("create pods", 2), ("get /version", 1), ("patch nodesets/status", 1)]
            .map(|(k, v)| (k.into(), v));
        assert_eq!(count(&log.concat()), Requests::from(expected));
    }

    #[test]
    fn watches_and_requests_of_other_programs_are_not_counted() {
        let pods = json!({"resource": "pods", "name": "operator"});
        let log = [
            entry("operator", "watch", &pods),
            entry("kwok", "create", &pods),
            entry("operator-of-another", "create", &pods),
        ];
        assert_eq!(count(&log.concat()), Requests::new());
    }

    /// Returns one part per read; an empty part is an end of file.
    struct Growing(VecDeque<String>);

    impl Read for Growing {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let part = self.0.pop_front().unwrap_or_default();
            buffer[..part.len()].copy_from_slice(part.as_bytes());
            Ok(part.len())
        }
    }

    #[test]
    fn each_read_counts_every_new_complete_line_once() {
        let line = entry("operator", "delete", &json!({"resource": "pods"}));
        let (begin, end) = line.split_at(20);
        let parts = [line.clone() + begin, String::new(), end.to_owned() + &line, String::new()];
        let mut log = AuditLog { log: BufReader::new(Growing(parts.into())), rest: Vec::new() };
        let counts: Vec<_> =
            (0..3).map(|_| log.read("operator").unwrap().into_values().sum::<u64>()).collect();
        assert_eq!(counts, [1, 2, 0]);
    }

    #[test]
    fn line_that_is_not_an_audit_event_is_an_error() {
        let mut log = AuditLog { log: &b"operator\n"[..], rest: Vec::new() };
        assert!(log.read("operator").is_err());
    }
}
