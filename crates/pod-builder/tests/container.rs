//! Containers of the operator, merged with overrides of the user.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use k8s_openapi::api::core::v1::Container;
use pod_builder::{append_args, build_container};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::Raw;

fn base() -> Container {
    serde_json::from_value(json!({
        "name": "slurmd",
        "args": ["-Z"],
        "env": [
            { "name": "TOPOLOGY", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "CPUS", "value": "4" },
        ],
        "ports": [{ "name": "slurmd", "containerPort": 6818, "protocol": "TCP" }],
        "livenessProbe": { "httpGet": { "path": "/livez", "port": "slurmd" }, "failureThreshold": 6, "periodSeconds": 10 },
        "securityContext": { "privileged": true, "runAsUser": 401, "capabilities": { "add": ["BPF", "SYS_NICE"] } },
        "lifecycle": { "preStop": { "exec": { "command": ["sh", "-c", "exit"] } } },
        "volumeMounts": [{ "name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": true }],
    }))
    .unwrap()
}

fn build(user: Value) -> Value {
    build_container("slurmd", &base(), &Raw::new(user)).unwrap()
}

/// The base with one field replaced.
fn base_with(field: &str, content: Value) -> Value {
    let mut expected = serde_json::to_value(base()).unwrap();
    expected[field] = content;
    expected
}

#[rstest]
#[case::absent(Value::Null)]
#[case::empty(json!({}))]
#[case::zero_values_of_go_clients(json!({ "name": "", "resources": {} }))]
#[case::nulls(json!({ "image": null, "env": null, "securityContext": { "privileged": null } }))]
#[case::empty_lists(json!({ "args": [], "env": [], "securityContext": { "capabilities": { "add": [] } } }))]
#[case::patch_directives(json!({ "$patch": "delete", "$retainKeys": ["name"] }))]
fn null_and_empty_values_change_nothing(#[case] user: Value) {
    assert_eq!(build(user), serde_json::to_value(base()).unwrap());
}

#[rstest]
#[case::name("name", json!("mine"), json!("mine"))]
#[case::args_are_appended("args", json!(["-Z", "-vv"]), json!(["-Z", "-Z", "-vv"]))]
#[case::command("command", json!(["/bin/true"]), json!(["/bin/true"]))]
#[case::explicit_false_and_zero(
    "securityContext", json!({ "privileged": false, "runAsUser": 0 }),
    json!({ "privileged": false, "runAsUser": 0, "capabilities": { "add": ["BPF", "SYS_NICE"] } }))]
#[case::atomic_list(
    "securityContext", json!({ "capabilities": { "add": ["SYS_PTRACE"] } }),
    json!({ "privileged": true, "runAsUser": 401, "capabilities": { "add": ["SYS_PTRACE"] } }))]
#[case::explicit_false_in_a_list(
    "volumeMounts", json!([{ "name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": false }]),
    json!([{ "name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": false }]))]
#[case::probe_numbers_keep_the_handler(
    "livenessProbe", json!({ "periodSeconds": 3 }),
    json!({ "httpGet": { "path": "/livez", "port": "slurmd" }, "failureThreshold": 6, "periodSeconds": 3 }))]
#[case::probe_with_another_handler(
    "livenessProbe", json!({ "tcpSocket": { "port": 6818 } }),
    json!({ "tcpSocket": { "port": 6818 }, "failureThreshold": 6, "periodSeconds": 10 }))]
#[case::probe_with_the_same_kind_of_handler(
    "livenessProbe", json!({ "httpGet": { "port": 1234 } }),
    json!({ "httpGet": { "port": 1234 }, "failureThreshold": 6, "periodSeconds": 10 }))]
#[case::probe_without_a_default("startupProbe", json!({ "exec": { "command": ["true"] } }), json!({ "exec": { "command": ["true"] } }))]
#[case::hook_with_another_handler(
    "lifecycle", json!({ "preStop": { "sleep": { "seconds": 1 } } }), json!({ "preStop": { "sleep": { "seconds": 1 } } }))]
#[case::value_instead_of_reference(
    "env", json!([{ "name": "TOPOLOGY", "value": "" }]),
    json!([{ "name": "TOPOLOGY", "value": "" }, { "name": "CPUS", "value": "4" }]))]
#[case::reference_instead_of_value(
    "env", json!([{ "name": "CPUS", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]),
    json!([
        { "name": "TOPOLOGY", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
        { "name": "CPUS", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]))]
#[case::another_kind_of_reference(
    "env", json!([{ "name": "TOPOLOGY", "valueFrom": { "configMapKeyRef": { "name": "c", "key": "k" } } }]),
    json!([
        { "name": "TOPOLOGY", "valueFrom": { "configMapKeyRef": { "name": "c", "key": "k" } } },
        { "name": "CPUS", "value": "4" }]))]
#[case::port_renamed(
    "ports", json!([{ "name": "mine", "containerPort": 6818 }]),
    json!([{ "name": "mine", "containerPort": 6818, "protocol": "TCP" }]))]
#[case::port_of_another_protocol(
    "ports", json!([{ "name": "quic", "containerPort": 6818, "protocol": "UDP" }]),
    json!([
        { "name": "quic", "containerPort": 6818, "protocol": "UDP" },
        { "name": "slurmd", "containerPort": 6818, "protocol": "TCP" }]))]
#[case::unknown_field("futureField", json!({ "a": [0, { "b": "" }] }), json!({ "a": [0, { "b": "" }] }))]
#[case::resources("resources", json!({ "limits": { "cpu": 4 } }), json!({ "limits": { "cpu": 4 } }))]
fn value_of_the_user_is_merged(#[case] field: &str, #[case] user: Value, #[case] expected: Value) {
    assert_eq!(build(json!({ field: user })), base_with(field, expected));
}

#[rstest]
#[case(json!({ "image": 5 }), "slurmd.image", "invalid type: integer `5`, expected a string")]
#[case(json!({ "env": [{ "name": "A" }, { "name": ["B"] }] }), "slurmd.env[1].name", "invalid type: sequence, expected a string")]
#[case(json!("text"), "slurmd", "invalid type: string \"text\", expected Container")]
#[case(json!({ "args": [null] }), "slurmd.args[0]", "invalid type: null, expected a string")]
fn error_names_the_mistyped_field(#[case] user: Value, #[case] path: &str, #[case] source: &str) {
    let error = build_container("slurmd", &base(), &Raw::new(user)).unwrap_err();
    assert_eq!(error.to_string(), format!("{path} cannot be read"));
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), source);
}

#[test]
fn args_are_appended_to_those_of_the_user() {
    let mut container = build(json!({ "args": ["-v"] }));
    append_args(&mut container, [json!("0.0.0.0:6820")]);
    assert_eq!(container["args"], json!(["-Z", "-v", "0.0.0.0:6820"]));
    let mut without = json!({ "name": "x" });
    append_args(&mut without, [json!("a")]);
    assert_eq!(without["args"], json!(["a"]));
}
