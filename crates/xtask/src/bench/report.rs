//! The results: one line of JSON per phase. Pure.

use super::audit::Requests;
use serde::Serialize;
use std::time::Duration;

/// What one phase took.
#[derive(Serialize)]
pub struct Line<'a> {
    /// The program.
    pub who: &'a str,
    /// The phase.
    pub phase: &'a str,
    /// All pods.
    pub n: u32,
    /// NodeSets that they are spread over.
    pub nodesets: usize,
    /// From the change until the pods are there, or gone.
    pub pods_exist_s: Option<f64>,
    /// From the change until every status says so.
    pub settled_s: Option<f64>,
    /// CPU time of the program.
    pub cpu_s: f64,
    /// The most memory that it had at once.
    pub peak_rss_mib: f64,
    /// Its requests to the API server.
    pub requests: u64,
    /// The same by verb and resource.
    pub by: Requests,
}

/// Seconds with three digits.
pub fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// MiB with one digit.
pub fn mebibytes(kib: u32) -> f64 {
    (f64::from(kib) / 102.4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::{Line, mebibytes, seconds};
    use std::time::Duration;

    fn idle() -> Line<'static> {
        Line {
            who: "nodeset-controller",
            phase: "idle60",
            n: 1000,
            nodesets: 2,
            pods_exist_s: None,
            settled_s: None,
            cpu_s: seconds(Duration::from_millis(20)),
            peak_rss_mib: mebibytes(20_500),
            requests: 3,
            by: [("list pods".to_owned(), 3)].into(),
        }
    }

    #[test]
    fn a_line_has_these_fields_and_no_other() {
        let expected = r#"{"who":"nodeset-controller","phase":"idle60","n":1000,"nodesets":2,"pods_exist_s":null,"settled_s":null,"cpu_s":0.02,"peak_rss_mib":20.0,"requests":3,"by":{"list pods":3}}"#;
        assert_eq!(serde_json::to_string(&idle()).unwrap(), expected);
    }

    #[test]
    fn figures_are_rounded_to_what_can_be_measured() {
        assert_eq!(seconds(Duration::from_micros(1_234_567)).to_string(), "1.235");
        assert_eq!(mebibytes(1_587).to_string(), "1.5");
    }
}
