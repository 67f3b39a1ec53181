//! CPU and memory limits of a worker pod, in the units of slurmd.

use crate::quantity::{InvalidQuantity, Quantity};
use serde_json::Value;

/// The limits of a worker; zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EffectiveLimits {
    /// Whole CPUs, rounded up.
    pub cpus: u64,
    /// Whole MiB of memory, rounded down.
    pub memory_mib: u64,
}

/// A limit that is not a quantity.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} cannot be read")]
pub struct LimitError {
    field: String,
    #[source]
    source: InvalidQuantity,
}

/// The limits of a container; for resources without one, those of its pod.
pub fn effective_limits(pod_spec: &Value, container: &Value) -> Result<EffectiveLimits, LimitError> {
    let limit = |resource: &str| -> Result<u64, LimitError> {
        let own = limit(container, resource)?;
        if own == 0 { limit(pod_spec, resource) } else { Ok(own) }
    };
    Ok(EffectiveLimits { cpus: limit("cpu")?, memory_mib: limit("memory")? / (1024 * 1024) })
}

/// A limit in whole units, zero if there is none. JSON numbers are accepted, too.
fn limit(holder: &Value, resource: &str) -> Result<u64, LimitError> {
    let text = match holder.pointer(&format!("/resources/limits/{resource}")) {
        None | Some(Value::Null) => return Ok(0),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let quantity: Quantity = text
        .parse()
        .map_err(|source| LimitError { field: format!("resources.limits.{resource}"), source })?;
    Ok(u64::try_from(quantity.ceil()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn with_limits(limits: &Value) -> Value {
        json!({ "resources": { "limits": limits } })
    }

    #[rstest]
    #[case::none(json!({}), json!({}), 0, 0)]
    #[case::rounding(json!({}), json!({ "cpu": "1500m", "memory": "1500Mi" }), 2, 1500)]
    #[case::part_of_a_cpu(json!({}), json!({ "cpu": "500m", "memory": "1048575" }), 1, 0)]
    #[case::limits_of_the_pod(json!({ "cpu": "4", "memory": "2Gi" }), json!({}), 4, 2048)]
    #[case::container_and_pod_limits(json!({ "cpu": "4", "memory": "2Gi" }), json!({ "cpu": 2 }), 2, 2048)]
    #[case::zero_is_no_limit(json!({ "cpu": "4" }), json!({ "cpu": "0", "memory": null }), 4, 0)]
    #[case::decimal(json!({}), json!({ "cpu": 0.5, "memory": "1G" }), 1, 953)]
    #[case::negative(json!({}), json!({ "cpu": "-1" }), 0, 0)]
    fn container_limit_overrides_the_pod_limit(
        #[case] pod: Value,
        #[case] container: Value,
        #[case] cpus: u64,
        #[case] memory_mib: u64,
    ) {
        let found = effective_limits(&with_limits(&pod), &with_limits(&container));
        assert_eq!(found, Ok(EffectiveLimits { cpus, memory_mib }));
    }

    #[test]
    fn error_names_the_invalid_limit() {
        let error = effective_limits(&Value::Null, &with_limits(&json!({ "memory": "lots" }))).unwrap_err();
        assert_eq!(error.to_string(), "resources.limits.memory cannot be read");
        assert_eq!(error.source.to_string(), "\"lots\" is not a quantity");
    }
}
