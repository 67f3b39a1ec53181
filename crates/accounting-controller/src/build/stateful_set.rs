//! The StatefulSet of slurmdbd.

use super::SLURMDBD_CONF;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, PodSpec, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::parts::{
    PRIVATE, SLURM_ETC, config_map_items, container_user, item, memory_dir, mount, pod_user, projected,
    read_only, secret_items, tcp_port, tcp_probe,
};
use pod_builder::{
    BuildError, Containers, Template, build_container, component_metadata, hash_secret,
    keep_running_template, pod_metadata,
};
use serde_json::{Value, json};
use slinky_api::labels::{App, annotations, selector_labels};
use slinky_api::names::accounting::workload;
use slinky_api::names::{SLURM_ID, SLURMDBD_PORT};
use slinky_api::v1beta1::{Accounting, PodTemplate, SecretKeySelector};

/// The volume for sockets and PID files.
const RUN: &str = "run";

/// The Secrets with the keys that slurmdbd mounts.
pub struct Keys<'a> {
    /// The Secret with the key that the Slurm daemons share.
    pub slurm: &'a Secret,
    /// The Secret with the key that tokens are signed with.
    pub jwt: &'a Secret,
}

/// Builds the StatefulSet `<name>-accounting`, whose pod mounts `config`. An equivalent pod template of `live` is kept, so
/// that the pod is not replaced.
pub fn build_stateful_set(
    accounting: &Accounting,
    config: &Secret,
    keys: &Keys<'_>,
    live: Option<&RawObject<StatefulSet>>,
) -> Result<RawObject<StatefulSet>, BuildError> {
    let name = workload(&accounting.name_any());
    let template = accounting.spec.template.clone().unwrap_or_default();
    // The pod has the metadata of the Accounting, not that of the template: a change would restart running pods.
    let pod_metadata = pod_metadata::<Accounting>(
        &component_metadata(accounting, &name, None),
        [
            (annotations::SLURM_KEY_HASH, hash_secret(keys.slurm)),
            (annotations::JWT_KEY_HASH, hash_secret(keys.jwt)),
            (annotations::SLURMDBD_CONF_HASH, hash_secret(config)),
        ],
    );
    let stateful_set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": component_metadata(accounting, &name, template.metadata.as_ref()),
        "spec": {
            "podManagementPolicy": "Parallel",
            "replicas": 1,
            "revisionHistoryLimit": 0,
            "selector": { "matchLabels": selector_labels(accounting) },
            "serviceName": name,
            "template": build_pod(accounting, pod_metadata, &template)?.to_value(),
        },
    });
    Ok(RawObject::new(keep_running_template(stateful_set, live.map(RawObject::as_json), crate::NAME))?)
}

fn build_pod(
    accounting: &Accounting,
    metadata: ObjectMeta,
    template: &PodTemplate,
) -> Result<Template, BuildError> {
    let spec = &accounting.spec;
    let key = |selector: Option<&SecretKeySelector>, file| {
        selector.map(|selector| secret_items(&selector.name, vec![item(&selector.key, file, None)]))
    };
    let config =
        secret_items(&workload(&accounting.name_any()), vec![item(SLURMDBD_CONF, SLURMDBD_CONF, None)]);
    let jwks = spec.jwks_key_ref.as_ref();
    let files = [
        Some(config),
        key(spec.slurm_key_ref.as_ref(), "slurm.key"),
        key(spec.signing_key_ref(), "jwt.key"),
        jwks.map(|jwks| config_map_items(&jwks.name, vec![item(&jwks.key, "jwks.json", None)])),
    ];
    let base = PodSpec {
        automount_service_account_token: Some(false),
        security_context: Some(pod_user(SLURM_ID)),
        volumes: Some(vec![
            projected(SLURM_ETC, PRIVATE, files.into_iter().flatten().collect()),
            memory_dir(RUN),
        ]),
        ..PodSpec::default()
    };
    let containers = Containers { init: vec![], main: vec![build_slurmdbd(accounting)?] };
    Ok(Template::build(metadata, &base, containers, "template.spec", &template.spec)?)
}

fn build_slurmdbd(accounting: &Accounting) -> Result<Value, BuildError> {
    let base = Container {
        name: Accounting::NAME.to_owned(),
        ports: Some(vec![tcp_port(Accounting::NAME, SLURMDBD_PORT)]),
        // No liveness probe: slurmdbd listens once it has reached its database, and a restart brings none back.
        readiness_probe: Some(tcp_probe(SLURMDBD_PORT)),
        security_context: Some(container_user(SLURM_ID)),
        volume_mounts: Some(vec![read_only(mount(SLURM_ETC, "/etc/slurm")), mount(RUN, "/run")]),
        ..Container::default()
    };
    Ok(build_container(Accounting::NAME, &base, &accounting.spec.slurmdbd)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{accounting, secret};

    fn build(change: &Value, config: &str, slurm_key: &str, jwt_key: &str) -> RawObject<StatefulSet> {
        let keys = Keys { slurm: &secret("slurm.key", slurm_key), jwt: &secret("jwt.key", jwt_key) };
        build_stateful_set(&accounting(change), &secret(SLURMDBD_CONF, config), &keys, None).unwrap()
    }

    #[test]
    fn stateful_set() {
        let change = json!({
            "jwksKeyRef": { "name": "issuers", "key": "keys" },
            "slurmdbd": { "image": "slurmdbd:26.05", "args": ["-vv"], "fieldOfTomorrow": true },
            "template": {
                "metadata": { "labels": { "tier": "db" }, "annotations": { "a": "1" } },
                "spec": { "nodeSelector": { "n": "1" } },
            },
        });
        insta::assert_yaml_snapshot!(build(&change, "conf", "slurm", "jwt"));
    }

    #[test]
    fn changed_config_or_key_changes_the_pod_template() {
        let template = |config: &str, slurm_key: &str, jwt_key: &str| {
            build(&json!({}), config, slurm_key, jwt_key).as_json()["spec"]["template"].clone()
        };
        let before = template("conf", "slurm", "jwt");
        assert_eq!(template("conf", "slurm", "jwt"), before);
        assert_ne!(template("other", "slurm", "jwt"), before);
        assert_ne!(template("conf", "other", "jwt"), before);
        assert_ne!(template("conf", "slurm", "other"), before);
    }

    #[test]
    fn hash_covers_all_values_of_a_secret() {
        let mut more = secret("a", "buzz");
        more.data.as_mut().unwrap().insert("b".to_owned(), crate::fixture::bytes("bar"));
        assert_eq!(hash_secret(&more), hash_secret(&secret("k", "buzzbar")));
    }

    #[test]
    fn error_of_an_ill_typed_override_names_the_field() {
        let accounting = accounting(&json!({ "slurmdbd": { "image": 5 } }));
        let keys = Keys { slurm: &Secret::default(), jwt: &Secret::default() };
        let error = build_stateful_set(&accounting, &Secret::default(), &keys, None).unwrap_err().to_string();
        assert!(error.starts_with("slurmdbd.image"), "{error}");
    }
}
