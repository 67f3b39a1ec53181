//! Findings in rendered files. What is an error here was seen to stop slurmctld 26.05.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rstest::rstest;
use slurm_conf::check::{Severity, check_slurm_conf, check_slurmdbd_conf};
use slurm_conf::{ConfLine, ConfName, ConfValue, ControllerHost, NodeSet, SlurmConf};
use std::collections::{BTreeMap, BTreeSet};

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

/// The findings in a file with that extra text; lines are counted from the start of that text.
fn findings(extra: &str, nodes: Option<&[&str]>) -> Vec<(Severity, usize, String)> {
    let text = conf(extra).render();
    let start = text.lines().position(|line| line == "### EXTRA CONFIG ###").unwrap() + 1;
    let nodes: Option<BTreeSet<String>> =
        nodes.map(|names| names.iter().map(|&name| name.to_owned()).collect());
    check_slurm_conf(&text, nodes.as_ref())
        .into_iter()
        .map(|finding| (finding.severity, finding.line - start, finding.message))
        .collect()
}

#[rstest]
#[case::ordinary("MinJobAge=2\nPartitionName=all Nodes=ALL Default=YES\nPartitionName=x Nodes=gpu\n")]
#[case::case_matters_in_names("PartitionName=GPU Nodes=gpu")]
#[case::defaults_repeat("PartitionName=DEFAULT State=UP\nPartitionName=DEFAULT MaxTime=1")]
#[case::include("Include /etc/slurm/more.conf")]
#[case::restored_options("SlurmctldParameters=enable_stepmgr\nAuthInfo=cred_expire=300")]
#[case::prologs_add_up("Prolog=a\nProlog=b")]
#[case::own_nodes("NodeName=n[1-3] CPUs=1\nPartitionName=p Nodes=n[1-2],gpu")]
#[case::odd_hostlists_that_slurm_reads("NodeName=gpu] CPUs=1\nNodeName=n[1-] CPUs=1")]
#[case::node_set_of_nodes("NodeSet=s Nodes=anything\nPartitionName=p Nodes=s")]
#[case::comments_and_continuations("# PartitionName=gpu\nPartitionName=p \\\n  Nodes=ALL # x")]
fn what_slurm_takes_as_meant_is_not_reported(#[case] extra: &str) {
    assert_eq!(findings(extra, Some(&[])), []);
}

#[rstest]
#[case("nonsense", 1, "\"nonsense\": the line is not of the form Key=Value")]
#[case("A=1\nMinJobAge=5 junk", 2, "\"MinJobAge\": the line is not of the form Key=Value")]
#[case("MinJobAge=", 1, "\"MinJobAge\": the line is not of the form Key=Value")]
#[case("PartitionName=gpu Nodes=ALL", 1, "partition gpu is defined twice")]
#[case("PartitionName=p Nodes=gpu,nosuch", 1, "partition p: nosuch is neither a node set nor a node")]
#[case("PartitionName=p Nodes=n[1-9]", 1, "partition p: n3 is neither a node set nor a node")]
#[case("NodeName=gpu[0- CPUs=1", 1, "nodename: a bracket of the hostlist is left open")]
#[case("NodeName=n[1-2],m[3 CPUs=1", 1, "nodename: a bracket of the hostlist is left open")]
#[case("PartitionName=p Nodes=n[1-", 1, "partition p: a bracket of the hostlist is left open")]
#[case("NodeName=s CPUs=1\nNodeSet=s Feature=f", 2, "node set s has the name of a node")]
fn what_stops_slurm_is_an_error(#[case] extra: &str, #[case] line: usize, #[case] message: &str) {
    assert_eq!(findings(extra, Some(&["n1", "n2"])), [(Severity::Error, line, message.to_owned())]);
}

#[rstest]
#[case("MinJobAge=5\nminjobage=6", 2, "minjobage is already set on line LINE, the last one counts")]
#[case("AuthType=auth/munge", 1, "authtype replaces what the operator sets on line 20")]
#[case("MinJobAge=5 MaxJobCount=7", 1, "minjobage: Slurm takes a single option on such a line")]
#[case("NodeSet=gpu Feature=other", 1, "node set gpu is defined twice")]
#[case("PartitionName=p Nodes=gpu-[0-3]", 1, "partition p: gpu-0 is no node set of this file")]
fn what_slurm_may_take_is_a_warning(#[case] extra: &str, #[case] line: usize, #[case] message: &str) {
    let before =
        conf(extra).render().lines().position(|line| line == "MinJobAge=5").map_or(0, |index| index + 1);
    let message = message.replace("LINE", &before.to_string());
    assert_eq!(findings(extra, None), [(Severity::Warning, line, message)]);
}

#[test]
fn node_sets_that_share_a_name_are_found() {
    let mut conf = conf("");
    let twin = conf.node_sets["gpu"].clone();
    conf.node_sets.insert("other".to_owned(), twin);
    let messages: Vec<_> =
        check_slurm_conf(&conf.render(), None).into_iter().map(|finding| finding.message).collect();
    assert_eq!(messages, ["node set gpu is defined twice", "partition gpu is defined twice"]);
}

#[test]
fn no_message_repeats_a_value() {
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
