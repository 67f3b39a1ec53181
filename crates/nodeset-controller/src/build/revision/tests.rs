use super::*;
use crate::fixture::nodeset;
use rstest::rstest;

fn bare(spec: &Value) -> NodeSet {
    let mut change = json!({ "slurmd": null, "logfile": null });
    for (field, value) in spec.as_object().unwrap() {
        change[field] = value.clone();
    }
    nodeset(&change)
}

fn hash(spec: &Value) -> String {
    revision_hash(&revision_bytes(&build_revision_data(&bare(spec))), 0)
}

/// Hashes of pods in existing clusters, computed with Kubernetes' Go types and functions.
#[rstest]
#[case::empty_spec("d6457cd55", json!({}))]
#[case::empty_containers("6f54c9b49d", json!({
    "template": { "metadata": { "labels": {}, "annotations": null }, "spec": { "containers": [] } },
    "logfile": {},
    "ssh": { "enabled": false, "sssdConfRef": { "name": "", "key": "" } },
    "extraConf": "",
}))]
#[case::usual("db5f7cf98", json!({
    "slurmd": { "image": "example.test/slurmd:26.05" },
    "logfile": { "image": "example.test/alpine:3" },
    "template": { "spec": { "nodeSelector": { "none": "none" } } },
}))]
#[case::ssh("65c88df56d", json!({
    "slurmd": { "image": "example.test/slurmd:26.05", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] },
    "logfile": { "image": "example.test/alpine:3" },
    "template": { "spec": { "nodeSelector": { "none": "none" } } },
    "ordinalPadding": 3,
    "ssh": {
        "enabled": true,
        "extraSshdConfig": "LoginGraceTime 60\n",
        "sssdConfRef": { "name": "sssd", "key": "sssd.conf" },
    },
}))]
#[case::disabled_ssh("6574d8fcbf", json!({
    "logfile": { "resources": {} },
    "ssh": { "enabled": false, "sssdConfRef": { "name": "s", "key": "k" } },
}))]
#[case::extra_conf("6c95b8c447", json!({
    "slurmd": { "image": "example.test/slurmd:26.05" },
    "logfile": { "image": "example.test/alpine:3" },
    "template": { "spec": { "nodeSelector": { "none": "none" } } },
    "extraConf": "Weight=10 feature=gpu,fast Gres=gpu:4",
}))]
#[case::zeros_in_a_container("65bbc548c6", json!({ "slurmd": {
    "image": "a",
    "args": [],
    "env": [
        { "name": "A", "value": "" },
        { "name": "C", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } },
        { "name": "D", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu", "divisor": "1000m" } } },
    ],
    "securityContext": {},
    "resources": { "limits": {}, "requests": { "cpu": 4, "memory": "1024Mi" } },
    "volumeMounts": [{ "name": "x", "mountPath": "/x", "readOnly": false, "subPath": "" }],
    "tty": false,
    "readinessProbe": { "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 0, "failureThreshold": 3 },
} }))]
#[case::zeros_in_a_pod("84759ccbf", json!({ "template": { "spec": {
    "hostNetwork": false,
    "nodeSelector": {},
    "tolerations": [],
    "affinity": {},
    "securityContext": { "runAsUser": 0, "fsGroup": 0 },
    "terminationGracePeriodSeconds": 0,
    "dnsConfig": {},
    "hostname": "",
    "enableServiceLinks": false,
    "overhead": { "cpu": "0.5" },
    "imagePullSecrets": [{ "name": "p" }],
    "priorityClassName": "",
    "volumes": [
        { "name": "e", "ephemeral": { "volumeClaimTemplate": { "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": { "requests": { "storage": "1024Gi" } },
        } } } },
        { "name": "f", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
        { "name": "m", "emptyDir": { "sizeLimit": "2048Mi" } },
        { "name": "n", "emptyDir": {} },
    ],
    "initContainers": [{ "name": "i", "image": "b", "command": ["sh", "-c", "echo <a> && b", ""] }],
} } }))]
#[case::quantities("6797544c6d", json!({ "slurmd": { "image": "a", "resources": { "limits": {
    "cpu": "0.5", "memory": "1.5Gi", "a/b": "1000", "c/d": "1000000", "e": "1000Ki", "f": "1e3", "g": "12e-3",
    "h": "100m", "i": "1000m", "j": "0", "k": "0Gi", "l": "512", "m": "1Ki", "n": "1000Mi", "o": "1536Mi", "p": "1E",
    "q": "2.5", "r": "0.1Gi", "s": "1500", "t": "0.001Ki", "u": "10G", "v": "1e6", "w": "1e1", "x": "100u",
} } } }))]
#[case::maps_and_sources("787bf85779", json!({
    "template": {
        "metadata": { "labels": { "x": "" }, "annotations": { "a": "<b>&\u{2028}" } },
        "spec": {
            "nodeSelector": { "x": "" },
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "z",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": {} },
            }],
            "volumes": [
                { "name": "s", "secret": { "secretName": "s", "defaultMode": 0, "optional": false } },
                { "name": "c", "configMap": { "name": "c", "items": [{ "key": "a", "path": "b", "mode": 0 }] } },
                { "name": "h", "hostPath": { "path": "/x", "type": "" } },
                { "name": "p", "persistentVolumeClaim": { "claimName": "x", "readOnly": false } },
            ],
        },
    },
    "ordinalPadding": 4,
    "oversubscribeNode": true,
    "extraConf": "Gres=a<b",
}))]
#[case::ports_and_hooks("6cbc8b486b", json!({
    "logfile": { "image": "x", "resources": {} },
    "ssh": { "enabled": true, "extraSshdConfig": "", "sssdConfRef": { "name": "s", "key": "k", "optional": false } },
    "slurmd": {
        "ports": [{ "containerPort": 22, "hostPort": 0, "name": "", "protocol": "TCP" }],
        "lifecycle": { "preStop": { "sleep": { "seconds": 0 } } },
        "livenessProbe": { "grpc": { "port": 5, "service": "" } },
    },
}))]
fn running_pods_keep_their_hash(#[case] expected: &str, #[case] spec: Value) {
    let data = build_revision_data(&bare(&spec));
    assert_eq!(revision_hash(&revision_bytes(&data), 0), expected, "{}", revision_bytes(&data));
}

#[rstest]
#[case::replicas(json!({ "replicas": 5 }))]
#[case::partition(json!({ "partition": { "enabled": true } }))]
#[case::claims(json!({ "volumeClaimTemplates": [{ "metadata": { "name": "a" } }] }))]
#[case::strategy(json!({ "updateStrategy": { "type": "OnDelete" } }))]
#[case::pins(json!({ "pinToNode": true }))]
#[case::protection(json!({ "workloadDisruptionProtection": false }))]
#[case::mode(json!({ "scalingMode": "DaemonSet" }))]
#[case::nulls(json!({ "slurmd": { "env": null, "securityContext": null } }))]
fn change_of_other_fields_keeps_the_revision(#[case] change: Value) {
    assert_eq!(hash(&change), hash(&json!({})));
}

#[rstest]
#[case::padding(json!({ "ordinalPadding": 1 }))]
#[case::sharing(json!({ "oversubscribeNode": true }))]
#[case::labels(json!({ "template": { "metadata": { "labels": { "a": "1" } } } }))]
#[case::explicit_false(json!({ "slurmd": { "securityContext": { "privileged": false } } }))]
#[case::empty_subdomain(json!({ "template": { "spec": { "subdomain": "" } } }))]
#[case::unknown_field(json!({ "slurmd": { "fieldOfTomorrow": true } }))]
#[case::ill_typed(json!({ "slurmd": { "resources": { "limits": { "cpu": "lots" } } } }))]
fn change_of_pod_fields_changes_the_revision(#[case] change: Value) {
    assert_ne!(hash(&change), hash(&json!({})));
}

#[test]
fn collision_count_changes_the_hash() {
    let bytes = revision_bytes(&build_revision_data(&bare(&json!({}))));
    assert_ne!(revision_hash(&bytes, 1), revision_hash(&bytes, 0));
}

#[test]
fn data_has_sorted_keys_and_replace_patches() {
    let data = build_revision_data(&bare(&json!({ "extraConf": "A=\"<&>\"" })));
    assert_eq!(
        revision_bytes(&data),
        r#"{"spec":{"extraConf":"A=\"\u003c\u0026\u003e\"","ordinalPadding":0,"oversubscribeNode":false,"#
            .to_owned()
            + r#""slurmd":{"$patch":"replace","name":"","resources":{}},"#
            + r#""template":{"$patch":"replace","metadata":{},"spec":{"containers":null}}}}"#
    );
}

#[test]
fn revision() {
    let nodeset = nodeset(&json!({
        "template": { "metadata": { "labels": { "pool": "big", "app.kubernetes.io/name": "theirs" } } },
    }));
    insta::assert_yaml_snapshot!(build_revision(&nodeset, build_revision_data(&nodeset), "4bcd", 3));
}

#[test]
fn revision_name_is_cut_to_fit_the_hash() {
    let mut nodeset = nodeset(&json!({}));
    nodeset.metadata.name = Some("a".repeat(253));
    let revision = build_revision(&nodeset, json!({}), &"9".repeat(10), 1);
    assert_eq!(revision.name_any(), format!("{}-9999999999", "a".repeat(223)));
}
