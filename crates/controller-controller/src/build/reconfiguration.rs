//! The progress of an in-place reconfigure, kept in an annotation of the ConfigMap with the configuration.
//!
//! The annotation is written together with the files that it is about, and outlives this process. It reads
//! `<hash> <time>` while a confirmation is awaited, and `<hash> confirmed` afterwards.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use slinky_api::labels::annotations;

const CONFIRMED: &str = "confirmed";

/// Whether slurmctld has read a configuration in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconfiguration {
    /// Hash of the configuration.
    pub config: String,
    /// When it came into force, while slurmctld is expected to read it; `None` once slurmctld runs with it.
    pub awaited_since: Option<Timestamp>,
}

impl Reconfiguration {
    /// Reads the annotation. `None` if it is missing or malformed: then the configuration has to be confirmed again.
    pub fn of(config_map: &ConfigMap) -> Option<Self> {
        let (config, state) = config_map.annotations().get(annotations::RECONFIGURATION)?.split_once(' ')?;
        let awaited_since = if state == CONFIRMED { None } else { Some(state.parse().ok()?) };
        Some(Self { config: config.to_owned(), awaited_since })
    }

    /// The value of the annotation.
    pub fn to_annotation(&self) -> String {
        let state = self.awaited_since.map_or_else(|| CONFIRMED.to_owned(), |since| since.to_string());
        format!("{} {state}", self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Configuration, build_config};
    use crate::fixture::{controller, second};
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::awaited(Reconfiguration { config: "a1".to_owned(), awaited_since: Some(second(0)) })]
    #[case::confirmed(Reconfiguration { config: "a1".to_owned(), awaited_since: None })]
    fn record_is_read_back_from_the_config_map(#[case] record: Reconfiguration) {
        let record_of = (annotations::RECONFIGURATION, record.to_annotation());
        let config_map = build_config(&controller(&json!({})), &Configuration::default(), [record_of]);
        assert_eq!(Reconfiguration::of(&config_map), Some(record));
    }

    #[rstest]
    #[case::missing(json!({}))]
    #[case::no_state(json!({ annotations::RECONFIGURATION: "a1" }))]
    #[case::unknown_state(json!({ annotations::RECONFIGURATION: "a1 perhaps" }))]
    fn malformed_record_counts_as_none(#[case] annotations: serde_json::Value) {
        let mut config_map = ConfigMap::default();
        config_map.metadata.annotations = serde_json::from_value(annotations).unwrap();
        assert_eq!(Reconfiguration::of(&config_map), None);
    }
}
