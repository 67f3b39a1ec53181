//! Metrics of the service.

use super::leading::{Epoch, named_counters};
use operator_runtime::metrics::METRICS;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use std::sync::LazyLock;
use std::time::Duration;
use tonic::Code;

/// Calls by method and code.
static RPC: LazyLock<Rpc> = LazyLock::new(Rpc::new);
/// Checked tokens by outcome.
pub static AUTHENTICATIONS: LazyLock<Outcomes> =
    LazyLock::new(|| Outcomes::new("expectations_authentications", "Checked ServiceAccount tokens"));
/// Connections by outcome.
pub static CONNECTIONS: LazyLock<Outcomes> =
    LazyLock::new(|| Outcomes::new("expectations_connections", "Connections to the service"));

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    code: String,
}

/// A counter by outcome.
pub struct Outcomes(Family<OutcomeLabel, Counter>);

impl Outcomes {
    fn new(name: &'static str, help: &'static str) -> Self {
        let family = Family::default();
        METRICS.register(|registry| registry.register(name, help, Family::clone(&family)));
        Self(family)
    }

    /// Counts an outcome.
    pub fn count(&self, outcome: &'static str) {
        self.0.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}

struct Rpc {
    calls: Family<CallLabels, Counter>,
    durations: Family<MethodLabel, Histogram, fn() -> Histogram>,
}

impl Rpc {
    fn new() -> Self {
        let rpc = Self { calls: Family::default(), durations: Family::new_with_constructor(histogram) };
        METRICS.register(|registry| {
            registry.register("expectations_calls", "Calls by method and code", rpc.calls.clone());
            let help = "Time to answer calls";
            registry.register("expectations_call_duration_seconds", help, rpc.durations.clone());
        });
        rpc
    }
}

fn histogram() -> Histogram {
    Histogram::new([0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 2.0])
}

/// Counts a call.
pub fn observe_call(method: &'static str, code: Code, duration: Duration) {
    RPC.calls.get_or_create(&CallLabels { method, code: format!("{code:?}") }).inc();
    RPC.durations.get_or_create(&MethodLabel { method }).observe(duration.as_secs_f64());
}

/// Registers the metrics that are read from the state machine.
pub fn register(epoch: &Epoch) {
    let collector = Box::new(MachineCollector(epoch.clone()));
    METRICS.register(|registry| registry.register_collector(collector));
}

/// Reads the state machine when metrics are requested.
#[derive(Debug)]
struct MachineCollector(Epoch);

impl Collector for MachineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let status = self.0.get().map(|leading| leading.call(expectations::Machine::status));
        let Some(Ok(status)) = status else { return Ok(()) };
        let epoch = Info::new([("epoch", status.membership.epoch.as_str())]);
        let help = "The epoch: every change costs a fresh view, and delays deletes unless the leader stopped in good order";
        epoch.encode(encoder.encode_descriptor("expectations_epoch", help, None, epoch.metric_type())?)?;
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            let encoder = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(encoder)
        };
        let count = |length: usize| u32::try_from(length).map_or(f64::MAX, f64::from);
        let oldest = |ages: &mut dyn Iterator<Item = Duration>| ages.max().unwrap_or_default().as_secs_f64();
        gauge("expectations_members", "Live replicas", count(status.membership.live.len()))?;
        gauge("expectations_open_batches", "Batches that have not ended", count(status.open.len()))?;
        gauge(
            "expectations_oldest_batch_age_seconds",
            "Age of the oldest batch that has not ended",
            oldest(&mut status.open.iter().map(|batch| batch.age)),
        )?;
        gauge(
            "expectations_waiting_nodesets",
            "NodeSets that wait for a batch",
            count(status.waiting.len()),
        )?;
        gauge(
            "expectations_longest_wait_seconds",
            "How long a NodeSet has waited for a batch at most",
            oldest(&mut status.waiting.iter().map(|waiting| waiting.age)),
        )?;
        gauge(
            "expectations_half_open_seconds",
            "Time until batches that do more than create are granted, after the start of the service",
            status.half_open_left.as_secs_f64(),
        )?;
        for (name, value) in named_counters(&status.counters) {
            let counter = ConstCounter::new(value);
            let name = format!("expectations_batches_{name}");
            let encoder =
                encoder.encode_descriptor(&name, "Events of this epoch", None, counter.metric_type())?;
            counter.encode(encoder)?;
        }
        Ok(())
    }
}
