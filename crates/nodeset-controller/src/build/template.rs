//! The pod template of a NodeSet. Built once; each pod adds its name, hostname and node.

use super::claims::claim_templates;
use super::error::BuildError;
use super::pre_stop::pre_stop;
use super::ssh_config::SSHD_CONFIG;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, Lifecycle, ObjectFieldSelector,
    PersistentVolumeClaim, PodAffinityTerm, PodSpec, SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use kube::ResourceExt;
use pod_builder::parts::{
    LOG_FILES, SLURM_ETC, config_map_items, file_mount, http_probe, item, logfile, memory_dir, mount,
    projected, read_only, secret_items, with_one_minute_threshold,
};
use pod_builder::{
    Containers, DNS_SEARCHES, REQUIRED_ANTI_AFFINITY, TOLERATIONS, Template, build_container, child_metadata,
    effective_limits, merge_annotations, merge_labels, pod_metadata,
};
use serde_json::Value;
use slinky_api::labels::{APP_NAME, App, WORKER_TAINT, annotations, worker_labels};
use slinky_api::names::{self, SLURMD_PORT, SSH_PORT, service_fqdn};
use slinky_api::v1beta1::{Controller, NodeSet, Ssh};
use slurm_conf::{ConfName, ExtraItems, slurmd_args};

/// Mode of files with credentials.
const PRIVATE: i32 = 0o600;
const SLURMD_LOG: &str = "/var/log/slurm/slurmd.log";
const SSH_CONFIG: &str = "ssh-config";
const SSSD: &str = "sssd-conf";
const SSSD_CONF: &str = "sssd.conf";
/// Capabilities with which slurmd confines jobs and limits their resources.
const CAPABILITIES: &[&str] = &["BPF", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE"];

/// Hashes of the files that pods read at start. They are annotations for people: a change does not replace running pods.
#[derive(Clone, Debug)]
pub struct Hashes {
    /// Of `sshd_config`.
    pub sshd_conf: String,
    /// Of sssd.conf.
    pub sssd_conf: String,
}

/// The pod template of a NodeSet.
#[derive(Clone, Debug)]
pub struct WorkerTemplate {
    /// Metadata without a name.
    pub(super) metadata: ObjectMeta,
    /// The spec, merged with the user's template.
    pub(super) spec: Value,
    typed: PodSpec,
    claims: Vec<PersistentVolumeClaim>,
}

impl WorkerTemplate {
    /// The typed spec, with the fields that decide which Kubernetes nodes fit.
    pub fn pod_spec(&self) -> &PodSpec {
        &self.typed
    }

    /// The claim templates.
    pub fn claims(&self) -> &[PersistentVolumeClaim] {
        &self.claims
    }
}

/// The pod template of a NodeSet in the cluster of `controller`.
pub fn build_template(
    nodeset: &NodeSet,
    controller: &Controller,
    hashes: Hashes,
    cluster_domain: &str,
) -> Result<WorkerTemplate, BuildError> {
    let spec = &nodeset.spec;
    let workers = names::controller::workers_service(&controller.name_any());
    let base = PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        subdomain: Some(workers.clone()),
        volumes: Some(volumes(nodeset, controller)),
        ..PodSpec::default()
    };
    let containers = Containers {
        init: vec![build_container("logfile", &logfile(SLURMD_LOG), &spec.logfile)?],
        main: vec![build_slurmd(nodeset, controller)?],
    };
    let user = spec.template.clone().unwrap_or_default().spec;
    let metadata = metadata(nodeset, hashes);
    let mut template = Template::build(metadata, &base, containers, "template.spec", &user)?;
    let namespace = nodeset.namespace().unwrap_or_default();
    template.require(DNS_SEARCHES, &service_fqdn(&workers, &namespace, cluster_domain));
    template.require(TOLERATIONS, &worker_toleration());
    if !spec.oversubscribe_node {
        template.require(REQUIRED_ANTI_AFFINITY, &one_worker_per_node());
    }
    // The scheduler places every worker; `nodeName` would bypass it.
    if let Some(fields) = template.spec.as_object_mut() {
        fields.remove("nodeName");
    }
    let typed = template.pod_spec()?;
    Ok(WorkerTemplate {
        metadata: template.metadata,
        spec: template.spec,
        typed,
        claims: claim_templates(nodeset)?,
    })
}

fn metadata(nodeset: &NodeSet, hashes: Hashes) -> ObjectMeta {
    let name = nodeset.name_any();
    let user =
        nodeset.spec.template.as_ref().and_then(|template| template.metadata.clone()).unwrap_or_default();
    let child = child_metadata(
        nodeset,
        &name,
        merge_labels([Some(nodeset.labels()), user.labels.as_ref(), Some(&worker_labels(nodeset))]),
        merge_annotations([Some(nodeset.annotations()), user.annotations.as_ref()]),
    );
    let pods = pod_metadata::<NodeSet>(
        &child,
        [(annotations::SSHD_CONF_HASH, hashes.sshd_conf), (annotations::SSSD_CONF_HASH, hashes.sssd_conf)],
    );
    ObjectMeta {
        name: None,
        generate_name: Some(format!("{name}-")),
        owner_references: child.owner_references,
        ..pods
    }
}

fn worker_toleration() -> Toleration {
    Toleration {
        key: Some(WORKER_TAINT.to_owned()),
        operator: Some("Equal".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    }
}

/// Each slurmd assumes that it has the whole Kubernetes node, so no two workers of any NodeSet share one.
fn one_worker_per_node() -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: APP_NAME.to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![NodeSet::NAME.to_owned()]),
            }]),
            match_labels: None,
        }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    }
}

fn build_slurmd(nodeset: &NodeSet, controller: &Controller) -> Result<Value, BuildError> {
    let spec = &nodeset.spec;
    // The name of the NodeSet itself is always valid in Slurm.
    let name = ConfName::new("template.spec.hostname", &nodeset.slurm_name())?;
    let extra = ExtraItems::parse(spec.extra_conf.as_deref().unwrap_or_default())?;
    let ssh = spec.enabled_ssh();
    let base = Container {
        name: NodeSet::NAME.to_owned(),
        args: Some(slurmd_args(&name, &controller.config_server(), &extra)),
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
    let number = |name: &str, number: u64| EnvVar {
        name: name.to_owned(),
        value: Some(number.to_string()),
        value_from: None,
    };
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
    Ok(vec![topology, number("POD_CPUS", limits.cpus), number("POD_MEMORY", limits.memory_mib)])
}

/// The ports of slurmd and sshd, unless the user's container has a port of that name: port names are unique in a
/// container.
fn ports(nodeset: &NodeSet) -> Vec<ContainerPort> {
    let named = nodeset.spec.slurmd.as_value()["ports"].as_array();
    let is_taken = |name: &str| named.into_iter().flatten().any(|port| port["name"] == name);
    let port = |name: &str, number: i32| ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let ssh = nodeset.spec.enabled_ssh().map(|_| ("ssh", SSH_PORT));
    let ours = [(NodeSet::NAME, SLURMD_PORT)].into_iter().chain(ssh);
    ours.filter(|(name, _)| !is_taken(name)).map(|(name, number)| port(name, number)).collect()
}

fn volumes(nodeset: &NodeSet, controller: &Controller) -> Vec<Volume> {
    let slurm_key = controller.spec.slurm_key_ref.clone().unwrap_or_default();
    let key = secret_items(&slurm_key.name, vec![item(&slurm_key.key, "slurm.key", None)]);
    let mut volumes = vec![projected(SLURM_ETC, PRIVATE, vec![key]), memory_dir(LOG_FILES)];
    if let Some(ssh) = nodeset.spec.enabled_ssh() {
        let config = vec![item(SSHD_CONFIG, SSHD_CONFIG, Some(PRIVATE))];
        let config = config_map_items(&names::ssh_config(&nodeset.name_any()), config);
        let sssd = &ssh.sssd_conf_ref;
        let sssd = secret_items(&sssd.name, vec![item(&sssd.key, SSSD_CONF, Some(PRIVATE))]);
        volumes.push(projected(SSH_CONFIG, PRIVATE, vec![config]));
        volumes.push(projected(SSSD, PRIVATE, vec![sssd]));
    }
    volumes
}

fn mounts(ssh: Option<&Ssh>) -> Vec<VolumeMount> {
    let mut mounts = vec![read_only(mount(SLURM_ETC, "/etc/slurm")), mount(LOG_FILES, "/var/log/slurm")];
    if ssh.is_some() {
        mounts.push(file_mount(SSH_CONFIG, SSHD_CONFIG, "/etc/ssh/sshd_config"));
        mounts.push(file_mount(SSSD, SSSD_CONF, "/etc/sssd/sssd.conf"));
    }
    mounts
}

#[cfg(test)]
mod tests;
