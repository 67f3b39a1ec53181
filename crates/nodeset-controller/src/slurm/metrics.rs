//! What is counted of Slurm.

use super::ClusterKey;
use jiff::Timestamp;
use operator_runtime::metrics::METRICS;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use slurm_rest::Error;
use std::sync::LazyLock;
use std::time::Duration;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ClusterLabels {
    namespace: String,
    controller: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    namespace: String,
    controller: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabel {
    request: &'static str,
}

/// The metrics of this part of the process.
static SLURM: LazyLock<SlurmMetrics> = LazyLock::new(SlurmMetrics::new);

struct SlurmMetrics {
    asked: Family<ClusterLabels, Gauge>,
    errors: Family<ErrorLabels, Counter>,
    durations: Family<RequestLabel, Histogram, fn() -> Histogram>,
}

impl SlurmMetrics {
    fn new() -> Self {
        let metrics = Self {
            asked: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(request_histogram),
        };
        METRICS.register(|registry| {
            registry.register(
                "slurm_snapshot_timestamp_seconds",
                "When the last look at a Slurm cluster was asked for, in UNIX time",
                metrics.asked.clone(),
            );
            registry.register(
                "slurm_request_errors",
                "Requests to Slurm that failed",
                metrics.errors.clone(),
            );
            registry.register(
                "slurm_request_duration_seconds",
                "How long requests to Slurm took",
                metrics.durations.clone(),
            );
        });
        metrics
    }
}

/// From 2 ms (nothing changed) to 10 s, after which every request is given up.
fn request_histogram() -> Histogram {
    Histogram::new([0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 10.0])
}

fn labels(key: &ClusterKey) -> ClusterLabels {
    ClusterLabels { namespace: key.namespace.clone(), controller: key.controller.clone() }
}

/// A look that was asked for then succeeded.
pub fn looked(key: &ClusterKey, asked: Timestamp) {
    SLURM.asked.get_or_create(&labels(key)).set(asked.as_second());
}

/// A cluster is not looked at any more.
pub fn forget(key: &ClusterKey) {
    SLURM.asked.remove(&labels(key));
}

/// A request ended.
pub fn requested<T>(key: &ClusterKey, request: &'static str, took: Duration, result: &Result<T, Error>) {
    SLURM.durations.get_or_create(&RequestLabel { request }).observe(took.as_secs_f64());
    if let Err(error) = result {
        let ClusterLabels { namespace, controller } = labels(key);
        SLURM.errors.get_or_create(&ErrorLabels { namespace, controller, reason: error.category() }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_counted_until_it_is_forgotten() {
        let key = ClusterKey { namespace: "counted".to_owned(), controller: "slurm".to_owned() };
        looked(&key, Timestamp::from_second(7).unwrap());
        requested(&key, "nodes", Duration::ZERO, &Err::<(), _>(Error::Unavailable(String::new())));
        let text = METRICS.encode().unwrap();
        let of_cluster = r#"{namespace="counted",controller="slurm"}"#;
        assert!(
            text.contains(&format!("slurm_operator_slurm_snapshot_timestamp_seconds{of_cluster} 7")),
            "{text}"
        );
        let errors = r#"errors_total{namespace="counted",controller="slurm",reason="unavailable"} 1"#;
        assert!(text.contains(errors), "{text}");
        forget(&key);
        assert!(!METRICS.encode().unwrap().contains(&format!("seconds{of_cluster}")));
    }
}
