//! The metric of Tokens that expire, read from their conditions at each scrape: it follows deletions by itself.

use kube::ResourceExt;
use kube::runtime::reflector::Store;
use operator_runtime::metrics::METRICS;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use slinky_api::conditions::{EXPIRING, is_true};
use slinky_api::v1beta1::Token;
use std::fmt;
use std::sync::Arc;

/// The caches of Tokens, one for each scope.
#[derive(Clone, Default)]
pub struct ExpiringTokens(Arc<Mutex<Vec<Store<Token>>>>);

impl ExpiringTokens {
    /// Adds the metric to those of the process.
    pub fn register() -> Self {
        let tokens = Self::default();
        METRICS.register(|registry| registry.register_collector(Box::new(tokens.clone())));
        tokens
    }

    /// Adds a cache.
    pub fn add(&self, cache: Store<Token>) {
        self.0.lock().push(cache);
    }
}

impl Collector for ExpiringTokens {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1 if the token expires within an hour and was not renewed, or has expired";
        let mut family = encoder.encode_descriptor("token_expiring", help, None, MetricType::Gauge)?;
        for token in self.0.lock().iter().flat_map(Store::state) {
            let is_expiring =
                token.status.as_ref().is_some_and(|status| is_true(&status.conditions, EXPIRING));
            let labels = [("namespace", token.namespace().unwrap_or_default()), ("name", token.name_any())];
            ConstGauge::new(i64::from(is_expiring)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ExpiringTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ExpiringTokens(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::{reflector, watcher};
    use serde_json::json;

    #[test]
    fn metric_follows_the_conditions_and_deletions_of_tokens() {
        let (cache, mut writer) = reflector::store::<Token>();
        ExpiringTokens::register().add(cache);
        let token = |status: &str| -> Token {
            let condition = json!({ "type": EXPIRING, "status": status, "reason": "", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:00Z" });
            let metadata = json!({ "name": "t", "namespace": "ns" });
            serde_json::from_value(json!({ "metadata": metadata, "spec": { "username": "" }, "status": { "conditions": [condition] } }))
                .unwrap()
        };
        let sample = r#"slurm_operator_token_expiring{namespace="ns",name="t"} "#;
        for (event, expected) in [
            (watcher::Event::Apply(token("True")), Some("1")),
            (watcher::Event::Apply(token("False")), Some("0")),
            (watcher::Event::Delete(token("False")), None),
        ] {
            writer.apply_watcher_event(&event);
            let text = METRICS.encode().unwrap();
            let value = text.lines().find_map(|line| line.strip_prefix(sample));
            assert_eq!(value, expected, "{text}");
        }
    }
}
