//! The container of slurmd: its arguments, environment, ports, probes and mounts.

use super::error::BuildError;
use super::pod_template::{SSH_CONFIG, SSSD, SSSD_CONF};
use super::pre_stop::pre_stop;
use super::ssh_config::SSHD_CONFIG;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, Lifecycle, ObjectFieldSelector,
    SecurityContext, VolumeMount,
};
use pod_builder::parts::{
    LOG_FILES, SLURM_ETC, env, file_mount, http_probe, mount, read_only, tcp_port, with_one_minute_threshold,
};
use pod_builder::{build_container, effective_limits};
use serde_json::Value;
use slinky_api::labels::{App, annotations};
use slinky_api::names::{SLURMD_PORT, SSH_PORT};
use slinky_api::v1beta1::{Controller, NodeSet, Ssh};
use slurm_conf::{ConfName, ExtraItems, slurmd_args};

/// Capabilities with which slurmd confines jobs and limits their resources.
const CAPABILITIES: &[&str] = &["BPF", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE"];

/// The container of slurmd.
pub fn build_slurmd(nodeset: &NodeSet, controller: &Controller) -> Result<Value, BuildError> {
    let spec = &nodeset.spec;
    // The name of the NodeSet itself is always valid in Slurm.
    let name = ConfName::new("template.spec.hostname", &nodeset.slurm_name())?;
    let extra = ExtraItems::parse(spec.extra_conf.as_deref().unwrap_or_default())?;
    let ssh = spec.enabled_ssh();
    let base = Container {
        name: NodeSet::NAME.to_owned(),
        args: Some(slurmd_args(&name, &controller.config_server()?, &extra)),
        env: Some(environment(nodeset)?),
        ports: Some(ports(nodeset)),
        startup_probe: Some(with_one_minute_threshold(http_probe("/livez", NodeSet::NAME))),
        liveness_probe: Some(with_one_minute_threshold(http_probe("/livez", NodeSet::NAME))),
        readiness_probe: Some(http_probe("/readyz", NodeSet::NAME)),
        security_context: Some(SecurityContext {
            privileged: Some(true),
            capabilities: Some(Capabilities {
                add: Some(CAPABILITIES.iter().map(|&name| name.to_owned()).collect()),
                drop: None,
            }),
            ..SecurityContext::default()
        }),
        lifecycle: Some(Lifecycle { pre_stop: Some(pre_stop()), ..Lifecycle::default() }),
        volume_mounts: Some(mounts(ssh)),
        ..Container::default()
    };
    Ok(build_container(NodeSet::NAME, &base, &spec.slurmd)?)
}

/// The topology of the node and the limits of the pod: slurmd sees the resources of the whole machine.
fn environment(nodeset: &NodeSet) -> Result<Vec<EnvVar>, BuildError> {
    let template = nodeset.spec.template.clone().unwrap_or_default();
    let (pod, slurmd) = (template.spec.as_value(), nodeset.spec.slurmd.as_value());
    let _ = effective_limits(&Value::Null, slurmd)
        .map_err(|limit| BuildError::Limit { field: "slurmd", limit })?;
    let limits =
        effective_limits(pod, slurmd).map_err(|limit| BuildError::Limit { field: "template.spec", limit })?;
    let topology = EnvVar {
        name: "SLINKY_TOPOLOGY".to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: format!("metadata.annotations['{}']", annotations::TOPOLOGY),
            }),
            ..EnvVarSource::default()
        }),
    };
    Ok(vec![
        topology,
        env("POD_CPUS", &limits.cpus.to_string()),
        env("POD_MEMORY", &limits.memory_mib.to_string()),
    ])
}

/// The ports of slurmd and sshd, unless the user's container has a port of that name: port names are unique in a
/// container.
fn ports(nodeset: &NodeSet) -> Vec<ContainerPort> {
    let named = nodeset.spec.slurmd.as_value()["ports"].as_array();
    let is_taken = |name: &str| named.into_iter().flatten().any(|port| port["name"] == name);
    let ssh = nodeset.spec.enabled_ssh().map(|_| ("ssh", SSH_PORT));
    let ours = [(NodeSet::NAME, SLURMD_PORT)].into_iter().chain(ssh);
    ours.filter(|(name, _)| !is_taken(name)).map(|(name, number)| tcp_port(name, number)).collect()
}

fn mounts(ssh: Option<&Ssh>) -> Vec<VolumeMount> {
    let mut mounts = vec![read_only(mount(SLURM_ETC, "/etc/slurm")), mount(LOG_FILES, "/var/log/slurm")];
    if ssh.is_some() {
        mounts.push(file_mount(SSH_CONFIG, SSHD_CONFIG, "/etc/ssh/sshd_config"));
        mounts.push(file_mount(SSSD, SSSD_CONF, "/etc/sssd/sssd.conf"));
    }
    mounts
}
