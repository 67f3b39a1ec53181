//! The metrics of the process, in one registry. It is a static, so that code deep in the call stack, such as a retry,
//! can count without a handle in every call.
//!
//! kube's controller does not expose its queue, so there is no metric of its depth. If `reconciles_running` equals the
//! number of workers, objects wait in the queue.

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use std::sync::LazyLock;

/// The prefix of all metric names.
const PREFIX: &str = "slurm_operator";

/// The metrics of this process.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// Labels of metrics per kind.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct KindLabel {
    /// The kind that is reconciled.
    pub kind: String,
}

/// Labels of failed reconciles.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ErrorLabels {
    /// The kind that is reconciled.
    pub kind: String,
    /// The category of the error.
    pub reason: &'static str,
}

/// Labels of writes.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct WriteLabels {
    /// The kind that was written.
    pub kind: String,
    /// `created`, `applied`, `unchanged` (nothing was sent), `status`, `taken_over`, `deleted`.
    pub verb: &'static str,
}

/// Label of metrics per outcome.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabel {
    /// The outcome.
    pub outcome: &'static str,
}

/// The metrics of this crate, and the registry to which other crates add theirs.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) reconcile_duration: Family<KindLabel, Histogram, fn() -> Histogram>,
    pub(crate) reconciles_running: Family<KindLabel, Gauge>,
    pub(crate) reconcile_errors: Family<ErrorLabels, Counter>,
    pub(crate) watch_errors: Family<KindLabel, Counter>,
    pub(crate) writes: Family<WriteLabels, Counter>,
    pub(crate) conflict_attempts: Counter,
    pub(crate) conflict_outcomes: Family<OutcomeLabel, Counter>,
    pub(crate) events: Family<OutcomeLabel, Counter>,
    pub(crate) leading: Gauge,
}

impl Metrics {
    fn new() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the binary", version);
        let constructor: fn() -> Histogram = reconcile_histogram;
        let reconcile_duration = Family::new_with_constructor(constructor);
        let help = "Duration of reconciles";
        registry.register("reconcile_duration_seconds", help, reconcile_duration.clone());
        Self {
            reconcile_duration,
            reconciles_running: add(&mut registry, "reconciles_running", "Reconciles in progress"),
            reconcile_errors: add(&mut registry, "reconcile_errors", "Failed reconciles"),
            watch_errors: add(&mut registry, "watch_errors", "Watches that failed and were restarted"),
            writes: add(&mut registry, "writes", "Writes to the Kubernetes API by kind and verb"),
            conflict_attempts: add(
                &mut registry,
                "conflict_attempts",
                "Attempts of writes that are retried on conflict",
            ),
            conflict_outcomes: add(
                &mut registry,
                "conflict_outcomes",
                "Outcomes of writes that are retried on conflict",
            ),
            events: add(&mut registry, "events", "Kubernetes Events by outcome"),
            leading: add(&mut registry, "leading", "1 if this process holds its Lease, else 0"),
            registry: Mutex::new(registry),
        }
    }

    /// Adds metrics of another crate; `register` gets the registry with the common prefix.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    /// All metrics in the `OpenMetrics` text format.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }

    /// Counts one write.
    pub(crate) fn count_write(&self, kind: &str, verb: &'static str) {
        self.writes.get_or_create(&WriteLabels { kind: kind.to_owned(), verb }).inc();
    }
}

/// Adds a metric to the registry.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// From 5 ms (only cached reads) to 80 s; a reconcile is cancelled at its deadline of 2 min.
fn reconcile_histogram() -> Histogram {
    Histogram::new([0.005, 0.02, 0.08, 0.3, 1.25, 5.0, 20.0, 80.0])
}

#[cfg(test)]
mod tests {
    use super::METRICS;

    #[test]
    fn metric_names_have_the_common_prefix_and_the_suffix_of_their_type() {
        METRICS.count_write("Flower", "applied");
        let text = METRICS.encode().unwrap();
        assert!(text.contains("slurm_operator_writes_total{kind=\"Flower\",verb=\"applied\"} 1"), "{text}");
        assert!(text.contains("slurm_operator_build_info{version="), "{text}");
        let unprefixed: Vec<&str> =
            text.lines().filter(|line| !line.contains("slurm_operator_") && *line != "# EOF").collect();
        assert_eq!(unprefixed, Vec::<&str>::new());
    }
}
