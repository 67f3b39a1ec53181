//! The Secret with slurmdbd.conf.

use super::SLURMDBD_CONF;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use operator_runtime::{Class, Classify, WATCH_FALLBACK};
use pod_builder::component_metadata;
use slinky_api::names::accounting::{pod, workload};
use slinky_api::v1beta1::{Accounting, StorageConfig};
use slurm_conf::check::{Severity, check_slurmdbd_conf};
use slurm_conf::{ConfName, ConfValue, SlurmdbdConf, Storage, ValueError, is_equivalent};
use std::collections::BTreeMap;

/// Why slurmdbd.conf cannot be rendered or written. No message contains the password.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The spec names no database.
    #[error("spec.storageConfig must be set when external is false")]
    NoStorage,
    /// The port is out of range.
    #[error("spec.storageConfig.port must be between 1 and 65535")]
    Port,
    /// A value cannot be written into slurmdbd.conf.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// slurmdbd would not start with the file.
    #[error("slurmdbd would reject the configuration: {0}")]
    Refused(String),
    /// The password cannot be written into slurmdbd.conf.
    #[error("{0}")]
    Password(String),
    /// The Secret was made immutable and holds another configuration.
    #[error("Secret {0} is immutable and holds another configuration: delete it to have it re-created")]
    Immutable(String),
}

impl Classify for ConfigError {
    fn class(&self) -> Class {
        match self {
            Self::NoStorage | Self::Port | Self::Value(_) | Self::Refused(_) => Class::Invalid,
            Self::Password(_) | Self::Immutable(_) => Class::Waiting(WATCH_FALLBACK),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::NoStorage | Self::Port | Self::Value(_) | Self::Refused(_) => "InvalidSpec",
            Self::Password(_) => "PasswordUnusable",
            Self::Immutable(_) => "ConfigImmutable",
        }
    }
}

/// Builds the Secret `<name>-accounting`. If the file in `live` is equivalent, it is kept byte for byte.
pub fn build_config(
    accounting: &Accounting,
    password: &ByteString,
    live: Option<&Secret>,
) -> Result<Secret, ConfigError> {
    let name = workload(&accounting.name_any());
    let text = render(accounting, password)?;
    let live_file = live.and_then(|live| live.data.as_ref()?.get(SLURMDBD_CONF));
    let kept = live_file.filter(|file| str::from_utf8(&file.0).is_ok_and(|it| is_equivalent(it, &text)));
    if kept.is_none() && live.is_some_and(|live| live.immutable == Some(true)) {
        return Err(ConfigError::Immutable(name));
    }
    let file = kept.cloned().unwrap_or_else(|| ByteString(text.into_bytes()));
    Ok(Secret {
        metadata: component_metadata(accounting, &name, None),
        data: Some(BTreeMap::from([(SLURMDBD_CONF.to_owned(), file)])),
        immutable: Some(false),
        ..Secret::default()
    })
}

fn render(accounting: &Accounting, password: &ByteString) -> Result<String, ConfigError> {
    let spec = &accounting.spec;
    let storage = spec.storage_config.as_ref().ok_or(ConfigError::NoStorage)?;
    let conf = SlurmdbdConf {
        host: ConfName::new("metadata.name", &pod(&accounting.name_any()))?,
        jwks: spec.jwks_key_ref.is_some(),
        storage: Storage {
            host: ConfValue::new("spec.storageConfig.host", &storage.host)?,
            port: u16::try_from(storage.effective_port()).map_err(|_| ConfigError::Port)?,
            // slurmdbd does not start with an empty StorageUser.
            user: ConfValue::new(
                "spec.storageConfig.username",
                storage.username.as_deref().unwrap_or_default(),
            )?,
            database: ConfValue::new("spec.storageConfig.database", storage.effective_database())?,
            password: checked_password(password, storage)?,
        },
        extra_conf: spec.extra_conf.clone().unwrap_or_default(),
    };
    let text = conf.render();
    match check_slurmdbd_conf(&text).into_iter().find(|finding| finding.severity == Severity::Error) {
        Some(finding) => Err(ConfigError::Refused(finding.message)),
        None => Ok(text),
    }
}

/// The password, checked for characters that slurmdbd.conf cannot hold. Errors name its Secret and key only.
///
/// One newline at the end is no part of it: Secrets made from a file have one, and written into slurmdbd.conf it only
/// ends the line.
fn checked_password(
    password: &ByteString,
    storage: &StorageConfig,
) -> Result<slurm_conf::Secret, ConfigError> {
    let place = format!("Secret {}, key {:?}", storage.password_key_ref.name, storage.password_key_ref.key);
    let text = str::from_utf8(&password.0)
        .map_err(|_| ConfigError::Password(format!("{place} must be text in UTF-8")))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    slurm_conf::Secret::new(&place, text).map_err(|error| ConfigError::Password(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{accounting, bytes, secret};
    use rstest::rstest;
    use serde_json::{Value, json};

    fn storage(change: &Value) -> Value {
        let mut storage = json!({
            "host": "mariadb", "username": "slurm", "passwordKeyRef": { "name": "db", "key": "password" },
        });
        storage.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({ "storageConfig": storage })
    }

    fn file(secret: &Secret) -> &str {
        str::from_utf8(&secret.data.as_ref().unwrap()[SLURMDBD_CONF].0).unwrap()
    }

    #[test]
    fn config() {
        let accounting = accounting(&json!({
            "jwksKeyRef": { "name": "issuers", "key": "keys" },
            "extraConf": "PurgeJobAfter=6months\nAuthAltParameters=disable_token_creation\n",
        }));
        let mut config = build_config(&accounting, &bytes("sesame"), None).unwrap();
        insta::assert_snapshot!("slurmdbd.conf", file(&config));
        config.data = None;
        insta::assert_yaml_snapshot!("secret", config);
    }

    #[rstest]
    #[case::line_break(storage(&json!({ "host": "db\nStorageType=x" })), "spec.storageConfig.host must not contain '\\n'")]
    #[case::comment(storage(&json!({ "username": "a#b" })), "spec.storageConfig.username must not contain '#'")]
    #[case::space(storage(&json!({ "database": "a b" })), "spec.storageConfig.database must not contain ' '")]
    #[case::no_host(storage(&json!({ "host": "" })), "spec.storageConfig.host must not be empty")]
    #[case::port(storage(&json!({ "port": 65536 })), "spec.storageConfig.port must be between 1 and 65535")]
    #[case::negative_port(storage(&json!({ "port": -1 })), "spec.storageConfig.port must be between 1 and 65535")]
    #[case::no_user(storage(&json!({ "username": null })), "spec.storageConfig.username must not be empty")]
    #[case::no_storage(json!({ "storageConfig": null }), "spec.storageConfig must be set")]
    #[case::nonsense(json!({ "extraConf": "A=1\nnonsense" }), "slurmdbd would reject the configuration: \"nonsense\"")]
    fn invalid_spec_is_refused_with_the_field_and_the_rule(#[case] change: Value, #[case] message: &str) {
        let refusal = build_config(&accounting(&change), &bytes("sesame"), None).unwrap_err();
        assert_eq!((refusal.category(), refusal.class()), ("InvalidSpec", Class::Invalid));
        assert!(refusal.to_string().starts_with(message), "{refusal}");
    }

    #[rstest]
    #[case::line_break("ses\name", "Secret db, key \"password\" must not contain '\\n'")]
    #[case::two_line_breaks_at_the_end("sesame\n\n", "Secret db, key \"password\" must not contain '\\n'")]
    #[case::only_a_line_break("\n", "Secret db, key \"password\" must not be empty")]
    #[case::empty("", "Secret db, key \"password\" must not be empty")]
    #[case::comment("ses#ame", "Secret db, key \"password\" must not contain '#'")]
    fn unusable_password_is_reported_without_its_value(#[case] password: &str, #[case] message: &str) {
        let refusal = build_config(&accounting(&json!({})), &bytes(password), None).unwrap_err();
        assert_eq!(refusal.category(), "PasswordUnusable");
        assert!(matches!(refusal.class(), Class::Waiting(_)), "a change of the Secret is expected");
        assert!(refusal.to_string().starts_with(message), "{refusal}");
        assert!(!format!("{refusal} {refusal:?}").contains("ame"));
    }

    #[test]
    fn password_that_is_not_utf8_is_reported() {
        let refusal = build_config(&accounting(&json!({})), &ByteString(vec![0xff]), None).unwrap_err();
        assert_eq!(refusal.to_string(), "Secret db, key \"password\" must be text in UTF-8");
    }

    #[test]
    fn equivalent_file_is_kept_byte_for_byte() {
        let fresh = build_config(&accounting(&json!({})), &bytes("sesame"), None).unwrap();
        let live = file(&fresh).replace("StoragePort=3306", "# the default\nstorageport = 3306");
        let live = secret(SLURMDBD_CONF, &live);
        let kept = build_config(&accounting(&json!({})), &bytes("sesame"), Some(&live)).unwrap();
        assert_eq!(kept.data, live.data);
        let rotated = build_config(&accounting(&json!({})), &bytes("another"), Some(&live)).unwrap();
        assert_eq!(file(&rotated), file(&fresh).replace("sesame", "another"));
    }

    #[test]
    fn newline_at_the_end_of_the_password_is_cut_and_keeps_the_file_of_another_operator() {
        let fresh = build_config(&accounting(&json!({})), &bytes("sesame"), None).unwrap();
        let with_newline = build_config(&accounting(&json!({})), &bytes("sesame\n"), None).unwrap();
        assert_eq!(file(&with_newline), file(&fresh));
        let live = secret(SLURMDBD_CONF, &file(&fresh).replace("sesame", "sesame\n"));
        let kept = build_config(&accounting(&json!({})), &bytes("sesame\n"), Some(&live)).unwrap();
        assert_eq!(kept.data, live.data);
    }

    #[test]
    fn immutable_secret_is_refused_only_if_its_configuration_differs() {
        let mut live = build_config(&accounting(&json!({})), &bytes("sesame"), None).unwrap();
        live.immutable = Some(true);
        assert!(build_config(&accounting(&json!({})), &bytes("sesame"), Some(&live)).is_ok());
        let refusal = build_config(&accounting(&json!({})), &bytes("another"), Some(&live)).unwrap_err();
        assert_eq!(refusal.category(), "ConfigImmutable");
        assert!(refusal.to_string().contains("Secret books-accounting"), "{refusal}");
    }
}
