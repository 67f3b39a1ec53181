//! Findings in rendered files. Each error here was observed to stop slurmctld 26.05.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use rstest::rstest;
use slurm_conf::check::{Severity, check_slurm_conf, check_slurmdbd_conf};
use slurm_conf::{ConfLine, ConfName, ConfValue, ControllerHost, NodeSet, SlurmConf};
use std::collections::BTreeMap;

fn conf(extra_conf: &str) -> SlurmConf {
    let name = |text| ConfName::new("name", text).unwrap();
    let gpu = NodeSet { name: name("gpu"), partition: Some(ConfLine::default()) };
    SlurmConf {
        cluster_name: name("c"),
        controllers: vec![ControllerHost { name: name("c-0"), address: name("c-0.c") }],
        controller_address: ConfValue::new("address", "c").unwrap(),
        cluster_size: 0,
        jwks: false,
        metrics: false,
        accounting: None,
        prolog_slurmctld: vec![],
        epilog_slurmctld: vec![],
        prolog: vec![],
        epilog: vec![],
        node_sets: BTreeMap::from([("gpu".to_owned(), gpu)]),
        extra_conf: extra_conf.to_owned(),
    }
}

/// The findings in a file with this extra text; line numbers are relative to the extra text.
fn findings(extra: &str) -> Vec<(Severity, usize, String)> {
    let text = conf(extra).render();
    let start = text.lines().position(|line| line == "### EXTRA CONFIG ###").unwrap() + 1;
    check_slurm_conf(&text)
        .into_iter()
        .map(|finding| (finding.severity, finding.line - start, finding.message))
        .collect()
}

#[rstest]
#[case::ordinary("MinJobAge=2\nPartitionName=all Nodes=ALL Default=YES\nPartitionName=x Nodes=gpu\n")]
#[case::names_are_case_sensitive("PartitionName=GPU Nodes=gpu")]
#[case::repeated_defaults("PartitionName=DEFAULT State=UP\nPartitionName=DEFAULT MaxTime=1")]
#[case::include("Include /etc/slurm/more.conf")]
#[case::restored_options("SlurmctldParameters=enable_stepmgr\nAuthInfo=cred_expire=300")]
#[case::repeated_prologs("Prolog=a\nProlog=b")]
#[case::static_nodes("NodeName=n[1-3] CPUs=1\nPartitionName=p Nodes=n[1-2],gpu")]
#[case::odd_hostlists_that_slurm_accepts("NodeName=gpu] CPUs=1\nNodeName=n[1-] CPUs=1")]
#[case::node_set_of_nodes("NodeSet=s Nodes=anything\nPartitionName=p Nodes=s")]
#[case::comments_and_continuations("# PartitionName=gpu\nPartitionName=p \\\n  Nodes=ALL # x")]
fn valid_configuration_has_no_findings(#[case] extra: &str) {
    assert_eq!(findings(extra), []);
}

#[rstest]
#[case("nonsense", 1, "\"nonsense\": the line is not of the form Key=Value")]
#[case("A=1\nMinJobAge=5 junk", 2, "\"MinJobAge\": the line is not of the form Key=Value")]
#[case("MinJobAge=", 1, "\"MinJobAge\": the line is not of the form Key=Value")]
#[case("PartitionName=gpu Nodes=ALL", 1, "partition gpu is defined twice")]
#[case("NodeName=gpu[0- CPUs=1", 1, "nodename: the hostlist has an unclosed bracket")]
#[case("NodeName=n[1-2],m[3 CPUs=1", 1, "nodename: the hostlist has an unclosed bracket")]
#[case("PartitionName=p Nodes=n[1-", 1, "partition p: the hostlist has an unclosed bracket")]
#[case("NodeName=s CPUs=1\nNodeSet=s Feature=f", 2, "node set s has the same name as a node")]
fn configuration_that_stops_slurmctld_is_an_error(
    #[case] extra: &str,
    #[case] line: usize,
    #[case] message: &str,
) {
    assert_eq!(findings(extra), [(Severity::Error, line, message.to_owned())]);
}

#[rstest]
#[case("MinJobAge=5\nminjobage=6", 2, "minjobage is already set on line LINE; Slurm uses the last value")]
#[case("AuthType=auth/munge", 1, "authtype overrides the operator's value on line 20")]
#[case("MinJobAge=5 MaxJobCount=7", 1, "minjobage: Slurm accepts a single option on this line")]
#[case("NodeSet=gpu Feature=other", 1, "node set gpu is defined twice")]
#[case("PartitionName=p Nodes=gpu-[0-3]", 1, "partition p: gpu-0 is not a node set of this file")]
#[case("PartitionName=p Nodes=gpu,nosuch", 1, "partition p: nosuch is not a node set of this file")]
fn configuration_that_slurm_may_accept_is_a_warning(
    #[case] extra: &str,
    #[case] line: usize,
    #[case] message: &str,
) {
    let before =
        conf(extra).render().lines().position(|line| line == "MinJobAge=5").map_or(0, |index| index + 1);
    let message = message.replace("LINE", &before.to_string());
    assert_eq!(findings(extra), [(Severity::Warning, line, message)]);
}

#[test]
fn node_sets_with_the_same_name_are_reported() {
    let mut conf = conf("");
    let twin = conf.node_sets["gpu"].clone();
    conf.node_sets.insert("other".to_owned(), twin);
    let messages: Vec<_> =
        check_slurm_conf(&conf.render()).into_iter().map(|finding| finding.message).collect();
    assert_eq!(messages, ["node set gpu is defined twice", "partition gpu is defined twice"]);
}

#[test]
fn nodes_beyond_the_limit_are_an_error() {
    let bomb = "NodeName=a[1-65536] CPUs=1\n".repeat(1000);
    let message = "nodename: the file defines more than 65536 nodes".to_owned();
    assert_eq!(findings(&bomb), [(Severity::Error, 2, message)]);
}

#[test]
fn members_of_partitions_beyond_the_limit_are_not_compared() {
    let partition = |name: u32, nodes: &str| format!("PartitionName=p{name} Nodes={nodes}[1-65536]\n");
    let mut text = "NodeName=a[1-65536] CPUs=1\n".to_owned() + &partition(0, "unknown");
    assert_eq!(findings(&text).len(), 1);
    text = "NodeName=a[1-65536] CPUs=1\n".to_owned();
    text.extend((0..1000).map(|name| partition(name, "a")));
    text += &partition(1000, "unknown");
    assert_eq!(findings(&text), []);
}

#[test]
fn messages_contain_no_values() {
    let findings = check_slurmdbd_conf("StoragePass=open sesame\nStorageUser=\n");
    let messages: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "\"StoragePass\": the line is not of the form Key=Value",
            "\"StorageUser\": the line is not of the form Key=Value"
        ]
    );
}
