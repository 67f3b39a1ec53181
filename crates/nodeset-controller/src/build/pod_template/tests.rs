use super::*;
use crate::fixture::{controller, nodeset, template};
use rstest::rstest;
use serde_json::json;

fn build(change: &Value) -> Result<WorkerTemplate, BuildError> {
    let hashes = Hashes { sshd_conf: "h1".to_owned(), sssd_conf: "h2".to_owned() };
    build_template(&nodeset(change), &controller(), hashes, "cluster.test")
}

fn slurmd(change: &Value) -> Value {
    template(&nodeset(change)).spec["containers"][0].clone()
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[rstest]
#[case::none("", None, r#"'Features=gpu Topology='"$SLINKY_TOPOLOGY"''"#)]
#[case::features("Weight=10 feature=a", None, r#"'Features=a,gpu Topology='"$SLINKY_TOPOLOGY"' Weight=10'"#)]
#[case::topology("Topology=switch-topo:s1", None, "'Features=gpu Topology=switch-topo:s1'")]
#[case::hostname("", Some("foo-"), r#"'Features=foo Topology='"$SLINKY_TOPOLOGY"''"#)]
fn slurmd_args_have_the_node_configuration(
    #[case] extra: &str,
    #[case] hostname: Option<&str>,
    #[case] conf: &str,
) {
    let slurmd = slurmd(&json!({
        "extraConf": extra,
        "template": { "spec": { "hostname": hostname } },
        "slurmd": { "args": ["-vv"] },
    }));
    let args = json!(["-Z", "--conf-server", "slurm-controller.ns:6817", "--conf", conf, "-vv"]);
    assert_eq!(slurmd["args"], args);
}

#[test]
fn config_server_of_an_external_controller_is_its_host() {
    let mut controller = controller();
    controller.spec.external = true;
    controller.spec.external_config =
        serde_json::from_value(json!({ "host": "ctl.example", "port": 7000 })).unwrap();
    let hashes = Hashes { sshd_conf: String::new(), sssd_conf: String::new() };
    let template = build_template(&nodeset(&json!({})), &controller, hashes, "cluster.test").unwrap();
    assert_eq!(template.spec["containers"][0]["args"][2], "ctl.example:7000");
}

#[test]
fn address_that_a_shell_would_execute_is_refused() {
    let mut controller = controller();
    controller.spec.external = true;
    controller.spec.external_config =
        serde_json::from_value(json!({ "host": "h;reboot", "port": 7000 })).unwrap();
    let hashes = Hashes { sshd_conf: String::new(), sssd_conf: String::new() };
    let error = build_template(&nodeset(&json!({})), &controller, hashes, "cluster.test").unwrap_err();
    assert!(error.to_string().contains("externalConfig.host"), "{error}");
}

#[rstest]
#[case::none(json!({}), json!({}), "0", "0")]
#[case::container_limits(json!({ "cpu": "1500m", "memory": "1500Mi" }), json!({ "cpu": 8 }), "2", "1500")]
#[case::pod_limits(json!({}), json!({ "cpu": 4, "memory": "2Gi" }), "4", "2048")]
fn environment_has_the_effective_limits(
    #[case] own: Value,
    #[case] pod: Value,
    #[case] cpus: &str,
    #[case] memory: &str,
) {
    let env = slurmd(&json!({
        "slurmd": { "resources": { "limits": own } },
        "template": { "spec": { "resources": { "limits": pod } } },
    }))["env"]
        .clone();
    assert_eq!(env[1], json!({ "name": "POD_CPUS", "value": cpus }));
    assert_eq!(env[2], json!({ "name": "POD_MEMORY", "value": memory }));
}

#[rstest]
#[case::slurmd(json!({ "slurmd": { "image": 5 } }), "slurmd.image cannot be read")]
#[case::logfile(json!({ "logfile": { "env": { "A": "b" } } }), "logfile.env cannot be read")]
#[case::template(
    json!({ "template": { "spec": { "nodeSelector": ["a"] } } }),
    "template.spec.nodeSelector cannot be read"
)]
#[case::affinity(json!({ "template": { "spec": { "affinity": "near" } } }), "template.spec.affinity cannot be read")]
#[case::container_limits(
    json!({ "slurmd": { "resources": { "limits": { "memory": "lots" } } } }),
    "slurmd.resources.limits.memory cannot be read: it is not a quantity"
)]
#[case::pod_limits(
    json!({ "template": { "spec": { "resources": { "limits": { "cpu": "all" } } } } }),
    "template.spec.resources.limits.cpu cannot be read: it is not a quantity"
)]
#[case::extra_conf(
    json!({ "extraConf": "Weight10 Feature=a" }),
    r#"extraConf cannot be read: malformed --conf item "Weight10": expected Key=Value"#
)]
#[case::shell_in_extra_conf(
    json!({ "extraConf": "Gres=a';reboot;'" }),
    r#"extraConf cannot be read: malformed --conf item "Gres=a';reboot;'": must not contain '\''"#
)]
#[case::hostname(
    json!({ "template": { "spec": { "hostname": "a,b" } } }),
    "template.spec.hostname must not contain ','"
)]
#[case::claims(json!({ "volumeClaimTemplates": [{}] }), "volumeClaimTemplates[0].metadata.name")]
fn error_names_the_invalid_field(#[case] change: Value, #[case] message: &str) {
    let error = build(&change).unwrap_err();
    assert!(error_chain(&error).starts_with(message), "{}", error_chain(&error));
}

#[test]
fn user_template_is_merged_and_required_fields_stay() {
    let template = template(&nodeset(&json!({
        "slurmd": { "fieldOfTomorrow": true, "securityContext": { "privileged": false } },
        "template": {
            "metadata": {
                "labels": { "team": "ai", "app.kubernetes.io/name": "theirs" },
                "annotations": { "note": "2", "slinky.slurm.net/sshd-conf-hash": "theirs" },
            },
            "spec": {
                "nodeName": "node-1",
                "fieldOfTomorrow": 1,
                "tolerations": [{ "key": "gpu", "operator": "Exists" }],
                "dnsConfig": { "searches": ["example.test"] },
                "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone" }] } },
            },
        },
    })));
    let spec = &template.spec;
    assert_eq!((&spec["fieldOfTomorrow"], spec.get("nodeName")), (&json!(1), None));
    assert_eq!(spec["containers"][0]["fieldOfTomorrow"], true);
    assert_eq!(spec["containers"][0]["securityContext"]["privileged"], false);
    assert_eq!(spec["tolerations"][1]["key"], WORKER_TAINT);
    assert_eq!(spec["dnsConfig"]["searches"][1], "slurm-workers-slurm.ns.svc.cluster.test");
    let terms = &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        (&terms[0]["topologyKey"], &terms[1]["topologyKey"]),
        (&json!("zone"), &json!("kubernetes.io/hostname"))
    );
    let (labels, annotations) = (template.metadata.labels.unwrap(), template.metadata.annotations.unwrap());
    assert_eq!((labels["team"].as_str(), labels[APP_NAME].as_str()), ("ai", "slurmd"));
    assert_eq!(
        (annotations["note"].as_str(), annotations[annotations::SSHD_CONF_HASH].as_str()),
        ("2", "h1")
    );
    assert!(!annotations.contains_key(annotations::LAST_APPLIED));
}

#[rstest]
#[case::none(json!([]), &[("slurmd", 6818), ("ssh", 22)])]
#[case::another_name(json!([{ "name": "web", "containerPort": 80 }]), &[("slurmd", 6818), ("ssh", 22), ("web", 80)])]
#[case::unnamed(json!([{ "containerPort": 80 }]), &[("slurmd", 6818), ("ssh", 22), ("", 80)])]
#[case::other_ssh_port(json!([{ "name": "ssh", "containerPort": 2222 }]), &[("slurmd", 6818), ("ssh", 2222)])]
#[case::same_ssh_port(json!([{ "name": "ssh", "containerPort": 22 }]), &[("slurmd", 6818), ("ssh", 22)])]
#[case::other_slurmd_port(json!([{ "name": "slurmd", "containerPort": 7000 }]), &[("ssh", 22), ("slurmd", 7000)])]
#[case::ssh_port_with_another_name(
    json!([{ "name": "login", "containerPort": 22 }]), &[("slurmd", 6818), ("login", 22)]
)]
fn user_port_replaces_the_port_of_the_same_name(#[case] ports: Value, #[case] expected: &[(&str, i64)]) {
    let ssh = json!({ "enabled": true, "sssdConfRef": { "name": "sssd", "key": "sssd.conf" } });
    let slurmd = slurmd(&json!({ "ssh": ssh, "slurmd": { "ports": ports } }));
    let read = |port: &Value| {
        (port["name"].as_str().unwrap_or_default().to_owned(), port["containerPort"].as_i64().unwrap())
    };
    let mut built: Vec<_> = slurmd["ports"].as_array().unwrap().iter().map(read).collect();
    let mut expected: Vec<_> = expected.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
    built.sort();
    expected.sort();
    assert_eq!(built, expected);
}

#[test]
fn user_pre_stop_hook_replaces_ours() {
    let hook = json!({ "sleep": { "seconds": 1 } });
    let slurmd = slurmd(&json!({ "slurmd": { "lifecycle": { "preStop": hook } } }));
    assert_eq!(slurmd["lifecycle"]["preStop"], hook);
}

#[test]
fn typed_spec_has_the_scheduling_fields() {
    let template =
        template(&nodeset(&json!({ "template": { "spec": { "nodeSelector": { "gpu": "yes" } } } })));
    let spec = template.pod_spec();
    assert_eq!(spec.node_selector.as_ref().unwrap()["gpu"], "yes");
    assert_eq!(spec.tolerations.as_ref().unwrap()[0].key.as_deref(), Some(WORKER_TAINT));
}
