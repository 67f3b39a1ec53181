//! The results: one line of JSON per phase. Pure.

use super::audit::Requests;
use serde::Serialize;
use std::time::Duration;

/// The figures of one phase.
#[derive(Serialize)]
pub struct Line<'a> {
    /// The program.
    pub who: &'a str,
    /// The phase.
    pub phase: &'a str,
    /// Number of pods.
    pub n: u32,
    /// Number of NodeSets.
    pub nodesets: usize,
    /// Number of replicas of the program.
    pub replicas: usize,
    /// Seconds from the change until all pods exist, or are deleted.
    pub pods_exist_s: Option<f64>,
    /// Seconds from the change until the status of every NodeSet reports it.
    pub settled_s: Option<f64>,
    /// CPU time of the program, over all its replicas.
    pub cpu_s: f64,
    /// CPU time of the busiest replica.
    pub busiest_cpu_s: f64,
    /// CPU time of the expectations service, if there is one.
    pub service_cpu_s: Option<f64>,
    /// Peak memory of the largest replica.
    pub peak_rss_mib: f64,
    /// Its requests to the API server.
    pub requests: u64,
    /// The requests by verb and resource.
    pub by: Requests,
}

/// Seconds with three decimals.
pub fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// MiB with one decimal.
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
            replicas: 1,
            pods_exist_s: None,
            settled_s: None,
            cpu_s: seconds(Duration::from_millis(20)),
            busiest_cpu_s: seconds(Duration::from_millis(20)),
            service_cpu_s: None,
            peak_rss_mib: mebibytes(20_500),
            requests: 3,
            by: [("list pods".to_owned(), 3)].into(),
        }
    }

    #[test]
    fn line_has_exactly_the_documented_fields() {
        let expected = r#"{"who":"nodeset-controller","phase":"idle60","n":1000,"nodesets":2,"replicas":1,"pods_exist_s":null,"settled_s":null,"cpu_s":0.02,"busiest_cpu_s":0.02,"service_cpu_s":null,"peak_rss_mib":20.0,"requests":3,"by":{"list pods":3}}"#;
        assert_eq!(serde_json::to_string(&idle()).unwrap(), expected);
    }

    #[test]
    fn figures_are_rounded_to_measurable_precision() {
        assert_eq!(seconds(Duration::from_micros(1_234_567)).to_string(), "1.235");
        assert_eq!(mebibytes(1_587).to_string(), "1.5");
    }
}
