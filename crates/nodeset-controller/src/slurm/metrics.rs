//! Metrics of requests to Slurm.

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

static SLURM: LazyLock<SlurmMetrics> = LazyLock::new(SlurmMetrics::new);

struct SlurmMetrics {
    node_list_started: Family<ClusterLabels, Gauge>,
    errors: Family<ErrorLabels, Counter>,
    durations: Family<RequestLabel, Histogram, fn() -> Histogram>,
}

impl SlurmMetrics {
    fn new() -> Self {
        let metrics = Self {
            node_list_started: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(request_histogram),
        };
        METRICS.register(|registry| {
            registry.register(
                "slurm_snapshot_timestamp_seconds",
                "Start time of the last successful node list, in seconds since the epoch",
                metrics.node_list_started.clone(),
            );
            registry.register(
                "slurm_request_errors",
                "Requests to Slurm that failed",
                metrics.errors.clone(),
            );
            registry.register(
                "slurm_request_duration_seconds",
                "Duration of requests to Slurm",
                metrics.durations.clone(),
            );
        });
        metrics
    }
}

/// From 2 ms (no change) to 10 s, the timeout of requests.
fn request_histogram() -> Histogram {
    Histogram::new([0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 10.0])
}

fn labels(key: &ClusterKey) -> ClusterLabels {
    ClusterLabels { namespace: key.namespace.clone(), controller: key.controller.clone() }
}

/// A node list that started at `started` succeeded.
pub fn nodes_listed(key: &ClusterKey, started: Timestamp) {
    SLURM.node_list_started.get_or_create(&labels(key)).set(started.as_second());
}

/// A cluster is no longer polled.
pub fn remove_cluster(key: &ClusterKey) {
    SLURM.node_list_started.remove(&labels(key));
}

/// A request was answered or failed.
pub fn request_finished<T>(
    key: &ClusterKey,
    request: &'static str,
    took: Duration,
    result: &Result<T, Error>,
) {
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
    fn metrics_of_a_cluster_end_with_its_polling() {
        let key = ClusterKey { namespace: "counted".to_owned(), controller: "slurm".to_owned() };
        nodes_listed(&key, Timestamp::from_second(7).unwrap());
        request_finished(&key, "nodes", Duration::ZERO, &Err::<(), _>(Error::Unavailable(String::new())));
        let text = METRICS.encode().unwrap();
        let of_cluster = r#"{namespace="counted",controller="slurm"}"#;
        assert!(
            text.contains(&format!("slurm_operator_slurm_snapshot_timestamp_seconds{of_cluster} 7")),
            "{text}"
        );
        let errors = r#"errors_total{namespace="counted",controller="slurm",reason="unavailable"} 1"#;
        assert!(text.contains(errors), "{text}");
        remove_cluster(&key);
        assert!(!METRICS.encode().unwrap().contains(&format!("seconds{of_cluster}")));
    }
}
