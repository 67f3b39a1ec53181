//! Decides what the children of an Accounting should be.

use crate::build::{ConfigError, Keys, build_config, build_service, build_stateful_set};
use crate::observe::{Children, References};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Secret, Service};
use operator_runtime::references::ReferenceError;
use operator_runtime::{Class, Classify, RawObject};
use pod_builder::BuildError;
use slinky_api::v1beta1::Accounting;

/// What the children should be, each on its own.
pub struct Plan {
    /// The Service.
    pub service: Result<RawObject<Service>, Obstacle>,
    /// The Secret with slurmdbd.conf.
    pub config: Result<Secret, Obstacle>,
    /// The StatefulSet; `None` while there is no configuration to run with.
    pub stateful_set: Result<Option<RawObject<StatefulSet>>, Obstacle>,
}

/// Why a child is not made. What runs goes on as it is.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// Something that it needs cannot be had.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// There is no slurmdbd.conf for it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot be built; only an edit helps.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl Classify for Obstacle {
    fn class(&self) -> Class {
        match self {
            Self::Reference(error) => error.class(),
            Self::Config(error) => error.class(),
            Self::Build(_) => Class::Invalid,
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Reference(error) => error.category(),
            Self::Config(error) => error.category(),
            Self::Build(_) => "InvalidSpec",
        }
    }
}

/// Decides, for a slurmdbd that we run.
pub fn plan(accounting: &Accounting, children: &Children, references: References) -> Plan {
    let References { password, slurm_key, jwt_key, jwks } = references;
    let config = password
        .map_err(Obstacle::from)
        .and_then(|password| Ok(build_config(accounting, &password.value, children.config.as_ref())?));
    let keys = slurm_key.and_then(|slurm| Ok(Keys { slurm: slurm.holder, jwt: jwt_key?.holder }));
    let keys = keys.and_then(|keys| jwks.transpose().map(|_| keys));
    let stateful_set = keys.map_err(Obstacle::from).and_then(|keys| {
        let Ok(config) = &config else { return Ok(None) };
        let live = children.stateful_set.as_deref();
        Ok(Some(build_stateful_set(accounting, config, &keys, live)?))
    });
    Plan { service: build_service(accounting).map_err(Obstacle::from), config, stateful_set }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{accounting, bytes, secret};
    use operator_runtime::MissingReference;
    use operator_runtime::references::ResolvedKey;
    use serde_json::json;

    fn found(key: &str, value: &str) -> ResolvedKey<Secret> {
        ResolvedKey { holder: secret(key, value), value: bytes(value) }
    }

    fn missing(name: &str) -> ReferenceError {
        MissingReference::Secret(name.to_owned()).into()
    }

    fn references(change: impl FnOnce(&mut References)) -> References {
        let mut references = References {
            password: Ok(found("password", "sesame")),
            slurm_key: Ok(found("slurm.key", "slurm")),
            jwt_key: Ok(found("jwt.key", "jwt")),
            jwks: None,
        };
        change(&mut references);
        references
    }

    fn decide(change: impl FnOnce(&mut References)) -> Plan {
        plan(&accounting(&json!({})), &Children::default(), references(change))
    }

    fn told<T>(step: Result<T, Obstacle>) -> Option<String> {
        step.err().map(|obstacle| obstacle.to_string())
    }

    #[test]
    fn with_everything_there_everything_is_made() {
        let plan = decide(|_| {});
        assert!(plan.service.is_ok() && plan.config.is_ok());
        assert!(matches!(plan.stateful_set, Ok(Some(_))));
    }

    #[test]
    fn without_a_password_nothing_is_run() {
        let plan = decide(|references| references.password = Err(missing("db")));
        assert!(plan.service.is_ok());
        assert!(matches!(plan.stateful_set, Ok(None)));
        assert_eq!(told(plan.config).unwrap(), "Secret db does not exist");
    }

    #[test]
    fn a_missing_key_stops_the_stateful_set_alone() {
        let slurm = decide(|references| references.slurm_key = Err(missing("auth")));
        assert!(slurm.service.is_ok() && slurm.config.is_ok());
        assert_eq!(told(slurm.stateful_set).unwrap(), "Secret auth does not exist");
        let jwt = decide(|references| references.jwt_key = Err(missing("tokens")));
        assert_eq!(told(jwt.stateful_set).unwrap(), "Secret tokens does not exist");
        let no_issuers = MissingReference::ConfigMap("issuers".to_owned());
        let jwks = decide(|references| references.jwks = Some(Err(no_issuers.into())));
        assert_eq!(told(jwks.stateful_set).unwrap(), "ConfigMap issuers does not exist");
    }

    #[test]
    fn everything_that_is_missing_is_told_at_once() {
        let plan = decide(|references| {
            references.password = Err(missing("db"));
            references.slurm_key = Err(missing("auth"));
        });
        assert_eq!(told(plan.config).unwrap(), "Secret db does not exist");
        assert_eq!(told(plan.stateful_set).unwrap(), "Secret auth does not exist");
    }

    #[test]
    fn another_password_is_another_template() {
        let template = |password: &str| {
            let plan = decide(|references| references.password = Ok(found("password", password)));
            plan.stateful_set.ok().flatten().unwrap().as_json()["spec"]["template"].clone()
        };
        assert_eq!(template("a"), template("a"));
        assert_ne!(template("a"), template("b"));
    }
}
