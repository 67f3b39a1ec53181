use super::*;
use crate::fixture::{nodeset, template};
use rstest::rstest;

fn numbered(change: &Value, ordinal: i32, pin: Option<&str>) -> Result<Value, BuildError> {
    let nodeset = nodeset(change);
    build_numbered_pod(&template(&nodeset), &nodeset, ordinal, "4bcd", pin)
}

fn daemon(change: &Value, node: &str, hostname: &str) -> Result<Value, BuildError> {
    let nodeset = nodeset(change);
    build_daemon_pod(&template(&nodeset), &nodeset, node, hostname, "4bcd")
}

/// The pod without the scripts, which have their own tests.
fn without_scripts(mut pod: Value) -> Value {
    for script in ["/spec/initContainers/0/command/2", "/spec/containers/0/lifecycle/preStop/exec/command/2"]
    {
        *pod.pointer_mut(script).unwrap() = json!("(script)");
    }
    pod
}

fn full_spec() -> Value {
    json!({
        "ordinalPadding": 3,
        "oversubscribeNode": true,
        "pinToNode": true,
        "extraConf": "Weight=10",
        "slurmd": {
            "image": "slurmd:26.05",
            "args": ["-vv"],
            "env": [{ "name": "POD_CPUS", "value": "99" }, { "name": "MINE", "value": "x" }],
            "resources": { "limits": { "cpu": "1500m", "memory": "1500Mi" } },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            "fieldOfTomorrow": true,
        },
        "ssh": { "enabled": true, "sssdConfRef": { "name": "sssd", "key": "conf" } },
        "volumeClaimTemplates": [{
            "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        }],
        "template": {
            "metadata": { "labels": { "pool": "big" }, "annotations": { "pool": "big" } },
            "spec": {
                "hostname": "node-",
                "nodeSelector": { "gpu": "yes" },
                "tolerations": [{ "key": "gpu", "operator": "Exists", "effect": "NoExecute" }],
                "affinity": { "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                        { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] },
                    ] },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        { "weight": 1, "preference": { "matchExpressions": [{ "key": "ssd", "operator": "Exists" }] } },
                    ],
                } },
                "initContainers": [{ "name": "warm", "image": "warm:1" }],
                "containers": [{ "name": "side", "image": "side:1" }],
                "volumes": [{ "name": "shm", "emptyDir": { "medium": "Memory" } }],
            },
        },
    })
}

#[test]
fn minimal() {
    insta::assert_yaml_snapshot!(without_scripts(numbered(&json!({}), 0, None).unwrap()));
}

#[test]
fn full() {
    insta::assert_yaml_snapshot!(without_scripts(numbered(&full_spec(), 7, Some("node-a")).unwrap()));
}

#[test]
fn daemon_pod() {
    let mut change = full_spec();
    change["oversubscribeNode"] = json!(false);
    insta::assert_yaml_snapshot!(without_scripts(daemon(&change, "node-1.zone.example", "node-1").unwrap()));
}

#[test]
fn pod_without_revision_has_no_revision_label() {
    let nodeset = nodeset(&json!({}));
    let pod = build_numbered_pod(&template(&nodeset), &nodeset, 0, "", None).unwrap();
    assert_eq!(pod["metadata"]["labels"].get(labels::REVISION_HASH), None);
}

#[test]
fn daemon_pod_name_depends_on_nodeset_and_node_and_has_no_ordinal() {
    let gpu = nodeset(&json!({}));
    let mut cpu = gpu.clone();
    cpu.metadata.name = Some("cpu".to_owned());
    // Running pods have these names: other names would create a second pod on each node.
    assert_eq!(daemon_pod_name(&gpu, "node-1"), "gpu-nfcfb63900b");
    assert_eq!(daemon_pod_name(&gpu, "node-2"), "gpu-n932a2e2724");
    assert_eq!(daemon_pod_name(&cpu, "node-1"), "cpu-n8930b3d792");
    for node in 0..1000 {
        let name = daemon_pod_name(&gpu, &format!("node-{node}"));
        assert_eq!(slinky_api::workers::ordinal_of(&name), None, "{name}");
    }
}

#[rstest]
#[case::longest("a")]
#[case::cut_at_a_dot("ab.")]
#[case::cut_at_a_dash("ab-")]
fn daemon_pod_name_is_valid_for_any_nodeset_name(#[case] unit: &str) {
    let name: String = unit.chars().cycle().take(252).collect();
    let long = |end: &str| {
        let mut nodeset = nodeset(&json!({}));
        nodeset.metadata.name = Some(format!("{name}{end}"));
        daemon_pod_name(&nodeset, "node-1")
    };
    check_pod_name(&long("a")).unwrap();
    assert_ne!(long("a"), long("b"), "NodeSets with the same prefix have different pods");
}

#[rstest]
#[case::nodeset_name("a".repeat(62), json!({}), "the name of a pod")]
#[case::padding("gpu".to_owned(), json!({ "ordinalPadding": i64::MAX }), "the name of a pod")]
#[case::hostname("gpu".to_owned(), json!({ "template": { "spec": { "hostname": "a".repeat(63) } } }), "the hostname of a pod")]
#[case::capitals("gpu".to_owned(), json!({ "template": { "spec": { "hostname": "Node-" } } }), "the hostname of a pod")]
#[case::dots("gpu.big".to_owned(), json!({}), "the hostname of a pod")]
fn name_that_the_api_server_would_reject_is_an_error(
    #[case] name: String,
    #[case] change: Value,
    #[case] what: &str,
) {
    let mut nodeset = nodeset(&change);
    nodeset.metadata.name = Some(name);
    let error = build_numbered_pod(&template(&nodeset), &nodeset, 0, "h", None).unwrap_err().to_string();
    assert!(error.starts_with(what), "{error}");
}

#[rstest]
#[case::trailing_dash("node-1-")]
#[case::blank("my host")]
#[case::dots("node.example")]
#[case::none("")]
fn error_of_an_invalid_hostname_names_the_node(#[case] hostname: &str) {
    let error = daemon(&json!({}), "node-1", hostname).unwrap_err().to_string();
    assert!(error.starts_with("the hostname of the pod on node-1 cannot be"), "{error}");
}

#[test]
fn padding_widens_small_ordinals_and_keeps_large_ones() {
    let name = |ordinal| {
        numbered(&json!({ "ordinalPadding": 2 }), ordinal, None).unwrap()["metadata"]["name"].clone()
    };
    assert_eq!((name(7), name(123)), (json!("gpu-07"), json!("gpu-123")));
}

#[test]
fn pin_replaces_only_the_required_node_affinity() {
    let pod = numbered(&full_spec(), 0, Some("node-a")).unwrap();
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(
        *terms,
        json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-a"] }] }])
    );
    assert!(affinity["preferredDuringSchedulingIgnoredDuringExecution"].is_array());
    assert_eq!(pod["spec"]["nodeSelector"]["gpu"], "yes");
}
