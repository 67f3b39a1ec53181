//! The pod template of a NodeSet. Built once; each pod adds its name, hostname and node.

use super::claims::claim_templates;
use super::error::BuildError;
use super::slurmd_container::build_slurmd;
use super::ssh_config::SSHD_CONFIG;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodAffinityTerm, PodSpec, Toleration, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use kube::ResourceExt;
use pod_builder::parts::{
    LOG_FILES, PRIVATE, SLURM_ETC, config_map_items, item, logfile, memory_dir, projected, secret_items,
};
use pod_builder::{
    Containers, DNS_SEARCHES, REQUIRED_ANTI_AFFINITY, TOLERATIONS, Template, build_container, child_metadata,
    merge_annotations, merge_labels, pod_metadata,
};
use serde_json::Value;
use slinky_api::labels::{APP_NAME, App, WORKER_TAINT, annotations, worker_labels};
use slinky_api::names::{self, service_fqdn};
use slinky_api::ownership::retaining_reference;
use slinky_api::v1beta1::{Controller, NodeSet, ScalingMode};

const SLURMD_LOG: &str = "/var/log/slurm/slurmd.log";
pub(super) const SSH_CONFIG: &str = "ssh-config";
pub(super) const SSSD: &str = "sssd-conf";
pub(super) const SSSD_CONF: &str = "sssd.conf";

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
    let mut metadata = metadata(nodeset, hashes);
    // So that a foreground deletion of the NodeSet does not delete the workers at once.
    metadata.owner_references.get_or_insert_default().extend(retaining_reference(controller));
    let mut template = Template::build(metadata, &base, containers, "template.spec", &user)?;
    let namespace = nodeset.namespace().unwrap_or_default();
    template.require(DNS_SEARCHES, &service_fqdn(&workers, &namespace, cluster_domain));
    template.require(TOLERATIONS, &worker_toleration());
    if spec.scaling_mode == ScalingMode::DaemonSet {
        template.require(TOLERATIONS, &cordon_toleration());
    }
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

/// As the pods of a Kubernetes DaemonSet have it: a worker that ended on a cordoned node comes back to it, and is drained in
/// Slurm while the cordon lasts.
fn cordon_toleration() -> Toleration {
    Toleration {
        key: Some("node.kubernetes.io/unschedulable".to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
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

#[cfg(test)]
mod tests;
