//! slurm.conf: complete for a slurmctld that the operator runs, minimal for an external one.

use crate::merged::{Required, auth_options, write_merged};
use crate::text::{LogicalLine, Pair, logical_lines, pairs};
use crate::value::{ConfLine, ConfName, ConfValue};
use crate::writer::{EXTRA_SECTION, Writer, header};
use crate::{SLURMCTLD_PORT, SLURMD_PORT};
use std::collections::{BTreeMap, BTreeSet};

const SLURM_USER: &str = "slurm";
const SLURMCTLD_LOG: &str = "/var/log/slurm/slurmctld.log";

/// Lowest `MaxNodeCount`: the value in existing clusters.
const MIN_NODE_COUNT: u32 = 1024;

/// All inputs of a cluster's slurm.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmConf {
    /// Name of the cluster; also names the directory with slurmctld's state.
    pub cluster_name: ConfName,
    /// The slurmctld daemons: the primary first, then its backups.
    pub controllers: Vec<ControllerHost>,
    /// Address of the active slurmctld, for clients.
    pub controller_address: ConfValue,
    /// How many nodes the cluster may have. `MaxNodeCount` is this, rounded up so that it rarely changes.
    pub cluster_size: u32,
    /// A JWKS file is mounted beside the JWT key.
    pub jwks: bool,
    /// slurmctld serves metrics.
    pub metrics: bool,
    /// The slurmdbd to account with, if any.
    pub accounting: Option<AccountingAddress>,
    /// Scripts that slurmctld runs before a job, in any order.
    pub prolog_slurmctld: Vec<ConfName>,
    /// Scripts that slurmctld runs after a job, in any order.
    pub epilog_slurmctld: Vec<ConfName>,
    /// Scripts that slurmd runs before a job, in any order.
    pub prolog: Vec<ConfName>,
    /// Scripts that slurmd runs after a job, in any order.
    pub epilog: Vec<ConfName>,
    /// The node sets by the name of their object, which determines their order.
    pub node_sets: BTreeMap<String, NodeSet>,
    /// The user's free text, copied verbatim.
    pub extra_conf: String,
}

/// One slurmctld daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerHost {
    /// Its host name.
    pub name: ConfName,
    /// Its address.
    pub address: ConfName,
}

/// Address of slurmdbd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountingAddress {
    /// Host name or address.
    pub host: ConfValue,
    /// Port.
    pub port: u16,
}

/// A set of worker nodes. Workers register dynamically, so slurm.conf selects them by their common feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSet {
    /// Name of the node set, of the feature of its nodes, and of its partition in Slurm.
    pub name: ConfName,
    /// Options of its own partition, if it has one.
    pub partition: Option<ConfLine>,
}

/// All inputs of the minimal slurm.conf for an external slurmctld.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalSlurmConf {
    /// Name of the cluster.
    pub cluster_name: ConfName,
    /// Host of the slurmctld.
    pub host: ConfValue,
    /// Port of the slurmctld.
    pub port: u16,
    /// The slurmdbd to account with, if any.
    pub accounting: Option<AccountingAddress>,
}

impl SlurmConf {
    /// Renders the file.
    pub fn render(&self) -> String {
        let required = self.required_options();
        let mut file = Writer::new('=');
        self.write_general(&mut file);
        write_logging(&mut file);
        self.write_plugins(&mut file, &required);
        write_accounting(&mut file, self.accounting.as_ref());
        self.write_scripts(&mut file);
        self.write_node_sets(&mut file);
        file.extra(&self.extra_conf);
        write_merged(&mut file, &required, &self.extra_conf);
        file.finish()
    }

    fn required_options(&self) -> Required {
        let mut required = auth_options(self.jwks);
        required.insert("SlurmctldParameters", vec!["enable_configless", "reconfig_on_restart"]);
        required
    }

    fn write_general(&self, file: &mut Writer) {
        file.section("GENERAL");
        file.entry("ClusterName", &self.cluster_name);
        file.entry("SlurmUser", SLURM_USER);
        for controller in &self.controllers {
            file.entry("SlurmctldHost", format_args!("{}({})", controller.name, controller.address));
        }
        file.entry("SlurmctldPort", SLURMCTLD_PORT);
        file.entry("SlurmctldAddr", &self.controller_address);
        file.entry("StateSaveLocation", format_args!("/var/spool/slurmctld/{}", self.cluster_name));
        file.entry("SlurmdUser", "root");
        file.entry("SlurmdPort", SLURMD_PORT);
        file.entry("SlurmdSpoolDir", "/var/spool/slurmd");
        file.entry("MaxNodeCount", max_node_count(self.cluster_size));
    }

    fn write_plugins(&self, file: &mut Writer, required: &Required) {
        write_auth_types(file);
        for key in ["AuthAltParameters", "AuthInfo", "SlurmctldParameters"] {
            file.entry(key, required[key].join(","));
        }
        if self.metrics {
            file.entry("MetricsType", "metrics/openmetrics");
        }
    }

    /// slurmctld runs its scripts by path; configless slurmds fetch theirs by bare name.
    fn write_scripts(&self, file: &mut Writer) {
        let in_slurmctld =
            [("PrologSlurmctld", &self.prolog_slurmctld), ("EpilogSlurmctld", &self.epilog_slurmctld)];
        write_script_section(file, "SLURMCTLD PROLOG & EPILOG", "/etc/slurm/", in_slurmctld);
        let in_slurmd = [("Prolog", &self.prolog), ("Epilog", &self.epilog)];
        write_script_section(file, "PROLOG & EPILOG", "", in_slurmd);
    }

    fn write_node_sets(&self, file: &mut Writer) {
        if self.node_sets.is_empty() {
            return;
        }
        file.section("NODESET & PARTITION");
        for NodeSet { name, partition } in self.node_sets.values() {
            file.raw(&format!("NodeSet={name} Feature={name}"));
            if let Some(options) = partition {
                file.raw(&format!("PartitionName={name} Nodes={name} {options}"));
            }
        }
    }
}

impl ExternalSlurmConf {
    /// Renders the file with the options that clients of that slurmctld need.
    pub fn render(&self) -> String {
        let mut file = Writer::new('=');
        file.section("GENERAL");
        file.entry("ClusterName", &self.cluster_name);
        file.entry("SlurmUser", SLURM_USER);
        file.entry("SlurmctldHost", &self.host);
        file.entry("SlurmctldPort", self.port);
        write_auth_types(&mut file);
        write_accounting(&mut file, self.accounting.as_ref());
        file.finish()
    }
}

/// The lines of a rendered slurm.conf before the user's free text.
fn generated_lines(text: &str) -> Vec<LogicalLine> {
    let extra = header(EXTRA_SECTION);
    let generated: Vec<&str> = text.lines().take_while(|line| *line != extra).collect();
    logical_lines(&generated.join("\n"))
}

/// The name of the cluster in a rendered slurm.conf.
pub fn cluster_name_in_file(text: &str) -> Option<String> {
    let lines = generated_lines(text);
    let mut options = lines.iter().filter_map(|line| pairs(&line.text)?.first().copied());
    Some(options.find(|option| option.key.eq_ignore_ascii_case("ClusterName"))?.value.to_owned())
}

/// The node sets of a rendered slurm.conf by name, without those in the user's free text.
pub fn node_sets_in_file(text: &str) -> BTreeMap<String, NodeSet> {
    let lines = generated_lines(text);
    let mut sets = BTreeMap::new();
    let mut partitions = BTreeMap::new();
    for line in lines.iter().filter_map(|line| pairs(&line.text)) {
        match line.as_slice() {
            [set, ..] if set.key.eq_ignore_ascii_case("NodeSet") => {
                if let Ok(name) = ConfName::new("name", set.value) {
                    sets.insert(set.value.to_owned(), NodeSet { name, partition: None });
                }
            }
            [partition, nodes, options @ ..]
                if partition.key.eq_ignore_ascii_case("PartitionName")
                    && nodes.key.eq_ignore_ascii_case("Nodes")
                    && partition.value == nodes.value =>
            {
                let options: Vec<String> = options.iter().map(Pair::to_string).collect();
                partitions.insert(partition.value.to_owned(), options.join(" "));
            }
            _ => {}
        }
    }
    for (name, options) in partitions {
        if let Some(set) = sets.get_mut(&name) {
            set.partition = ConfLine::new("partition", &options).ok();
        }
    }
    sets
}

/// Names of the partitions that are defined in a part of slurm.conf.
pub fn partition_names(text: &str) -> BTreeSet<String> {
    let name = |line: &LogicalLine| {
        let first = pairs(&line.text)?.first().copied()?;
        first.key.eq_ignore_ascii_case("PartitionName").then(|| first.value.to_owned())
    };
    logical_lines(text).iter().filter_map(name).collect()
}

/// Rounds up to a power of two, so that scaling by a few nodes does not change the configuration.
fn max_node_count(cluster_size: u32) -> u32 {
    cluster_size.checked_next_power_of_two().unwrap_or(cluster_size).max(MIN_NODE_COUNT)
}

fn write_logging(file: &mut Writer) {
    file.section("LOGGING");
    file.entry("SlurmctldLogFile", SLURMCTLD_LOG);
    file.entry("SlurmSchedLogFile", SLURMCTLD_LOG);
    file.entry("SlurmdLogFile", "/var/log/slurm/slurmd.log");
}

fn write_auth_types(file: &mut Writer) {
    file.section("PLUGINS & PARAMETERS");
    file.entry("AuthType", "auth/slurm");
    file.entry("CredType", "cred/slurm");
    file.entry("AuthAltTypes", "auth/jwt");
}

fn write_accounting(file: &mut Writer, accounting: Option<&AccountingAddress>) {
    file.section("ACCOUNTING");
    match accounting {
        Some(AccountingAddress { host, port }) => {
            file.entry("AccountingStorageType", "accounting_storage/slurmdbd");
            file.entry("AccountingStorageHost", host);
            file.entry("AccountingStoragePort", port);
        }
        None => file.entry("AccountingStorageType", "accounting_storage/none"),
    }
}

fn write_script_section(file: &mut Writer, title: &str, directory: &str, kinds: [(&str, &Vec<ConfName>); 2]) {
    if kinds.iter().all(|(_, scripts)| scripts.is_empty()) {
        return;
    }
    file.section(title);
    for (key, scripts) in kinds {
        let mut sorted: Vec<&ConfName> = scripts.iter().collect();
        sorted.sort();
        for script in sorted {
            file.entry(key, format_args!("{directory}{script}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn partition_names_come_from_partition_lines() {
        let text = "PartitionName=a Nodes=ALL\n# PartitionName=b\nNodeSet=c Feature=c\npartitionname=d \\\n Nodes=c\njunk\n";
        assert_eq!(Vec::from_iter(partition_names(text)), ["a", "d"]);
    }

    #[test]
    fn cluster_name_is_that_of_the_generated_part() {
        let text = "#\nclustername = hpc\nClusterName=b\n### EXTRA CONFIG ###\nClusterName=c\n";
        assert_eq!(cluster_name_in_file(text).as_deref(), Some("hpc"));
        assert_eq!(cluster_name_in_file("### EXTRA CONFIG ###\nClusterName=c\n"), None);
    }

    #[rstest]
    #[case::with_options("NodeSet=a Feature=a\nPartitionName=a Nodes=a X=\"\" Y=1", &["a", "X=\"\" Y=1"])]
    #[case::without_options("NodeSet=a Feature=a\nPartitionName=a Nodes=a ", &["a", ""])]
    #[case::without_trailing_blank("NodeSet=a\nPartitionName=a Nodes=a", &["a", ""])]
    #[case::without_partition("NodeSet=a Feature=a\nPartitionName=b Nodes=b X=1", &["a"])]
    #[case::other_name("NodeSet=aa Feature=aa\nPartitionName=a Nodes=a X=1", &[])]
    #[case::partition_in_user_text(
        "NodeSet=a Feature=a\n#\n### EXTRA CONFIG ###\nPartitionName=a Nodes=a X=1",
        &["a"],
    )]
    #[case::only_in_user_text("### EXTRA CONFIG ###\nNodeSet=a Feature=a\nPartitionName=a Nodes=a", &[])]
    fn node_set_is_parsed_from_the_generated_part(#[case] text: &str, #[case] expected: &[&str]) {
        let found = node_sets_in_file(text).remove("a");
        let name = found.iter().map(|set| set.name.as_ref());
        let options = found.iter().filter_map(|set| set.partition.as_ref()).map(AsRef::as_ref);
        assert_eq!(name.chain(options).collect::<Vec<&str>>(), expected);
    }

    #[rstest]
    #[case(0, 1024)]
    #[case(1024, 1024)]
    #[case(1025, 2048)]
    #[case(10_000, 16_384)]
    #[case(u32::MAX, u32::MAX)]
    fn max_node_count_is_a_power_of_two_of_at_least_1024(#[case] size: u32, #[case] expected: u32) {
        assert_eq!(max_node_count(size), expected);
    }
}
