//! Decides the desired children of an Accounting. Pure.

use crate::build::{ConfigError, Keys, build_config, build_service, build_stateful_set};
use crate::observe::{Observed, References};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt;
use operator_runtime::RawObject;
use operator_runtime::references::ReferenceError;
use slinky_api::names::accounting::workload;
use slinky_api::names::check_stateful_set_name;
use std::sync::Arc;

/// Why a child is not written.
pub type Obstacle = operator_runtime::Obstacle<ConfigError>;

/// What is done with the children.
pub enum Plan {
    /// They are applied.
    Apply(Box<Children>),
    /// They are deleted: slurmdbd is external.
    Delete,
    /// They are left as they are.
    Refuse(Obstacle),
}

/// The desired children. An obstacle to one does not affect the others, except that slurmdbd needs its configuration.
pub struct Children {
    /// The Service.
    pub service: Result<RawObject<Service>, Obstacle>,
    /// The Secret with slurmdbd.conf.
    pub config: Result<Secret, Obstacle>,
    /// The StatefulSet; `None` while there is no configuration to run with.
    pub stateful_set: Result<Option<RawObject<StatefulSet>>, Obstacle>,
}

/// Decides what is done with the children.
pub fn plan(observed: &Observed) -> Plan {
    let live_config = match &observed.config {
        Ok(config) => config.as_ref(),
        Err(error) => return Plan::Refuse(error.clone().into()),
    };
    let Some(references) = &observed.references else { return Plan::Delete };
    let name = workload(&observed.accounting.name_any());
    match check_stateful_set_name(&name) {
        Ok(()) => Plan::Apply(Box::new(plan_children(observed, live_config, references))),
        Err(problem) => Plan::Refuse(Obstacle::Name { kind: "StatefulSet", name, problem }),
    }
}

fn plan_children(observed: &Observed, live_config: Option<&Secret>, references: &References) -> Children {
    let accounting = &observed.accounting;
    let password = references.password.as_ref().map_err(|error| Obstacle::from(error.clone()));
    let config = password.and_then(|password| {
        build_config(accounting, &password.value, live_config).map_err(Obstacle::Specific)
    });
    let stateful_set = keys(references).map_err(Obstacle::from).and_then(|keys| {
        let Ok(config) = &config else { return Ok(None) };
        let live = observed.stateful_set.as_deref();
        build_stateful_set(accounting, config, &keys, live).map(Some).map_err(Obstacle::invalid)
    });
    Children { service: build_service(accounting).map_err(Obstacle::invalid), config, stateful_set }
}

/// The keys that slurmdbd mounts. The pod could not start without any of them, nor without the keys of other issuers.
fn keys(references: &References) -> Result<Keys<'_>, Arc<ReferenceError>> {
    let slurm = references.slurm_key.as_ref().map_err(Arc::clone)?;
    let jwt = references.jwt_key.as_ref().map_err(Arc::clone)?;
    if let Some(Err(error)) = &references.jwks {
        return Err(error.clone());
    }
    Ok(Keys { slurm: &slurm.holder, jwt: &jwt.holder })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{accounting, bytes, secret};
    use operator_runtime::references::ResolvedKey;
    use operator_runtime::{Classify, MissingReference};
    use serde_json::{Value, json};

    fn resolved(key: &str, value: &str) -> ResolvedKey<Secret> {
        ResolvedKey { holder: secret(key, value), value: bytes(value) }
    }

    fn missing(name: &str) -> Arc<ReferenceError> {
        Arc::new(MissingReference::Secret(name.to_owned()).into())
    }

    fn observed(change: &Value) -> Observed {
        Observed {
            accounting: Arc::new(accounting(change)),
            service: None,
            config: Ok(None),
            stateful_set: None,
            references: Some(References {
                password: Ok(resolved("password", "sesame")),
                slurm_key: Ok(resolved("slurm.key", "slurm")),
                jwt_key: Ok(resolved("jwt.key", "jwt")),
                jwks: None,
            }),
        }
    }

    fn plan_with(change: impl FnOnce(&mut References)) -> Children {
        let mut observed = observed(&json!({}));
        change(observed.references.as_mut().unwrap());
        match plan(&observed) {
            Plan::Apply(children) => *children,
            Plan::Delete | Plan::Refuse(_) => panic!("the children are not applied"),
        }
    }

    fn message<T>(step: Result<T, Obstacle>) -> String {
        step.err().unwrap().to_string()
    }

    #[test]
    fn all_children_are_planned_when_all_references_resolve() {
        let plan = plan_with(|_| {});
        assert!(plan.service.is_ok() && plan.config.is_ok());
        assert!(matches!(plan.stateful_set, Ok(Some(_))));
    }

    #[test]
    fn missing_password_stops_config_and_stateful_set() {
        let plan = plan_with(|references| references.password = Err(missing("db")));
        assert!(plan.service.is_ok());
        assert!(matches!(plan.stateful_set, Ok(None)));
        assert_eq!(message(plan.config), "Secret db does not exist");
    }

    #[test]
    fn missing_key_stops_only_the_stateful_set() {
        let slurm = plan_with(|references| references.slurm_key = Err(missing("auth")));
        assert!(slurm.service.is_ok() && slurm.config.is_ok());
        assert_eq!(message(slurm.stateful_set), "Secret auth does not exist");
        let jwt = plan_with(|references| references.jwt_key = Err(missing("tokens")));
        assert_eq!(message(jwt.stateful_set), "Secret tokens does not exist");
        let no_issuers = Arc::new(MissingReference::ConfigMap("issuers".to_owned()).into());
        let jwks = plan_with(|references| references.jwks = Some(Err(no_issuers)));
        assert_eq!(message(jwks.stateful_set), "ConfigMap issuers does not exist");
    }

    #[test]
    fn all_missing_references_are_reported_at_once() {
        let plan = plan_with(|references| {
            references.password = Err(missing("db"));
            references.slurm_key = Err(missing("auth"));
        });
        assert_eq!(message(plan.config), "Secret db does not exist");
        assert_eq!(message(plan.stateful_set), "Secret auth does not exist");
    }

    #[test]
    fn changed_password_changes_the_pod_template() {
        let template = |password: &str| {
            let plan = plan_with(|references| references.password = Ok(resolved("password", password)));
            plan.stateful_set.ok().flatten().unwrap().as_json()["spec"]["template"].clone()
        };
        assert_eq!(template("a"), template("a"));
        assert_ne!(template("a"), template("b"));
    }

    #[test]
    fn external_slurmdbd_has_no_children() {
        let external = Observed { references: None, ..observed(&json!({ "external": true })) };
        assert!(matches!(plan(&external), Plan::Delete));
    }

    #[test]
    fn name_too_long_for_a_stateful_set_is_refused() {
        let mut long = accounting(&json!({}));
        long.metadata.name = Some("b".repeat(42));
        let Plan::Refuse(obstacle) = plan(&Observed { accounting: Arc::new(long), ..observed(&json!({})) })
        else {
            panic!("not refused")
        };
        assert_eq!(obstacle.category(), "InvalidName");
    }

    #[test]
    fn unreadable_config_secret_changes_no_child() {
        let observed = Observed { config: Err(missing("books-accounting")), ..observed(&json!({})) };
        assert!(matches!(plan(&observed), Plan::Refuse(Obstacle::Reference(_))));
    }
}
