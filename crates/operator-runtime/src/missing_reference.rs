//! References to objects or keys that do not exist. The referenced kinds are watched, so creating the object triggers a
//! reconcile.

use crate::error::{Class, Classify, WATCH_FALLBACK};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

/// A reference to an object or key that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingReference {
    /// The Controller does not exist.
    #[error("Controller {0} does not exist")]
    Controller(String),
    /// The Accounting does not exist.
    #[error("Accounting {0} does not exist")]
    Accounting(String),
    /// The Secret does not exist.
    #[error("Secret {0} does not exist")]
    Secret(String),
    /// The Secret has no such key.
    #[error("Secret {name} has no key {key:?}")]
    SecretKey {
        /// Name of the Secret.
        name: String,
        /// The key.
        key: String,
    },
    /// The ConfigMap does not exist.
    #[error("ConfigMap {0} does not exist")]
    ConfigMap(String),
    /// The ConfigMap has no such key.
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
        Class::Waiting(WATCH_FALLBACK)
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

/// The value of one key of the Secret `name`; `None` stands for a Secret that does not exist.
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

/// The value of one key of the ConfigMap `name`; `None` stands for a ConfigMap that does not exist.
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
    fn error_names_the_missing_secret_or_key() {
        let secret = Secret {
            data: Some([("present".to_owned(), ByteString(b"x".to_vec()))].into()),
            ..Secret::default()
        };
        assert_eq!(secret_value(Some(&secret), "auth", "present").unwrap(), b"x");
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
    fn config_map_value_may_be_text_or_binary() {
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
