use super::*;
use crate::fixture::{accounting, config_map, controller, high_availability, node_set, second, texts};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::conditions::PARTITION_HELD;
use slinky_api::v1beta1::NodeSetStatus;

/// What a configuration is made of; the tests leave out what they are not about.
#[derive(Default)]
struct Given {
    accounting: Option<Accounting>,
    node_sets: Vec<Arc<NodeSet>>,
    config_maps: BTreeMap<String, ConfigMap>,
    in_force: Option<Files>,
}

fn try_render(change: &Value, given: &Given) -> Result<Rendered, ConfigError> {
    let sources = Sources {
        accounting: given.accounting.as_ref(),
        node_sets: &given.node_sets,
        config_maps: &given.config_maps,
        in_force: given.in_force.as_ref(),
    };
    render(&controller(change), &sources)
}

fn render_with(given: &Given) -> Rendered {
    try_render(&json!({}), given).unwrap()
}

fn of_node_sets(node_sets: Vec<Arc<NodeSet>>, in_force: Option<Files>) -> Rendered {
    render_with(&Given { node_sets, in_force, ..Given::default() })
}

/// The lines of slurm.conf that begin with one of these.
fn lines<'a>(rendered: &'a Rendered, starts: &[&str]) -> Vec<&'a str> {
    let is_meant = |line: &&str| starts.iter().any(|start| line.starts_with(start));
    rendered.files[SLURM_CONF].lines().filter(is_meant).collect()
}

fn node_set_lines(rendered: &Rendered) -> Vec<&str> {
    lines(rendered, &["NodeSet=", "PartitionName="])
}

fn partition(config: &str) -> Value {
    json!({ "partition": { "enabled": true, "config": config } })
}

#[test]
fn minimal() {
    let files = render_with(&Given::default()).files;
    assert_eq!(files.keys().collect::<Vec<_>>(), [CGROUP_CONF, SLURM_CONF]);
    insta::assert_snapshot!(files[SLURM_CONF]);
}

#[test]
fn everything() {
    let refs = |name: &str| json!([{ "name": name }]);
    let mut change = high_availability();
    change.as_object_mut().unwrap().extend(
        json!({
            "clusterName": "hpc",
            "jwksKeyRef": { "name": "issuers", "key": "keys" },
            "metrics": { "enabled": true },
            "prologScriptRefs": refs("scripts"),
            "epilogSlurmctldScriptRefs": refs("scripts"),
            "extraConf": "MinJobAge=2\nSlurmctldParameters=enable_stepmgr",
        })
        .as_object()
        .unwrap()
        .clone(),
    );
    let rendered = try_render(
        &change,
        &Given {
            accounting: Some(accounting(&json!({}))),
            node_sets: vec![node_set("gpu", 1, &partition("State=UP")), node_set("cpu", 2, &json!({}))],
            config_maps: [("scripts".to_owned(), config_map(&[("b.sh", ""), ("a.sh", "")]))].into(),
            in_force: None,
        },
    );
    insta::assert_snapshot!(rendered.unwrap().files[SLURM_CONF]);
}

#[test]
fn the_config_map() {
    let files = texts(&[("slurm.conf", "A=1")]);
    insta::assert_yaml_snapshot!(build_config(&controller(&json!({})), files, None));
}

#[test]
fn of_a_cluster_elsewhere_clients_learn_where_it_is() {
    let controller = controller(&json!({
        "external": true,
        "externalConfig": { "host": "ctl.example", "port": 7817 },
        "extraConf": "MinJobAge=2",
        "template": { "metadata": { "annotations": { "a": "1" } } },
    }));
    let sources = Sources {
        accounting: None,
        node_sets: &[node_set("gpu", 1, &json!({}))],
        config_maps: &[].into(),
        in_force: None,
    };
    let files = render(&controller, &sources).unwrap().files;
    insta::assert_yaml_snapshot!(build_config(&controller, files, None));
}

#[rstest]
#[case::here(json!({}), "books-accounting", 6819)]
#[case::at_another_port(json!({ "service": { "port": 7819 } }), "books-accounting", 7819)]
#[case::no_port_is_the_usual_one(json!({ "service": { "port": 0 } }), "books-accounting", 6819)]
#[case::elsewhere(json!({ "external": true, "externalConfig": { "host": "dbd.example", "port": 17 },
    "service": { "port": 7819 } }), "dbd.example", 17)]
fn slurmctld_finds_its_accounting(#[case] spec: Value, #[case] host: &str, #[case] port: u16) {
    let rendered = render_with(&Given { accounting: Some(accounting(&spec)), ..Given::default() });
    let expected = [
        "AccountingStorageType=accounting_storage/slurmdbd".to_owned(),
        format!("AccountingStorageHost={host}"),
        format!("AccountingStoragePort={port}"),
    ];
    assert_eq!(lines(&rendered, &["AccountingStorage"]), expected);
}

#[test]
fn node_sets_come_by_name_with_the_partitions_that_they_want() {
    let rendered = of_node_sets(
        vec![
            node_set("b", 1, &partition("State=UP MaxTime=1 # for all\n")),
            node_set("c", 2, &json!({ "template": { "spec": { "hostname": "gpu-" } } })),
            node_set("a", 3, &json!({ "partition": { "enabled": false, "config": "State=UP" } })),
        ],
        None,
    );
    let expected = [
        "NodeSet=a Feature=a",
        "NodeSet=b Feature=b",
        "PartitionName=b Nodes=b State=UP MaxTime=1",
        "NodeSet=gpu Feature=gpu",
    ];
    assert_eq!(node_set_lines(&rendered), expected);
    assert_eq!(rendered.refused_node_sets, [""; 0]);
}

#[test]
fn a_node_set_that_became_bad_keeps_its_lines_and_stops_no_other() {
    let old = of_node_sets(vec![node_set("a", 1, &partition("State=UP"))], None);
    let bad = node_set("a", 1, &partition("State=UP\nSlurmUser=root"));
    let new = of_node_sets(vec![bad, node_set("b", 2, &partition("State=DOWN"))], Some(old.files.clone()));
    let expected = [
        "NodeSet=a Feature=a",
        "PartitionName=a Nodes=a State=UP",
        "NodeSet=b Feature=b",
        "PartitionName=b Nodes=b State=DOWN",
    ];
    assert_eq!(node_set_lines(&new), expected);
    assert_eq!(new.refused_node_sets, ["NodeSet a: partition.config must be a single line"]);
}

#[test]
fn a_node_set_that_was_never_good_is_left_out() {
    let in_force = of_node_sets(vec![node_set("aa", 1, &partition("State=UP"))], None).files;
    let sets = vec![
        node_set("a", 2, &partition("State=UP\nA=1")),
        node_set("aa", 1, &partition("State=UP")),
        node_set("c", 3, &json!({ "template": { "spec": { "hostname": "x,y" } } })),
    ];
    let rendered = of_node_sets(sets, Some(in_force));
    assert_eq!(node_set_lines(&rendered), ["NodeSet=aa Feature=aa", "PartitionName=aa Nodes=aa State=UP"]);
    let refused = [
        "NodeSet a: partition.config must be a single line",
        "NodeSet c: template.spec.hostname must not contain ','",
    ];
    assert_eq!(rendered.refused_node_sets, refused);
}

#[test]
fn a_partition_that_would_set_the_defaults_of_others_is_none() {
    let set = |enabled| node_set("default", 0, &json!({ "partition": { "enabled": enabled } }));
    let refused = |set| of_node_sets(vec![set], None).refused_node_sets;
    assert_eq!(refused(set(false)), [""; 0]);
    let problem =
        "NodeSet default: a partition called \"default\" would be none: it sets the defaults of all others";
    assert_eq!(refused(set(true)), [problem]);
}

/// The NodeSet as it is after an edit, with what it tells of its partition for a generation.
fn telling(set: Arc<NodeSet>, held: &str, generation: i64) -> Arc<NodeSet> {
    let condition = json!({ "type": PARTITION_HELD, "status": held, "reason": "R", "message": "",
        "observedGeneration": generation, "lastTransitionTime": second(0).to_string() });
    let mut set = Arc::unwrap_or_clone(set);
    set.metadata.generation = Some(2);
    set.status = Some(NodeSetStatus {
        conditions: vec![serde_json::from_value(condition).unwrap()],
        ..NodeSetStatus::default()
    });
    Arc::new(set)
}

fn partition_lines(rendered: &Rendered) -> Vec<&str> {
    lines(rendered, &["PartitionName="])
}

#[test]
fn a_partition_goes_in_two_steps() {
    let wanted = of_node_sets(vec![node_set("a", 1, &partition("Default=YES State=UP"))], None);
    let unwanted = || node_set("a", 1, &json!({}));
    let closed = of_node_sets(vec![telling(unwanted(), "False", 2)], Some(wanted.files.clone()));
    assert_eq!(partition_lines(&closed), ["PartitionName=a Nodes=a Default=YES State=DRAIN"]);
    let note = "NodeSet a: partition a takes no new jobs and goes when no job names it any more";
    assert_eq!(closed.warnings, [note]);
    let kept = of_node_sets(vec![unwanted()], Some(closed.files.clone()));
    assert_eq!(kept.files, closed.files, "nobody has said yet that it may go");
    let gone = of_node_sets(vec![telling(unwanted(), "False", 2)], Some(closed.files.clone()));
    assert_eq!((partition_lines(&gone), gone.warnings.len()), (vec![], 0));
    let back = of_node_sets(vec![node_set("a", 1, &partition("State=UP"))], Some(closed.files));
    assert_eq!(partition_lines(&back), ["PartitionName=a Nodes=a State=UP"]);
}

#[rstest]
#[case::jobs_name_it("True", 2, false)]
#[case::nobody_can_tell("Unknown", 2, false)]
#[case::nobody_named_it_before("False", 1, false)]
#[case::nobody_names_it("False", 2, true)]
fn a_partition_goes_when_its_node_set_as_it_is_says_so(
    #[case] held: &str,
    #[case] generation: i64,
    #[case] goes: bool,
) {
    let in_force = of_node_sets(vec![node_set("a", 1, &partition("State=DRAIN"))], None).files;
    let set = telling(node_set("a", 1, &json!({})), held, generation);
    assert_eq!(partition_lines(&of_node_sets(vec![set], Some(in_force))).is_empty(), goes);
}

#[rstest]
#[case::in_other_letters("Default=YES state=DRAIN")]
#[case::with_more_blanks("Default=YES  State=\"DRAIN\"")]
#[case::in_another_order("State=DRAIN Default=YES")]
fn a_partition_that_its_user_closed_goes_however_that_is_written(#[case] config: &str) {
    let told = || vec![telling(node_set("a", 1, &json!({})), "False", 2)];
    let in_force = of_node_sets(vec![node_set("a", 1, &partition(config))], None).files;
    let closed = of_node_sets(told(), Some(in_force)).files;
    assert_eq!(partition_lines(&of_node_sets(told(), Some(closed))), [""; 0]);
}

#[test]
fn a_node_set_that_is_deleted_closes_its_partition() {
    let set = node_set("a", 1, &partition("State=UP"));
    let in_force = of_node_sets(vec![set.clone()], None).files;
    let mut deleted = Arc::unwrap_or_clone(set);
    deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
    let deleted = vec![Arc::new(deleted)];
    let closed = of_node_sets(deleted.clone(), Some(in_force));
    assert_eq!(partition_lines(&closed), ["PartitionName=a Nodes=a State=DRAIN"]);
    assert_eq!(partition_lines(&of_node_sets(deleted, None)), [""; 0], "what never was needs no end");
}

#[test]
fn a_partition_that_the_user_takes_over_is_theirs() {
    let in_force = of_node_sets(vec![node_set("a", 1, &partition("State=UP"))], None).files;
    let given =
        Given { node_sets: vec![node_set("a", 1, &json!({}))], in_force: Some(in_force), ..Given::default() };
    let rendered = try_render(&json!({ "extraConf": "PartitionName=a Nodes=a" }), &given).unwrap();
    assert_eq!(partition_lines(&rendered), ["PartitionName=a Nodes=a"]);
    assert_eq!(rendered.warnings, [""; 0]);
}

#[test]
fn a_partition_that_the_user_gives_up_is_not_ours() {
    let given =
        |in_force| Given { node_sets: vec![node_set("a", 1, &json!({}))], in_force, ..Given::default() };
    let theirs = json!({ "extraConf": "PartitionName=a Nodes=a State=UP" });
    let in_force = try_render(&theirs, &given(None)).unwrap().files;
    assert_eq!(partition_lines(&render_with(&given(Some(in_force)))), [""; 0]);
}

#[test]
fn of_two_node_sets_with_one_name_in_slurm_the_older_has_it() {
    let named = |name, age, config: &str| {
        let mut spec = partition(config);
        spec["template"] = json!({ "spec": { "hostname": "gpu-" } });
        node_set(name, age, &spec)
    };
    let rendered = of_node_sets(vec![named("a", 2, "State=DOWN"), named("b", 1, "State=UP")], None);
    assert_eq!(
        node_set_lines(&rendered),
        ["NodeSet=gpu Feature=gpu", "PartitionName=gpu Nodes=gpu State=UP"]
    );
    assert_eq!(rendered.refused_node_sets, ["NodeSet a: another NodeSet is called \"gpu\" in Slurm already"]);
}

#[test]
fn there_is_room_for_all_nodes_and_it_never_shrinks() {
    let room = |replicas: i32, in_force: Option<Files>| {
        let sets = ["a", "b"].map(|name| node_set(name, 1, &json!({ "replicas": replicas })));
        of_node_sets(sets.to_vec(), in_force)
    };
    let large = room(700, None);
    assert_eq!(lines(&large, &["MaxNodeCount"]), ["MaxNodeCount=2048"]);
    assert_eq!(lines(&room(1, None), &["MaxNodeCount"]), ["MaxNodeCount=1024"]);
    assert_eq!(room(1, Some(large.files.clone())), large);
    assert_eq!(lines(&room(1500, Some(large.files)), &["MaxNodeCount"]), ["MaxNodeCount=4096"]);
}

#[test]
fn nodes_that_are_there_count_although_fewer_are_wanted() {
    let mut set = node_set("a", 1, &json!({ "replicas": 2, "scalingMode": "DaemonSet" }));
    let status = NodeSetStatus { replicas: 3000, desired: 1, ..NodeSetStatus::default() };
    Arc::make_mut(&mut set).status = Some(status);
    assert_eq!(lines(&of_node_sets(vec![set], None), &["MaxNodeCount"]), ["MaxNodeCount=4096"]);
}

#[rstest]
#[case::cluster_name(json!({ "clusterName": "hpc\nSlurmUser=root" }), "clusterName must not contain '\\n'")]
#[case::cluster_name_blank(json!({ "clusterName": "h pc" }), "clusterName must not contain ' '")]
#[case::external_host(json!({ "external": true, "externalConfig": { "host": "h\nSlurmUser=root", "port": 1 } }),
    "externalConfig.host must not contain '\\n'")]
#[case::script(json!({ "prologScriptRefs": [{ "name": "odd" }] }), "the name of a script must not contain ' '")]
#[case::extra_conf(json!({ "extraConf": "just words" }), "slurmctld would refuse slurm.conf")]
#[case::partition_twice(json!({ "extraConf": "PartitionName=a Nodes=a" }), "partition a is defined twice")]
fn what_cannot_be_written_is_refused_with_its_place(#[case] change: Value, #[case] text: &str) {
    let given = Given {
        node_sets: vec![node_set("a", 1, &partition(""))],
        config_maps: [("odd".to_owned(), config_map(&[("a b", "")]))].into(),
        ..Given::default()
    };
    let error = try_render(&change, &given).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

#[test]
fn an_accounting_without_a_usable_host_is_named() {
    let host = json!({ "external": true, "externalConfig": { "host": "a b", "port": 1 } });
    let given = Given { accounting: Some(accounting(&host)), ..Given::default() };
    let error = try_render(&json!({}), &given).unwrap_err().to_string();
    assert!(error.starts_with("Accounting books: externalConfig.host"), "{error}");
}

#[test]
fn what_slurm_takes_though_perhaps_not_as_meant_is_told() {
    let rendered = try_render(&json!({ "extraConf": "SlurmUser=root" }), &Given::default()).unwrap();
    assert_eq!(rendered.warnings.len(), 1);
    assert!(rendered.warnings[0].contains("slurmuser overrides the operator's value"), "{rendered:?}");
}

#[test]
fn files_that_mean_the_same_are_those_in_force() {
    let ours = render_with(&Given::default()).files;
    let mut theirs = ours.clone();
    theirs.insert(SLURM_CONF.to_owned(), ours[SLURM_CONF].replace("### GENERAL ###", "## Ours"));
    theirs.insert(CGROUP_CONF.to_owned(), format!("# Theirs\n{}", ours[CGROUP_CONF]));
    assert_ne!(theirs, ours);
    let given = Given { in_force: Some(theirs.clone()), ..Given::default() };
    assert_eq!(render_with(&given).files, theirs);
    assert_ne!(try_render(&json!({ "extraConf": "MinJobAge=2" }), &given).unwrap().files, theirs);
    theirs.insert("more.conf".to_owned(), String::new());
    let given = Given { in_force: Some(theirs), ..Given::default() };
    assert_eq!(render_with(&given).files, ours, "a file too many");
}

#[test]
fn scripts_of_all_config_maps_come_sorted() {
    let change = json!({ "epilogScriptRefs": [{ "name": "two" }, { "name": "one" }, { "name": "gone" }] });
    let config_maps = [
        ("one".to_owned(), config_map(&[("c.sh", ""), ("a.sh", "")])),
        ("two".to_owned(), config_map(&[("b.sh", "")])),
    ];
    let rendered = try_render(&change, &Given { config_maps: config_maps.into(), ..Given::default() });
    assert_eq!(lines(&rendered.unwrap(), &["Epilog="]), ["Epilog=a.sh", "Epilog=b.sh", "Epilog=c.sh"]);
}

#[rstest]
#[case::as_a_file("configFileRefs", CGROUP_CONF, false)]
#[case::another_file("configFileRefs", "gres.conf", true)]
#[case::not_as_a_script("prologScriptRefs", CGROUP_CONF, true)]
fn a_cgroup_conf_of_the_user_is_the_only_one(
    #[case] field: &str,
    #[case] file: &str,
    #[case] generated: bool,
) {
    let config_maps = [("mine".to_owned(), config_map(&[(file, "")]))].into();
    let change = json!({ field: [{ "name": "mine" }] });
    let rendered = try_render(&change, &Given { config_maps, ..Given::default() }).unwrap();
    assert_eq!(rendered.files.contains_key(CGROUP_CONF), generated);
}
