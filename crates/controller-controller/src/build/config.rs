//! The ConfigMap with the configuration of slurmctld, which serves it to all other daemons.

use super::configuration::Configuration;
use super::node_sets::{NodeSetPlan, RefusedNodeSets, plan_node_sets};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pod_builder::{child_metadata, merge_annotations, merge_labels};
use slinky_api::labels::common_labels;
use slinky_api::names::{self, InvalidHost, SLURMDBD_PORT, check_host, service_host};
use slinky_api::v1beta1::{
    Accounting, Controller, LocalObjectReference, MAX_BACKUPS, NodeSet, RefusedNodeSet,
};
use slurm_conf::check::{Severity, check_slurm_conf};
use slurm_conf::{
    AccountingAddress, ClusterNameError, ConfName, ConfValue, ControllerHost, ExternalSlurmConf, SlurmConf,
    ValueError, check_new_cluster_name, cluster_name_in_file, is_equivalent, partition_names,
    render_cgroup_conf,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const SLURM_CONF: &str = "slurm.conf";
pub(super) const CGROUP_CONF: &str = "cgroup.conf";

/// The most nodes that `MaxNodeCount` follows NodeSets to: slurmctld allocates memory for as many.
const MAX_CLUSTER_SIZE: u32 = 65_536;
/// The largest slurm.conf. A ConfigMap holds 1 MiB, names of files and metadata included.
const LARGEST_FILE: usize = 1_000_000;

/// Configuration files by name.
pub type Files = BTreeMap<String, String>;

/// The objects that a configuration is rendered from, besides the Controller.
pub struct Sources<'a> {
    /// The Accounting that the Controller refers to.
    pub accounting: Option<&'a Accounting>,
    /// The NodeSets of the cluster.
    pub node_sets: &'a [Arc<NodeSet>],
    /// The ConfigMaps that the Controller refers to.
    pub config_maps: &'a BTreeMap<String, ConfigMap>,
    /// The texts of the configuration in force.
    pub in_force: Option<&'a Files>,
    /// slurmctld runs or has run with the configuration in force, so that its state belongs to that cluster.
    pub has_state: bool,
    /// NodeSets that slurmctld refused, or may have refused.
    pub refusals: &'a RefusedNodeSets,
}

/// A configuration, and findings about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The files.
    pub files: Files,
    /// NodeSets that cannot be configured as their spec says, and why.
    pub refused_node_sets: Vec<RefusedNodeSet>,
    /// The lines of NodeSets that differ from those in force, by the name of the NodeSet.
    pub changed_node_sets: BTreeMap<String, String>,
    /// The files with all lines of NodeSets as they are in force.
    pub without_changed_node_sets: Files,
    /// A change of `clusterName` that has no effect, and why.
    pub ignored_name: Option<String>,
    /// Findings that Slurm accepts.
    pub warnings: Vec<String>,
}

impl Rendered {
    fn of(files: Files) -> Self {
        Self {
            files,
            refused_node_sets: vec![],
            changed_node_sets: BTreeMap::new(),
            without_changed_node_sets: Files::new(),
            ignored_name: None,
            warnings: vec![],
        }
    }
}

/// Why the configuration cannot be rendered. Only an edit helps.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value cannot be written in the syntax of slurm.conf.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The address of an external slurmctld.
    #[error(transparent)]
    Host(#[from] InvalidHost),
    /// The name of the cluster is too long, or Slurm releases mishandle it.
    #[error(transparent)]
    ClusterName(#[from] ClusterNameError),
    /// There are more backups than allowed.
    #[error("ha.backups is {0}, more than the {MAX_BACKUPS} that are possible")]
    Backups(i32),
    /// The file does not fit into a ConfigMap.
    #[error("slurm.conf would have {0} bytes, more than the {LARGEST_FILE} that fit into a ConfigMap")]
    Size(usize),
    /// slurmctld would not start with the configuration.
    #[error("slurmctld would refuse slurm.conf: {0}")]
    Refused(String),
}

/// Renders the generated files. One that is equivalent to the file in force is returned as it is in force.
pub fn render(controller: &Controller, sources: &Sources<'_>) -> Result<Rendered, ConfigError> {
    let accounting = sources.accounting.map(accounting_address).transpose()?;
    if controller.spec.external {
        let text = render_external(controller, accounting)?;
        return Ok(Rendered::of(kept_if_equal(one_file(text), sources.in_force)));
    }
    let extra_conf = controller.spec.extra_conf.clone().unwrap_or_default();
    let user_partitions = partition_names(&extra_conf);
    let scripts = |references: &Option<Vec<_>>| script_names(references.as_ref(), sources);
    let spec = &controller.spec;
    if let Some(ha) = spec.ha.as_ref().filter(|ha| ha.enabled && ha.backups > MAX_BACKUPS) {
        return Err(ConfigError::Backups(ha.backups));
    }
    let (cluster_name, ignored_name) = cluster_name(controller, sources)?;
    let conf = SlurmConf {
        cluster_name,
        controllers: (0..spec.daemons())
            .map(|ordinal| controller_host(controller, ordinal))
            .collect::<Result<_, _>>()?,
        controller_address: ConfValue::new("metadata.name", &client_host(controller))?,
        cluster_size: cluster_size(sources),
        jwks: spec.jwks_key_ref.is_some(),
        metrics: spec.metrics.as_ref().is_some_and(|metrics| metrics.enabled),
        accounting,
        prolog_slurmctld: scripts(&spec.prolog_slurmctld_script_refs)?,
        epilog_slurmctld: scripts(&spec.epilog_slurmctld_script_refs)?,
        prolog: scripts(&spec.prolog_script_refs)?,
        epilog: scripts(&spec.epilog_script_refs)?,
        node_sets: BTreeMap::new(),
        extra_conf,
    };
    let text_with = |node_sets| SlurmConf { node_sets, ..conf.clone() }.render();
    let NodeSetPlan { configured, unchanged, changed, refused, leftovers } =
        plan_node_sets(sources, &user_partitions, |node_sets| check(&text_with(node_sets)).map(drop))?;
    let is_supplied = referenced(spec.config_file_refs.as_ref(), sources)
        .any(|map| map.data.as_ref().is_some_and(|data| data.contains_key(CGROUP_CONF)));
    let files_of = |text| {
        let mut files = one_file(text);
        if !is_supplied {
            files.insert(CGROUP_CONF.to_owned(), render_cgroup_conf());
        }
        files
    };
    let text = text_with(configured);
    let warnings = leftovers.into_iter().chain(check(&text)?).collect();
    Ok(Rendered {
        files: kept_if_equal(files_of(text), sources.in_force),
        refused_node_sets: refused,
        changed_node_sets: changed,
        without_changed_node_sets: kept_if_equal(files_of(text_with(unchanged)), sources.in_force),
        ignored_name,
        warnings,
    })
}

/// The name of the cluster, and why it is not the one of the spec. slurmctld ends if its state belongs to another cluster, so
/// the name in force stays.
fn cluster_name(
    controller: &Controller,
    sources: &Sources<'_>,
) -> Result<(ConfName, Option<String>), ConfigError> {
    let desired = controller.cluster_name();
    let in_force = sources.in_force.and_then(|files| cluster_name_in_file(files.get(SLURM_CONF)?));
    if in_force.as_ref() == Some(&desired) {
        return Ok((ConfName::new("clusterName", &desired)?, None));
    }
    if let Some(name) = in_force.filter(|_| sources.has_state) {
        let message = format!(
            "clusterName cannot change from {name:?} to {desired:?}, because slurmctld's state belongs to {name:?}: \
             change it back, or create another Controller"
        );
        return Ok((ConfName::new("clusterName", &name)?, Some(message)));
    }
    check_new_cluster_name(&desired)?;
    Ok((ConfName::new("clusterName", &desired)?, None))
}

/// The ConfigMap `<name>-config` with a configuration, and with annotations that record what is known about it.
pub fn build_config(
    controller: &Controller,
    configuration: &Configuration,
    records: impl IntoIterator<Item = (&'static str, String)>,
) -> ConfigMap {
    // An external cluster has no pods, so the metadata of the pod template applies to its only child.
    let template = controller.spec.template.clone().unwrap_or_default().metadata.unwrap_or_default();
    let (labels, annotations) = if controller.spec.external {
        (template.labels.as_ref(), template.annotations.as_ref())
    } else {
        (Some(controller.labels()), Some(controller.annotations()))
    };
    let mut annotations = merge_annotations([annotations]);
    annotations.extend(records.into_iter().map(|(key, record)| (key.to_owned(), record)));
    let (data, binary_data) = configuration.to_data();
    ConfigMap {
        metadata: child_metadata(
            controller,
            &names::controller::config(&controller.name_any()),
            merge_labels([labels, Some(&common_labels(controller))]),
            annotations,
        ),
        data: Some(data),
        binary_data,
        immutable: Some(false),
    }
}

fn render_external(
    controller: &Controller,
    accounting: Option<AccountingAddress>,
) -> Result<String, ConfigError> {
    let external = controller.spec.external_config.clone().unwrap_or_default();
    check_host(&external.host)?;
    let conf = ExternalSlurmConf {
        // It is what it is: the operator does not run that cluster.
        cluster_name: ConfName::new("clusterName", &controller.cluster_name())?,
        host: ConfValue::new("externalConfig.host", &external.host)?,
        port: port(external.port),
        accounting,
    };
    Ok(conf.render())
}

fn one_file(text: String) -> Files {
    Files::from([(SLURM_CONF.to_owned(), text)])
}

/// The schema refuses ports out of range; one that was stored before makes an unusable address.
fn port(number: i64) -> u16 {
    u16::try_from(number).unwrap_or_default()
}

fn client_host(controller: &Controller) -> String {
    let service = names::controller::workload(&controller.name_any());
    service_host(&service, &controller.namespace().unwrap_or_default())
}

fn controller_host(controller: &Controller, ordinal: i32) -> Result<ControllerHost, ValueError> {
    let (name, namespace) = (controller.name_any(), controller.namespace().unwrap_or_default());
    let pod = names::controller::pod(&name, ordinal);
    let address = service_host(&format!("{pod}.{}", names::controller::internal_service(&name)), &namespace);
    Ok(ControllerHost {
        name: ConfName::new("metadata.name", &pod)?,
        address: ConfName::new("metadata.name", &address)?,
    })
}

fn accounting_address(accounting: &Accounting) -> Result<AccountingAddress, ValueError> {
    let spec = &accounting.spec;
    if let Some(external) = spec.external_config.as_ref().filter(|_| spec.external) {
        let field = format!("Accounting {}: externalConfig.host", accounting.name_any());
        let host = ConfValue::new(&field, &external.host)?;
        return Ok(AccountingAddress { host, port: port(external.port) });
    }
    let chosen = spec.service.as_ref().and_then(|service| service.port).filter(|port| *port != 0);
    Ok(AccountingAddress {
        host: ConfValue::new("accountingRef", &names::accounting::workload(&accounting.name_any()))?,
        port: port(chosen.unwrap_or_else(|| SLURMDBD_PORT.into())),
    })
}

fn referenced<'a>(
    references: Option<&Vec<LocalObjectReference>>,
    sources: &Sources<'a>,
) -> impl Iterator<Item = &'a ConfigMap> {
    references.into_iter().flatten().filter_map(|reference| sources.config_maps.get(&reference.name))
}

fn script_names(
    references: Option<&Vec<LocalObjectReference>>,
    sources: &Sources<'_>,
) -> Result<Vec<ConfName>, ValueError> {
    let maps = referenced(references, sources);
    maps.flat_map(|map| map.data.iter().flatten())
        .map(|(file, _)| ConfName::new("the name of a script", file))
        .collect()
}

/// The number of desired and existing nodes. It never shrinks: Slurm may still have records of deleted nodes.
fn cluster_size(sources: &Sources<'_>) -> u32 {
    let nodes: i64 = sources.node_sets.iter().map(|set| node_count(set)).sum();
    let in_force = sources.in_force.and_then(|files| files.get(SLURM_CONF)).and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix("MaxNodeCount="))?.trim().parse::<u32>().ok()
    });
    let nodes = u32::try_from(nodes).unwrap_or(MAX_CLUSTER_SIZE).min(MAX_CLUSTER_SIZE);
    nodes.max(in_force.unwrap_or_default())
}

/// How many nodes a NodeSet may have at a time. With one worker per Kubernetes node, only its status has the number.
pub fn node_count(set: &NodeSet) -> i64 {
    let existing = set.status.as_ref().map_or(0, |status| status.replicas.max(status.desired));
    i64::from(set.spec.replicas.max(existing).max(0))
}

/// Warnings about a slurm.conf; an error if slurmctld would not start with it.
fn check(text: &str) -> Result<Vec<String>, ConfigError> {
    if text.len() > LARGEST_FILE {
        return Err(ConfigError::Size(text.len()));
    }
    let (errors, warnings): (Vec<_>, Vec<_>) =
        check_slurm_conf(text).into_iter().partition(|finding| finding.severity == Severity::Error);
    let describe = |findings: Vec<slurm_conf::check::Finding>| -> Vec<String> {
        findings.iter().map(|finding| format!("line {}: {}", finding.line, finding.message)).collect()
    };
    if errors.is_empty() {
        Ok(describe(warnings))
    } else {
        Err(ConfigError::Refused(describe(errors).join("; ")))
    }
}

fn kept_if_equal(files: Files, in_force: Option<&Files>) -> Files {
    let kept = |name: &str, text: String| {
        let current = in_force.and_then(|files| files.get(name));
        current.filter(|current| is_equivalent(&text, current)).cloned().unwrap_or(text)
    };
    files.into_iter().map(|(name, text)| (name.clone(), kept(&name, text))).collect()
}

#[cfg(test)]
mod tests;
