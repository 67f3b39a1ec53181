use super::*;
use rstest::rstest;
use serde_json::json;

/// Inside of the pods' template.
fn pods(spec: &Value) -> Value {
    json!({ "spec": { "template": { "$patch": "replace", "spec": spec } } })
}

/// Inside of the slurmd container.
fn slurmd(container: &Value) -> Value {
    json!({ "spec": { "slurmd": container } })
}

#[test]
fn a_revision_written_field_by_field_is_the_one_as_the_user_wrote_it() {
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
#[case::part_that_nobody_wrote(json!({ "spec": { "slurmd": { "$patch": "replace", "name": "", "resources": {} } } }), json!({ "spec": {} }))]
#[case::template_that_nobody_wrote(
    json!({ "spec": { "template": { "$patch": "replace", "metadata": {}, "spec": { "containers": null } } } }),
    json!({ "spec": { "template": { "$patch": "replace" } } })
)]
#[case::empty_extra_conf(json!({ "spec": { "extraConf": "" } }), json!({ "spec": {} }))]
#[case::no_padding(json!({ "spec": { "ordinalPadding": 0, "oversubscribeNode": false } }), json!({ "spec": {} }))]
#[case::cpu(slurmd(&json!({ "resources": { "limits": { "cpu": 0.5 } } })), slurmd(&json!({ "resources": { "limits": { "cpu": "500m" } } })))]
#[case::mount_that_may_be_written_to(
    slurmd(&json!({ "volumeMounts": [{ "name": "a", "mountPath": "/a", "readOnly": false }] })),
    slurmd(&json!({ "volumeMounts": [{ "name": "a", "mountPath": "/a" }] }))
)]
#[case::toleration(pods(&json!({ "tolerations": [{ "operator": "Exists", "key": "" }] })), pods(&json!({ "tolerations": [{ "operator": "Exists" }] })))]
#[case::no_data(Value::Null, json!(null))]
fn what_says_the_same(#[case] one: Value, #[case] other: Value) {
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
#[case::quantities_that_are_none(slurmd(&json!({ "resources": { "limits": { "cpu": "lots" } } })), slurmd(&json!({ "resources": { "limits": { "cpu": "many" } } })))]
#[case::directive_beside_more(slurmd(&json!({ "$patch": "replace", "image": "a" })), slurmd(&json!({ "$patch": "merge", "image": "a" })))]
#[case::padding(json!({ "spec": { "ordinalPadding": 2 } }), json!({ "spec": {} }))]
fn what_does_not(#[case] one: Value, #[case] other: Value) {
    assert!(!is_equivalent(&one, &other), "{} {}", canonical(&one), canonical(&other));
    assert!(!is_equivalent(&other, &one));
}
