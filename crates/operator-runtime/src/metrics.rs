//! The process's metrics in one registry. A process has one, hence a static: what counts (a retry deep in a write) need
//! not be handed a handle through every call.
//!
//! kube's controller does not show its queue, so there is no queue depth; `reconciles_running` against the number of
//! workers tells whether the queue is what an object waits for.

use crate::lock;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::sync::{LazyLock, Mutex};

/// What every metric's name begins with.
const PREFIX: &str = "slurm_operator";

/// The metrics of this process.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// Which kind of object.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct KindLabel {
    /// The kind that is reconciled.
    pub kind: String,
}

/// Which kind of object failed, and why.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ErrorLabels {
    /// The kind that is reconciled.
    pub kind: String,
    /// The error's category.
    pub reason: &'static str,
}

/// What was written.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct WriteLabels {
    /// The kind that was written.
    pub kind: String,
    /// `created`, `applied`, `unchanged` (nothing was sent), `status`, `taken_over`, `deleted`.
    pub verb: &'static str,
}

/// How something ended.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabel {
    /// The way it ended.
    pub outcome: &'static str,
}

/// What this crate counts, and the registry that others add theirs to.
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
        let metrics = Self {
            registry: Mutex::default(),
            reconcile_duration: Family::new_with_constructor(reconcile_histogram),
            reconciles_running: Family::default(),
            reconcile_errors: Family::default(),
            watch_errors: Family::default(),
            writes: Family::default(),
            conflict_attempts: Counter::default(),
            conflict_outcomes: Family::default(),
            events: Family::default(),
            leading: Gauge::default(),
        };
        registry.register(
            "build",
            "The running version",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register(
            "reconcile_duration_seconds",
            "How long reconciles took",
            metrics.reconcile_duration.clone(),
        );
        registry.register("reconciles_running", "Reconciles under way", metrics.reconciles_running.clone());
        registry.register("reconcile_errors", "Failed reconciles", metrics.reconcile_errors.clone());
        registry.register(
            "watch_errors",
            "Watches that broke and were begun again",
            metrics.watch_errors.clone(),
        );
        registry.register("writes", "Writes to the Kubernetes API", metrics.writes.clone());
        registry.register(
            "conflict_attempts",
            "Attempts of writes that are repeated on conflict",
            metrics.conflict_attempts.clone(),
        );
        registry.register(
            "conflict_outcomes",
            "How writes that are repeated on conflict ended",
            metrics.conflict_outcomes.clone(),
        );
        registry.register("events", "Kubernetes Events by what became of them", metrics.events.clone());
        registry.register("leading", "Whether this process holds its Lease", metrics.leading.clone());
        Self { registry: Mutex::new(registry), ..metrics }
    }

    /// Adds metrics of another crate; `register` is given the registry with the common prefix.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut lock(&self.registry));
    }

    /// All metrics in the `OpenMetrics` text format.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &lock(&self.registry))?;
        Ok(text)
    }

    /// Counts one write.
    pub(crate) fn count_write(&self, kind: &str, verb: &'static str) {
        self.writes.get_or_create(&WriteLabels { kind: kind.to_owned(), verb }).inc();
    }
}

/// From 5 ms (everything in memory) to 80 s, just under the deadline of a reconcile.
fn reconcile_histogram() -> Histogram {
    Histogram::new([0.005, 0.02, 0.08, 0.3, 1.25, 5.0, 20.0, 80.0])
}

#[cfg(test)]
mod tests {
    use super::METRICS;

    #[test]
    fn names_carry_the_common_prefix_and_suffixes_of_their_type() {
        METRICS.count_write("Flower", "applied");
        let text = METRICS.encode().unwrap();
        assert!(text.contains("slurm_operator_writes_total{kind=\"Flower\",verb=\"applied\"} 1"), "{text}");
        assert!(text.contains("slurm_operator_build_info{version="), "{text}");
        let foreign: Vec<&str> =
            text.lines().filter(|line| !line.contains("slurm_operator_") && *line != "# EOF").collect();
        assert_eq!(foreign, Vec::<&str>::new());
    }
}
