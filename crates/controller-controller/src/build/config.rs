//! The ConfigMap with the configuration of slurmctld, which serves it to all other daemons.

use super::configuration::Configuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pod_builder::{child_metadata, merge_annotations, merge_labels};
use slinky_api::labels::common_labels;
use slinky_api::names::{self, SLURMDBD_PORT, service_host};
use slinky_api::v1beta1::{Accounting, Controller, LocalObjectReference, NodeSet};
use slurm_conf::check::{Severity, check_slurm_conf};
use slurm_conf::{
    AccountingAddress, ConfLine, ConfName, ConfValue, ControllerHost, ExternalSlurmConf, SlurmConf,
    ValueError, is_equivalent, partition_names, render_cgroup_conf,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const SLURM_CONF: &str = "slurm.conf";
pub(super) const CGROUP_CONF: &str = "cgroup.conf";

/// The partition name that sets the default options of all partitions.
const DEFAULT_PARTITION: &str = "default";

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
}

/// A configuration, and findings about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The files.
    pub files: Files,
    /// NodeSets that cannot be configured as their spec says, and why.
    pub refused_node_sets: Vec<String>,
    /// Findings that Slurm accepts.
    pub warnings: Vec<String>,
}

/// Why the configuration cannot be rendered. Only an edit helps.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value cannot be written in the syntax of slurm.conf.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// slurmctld would not start with the configuration.
    #[error("slurmctld would refuse slurm.conf: {0}")]
    Refused(String),
}

/// Renders the generated files. One that is equivalent to the file in force is returned as it is in force.
pub fn render(controller: &Controller, sources: &Sources<'_>) -> Result<Rendered, ConfigError> {
    let accounting = sources.accounting.map(accounting_address).transpose()?;
    if controller.spec.external {
        let text = render_external(controller, accounting)?;
        let files = kept_if_equal(one_file(text), sources.in_force);
        return Ok(Rendered { files, refused_node_sets: vec![], warnings: vec![] });
    }
    let extra_conf = controller.spec.extra_conf.clone().unwrap_or_default();
    let NodeSets { configured: node_sets, refused: refused_node_sets, leftovers } =
        node_sets(sources, &partition_names(&extra_conf));
    let scripts = |references: &Option<Vec<_>>| script_names(references.as_ref(), sources);
    let spec = &controller.spec;
    let conf = SlurmConf {
        cluster_name: ConfName::new("clusterName", &controller.cluster_name())?,
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
        node_sets,
        extra_conf,
    };
    let text = conf.render();
    let warnings = leftovers.into_iter().chain(check(&text)?).collect();
    let mut files = one_file(text);
    let is_supplied = referenced(spec.config_file_refs.as_ref(), sources)
        .any(|map| map.data.as_ref().is_some_and(|data| data.contains_key(CGROUP_CONF)));
    if !is_supplied {
        files.insert(CGROUP_CONF.to_owned(), render_cgroup_conf());
    }
    Ok(Rendered { files: kept_if_equal(files, sources.in_force), refused_node_sets, warnings })
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
) -> Result<String, ValueError> {
    let external = controller.spec.external_config.clone().unwrap_or_default();
    let conf = ExternalSlurmConf {
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
    u32::try_from(nodes).unwrap_or(u32::MAX).max(in_force.unwrap_or_default())
}

/// How many nodes a NodeSet may have at a time. With one worker per Kubernetes node, only its status has the number.
pub fn node_count(set: &NodeSet) -> i64 {
    let existing = set.status.as_ref().map_or(0, |status| status.replicas.max(status.desired));
    i64::from(set.spec.replicas.max(existing).max(0))
}

/// The NodeSets in a configuration.
#[derive(Default)]
struct NodeSets {
    /// The node sets of slurm.conf, by the name of their NodeSet.
    configured: BTreeMap<String, slurm_conf::NodeSet>,
    /// Why the other NodeSets cannot be configured.
    refused: Vec<String>,
    /// Partitions that stay although no NodeSet wants them any more.
    leftovers: Vec<String>,
}

/// Configures the NodeSets.
///
/// A NodeSet that cannot be configured must not block the others, and must not lose the partition that its jobs run in,
/// so it keeps its lines of the configuration in force.
fn node_sets(sources: &Sources<'_>, user_partitions: &BTreeSet<String>) -> NodeSets {
    let (mut sets, mut taken) = (NodeSets::default(), BTreeSet::new());
    let mut by_age: Vec<&Arc<NodeSet>> = sources.node_sets.iter().collect();
    by_age.sort_by_key(|set| (set.metadata.creation_timestamp.clone(), set.name_any()));
    for set in by_age {
        let (object, name) = (set.name_any(), set.slurm_name());
        if !taken.insert(name.clone()) {
            sets.refused
                .push(format!("NodeSet {object}: another NodeSet already has the name {name:?} in Slurm"));
            continue;
        }
        let configured = configure(set, &name).or_else(|problem| {
            sets.refused.push(format!("NodeSet {object}: {problem}"));
            in_force(&name, sources.in_force).ok_or(())
        });
        let Ok(mut configured) = configured else { continue };
        let is_unwanted = configured.partition.is_none() || set.metadata.deletion_timestamp.is_some();
        if is_unwanted && !user_partitions.contains(&name) {
            configured.partition = leftover_partition(set, &name, sources.in_force);
            if configured.partition.is_some() {
                sets.leftovers.push(format!(
                    "NodeSet {object}: partition {name} accepts no new jobs and is removed when no job record names it"
                ));
            }
        }
        sets.configured.insert(object, configured);
    }
    sets
}

/// A partition that its NodeSet does not want any more, closed to new jobs; `None` once it may be removed. slurmctld ends
/// jobs whose partition is removed from slurm.conf, so it stays until its NodeSet reports that no job record names it.
fn leftover_partition(set: &NodeSet, name: &str, files: Option<&Files>) -> Option<ConfLine> {
    let partition = in_force(name, files)?.partition?;
    let closed = partition.closed_to_new_jobs();
    let is_closed = is_equivalent(partition.as_ref(), closed.as_ref());
    let is_removable = set.releases_partition() && is_closed;
    (!is_removable).then_some(closed)
}

/// The node set of slurm.conf for a NodeSet, or why there is none.
fn configure(set: &NodeSet, name: &str) -> Result<slurm_conf::NodeSet, String> {
    let partition = set.spec.enabled_partition();
    if partition.is_some() && name.eq_ignore_ascii_case(DEFAULT_PARTITION) {
        return Err(format!(
            "a partition cannot be named {name:?}: slurm.conf uses that name for the defaults of all partitions"
        ));
    }
    let options = partition.map(|partition| partition.config.as_deref().unwrap_or_default());
    let options = options.map(|options| ConfLine::new("partition.config", options)).transpose();
    Ok(slurm_conf::NodeSet {
        name: ConfName::new("template.spec.hostname", name).map_err(|error| error.to_string())?,
        partition: options.map_err(|error| error.to_string())?,
    })
}

/// A node set of the configuration in force.
fn in_force(name: &str, files: Option<&Files>) -> Option<slurm_conf::NodeSet> {
    slurm_conf::node_sets_in_file(files?.get(SLURM_CONF)?).remove(name)
}

/// Warnings about a slurm.conf; an error if slurmctld would not start with it.
fn check(text: &str) -> Result<Vec<String>, ConfigError> {
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
