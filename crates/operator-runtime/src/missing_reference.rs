//! What a spec refers to and is not there. Its appearance is noticed, so waiting for it costs nothing.

use crate::error::{Class, Classify};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use std::time::Duration;

/// How long to wait for something whose appearance would be noticed at once.
const UNTIL_NEXT_LOOK: Duration = Duration::from_mins(5);

/// A broken reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingReference {
    /// There is no such Controller.
    #[error("Controller {0} does not exist")]
    Controller(String),
    /// There is no such Accounting.
    #[error("Accounting {0} does not exist")]
    Accounting(String),
    /// There is no such Secret.
    #[error("Secret {0} does not exist")]
    Secret(String),
    /// The Secret is there, the key in it is not.
    #[error("Secret {name} has no key {key:?}")]
    SecretKey {
        /// Name of the Secret.
        name: String,
        /// The key.
        key: String,
    },
    /// There is no such ConfigMap.
    #[error("ConfigMap {0} does not exist")]
    ConfigMap(String),
    /// The ConfigMap is there, the key in it is not.
    #[error("ConfigMap {name} has no key {key:?}")]
    ConfigMapKey {
        /// Name of the ConfigMap.
        name: String,
        /// The key.
        key: String,
    },
}

impl Classify for MissingReference {
    fn class(&self) -> Class {
        Class::Waiting(UNTIL_NEXT_LOOK)
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Controller(_) => "ControllerMissing",
            Self::Accounting(_) => "AccountingMissing",
            Self::Secret(_) => "SecretMissing",
            Self::SecretKey { .. } => "SecretKeyMissing",
            Self::ConfigMap(_) => "ConfigMapMissing",
            Self::ConfigMapKey { .. } => "ConfigMapKeyMissing",
        }
    }
}

/// The value of one key of a Secret called `name`, as it was found.
pub fn secret_value<'a>(
    secret: Option<&'a Secret>,
    name: &str,
    key: &str,
) -> Result<&'a [u8], MissingReference> {
    let secret = secret.ok_or_else(|| MissingReference::Secret(name.to_owned()))?;
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value
        .map(|value| value.0.as_slice())
        .ok_or_else(|| MissingReference::SecretKey { name: name.to_owned(), key: key.to_owned() })
}

/// The value of one key of a ConfigMap called `name`, as it was found.
pub fn config_map_value<'a>(
    config_map: Option<&'a ConfigMap>,
    name: &str,
    key: &str,
) -> Result<&'a [u8], MissingReference> {
    let config_map = config_map.ok_or_else(|| MissingReference::ConfigMap(name.to_owned()))?;
    let text = config_map.data.as_ref().and_then(|data| data.get(key)).map(String::as_bytes);
    let bytes =
        config_map.binary_data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice());
    text.or(bytes)
        .ok_or_else(|| MissingReference::ConfigMapKey { name: name.to_owned(), key: key.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    #[test]
    fn a_broken_reference_names_what_is_missing() {
        let secret = Secret {
            data: Some([("there".to_owned(), ByteString(b"x".to_vec()))].into()),
            ..Secret::default()
        };
        assert_eq!(secret_value(Some(&secret), "auth", "there").unwrap(), b"x");
        let no_key = secret_value(Some(&secret), "auth", "slurm.key").unwrap_err();
        assert_eq!(
            (no_key.to_string().as_str(), no_key.category()),
            ("Secret auth has no key \"slurm.key\"", "SecretKeyMissing")
        );
        let no_secret = secret_value(None, "auth", "slurm.key").unwrap_err();
        assert_eq!(
            (no_secret.to_string().as_str(), no_secret.category()),
            ("Secret auth does not exist", "SecretMissing")
        );
    }

    #[test]
    fn a_file_of_a_config_map_is_text_or_bytes() {
        let map = ConfigMap {
            data: Some([("text".to_owned(), "a".to_owned())].into()),
            binary_data: Some([("bytes".to_owned(), ByteString(vec![0xff]))].into()),
            ..ConfigMap::default()
        };
        assert_eq!(config_map_value(Some(&map), "files", "text").unwrap(), b"a");
        assert_eq!(config_map_value(Some(&map), "files", "bytes").unwrap(), [0xff]);
        assert_eq!(config_map_value(None, "files", "text").unwrap_err().category(), "ConfigMapMissing");
        assert_eq!(
            config_map_value(Some(&map), "files", "none").unwrap_err().category(),
            "ConfigMapKeyMissing"
        );
    }
}
