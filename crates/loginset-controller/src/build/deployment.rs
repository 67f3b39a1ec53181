//! The Deployment of the login pods.

use super::config::{AUTHORIZED_KEYS, SSHD_CONFIG};
use crate::host_keys::{HOST_KEYS, HostKey};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::parts::{
    PRIVATE, SLURM_CONFIG, SLURM_ETC, config_map_items, env, exec_probe, file_mount, initconf, item,
    memory_dir, mount, projected, read_only, secret_items, tcp_port,
};
use pod_builder::{
    BuildError, Containers, DNS_SEARCHES, Template, build_container, component_metadata,
    keep_running_template, pod_metadata, roll_on_change,
};
use serde_json::{Value, json};
use slinky_api::labels::{App, annotations, selector_labels};
use slinky_api::names::{self, SSH_PORT, service_fqdn};
use slinky_api::v1beta1::{Controller, LoginSet};

/// Mode of files that every user may read.
const PUBLIC: i32 = 0o644;

/// The directory of sackd's socket.
const SACKD_DIR: &str = "sackd-dir";
const SSH_HOST_KEYS: &str = "ssh-host-keys";
const SSH_CONFIG: &str = "ssh-config";
const SSSD: &str = "sssd-conf";
const SSSD_CONF: &str = "sssd.conf";

/// Hashes of the files that pods read at start. They are part of the pod template, so a changed file replaces the pods.
pub struct Hashes {
    /// Of the ssh host keys.
    pub host_keys: String,
    /// Of `sshd_config`.
    pub sshd_conf: String,
    /// Of sssd.conf.
    pub sssd_conf: String,
    /// Of the other files: root's `authorized_keys` and the key of the Slurm cluster.
    pub content: String,
}

/// Builds the Deployment, which has the name of the LoginSet, for the cluster of `controller`. An equivalent pod template
/// of `live` is kept, so that the pods are not replaced.
pub fn build_deployment(
    loginset: &LoginSet,
    controller: &Controller,
    hashes: Hashes,
    cluster_domain: &str,
    live: Option<&RawObject<Deployment>>,
) -> Result<RawObject<Deployment>, BuildError> {
    let user = loginset.spec.template.as_ref().and_then(|template| template.metadata.as_ref());
    let metadata = component_metadata(loginset, &loginset.name_any(), user);
    let content = hashes.content.clone();
    let template = build_pod(loginset, controller, hashes, cluster_domain, &metadata)?;
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": loginset.spec.replicas,
            "revisionHistoryLimit": 0,
            "selector": { "matchLabels": selector_labels(loginset) },
            "strategy": strategy(loginset),
            "template": template.to_value(),
        },
    });
    let live = live.map(RawObject::as_json);
    let deployment = roll_on_change(deployment, live, &content);
    Ok(RawObject::new(keep_running_template(deployment, live, crate::NAME))?)
}

/// The update strategy. A rolling update is written with all of its fields: defaults of the API server have no field
/// manager, so they would stay when the strategy is changed to `Recreate`, which the API server then rejects.
fn strategy(loginset: &LoginSet) -> Value {
    const DEFAULT: &str = "25%";
    let user = loginset.spec.strategy.as_ref().map(|strategy| json!(strategy)).unwrap_or_default();
    if user["type"] == "Recreate" {
        return user;
    }
    let number = |field: &str| {
        let chosen = &user["rollingUpdate"][field];
        if chosen.is_null() { json!(DEFAULT) } else { chosen.clone() }
    };
    json!({
        "type": user["type"].as_str().unwrap_or("RollingUpdate"),
        "rollingUpdate": { "maxSurge": number("maxSurge"), "maxUnavailable": number("maxUnavailable") },
    })
}

fn build_pod(
    loginset: &LoginSet,
    controller: &Controller,
    hashes: Hashes,
    cluster_domain: &str,
    workload: &ObjectMeta,
) -> Result<Template, BuildError> {
    let metadata = pod_metadata::<LoginSet>(
        workload,
        [
            (annotations::SSH_HOST_KEYS_HASH, hashes.host_keys),
            (annotations::SSHD_CONF_HASH, hashes.sshd_conf),
            (annotations::SSSD_CONF_HASH, hashes.sssd_conf),
        ],
    );
    let base = PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        volumes: Some(volumes(loginset, controller)),
        ..PodSpec::default()
    };
    let containers = Containers {
        init: vec![build_container("initconf", &initconf(), &loginset.spec.initconf)?],
        main: vec![build_login(loginset, controller)?],
    };
    let user = loginset.spec.template.clone().unwrap_or_default().spec;
    let mut template = Template::build(metadata, &base, containers, "template.spec", &user)?;
    // Workers are reached by their short names.
    let workers = names::controller::workers_service(&controller.name_any());
    let namespace = loginset.namespace().unwrap_or_default();
    template.require(DNS_SEARCHES, &service_fqdn(&workers, &namespace, cluster_domain));
    Ok(template)
}

fn build_login(loginset: &LoginSet, controller: &Controller) -> Result<Value, BuildError> {
    let base = Container {
        name: LoginSet::NAME.to_owned(),
        env: Some(vec![env("SACKD_OPTIONS", &format!("--conf-server {}", controller.config_server()?))]),
        ports: Some(vec![tcp_port(LoginSet::NAME, port(loginset))]),
        readiness_probe: Some(exec_probe(&["test", "-S", "/run/slurm/sack.socket"])),
        volume_mounts: Some(mounts()),
        ..Container::default()
    };
    Ok(build_container(LoginSet::NAME, &base, &loginset.spec.login)?)
}

/// The port of sshd: the user's last port with the component's name. Another number would add a second port.
fn port(loginset: &LoginSet) -> i32 {
    let ports = loginset.spec.login.as_value()["ports"].as_array();
    let chosen = ports.into_iter().flatten().rev().filter(|port| port["name"] == LoginSet::NAME);
    let mut numbers = chosen.filter_map(|port| i32::try_from(port["containerPort"].as_i64()?).ok());
    numbers.find(|number| *number != 0).unwrap_or(SSH_PORT)
}

fn volumes(loginset: &LoginSet, controller: &Controller) -> Vec<Volume> {
    let slurm_key = controller.spec.slurm_key_ref.clone().unwrap_or_default();
    let sssd_conf = &loginset.spec.sssd_conf_ref;
    let file = |name: &str, mode: i32| item(name, name, Some(mode));
    let host_keys = HOST_KEYS.iter().flat_map(|key| [file(key.private, PRIVATE), file(key.public, PUBLIC)]);
    let ssh_config = vec![file(SSHD_CONFIG, PRIVATE), file(AUTHORIZED_KEYS, PRIVATE)];
    let name = loginset.name_any();
    vec![
        memory_dir(SLURM_ETC),
        memory_dir(SACKD_DIR),
        projected(
            SLURM_CONFIG,
            PRIVATE,
            vec![secret_items(&slurm_key.name, vec![item(&slurm_key.key, "slurm.key", None)])],
        ),
        projected(
            SSH_HOST_KEYS,
            PRIVATE,
            vec![secret_items(&names::ssh_host_keys(&name), host_keys.collect())],
        ),
        projected(SSH_CONFIG, PRIVATE, vec![config_map_items(&names::ssh_config(&name), ssh_config)]),
        projected(
            SSSD,
            PRIVATE,
            vec![secret_items(&sssd_conf.name, vec![item(&sssd_conf.key, SSSD_CONF, Some(PRIVATE))])],
        ),
    ]
}

/// Single files are mounted among those of the image. The kubelet never updates such mounts: hashes replace the pods.
fn mounts() -> Vec<VolumeMount> {
    let in_etc_ssh = |volume, file: &str| file_mount(volume, file, &format!("/etc/ssh/{file}"));
    let directories = [read_only(mount(SLURM_ETC, "/etc/slurm")), mount(SACKD_DIR, "/run/slurm")];
    let host_keys = HOST_KEYS.iter().flat_map(HostKey::files).map(|file| in_etc_ssh(SSH_HOST_KEYS, file));
    let configuration = [
        in_etc_ssh(SSH_CONFIG, SSHD_CONFIG),
        file_mount(SSH_CONFIG, AUTHORIZED_KEYS, "/root/.ssh/authorized_keys"),
        file_mount(SSSD, SSSD_CONF, "/etc/sssd/sssd.conf"),
    ];
    directories.into_iter().chain(host_keys).chain(configuration).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{controller, loginset};
    use rstest::rstest;

    fn build(change: &Value) -> Result<Value, BuildError> {
        let hashes = Hashes {
            host_keys: "h1".to_owned(),
            sshd_conf: "h2".to_owned(),
            sssd_conf: "h3".to_owned(),
            content: "h4".to_owned(),
        };
        let deployment = build_deployment(&loginset(change), &controller(), hashes, "cluster.test", None)?;
        Ok(deployment.as_json().clone())
    }

    #[test]
    fn deployment() {
        insta::assert_yaml_snapshot!(build(&json!({ "replicas": 3 })).unwrap());
    }

    #[test]
    fn user_overrides_are_merged_over_the_defaults() {
        let deployment = build(&json!({
            "login": { "image": "login:26.05", "fieldOfTomorrow": true, "env": [{ "name": "A", "value": "b" }] },
            "template": {
                "metadata": { "labels": { "l": "1" }, "annotations": { "a": "1" } },
                "spec": { "hostname": "front", "dnsConfig": { "searches": ["example.test"] } },
            },
        }))
        .unwrap();
        let template = &deployment["spec"]["template"];
        let login = &template["spec"]["containers"][0];
        assert_eq!(login["fieldOfTomorrow"], true);
        assert_eq!(
            (&login["env"][0]["name"], &login["env"][1]["name"]),
            (&json!("A"), &json!("SACKD_OPTIONS"))
        );
        assert_eq!(template["spec"]["hostname"], "front");
        // The user's list does not remove the search domain of the workers.
        let searches = json!(["example.test", "slurm-workers-slurm.ns.svc.cluster.test"]);
        assert_eq!(template["spec"]["dnsConfig"]["searches"], searches);
        for metadata in [&deployment["metadata"], &template["metadata"]] {
            assert_eq!((&metadata["labels"]["l"], &metadata["annotations"]["a"]), (&json!("1"), &json!("1")));
        }
    }

    #[rstest]
    #[case::default(json!([]), json!([{ "name": "login", "containerPort": 22, "protocol": "TCP" }]))]
    #[case::other_number(
        json!([{ "name": "login", "containerPort": 2222 }]),
        json!([{ "name": "login", "containerPort": 2222, "protocol": "TCP" }])
    )]
    #[case::zero(
        json!([{ "name": "login", "containerPort": 0 }]),
        json!([{ "name": "login", "containerPort": 0 }, { "name": "login", "containerPort": 22, "protocol": "TCP" }])
    )]
    #[case::other_name(
        json!([{ "name": "web", "containerPort": 80 }]),
        json!([{ "name": "web", "containerPort": 80 }, { "name": "login", "containerPort": 22, "protocol": "TCP" }])
    )]
    fn port_of_the_component_takes_the_number_of_the_users_port(
        #[case] written: Value,
        #[case] expected: Value,
    ) {
        let deployment = build(&json!({ "login": { "image": "login:26.05", "ports": written } })).unwrap();
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["ports"], expected);
    }

    #[rstest]
    #[case::default(json!(null), json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } }))]
    #[case::one_field(
        json!({ "rollingUpdate": { "maxUnavailable": 0 } }),
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 0 } })
    )]
    #[case::recreate(json!({ "type": "Recreate" }), json!({ "type": "Recreate" }))]
    fn strategy_of_the_user_is_completed_with_defaults(#[case] written: Value, #[case] expected: Value) {
        let deployment = build(&json!({ "strategy": written })).unwrap();
        assert_eq!(deployment["spec"]["strategy"], expected);
    }

    #[rstest]
    #[case::login(json!({ "login": { "image": 5 } }), "login.image")]
    #[case::initconf(json!({ "initconf": { "env": { "A": "b" } } }), "initconf.env")]
    #[case::template(json!({ "template": { "spec": { "nodeSelector": ["a"] } } }), "template.spec.nodeSelector")]
    fn error_of_an_ill_typed_override_names_the_field(#[case] change: Value, #[case] field: &str) {
        let error = build(&change).unwrap_err().to_string();
        assert!(error.starts_with(field), "{error}");
    }

    #[test]
    fn sackd_fetches_the_configuration_of_an_external_cluster_from_its_address() {
        let mut controller = controller();
        controller.spec.external = true;
        controller.spec.external_config =
            serde_json::from_value(json!({ "host": "ctl.example", "port": 7000 })).unwrap();
        let login = build_login(&loginset(&json!({})), &controller).unwrap();
        assert_eq!(login["env"][0]["value"], "--conf-server ctl.example:7000");
        controller.spec.external_config =
            serde_json::from_value(json!({ "host": "h;reboot", "port": 7000 })).unwrap();
        let error = build_login(&loginset(&json!({})), &controller).unwrap_err().to_string();
        assert!(error.contains("externalConfig.host"), "{error}");
    }
}
