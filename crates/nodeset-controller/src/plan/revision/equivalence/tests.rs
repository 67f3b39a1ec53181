use super::*;
use rstest::rstest;
use serde_json::json;

/// In the pod template.
fn pods(spec: &Value) -> Value {
    json!({ "spec": { "template": { "$patch": "replace", "spec": spec } } })
}

/// In the slurmd container.
fn slurmd(container: &Value) -> Value {
    json!({ "spec": { "slurmd": container } })
}

#[test]
fn typed_revision_is_equivalent_to_the_users_json() {
    let typed = json!({ "spec": {
        "logfile": { "$patch": "replace", "image": "alpine:3", "name": "", "resources": {} },
        "ordinalPadding": 0,
        "oversubscribeNode": false,
        "slurmd": {
            "$patch": "replace", "image": "slurmd:26.05", "name": "",
            "env": [
                { "name": "EMPTY" },
                { "name": "CORES", "valueFrom": { "resourceFieldRef": { "divisor": "0", "resource": "limits.cpu" } } },
            ],
            "resources": { "limits": { "cpu": "4", "memory": "16Gi" } },
            "securityContext": { "privileged": false },
        },
        "template": {
            "$patch": "replace",
            "metadata": { "labels": { "pool": "big", "gpu": "" } },
            "spec": {
                "containers": null,
                "nodeSelector": { "node-role/worker": "" },
                "volumes": [{ "name": "scratch", "emptyDir": { "sizeLimit": "1Gi" } }],
            },
        },
    } });
    let as_written = json!({ "spec": {
        "logfile": { "$patch": "replace", "image": "alpine:3" },
        "ordinalPadding": 0,
        "oversubscribeNode": false,
        "slurmd": {
            "$patch": "replace", "image": "slurmd:26.05", "args": [], "tty": false, "workingDir": "",
            "env": [
                { "name": "EMPTY", "value": "" },
                { "name": "CORES", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } },
            ],
            "resources": { "limits": { "cpu": 4, "memory": "16384Mi" }, "requests": {} },
            "securityContext": { "privileged": false },
        },
        "template": {
            "$patch": "replace",
            "metadata": { "labels": { "pool": "big", "gpu": "" }, "annotations": {}, "creationTimestamp": null },
            "spec": {
                "hostNetwork": false,
                "priorityClassName": "",
                "nodeSelector": { "node-role/worker": "" },
                "volumes": [{ "name": "scratch", "emptyDir": { "sizeLimit": "1024Mi" } }],
                "tolerations": [],
            },
        },
    } });
    assert!(is_equivalent(&typed, &as_written));
}

#[rstest]
#[case::unset_object(json!({ "spec": { "slurmd": { "$patch": "replace", "name": "", "resources": {} } } }), json!({ "spec": {} }))]
#[case::unset_template(
    json!({ "spec": { "template": { "$patch": "replace", "metadata": {}, "spec": { "containers": null } } } }),
    json!({ "spec": { "template": { "$patch": "replace" } } })
)]
#[case::empty_extra_conf(json!({ "spec": { "extraConf": "" } }), json!({ "spec": {} }))]
#[case::no_padding(json!({ "spec": { "ordinalPadding": 0, "oversubscribeNode": false } }), json!({ "spec": {} }))]
#[case::cpu(slurmd(&json!({ "resources": { "limits": { "cpu": 0.5 } } })), slurmd(&json!({ "resources": { "limits": { "cpu": "500m" } } })))]
#[case::writable_mount(
    slurmd(&json!({ "volumeMounts": [{ "name": "a", "mountPath": "/a", "readOnly": false }] })),
    slurmd(&json!({ "volumeMounts": [{ "name": "a", "mountPath": "/a" }] }))
)]
#[case::toleration(pods(&json!({ "tolerations": [{ "operator": "Exists", "key": "" }] })), pods(&json!({ "tolerations": [{ "operator": "Exists" }] })))]
#[case::no_data(Value::Null, json!(null))]
fn equivalent_revisions(#[case] one: Value, #[case] other: Value) {
    assert!(is_equivalent(&one, &other), "{} {}", canonical(&one), canonical(&other));
    assert!(is_equivalent(&other, &one));
}

#[rstest]
#[case::image(slurmd(&json!({ "image": "slurmd:1" })), slurmd(&json!({ "image": "slurmd:2" })))]
#[case::empty_label(
    json!({ "spec": { "template": { "metadata": { "labels": { "a": "" } } } } }),
    json!({ "spec": { "template": { "metadata": { "labels": {} } } } })
)]
#[case::label_named_like_a_field(
    json!({ "spec": { "template": { "metadata": { "labels": { "tty": "", "x": "1" } } } } }),
    json!({ "spec": { "template": { "metadata": { "labels": { "x": "1" } } } } })
)]
#[case::empty_node_selector_value(pods(&json!({ "nodeSelector": { "a": "" } })), pods(&json!({})))]
#[case::explicit_false_over_a_default(slurmd(&json!({ "securityContext": { "privileged": false } })), slurmd(&json!({})))]
#[case::explicit_true(pods(&json!({ "enableServiceLinks": true })), pods(&json!({})))]
#[case::explicit_zero(pods(&json!({ "terminationGracePeriodSeconds": 0 })), pods(&json!({})))]
#[case::volume_source(pods(&json!({ "volumes": [{ "name": "slurm-etc", "emptyDir": {} }] })), pods(&json!({ "volumes": [{ "name": "slurm-etc" }] })))]
#[case::selector_of_everything(
    pods(&json!({ "topologySpreadConstraints": [{ "labelSelector": {} }] })),
    pods(&json!({ "topologySpreadConstraints": [{}] }))
)]
#[case::storage_class_none(
    pods(&json!({ "volumes": [{ "ephemeral": { "volumeClaimTemplate": { "spec": { "storageClassName": "" } } } }] })),
    pods(&json!({ "volumes": [{ "ephemeral": { "volumeClaimTemplate": { "spec": {} } } }] }))
)]
#[case::order_of_arguments(slurmd(&json!({ "args": ["-a", "-b"] })), slurmd(&json!({ "args": ["-b", "-a"] })))]
#[case::empty_argument(slurmd(&json!({ "args": ["-a", ""] })), slurmd(&json!({ "args": ["-a"] })))]
#[case::memory(slurmd(&json!({ "resources": { "limits": { "memory": "1G" } } })), slurmd(&json!({ "resources": { "limits": { "memory": "1Gi" } } })))]
#[case::no_cpu(slurmd(&json!({ "resources": { "limits": { "cpu": 0 } } })), slurmd(&json!({})))]
#[case::invalid_quantities(slurmd(&json!({ "resources": { "limits": { "cpu": "lots" } } })), slurmd(&json!({ "resources": { "limits": { "cpu": "many" } } })))]
#[case::directive_with_other_members(slurmd(&json!({ "$patch": "replace", "image": "a" })), slurmd(&json!({ "$patch": "merge", "image": "a" })))]
#[case::padding(json!({ "spec": { "ordinalPadding": 2 } }), json!({ "spec": {} }))]
fn different_revisions(#[case] one: Value, #[case] other: Value) {
    assert!(!is_equivalent(&one, &other), "{} {}", canonical(&one), canonical(&other));
    assert!(!is_equivalent(&other, &one));
}
