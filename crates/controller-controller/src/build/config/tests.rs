//! Rendered configurations.

use super::*;
use crate::fixture::{accounting, config_map, controller, high_availability, node_set, second, texts};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::conditions::PARTITION_HELD;
use slinky_api::v1beta1::NodeSetStatus;

/// Inputs of a configuration; each test sets those that it is about.
#[derive(Default)]
struct Inputs {
    accounting: Option<Accounting>,
    node_sets: Vec<Arc<NodeSet>>,
    config_maps: BTreeMap<String, ConfigMap>,
    in_force: Option<Files>,
    has_state: bool,
    refusals: RefusedNodeSets,
}

fn try_render(change: &Value, inputs: &Inputs) -> Result<Rendered, ConfigError> {
    let sources = Sources {
        accounting: inputs.accounting.as_ref(),
        node_sets: &inputs.node_sets,
        config_maps: &inputs.config_maps,
        in_force: inputs.in_force.as_ref(),
        has_state: inputs.has_state,
        refusals: &inputs.refusals,
    };
    render(&controller(change), &sources)
}

fn render_with(inputs: &Inputs) -> Rendered {
    try_render(&json!({}), inputs).unwrap()
}

fn of_node_sets(node_sets: Vec<Arc<NodeSet>>, in_force: Option<Files>) -> Rendered {
    render_with(&Inputs { node_sets, in_force, ..Inputs::default() })
}

/// The lines of slurm.conf that begin with one of these.
fn lines<'a>(rendered: &'a Rendered, starts: &[&str]) -> Vec<&'a str> {
    let is_meant = |line: &&str| starts.iter().any(|start| line.starts_with(start));
    rendered.files[SLURM_CONF].lines().filter(is_meant).collect()
}

fn node_set_lines(rendered: &Rendered) -> Vec<&str> {
    lines(rendered, &["NodeSet=", "PartitionName="])
}

fn generated(files: Files) -> Configuration {
    Configuration::new(files, BTreeMap::new())
}

/// Why NodeSets are refused.
fn refused(rendered: &Rendered) -> Vec<String> {
    rendered.refused_node_sets.iter().map(ToString::to_string).collect()
}

fn partition(config: &str) -> Value {
    json!({ "partition": { "enabled": true, "config": config } })
}

#[test]
fn minimal() {
    let files = render_with(&Inputs::default()).files;
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
        &Inputs {
            accounting: Some(accounting(&json!({}))),
            node_sets: vec![node_set("gpu", 1, &partition("State=UP")), node_set("cpu", 2, &json!({}))],
            config_maps: [("scripts".to_owned(), config_map(&[("b.sh", ""), ("a.sh", "")]))].into(),
            ..Inputs::default()
        },
    );
    insta::assert_snapshot!(rendered.unwrap().files[SLURM_CONF]);
}

#[test]
fn generated_config_map() {
    let files = texts(&[("slurm.conf", "A=1")]);
    insta::assert_yaml_snapshot!(build_config(&controller(&json!({})), &generated(files), []));
}

#[test]
fn config_map_of_an_external_cluster() {
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
        has_state: false,
        refusals: &RefusedNodeSets::new(),
    };
    let files = render(&controller, &sources).unwrap().files;
    insta::assert_yaml_snapshot!(build_config(&controller, &generated(files), []));
}

#[rstest]
#[case::default_port(json!({}), "books-accounting", 6819)]
#[case::other_port(json!({ "service": { "port": 7819 } }), "books-accounting", 7819)]
#[case::port_zero_is_the_default(json!({ "service": { "port": 0 } }), "books-accounting", 6819)]
#[case::external(json!({ "external": true, "externalConfig": { "host": "dbd.example", "port": 17 },
    "service": { "port": 7819 } }), "dbd.example", 17)]
fn accounting_address_is_rendered(#[case] spec: Value, #[case] host: &str, #[case] port: u16) {
    let rendered = render_with(&Inputs { accounting: Some(accounting(&spec)), ..Inputs::default() });
    let expected = [
        "AccountingStorageType=accounting_storage/slurmdbd".to_owned(),
        format!("AccountingStorageHost={host}"),
        format!("AccountingStoragePort={port}"),
    ];
    assert_eq!(lines(&rendered, &["AccountingStorage"]), expected);
}

#[test]
fn node_sets_are_sorted_by_name_and_have_their_partitions() {
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
    assert_eq!(refused(&rendered), [""; 0]);
}

#[test]
fn node_set_that_became_invalid_keeps_its_lines_and_blocks_no_other() {
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
    assert_eq!(refused(&new), ["NodeSet a: partition.config must be a single line"]);
}

#[test]
fn node_set_that_was_never_valid_is_left_out() {
    let in_force = of_node_sets(vec![node_set("aa", 1, &partition("State=UP"))], None).files;
    let sets = vec![
        node_set("a", 2, &partition("State=UP\nA=1")),
        node_set("aa", 1, &partition("State=UP")),
        node_set("c", 3, &json!({ "template": { "spec": { "hostname": "x,y" } } })),
    ];
    let rendered = of_node_sets(sets, Some(in_force));
    assert_eq!(node_set_lines(&rendered), ["NodeSet=aa Feature=aa", "PartitionName=aa Nodes=aa State=UP"]);
    let expected = [
        "NodeSet a: partition.config must be a single line",
        "NodeSet c: template.spec.hostname must not contain ','",
    ];
    assert_eq!(refused(&rendered), expected);
}

/// A valid NodeSet in force, and one whose lines are faulty.
#[rstest]
#[case::malformed("", partition("MaxTime"), "not of the form Key=Value", &["NodeSet=bad Feature=bad"])]
#[case::also_in_extra_conf("PartitionName=bad Nodes=bad\n", partition("State=UP"), "partition bad is defined twice",
    &["NodeSet=bad Feature=bad", "PartitionName=bad Nodes=bad"])]
#[case::name_of_a_node("NodeName=bad CPUs=1\n", partition("State=UP"), "node set bad has the same name as a node", &[])]
fn faulty_node_set_is_refused_and_the_rest_of_the_configuration_changes(
    #[case] extra: &str,
    #[case] fault: Value,
    #[case] problem: &str,
    #[case] lines_of_bad: &[&str],
) {
    let before = of_node_sets(vec![node_set("a", 1, &partition("State=UP"))], None).files;
    let inputs = Inputs {
        node_sets: vec![
            node_set("bad", 2, &fault),
            node_set("a", 1, &partition("State=DOWN")),
            node_set("new", 3, &partition("State=UP")),
        ],
        in_force: Some(before),
        ..Inputs::default()
    };
    let change = json!({ "extraConf": format!("{extra}MinJobAge=7") });
    let rendered = try_render(&change, &inputs).unwrap();
    let text = &rendered.files[SLURM_CONF];
    assert!(text.contains("MinJobAge=7") && text.contains("PartitionName=a Nodes=a State=DOWN"), "{text}");
    assert!(text.contains("PartitionName=new Nodes=new State=UP"), "{text}");
    let about_bad: Vec<_> =
        node_set_lines(&rendered).into_iter().filter(|line| line.contains("=bad")).collect();
    assert_eq!(about_bad, lines_of_bad);
    assert_eq!(refused(&rendered).len(), 1);
    assert!(refused(&rendered)[0].starts_with("NodeSet bad: "), "{rendered:?}");
    assert!(refused(&rendered)[0].contains(problem), "{rendered:?}");
}

#[test]
fn node_set_in_force_is_not_refused_for_a_fault_of_extra_conf() {
    let in_force = of_node_sets(vec![node_set("a", 1, &partition("State=UP"))], None).files;
    let inputs = Inputs {
        node_sets: vec![node_set("a", 1, &partition("State=UP")), node_set("b", 2, &partition(""))],
        in_force: Some(in_force),
        ..Inputs::default()
    };
    let error = try_render(&json!({ "extraConf": "PartitionName=a Nodes=a" }), &inputs).unwrap_err();
    assert!(error.to_string().contains("partition a is defined twice"), "{error}");
}

#[rstest]
#[case::without_state(false, "new", None)]
#[case::with_state(true, "old", Some("clusterName cannot change from \"old\" to \"new\""))]
fn name_of_a_cluster_with_state_stays(
    #[case] has_state: bool,
    #[case] expected: &str,
    #[case] message: Option<&str>,
) {
    let old = try_render(&json!({ "clusterName": "old" }), &Inputs::default()).unwrap().files;
    let inputs = Inputs { in_force: Some(old), has_state, ..Inputs::default() };
    let change = json!({ "clusterName": "new", "extraConf": "MinJobAge=7" });
    let rendered = try_render(&change, &inputs).unwrap();
    assert_eq!(lines(&rendered, &["ClusterName="]), [format!("ClusterName={expected}")]);
    assert_eq!(
        lines(&rendered, &["StateSave"]),
        [format!("StateSaveLocation=/var/spool/slurmctld/{expected}")]
    );
    assert_eq!(lines(&rendered, &["MinJobAge"]), ["MinJobAge=7"], "other changes go on");
    let ignored = rendered.ignored_name.unwrap_or_default();
    assert_eq!(ignored.is_empty(), message.is_none());
    assert!(ignored.starts_with(message.unwrap_or_default()), "{ignored}");
}

#[test]
fn running_cluster_keeps_a_name_that_a_new_one_cannot_have() {
    let mut old = try_render(&json!({ "clusterName": "ab" }), &Inputs::default()).unwrap().files;
    old.insert(SLURM_CONF.to_owned(), old[SLURM_CONF].replace("ClusterName=ab", "ClusterName=a.b"));
    let inputs = Inputs { in_force: Some(old), has_state: true, ..Inputs::default() };
    let rendered = try_render(&json!({ "clusterName": "a.b" }), &inputs).unwrap();
    assert_eq!(lines(&rendered, &["ClusterName="]), ["ClusterName=a.b"]);
    assert_eq!(rendered.ignored_name, None);
}

#[test]
fn partition_named_default_is_refused() {
    let set = |enabled| node_set("default", 0, &json!({ "partition": { "enabled": enabled } }));
    let refused = |set| refused(&of_node_sets(vec![set], None));
    assert_eq!(refused(set(false)), [""; 0]);
    let problem = "NodeSet default: a partition cannot be named \"default\": slurm.conf uses that name for the defaults of all partitions";
    assert_eq!(refused(set(true)), [problem]);
}

/// The NodeSet after an edit, with its condition `PartitionHeld` for a generation.
fn with_partition_held(set: Arc<NodeSet>, held: &str, generation: i64) -> Arc<NodeSet> {
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
fn partition_is_closed_before_it_is_removed() {
    let enabled = of_node_sets(vec![node_set("a", 1, &partition("Default=YES State=UP"))], None);
    let disabled = || node_set("a", 1, &json!({}));
    let closed = of_node_sets(vec![with_partition_held(disabled(), "False", 2)], Some(enabled.files.clone()));
    assert_eq!(partition_lines(&closed), ["PartitionName=a Nodes=a Default=YES State=DRAIN"]);
    let note = "NodeSet a: partition a accepts no new jobs and is removed when no job record names it";
    assert_eq!(closed.warnings, [note]);
    let kept = of_node_sets(vec![disabled()], Some(closed.files.clone()));
    assert_eq!(kept.files, closed.files, "the NodeSet has not released it yet");
    let removed = of_node_sets(vec![with_partition_held(disabled(), "False", 2)], Some(closed.files.clone()));
    assert_eq!((partition_lines(&removed), removed.warnings.len()), (vec![], 0));
    let restored = of_node_sets(vec![node_set("a", 1, &partition("State=UP"))], Some(closed.files));
    assert_eq!(partition_lines(&restored), ["PartitionName=a Nodes=a State=UP"]);
}

#[rstest]
#[case::held("True", 2, false)]
#[case::unknown("Unknown", 2, false)]
#[case::released_for_an_older_generation("False", 1, false)]
#[case::released("False", 2, true)]
fn partition_is_removed_when_the_current_generation_releases_it(
    #[case] held: &str,
    #[case] generation: i64,
    #[case] is_removed: bool,
) {
    let in_force = of_node_sets(vec![node_set("a", 1, &partition("State=DRAIN"))], None).files;
    let set = with_partition_held(node_set("a", 1, &json!({})), held, generation);
    assert_eq!(partition_lines(&of_node_sets(vec![set], Some(in_force))).is_empty(), is_removed);
}

#[rstest]
#[case::other_case("Default=YES state=DRAIN")]
#[case::more_blanks("Default=YES  State=\"DRAIN\"")]
#[case::other_order("State=DRAIN Default=YES")]
fn partition_that_the_user_closed_is_removed_in_any_notation(#[case] config: &str) {
    let released = || vec![with_partition_held(node_set("a", 1, &json!({})), "False", 2)];
    let in_force = of_node_sets(vec![node_set("a", 1, &partition(config))], None).files;
    let closed = of_node_sets(released(), Some(in_force)).files;
    assert_eq!(partition_lines(&of_node_sets(released(), Some(closed))), [""; 0]);
}

#[test]
fn deleted_node_set_closes_its_partition() {
    let set = node_set("a", 1, &partition("State=UP"));
    let in_force = of_node_sets(vec![set.clone()], None).files;
    let mut deleted = Arc::unwrap_or_clone(set);
    deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
    let deleted = vec![Arc::new(deleted)];
    let closed = of_node_sets(deleted.clone(), Some(in_force));
    assert_eq!(partition_lines(&closed), ["PartitionName=a Nodes=a State=DRAIN"]);
    assert_eq!(
        partition_lines(&of_node_sets(deleted, None)),
        [""; 0],
        "a partition that was never in force is not kept"
    );
}

#[test]
fn partition_in_extra_conf_replaces_that_of_the_node_set() {
    let in_force = of_node_sets(vec![node_set("a", 1, &partition("State=UP"))], None).files;
    let inputs = Inputs {
        node_sets: vec![node_set("a", 1, &json!({}))],
        in_force: Some(in_force),
        ..Inputs::default()
    };
    let rendered = try_render(&json!({ "extraConf": "PartitionName=a Nodes=a" }), &inputs).unwrap();
    assert_eq!(partition_lines(&rendered), ["PartitionName=a Nodes=a"]);
    assert_eq!(rendered.warnings, [""; 0]);
}

#[test]
fn partition_removed_from_extra_conf_is_not_kept() {
    let inputs =
        |in_force| Inputs { node_sets: vec![node_set("a", 1, &json!({}))], in_force, ..Inputs::default() };
    let theirs = json!({ "extraConf": "PartitionName=a Nodes=a State=UP" });
    let in_force = try_render(&theirs, &inputs(None)).unwrap().files;
    assert_eq!(partition_lines(&render_with(&inputs(Some(in_force)))), [""; 0]);
}

#[test]
fn older_of_two_node_sets_gets_their_common_slurm_name() {
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
    assert_eq!(refused(&rendered), ["NodeSet a: another NodeSet already has the name \"gpu\" in Slurm"]);
}

#[test]
fn max_node_count_covers_all_nodes_and_never_shrinks() {
    let rendered_with = |replicas: i32, in_force: Option<Files>| {
        let sets = ["a", "b"].map(|name| node_set(name, 1, &json!({ "replicas": replicas })));
        of_node_sets(sets.to_vec(), in_force)
    };
    let large = rendered_with(700, None);
    assert_eq!(lines(&large, &["MaxNodeCount"]), ["MaxNodeCount=2048"]);
    assert_eq!(lines(&rendered_with(1, None), &["MaxNodeCount"]), ["MaxNodeCount=1024"]);
    let absurd = rendered_with(i32::MAX, None);
    assert_eq!(lines(&absurd, &["MaxNodeCount"]), ["MaxNodeCount=65536"], "slurmctld allocates as many");
    assert_eq!(rendered_with(1, Some(large.files.clone())).files, large.files);
    assert_eq!(lines(&rendered_with(1500, Some(large.files)), &["MaxNodeCount"]), ["MaxNodeCount=4096"]);
}

#[test]
fn existing_nodes_count_although_fewer_are_desired() {
    let mut set = node_set("a", 1, &json!({ "replicas": 2, "scalingMode": "DaemonSet" }));
    let status = NodeSetStatus { replicas: 3000, desired: 1, ..NodeSetStatus::default() };
    Arc::make_mut(&mut set).status = Some(status);
    assert_eq!(lines(&of_node_sets(vec![set], None), &["MaxNodeCount"]), ["MaxNodeCount=4096"]);
}

#[rstest]
#[case::cluster_name(json!({ "clusterName": "hpc\nSlurmUser=root" }), "must not contain '\\n'")]
#[case::cluster_name_blank(json!({ "clusterName": "h pc" }), "clusterName \"h pc\" must not contain ' '")]
#[case::cluster_name_dot(json!({ "clusterName": "h.pc" }), "clusterName \"h.pc\" must not contain '.'")]
#[case::cluster_name_umlaut(json!({ "clusterName": "höhe" }), "must not contain 'ö'")]
#[case::backups(json!({ "ha": { "enabled": true, "backups": i32::MAX } }), "ha.backups is 2147483647")]
#[case::too_large(json!({ "extraConf": "#".repeat(1_100_000) }), "more than the 1000000 that fit")]
#[case::too_many_nodes(json!({ "extraConf": "NodeName=n[1-65536] CPUs=1\n".repeat(1000) }), "more than 65536 nodes")]
#[case::external_host(json!({ "external": true, "externalConfig": { "host": "h\nSlurmUser=root", "port": 1 } }),
    "externalConfig.host must be a host name")]
#[case::external_command(json!({ "external": true, "externalConfig": { "host": "h;reboot", "port": 1 } }),
    "externalConfig.host must be a host name")]
#[case::script(json!({ "prologScriptRefs": [{ "name": "odd" }] }), "the name of a script must not contain ' '")]
#[case::extra_conf(json!({ "extraConf": "just words" }), "slurmctld would refuse slurm.conf")]
fn invalid_value_is_refused_with_its_field(#[case] change: Value, #[case] text: &str) {
    let inputs = Inputs {
        node_sets: vec![node_set("a", 1, &partition(""))],
        config_maps: [("odd".to_owned(), config_map(&[("a b", "")]))].into(),
        ..Inputs::default()
    };
    let error = try_render(&change, &inputs).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

#[test]
fn accounting_with_an_invalid_host_is_named() {
    let host = json!({ "external": true, "externalConfig": { "host": "a b", "port": 1 } });
    let inputs = Inputs { accounting: Some(accounting(&host)), ..Inputs::default() };
    let error = try_render(&json!({}), &inputs).unwrap_err().to_string();
    assert!(error.starts_with("Accounting books: externalConfig.host"), "{error}");
}

#[test]
fn override_of_a_generated_option_is_a_warning() {
    let rendered = try_render(&json!({ "extraConf": "SlurmUser=root" }), &Inputs::default()).unwrap();
    assert_eq!(rendered.warnings.len(), 1);
    assert!(rendered.warnings[0].contains("slurmuser"), "{rendered:?}");
}

#[test]
fn files_equivalent_to_those_in_force_are_kept() {
    let ours = render_with(&Inputs::default()).files;
    let mut theirs = ours.clone();
    theirs.insert(SLURM_CONF.to_owned(), ours[SLURM_CONF].replace("### GENERAL ###", "## Ours"));
    theirs.insert(CGROUP_CONF.to_owned(), format!("# Theirs\n{}", ours[CGROUP_CONF]));
    assert_ne!(theirs, ours);
    let inputs = Inputs { in_force: Some(theirs.clone()), ..Inputs::default() };
    assert_eq!(render_with(&inputs).files, theirs);
    let changed = try_render(&json!({ "extraConf": "MinJobAge=2" }), &inputs).unwrap().files;
    assert_eq!((&changed[CGROUP_CONF], changed.len()), (&theirs[CGROUP_CONF], 2));
    assert!(changed[SLURM_CONF].contains("### GENERAL ###"), "each file is kept or rendered as a whole");
}

#[test]
fn scripts_of_all_config_maps_are_sorted() {
    let change = json!({ "epilogScriptRefs": [{ "name": "two" }, { "name": "one" }, { "name": "missing" }] });
    let config_maps = [
        ("one".to_owned(), config_map(&[("c.sh", ""), ("a.sh", "")])),
        ("two".to_owned(), config_map(&[("b.sh", "")])),
    ];
    let rendered = try_render(&change, &Inputs { config_maps: config_maps.into(), ..Inputs::default() });
    assert_eq!(lines(&rendered.unwrap(), &["Epilog="]), ["Epilog=a.sh", "Epilog=b.sh", "Epilog=c.sh"]);
}

#[rstest]
#[case::config_file("configFileRefs", CGROUP_CONF, false)]
#[case::other_config_file("configFileRefs", "gres.conf", true)]
#[case::script("prologScriptRefs", CGROUP_CONF, true)]
fn cgroup_conf_of_the_user_replaces_the_generated_one(
    #[case] field: &str,
    #[case] file: &str,
    #[case] generated: bool,
) {
    let config_maps = [("mine".to_owned(), config_map(&[(file, "")]))].into();
    let change = json!({ field: [{ "name": "mine" }] });
    let rendered = try_render(&change, &Inputs { config_maps, ..Inputs::default() }).unwrap();
    assert_eq!(rendered.files.contains_key(CGROUP_CONF), generated);
}
