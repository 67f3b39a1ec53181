//! Each input renders to its snapshot, byte for byte.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use rstest::rstest;
use slurm_conf::check::{Severity, check_slurm_conf};
use slurm_conf::{
    AccountingAddress, ConfLine, ConfName, ConfValue, ControllerHost, ExternalSlurmConf, NodeSet, Secret,
    SlurmConf, SlurmdbdConf, Storage, is_equivalent,
};
use std::collections::BTreeMap;

fn name(text: &str) -> ConfName {
    ConfName::new("name", text).unwrap()
}

fn names<const N: usize>(texts: [&str; N]) -> Vec<ConfName> {
    texts.map(name).to_vec()
}

fn value(text: &str) -> ConfValue {
    ConfValue::new("value", text).unwrap()
}

fn slurmdbd(host: &str, port: u16) -> AccountingAddress {
    AccountingAddress { host: value(host), port }
}

/// Node sets by the name of their object: their name in Slurm and the options of their partition.
fn node_sets<const N: usize>(sets: [(&str, &str, Option<&str>); N]) -> BTreeMap<String, NodeSet> {
    let partition = |options| ConfLine::new("partition", options).unwrap();
    sets.map(|(object, in_slurm, options)| {
        (object.to_owned(), NodeSet { name: name(in_slurm), partition: options.map(partition) })
    })
    .into()
}

fn minimal(cluster_name: &str, controller: &str, namespace: &str, daemons: usize) -> SlurmConf {
    let host = |ordinal| {
        let pod = format!("{controller}-controller-{ordinal}");
        let address = format!("{pod}.{controller}-controller-internal.{namespace}");
        ControllerHost { name: name(&pod), address: name(&address) }
    };
    SlurmConf {
        cluster_name: name(cluster_name),
        controllers: (0..daemons).map(host).collect(),
        controller_address: value(&format!("{controller}-controller.{namespace}")),
        cluster_size: 0,
        jwks: false,
        metrics: false,
        accounting: None,
        prolog_slurmctld: vec![],
        epilog_slurmctld: vec![],
        prolog: vec![],
        epilog: vec![],
        node_sets: BTreeMap::new(),
        extra_conf: String::new(),
    }
}

fn everything() -> SlurmConf {
    SlurmConf {
        jwks: true,
        metrics: true,
        accounting: Some(slurmdbd("slurm-accounting", 6819)),
        prolog: names(["10-p.sh"]),
        epilog_slurmctld: names(["90-e.sh"]),
        node_sets: node_sets([("cpu", "cpu", None), ("gpu", "gpu", Some("State=UP MaxTime=UNLIMITED"))]),
        extra_conf: "MinJobAge=2\nSlurmctldParameters=enable_stepmgr".to_owned(),
        ..minimal("slurm_slurm", "slurm", "slurm", 2)
    }
}

/// Scripts come in any order and are sorted; node sets follow the names of their objects, not their Slurm names; an empty
/// partition leaves a blank at the end of its line; text that ends in a line break leaves an empty line.
fn scripts_and_hostname_prefixes() -> SlurmConf {
    let extra_conf =
        "authinfo=cred_expire=300,Socket=/run/My/sock\nPartitionName=all Nodes=ALL Default=YES\n";
    SlurmConf {
        cluster_size: 10_000,
        accounting: Some(slurmdbd("dbd.example.test", 7031)),
        prolog: names(["mount-scratch", "30-gpu", "10-health"]),
        epilog: names(["cleanup"]),
        prolog_slurmctld: names(["announce"]),
        epilog_slurmctld: names(["archive"]),
        node_sets: node_sets([
            ("small", "small", Some("State=UP MaxTime=60")),
            ("big", "worker", Some("")),
            ("large", "large", None),
        ]),
        extra_conf: extra_conf.to_owned(),
        ..minimal("lab", "lab", "hpc", 1)
    }
}

#[rstest]
#[case("minimal", minimal("slurm_lab", "lab", "slurm", 1))]
#[case("everything", everything())]
#[case("scripts-and-hostname-prefixes", scripts_and_hostname_prefixes())]
fn slurm_conf_of_a_cluster(#[case] input: &str, #[case] conf: SlurmConf) {
    let text = conf.render();
    insta::assert_snapshot!(format!("slurm_conf@{input}"), text);
    let errors: Vec<_> =
        check_slurm_conf(&text).into_iter().filter(|f| f.severity == Severity::Error).collect();
    assert_eq!(errors, []);
}

#[rstest]
#[case("minimal", "slurm_outside", "ctld.example.test", 6817, None)]
#[case("accounting", "outside", "192.0.2.7", 7817, Some(slurmdbd("dbd.example.test", 7819)))]
fn slurm_conf_of_an_external_controller(
    #[case] input: &str,
    #[case] cluster_name: &str,
    #[case] host: &str,
    #[case] port: u16,
    #[case] accounting: Option<AccountingAddress>,
) {
    let conf = ExternalSlurmConf { cluster_name: name(cluster_name), host: value(host), port, accounting };
    insta::assert_snapshot!(format!("slurm_conf_of_an_external_controller@{input}"), conf.render());
}

#[test]
fn minimal_slurmdbd_conf() {
    let conf = SlurmdbdConf {
        host: name("slurm-accounting-0"),
        jwks: false,
        storage: Storage {
            host: value("mariadb"),
            port: 3306,
            user: value("slurm"),
            database: value("slurm_acct_db"),
            password: Secret::new("password", "secret").unwrap(),
        },
        extra_conf: String::new(),
    };
    insta::assert_snapshot!("slurmdbd_conf@minimal", conf.render());
}

#[test]
fn slurmdbd_conf_with_everything() {
    let conf = SlurmdbdConf {
        host: name("ledger-accounting-0"),
        jwks: true,
        storage: Storage {
            host: value("sql.example.test"),
            port: 3310,
            user: value("clerk"),
            database: value("ledger"),
            password: Secret::new("password", "\"open sesame\"").unwrap(),
        },
        extra_conf: "PurgeJobAfter=6months\nAuthAltParameters=disable_token_creation\n".to_owned(),
    };
    insta::assert_snapshot!("slurmdbd_conf@everything", conf.render());
}

/// insta snapshots do not preserve trailing line breaks.
#[test]
fn file_ends_in_one_line_break_after_the_user_text() {
    let mut conf = minimal("slurm_lab", "lab", "slurm", 1);
    assert!(conf.render().ends_with("\nAccountingStorageType=accounting_storage/none\n"));
    conf.extra_conf = "MinJobAge=2".to_owned();
    assert!(conf.render().ends_with("\n#\n### EXTRA CONFIG ###\nMinJobAge=2\n"));
    conf.extra_conf = "MinJobAge=2\n".to_owned();
    assert!(conf.render().ends_with("\n#\n### EXTRA CONFIG ###\nMinJobAge=2\n\n"));
}

#[test]
fn files_with_another_layout_are_equivalent_and_with_another_value_are_not() {
    let text = everything().render();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let bare = lines.join(" \n\n ");
    assert!(is_equivalent(&text, &bare));
    assert!(!is_equivalent(&text, &bare.replace("=6817", "=6818")));
}
