//! The Deployment of the login pods.

use super::config::{AUTHORIZED_KEYS, SSHD_CONFIG};
use crate::host_keys::{HOST_KEYS, HostKey};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::parts::{
    SLURM_CONFIG, SLURM_ETC, config_map_items, exec_probe, file_mount, initconf, item, memory_dir, mount,
    projected, read_only, secret_items,
};
use pod_builder::{
    BuildError, Containers, DNS_SEARCHES, Template, build_container, child_metadata, keep_running_template,
    merge_annotations, merge_labels, pod_metadata, roll_on_change,
};
use serde_json::{Value, json};
use slinky_api::labels::{App, annotations, common_labels, selector_labels};
use slinky_api::names::{self, SSH_PORT, service_fqdn};
use slinky_api::v1beta1::{Controller, LoginSet};

/// Mode of files that only their reader may see.
const PRIVATE: i32 = 0o600;
/// Mode of files that everybody may see.
const PUBLIC: i32 = 0o644;

/// The directory of sackd's socket.
const SACKD_DIR: &str = "sackd-dir";
const SSH_HOST_KEYS: &str = "ssh-host-keys";
const SSH_CONFIG: &str = "ssh-config";
const SSSD: &str = "sssd-conf";
const SSSD_CONF: &str = "sssd.conf";

/// What the pods read at start, as hashes on their template: another file makes other pods.
pub struct Hashes {
    /// Of the ssh host keys.
    pub host_keys: String,
    /// Of `sshd_config`.
    pub sshd_conf: String,
    /// Of sssd.conf.
    pub sssd_conf: String,
    /// Of what else they read: the keys of those who may log in as root, and that of the Slurm cluster.
    pub content: String,
}

/// The Deployment of the LoginSet's own name, for the cluster of `controller`. Pods of `live` that mean the same keep
/// running.
pub fn build_deployment(
    loginset: &LoginSet,
    controller: &Controller,
    hashes: Hashes,
    cluster_domain: &str,
    live: Option<&RawObject<Deployment>>,
) -> Result<RawObject<Deployment>, BuildError> {
    let user =
        loginset.spec.template.as_ref().and_then(|template| template.metadata.clone()).unwrap_or_default();
    let metadata = child_metadata(
        loginset,
        &loginset.name_any(),
        merge_labels([Some(loginset.labels()), user.labels.as_ref(), Some(&common_labels(loginset))]),
        merge_annotations([Some(loginset.annotations()), user.annotations.as_ref()]),
    );
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

/// How pods are replaced. A rolling update has all of its numbers: those that Kubernetes fills in belong to nobody, and
/// would stand in the way of another strategy later.
fn strategy(loginset: &LoginSet) -> Value {
    const STOCK: &str = "25%";
    let user = loginset.spec.strategy.as_ref().map(|strategy| json!(strategy)).unwrap_or_default();
    if user["type"] == "Recreate" {
        return user;
    }
    let number = |field: &str| {
        let chosen = &user["rollingUpdate"][field];
        if chosen.is_null() { json!(STOCK) } else { chosen.clone() }
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
    // So that the names of workers are enough to reach them.
    let workers = names::controller::workers_service(&controller.name_any());
    let namespace = loginset.namespace().unwrap_or_default();
    template.require(DNS_SEARCHES, &service_fqdn(&workers, &namespace, cluster_domain));
    Ok(template)
}

fn build_login(loginset: &LoginSet, controller: &Controller) -> Result<Value, BuildError> {
    let base = Container {
        name: LoginSet::NAME.to_owned(),
        env: Some(vec![EnvVar {
            name: "SACKD_OPTIONS".to_owned(),
            value: Some(format!("--conf-server {}", controller.config_server())),
            value_from: None,
        }]),
        ports: Some(vec![ContainerPort {
            name: Some(LoginSet::NAME.to_owned()),
            container_port: port(loginset),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        readiness_probe: Some(exec_probe(&["test", "-S", "/run/slurm/sack.socket"])),
        volume_mounts: Some(mounts()),
        ..Container::default()
    };
    Ok(build_container(LoginSet::NAME, &base, &loginset.spec.login)?)
}

/// Where sshd listens: the user's last port of the name. Beside it the one of ours would be a second one.
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

/// Single files among those of the image, which never follow changes: hashes restart the pods instead.
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
    fn what_the_user_wrote_is_merged_in() {
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
        // The user's list would otherwise take the names of workers away.
        let searches = json!(["example.test", "slurm-workers-slurm.ns.svc.cluster.test"]);
        assert_eq!(template["spec"]["dnsConfig"]["searches"], searches);
        for metadata in [&deployment["metadata"], &template["metadata"]] {
            assert_eq!((&metadata["labels"]["l"], &metadata["annotations"]["a"]), (&json!("1"), &json!("1")));
        }
    }

    #[rstest]
    #[case::none(json!([]), json!([{ "name": "login", "containerPort": 22, "protocol": "TCP" }]))]
    #[case::moved(
        json!([{ "name": "login", "containerPort": 2222 }]),
        json!([{ "name": "login", "containerPort": 2222, "protocol": "TCP" }])
    )]
    #[case::no_number(
        json!([{ "name": "login", "containerPort": 0 }]),
        json!([{ "name": "login", "containerPort": 0 }, { "name": "login", "containerPort": 22, "protocol": "TCP" }])
    )]
    #[case::another(
        json!([{ "name": "web", "containerPort": 80 }]),
        json!([{ "name": "web", "containerPort": 80 }, { "name": "login", "containerPort": 22, "protocol": "TCP" }])
    )]
    fn sshd_listens_where_the_user_says(#[case] written: Value, #[case] expected: Value) {
        let deployment = build(&json!({ "login": { "image": "login:26.05", "ports": written } })).unwrap();
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["ports"], expected);
    }

    #[rstest]
    #[case::stock(json!(null), json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } }))]
    #[case::one_number(
        json!({ "rollingUpdate": { "maxUnavailable": 0 } }),
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 0 } })
    )]
    #[case::another(json!({ "type": "Recreate" }), json!({ "type": "Recreate" }))]
    fn the_strategy_is_the_users(#[case] written: Value, #[case] expected: Value) {
        let deployment = build(&json!({ "strategy": written })).unwrap();
        assert_eq!(deployment["spec"]["strategy"], expected);
    }

    #[rstest]
    #[case::login(json!({ "login": { "image": 5 } }), "login.image")]
    #[case::initconf(json!({ "initconf": { "env": { "A": "b" } } }), "initconf.env")]
    #[case::template(json!({ "template": { "spec": { "nodeSelector": ["a"] } } }), "template.spec.nodeSelector")]
    fn an_ill_typed_override_names_its_field(#[case] change: Value, #[case] field: &str) {
        let error = build(&change).unwrap_err().to_string();
        assert!(error.starts_with(field), "{error}");
    }

    #[test]
    fn an_external_cluster_is_asked_for_its_configuration_where_it_is() {
        let mut controller = controller();
        controller.spec.external = true;
        controller.spec.external_config =
            serde_json::from_value(json!({ "host": "ctl.example", "port": 7000 })).unwrap();
        let login = build_login(&loginset(&json!({})), &controller).unwrap();
        assert_eq!(login["env"][0]["value"], "--conf-server ctl.example:7000");
    }
}
