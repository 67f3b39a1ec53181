//! Which differences between the live and the desired pod template are changes.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use pod_builder::parts::{initconf, logfile, reconfigure};
use pod_builder::{LastWriter, same_template};
use rstest::rstest;
use serde_json::{Value, json};

/// A template as the operator builds it.
fn desired() -> Value {
    json!({
        "metadata": { "name": "c-controller", "labels": { "app": "slurmctld" }, "annotations": { "hash": "1" } },
        "spec": {
            "automountServiceAccountToken": false,
            "initContainers": [logfile("/var/log/slurm/slurmctld.log"), reconfigure()],
            "containers": [{
                "name": "slurmctld",
                "image": "example.test/slurmctld:26.05",
                "env": [{ "name": "EMPTY", "value": "" }],
                "ports": [{ "name": "slurmctld", "containerPort": 6817 }],
                "readinessProbe": { "httpGet": { "path": "/readyz", "port": "slurmctld" } },
                "livenessProbe": { "httpGet": { "path": "/livez", "port": "slurmctld" }, "failureThreshold": 6, "periodSeconds": 0 },
                "resources": { "limits": { "cpu": 1, "memory": "1024Mi" } },
                "securityContext": { "runAsUser": 0 },
                "volumeMounts": [{ "name": "etc", "mountPath": "/etc/slurm", "readOnly": false }],
            }],
            "volumes": [
                { "name": "etc", "projected": { "sources": [{ "configMap": { "name": "c" } }] } },
                { "name": "run", "emptyDir": { "sizeLimit": "1Gi" } },
            ],
        },
    })
}

/// The same template as an API server returns it.
fn live() -> Value {
    let mut live = desired();
    live["metadata"]["creationTimestamp"] = Value::Null;
    let spec = &mut live["spec"];
    spec["restartPolicy"] = json!("Always");
    spec["dnsPolicy"] = json!("ClusterFirst");
    spec["schedulerName"] = json!("default-scheduler");
    spec["terminationGracePeriodSeconds"] = json!(30);
    spec["securityContext"] = json!({});
    for key in ["containers", "initContainers"] {
        for container in spec[key].as_array_mut().unwrap() {
            container["terminationMessagePath"] = json!("/dev/termination-log");
            container["terminationMessagePolicy"] = json!("File");
            container["imagePullPolicy"] =
                if key == "containers" { json!("IfNotPresent") } else { json!("Always") };
        }
    }
    let container = &mut spec["containers"][0];
    container["env"] = json!([{ "name": "EMPTY" }]);
    container["ports"][0]["protocol"] = json!("TCP");
    for probe in ["readinessProbe", "livenessProbe"] {
        let probe = &mut container[probe];
        probe["timeoutSeconds"] = json!(1);
        probe["periodSeconds"] = json!(10);
        probe["successThreshold"] = json!(1);
        probe["httpGet"]["scheme"] = json!("HTTP");
    }
    container["readinessProbe"]["failureThreshold"] = json!(3);
    container["resources"]["limits"] = json!({ "cpu": "1", "memory": "1Gi" });
    container["volumeMounts"][0].as_object_mut().unwrap().remove("readOnly");
    spec["volumes"][0]["projected"]["defaultMode"] = json!(420);
    live
}

fn same(live: &Value, last_writer: LastWriter) -> bool {
    same_template(live, &desired(), last_writer)
}

#[test]
fn defaults_of_the_api_server_are_ignored() {
    assert!(same(&live(), LastWriter::Us));
    assert!(same_template(&desired(), &live(), LastWriter::Us));
}

#[rstest]
#[case::restart_annotation("/metadata/annotations", json!({ "hash": "1", "kubectl.kubernetes.io/restartedAt": "now" }))]
#[case::last_applied_configuration("/metadata/annotations", json!({ "hash": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}" }))]
#[case::quantity("/spec/containers/0/resources/limits", json!({ "cpu": "1000m", "memory": 1_073_741_824 }))]
#[case::size_limit("/spec/volumes/1/emptyDir", json!({ "medium": "", "sizeLimit": "1024Mi" }))]
fn equivalent_values_are_ignored(#[case] pointer: &str, #[case] value: Value) {
    let mut live = live();
    *live.pointer_mut(pointer).unwrap() = value;
    assert!(same(&live, LastWriter::Us));
}

#[rstest]
#[case("/metadata/annotations/hash", json!("2"))]
#[case("/metadata/labels", json!({}))]
#[case("/spec/automountServiceAccountToken", Value::Null)]
#[case("/spec/terminationGracePeriodSeconds", json!(0))]
#[case("/spec/containers/0/image", json!("example.test/slurmctld:26.11"))]
#[case("/spec/containers/0/imagePullPolicy", json!("Always"))]
#[case("/spec/containers/0/securityContext", json!({}))]
#[case("/spec/containers/0/resources/limits/cpu", json!("2"))]
#[case("/spec/containers/0/livenessProbe/failureThreshold", json!(3))]
#[case("/spec/containers/0/volumeMounts/0/readOnly", json!(true))]
#[case("/spec/containers/0/env", json!([]))]
#[case("/spec/volumes/1", json!({ "name": "run" }))]
#[case("/spec/initContainers", json!([]))]
fn change_of_the_pod_is_a_change(#[case] pointer: &str, #[case] value: Value) {
    let mut live = live();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = live.pointer_mut(parent).unwrap();
    if let Some(items) = parent.as_array_mut() {
        items[key.parse::<usize>().unwrap()] = value;
    } else {
        parent[key] = value;
    }
    assert!(!same(&live, LastWriter::Us));
    assert!(!same(&live, LastWriter::Another));
}

#[test]
fn empty_selector_differs_from_no_selector() {
    let with = |term: Value| {
        let mut template = desired();
        template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!([term]);
        template
    };
    let (all, none) =
        (with(json!({ "topologyKey": "a", "labelSelector": {} })), with(json!({ "topologyKey": "a" })));
    assert!(!same_template(&all, &none, LastWriter::Us));
}

#[rstest]
#[case::older_script_of_ours("# Script of the Slurm operator: old\ntrue", LastWriter::Us, true)]
#[case::script_of_the_replaced_operator("#!/bin/sh\ntrue", LastWriter::Another, true)]
#[case::script_that_the_user_removed("#!/bin/sh\ntrue", LastWriter::Us, false)]
fn text_of_operator_scripts_is_ignored(
    #[case] script: &str,
    #[case] writer: LastWriter,
    #[case] expected: bool,
) {
    for (index, position) in [(0, 2), (1, 5)] {
        let mut live = live();
        live["spec"]["initContainers"][index]["command"][position] = json!(script);
        assert_eq!(same(&live, writer), expected);
    }
}

#[rstest]
#[case(json!(["sh", "-c", "echo mine"]))]
#[case(json!(["tail", "-F", "x"]))]
fn command_of_the_user_is_a_change(#[case] command: Value) {
    let mut changed = desired();
    changed["spec"]["initContainers"][0]["command"] = command;
    assert!(!same_template(&live(), &changed, LastWriter::Another));
    assert!(!same_template(&live(), &changed, LastWriter::Us));
    assert!(!same(&changed, LastWriter::Us));
}

#[test]
fn script_of_initconf_is_ignored_by_container_name() {
    let with = |container: Value| json!({ "spec": { "initContainers": [container] } });
    let mut old = serde_json::to_value(initconf()).unwrap();
    old["command"][2] = json!("cp");
    let new = serde_json::to_value(initconf()).unwrap();
    assert!(same_template(&with(old.clone()), &with(new.clone()), LastWriter::Another));
    old["name"] = json!("other");
    assert!(!same_template(&with(old), &with(new), LastWriter::Another));
}

#[rstest]
#[case("a/b", "Always")]
#[case("a/b:latest", "Always")]
#[case("host:5000/b", "Always")]
#[case("host:5000/b:1", "IfNotPresent")]
#[case("a/b@sha256:00", "IfNotPresent")]
fn default_pull_policy_depends_on_the_tag(#[case] image: &str, #[case] policy: &str) {
    let with =
        |policy: Value| json!({ "spec": { "containers": [{ "image": image, "imagePullPolicy": policy }] } });
    assert!(same_template(&with(json!(policy)), &with(Value::Null), LastWriter::Us));
    assert!(!same_template(&with(json!("Never")), &with(Value::Null), LastWriter::Us));
}

#[test]
fn host_port_is_ignored_with_host_network_if_equal_to_the_container_port() {
    let same = |host_network: bool, host_port: i32| {
        let with = |port: Value| json!({ "spec": { "hostNetwork": host_network, "containers": [{ "ports": [port] }] } });
        let running = with(json!({ "containerPort": 22, "hostPort": host_port }));
        same_template(&running, &with(json!({ "containerPort": 22 })), LastWriter::Us)
    };
    assert!(same(true, 22));
    assert!(!same(true, 23));
    assert!(!same(false, 22));
}
