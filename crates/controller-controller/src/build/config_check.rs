//! The pod in which slurmctld tries a configuration before it replaces the one in force.
//!
//! Slurm can check a configuration only by starting with it. So slurmctld is started with the image and pod template that
//! the configuration is meant for, but isolated: with a state of its own, without peers, database or network Services.

use super::configuration::Configuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::parts::{SLURM_ETC, mount, read_only};
use pod_builder::{BuildError, child_metadata};
use serde_json::{Map, Value, json};
use slinky_api::labels::{APP_INSTANCE, APP_NAME, Labels, annotations};
use slinky_api::names::controller as names;
use slinky_api::v1beta1::Controller;
use std::collections::BTreeMap;

/// Value of the name label of check pods and their ConfigMaps.
pub const CHECK_APP: &str = "slurm-config-check";

const CHECK: &str = include_str!("../../scripts/check.sh");
const RUNNING: &str = "running-config";
/// Fields of the pod template that a short check does not need, and that could keep its pod from being scheduled.
const NOT_NEEDED: &[&str] = &[
    "affinity",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "initContainers",
    "readinessGates",
    "resourceClaims",
    "resources",
    "schedulingGates",
    "topologySpreadConstraints",
];
/// The kubelet ends a check that takes longer; it is inconclusive.
const DEADLINE_SECONDS: i64 = 60;

/// Name of a check pod and of the ConfigMap with its files.
pub fn check_name(controller: &str) -> String {
    format!("{controller}-config-check")
}

/// The ConfigMap with the files to be checked.
pub fn build_candidate(controller: &Controller, configuration: &Configuration) -> ConfigMap {
    let (data, binary_data) = configuration.to_data();
    ConfigMap {
        metadata: child_metadata(
            controller,
            &check_name(&controller.name_any()),
            labels(controller),
            BTreeMap::new(),
        ),
        data: Some(data),
        binary_data,
        ..ConfigMap::default()
    }
}

/// The pod that checks the candidate, built from the template of the slurmctld pods. `id` identifies the change.
pub fn build_check(
    controller: &Controller,
    template: &Value,
    id: &str,
) -> Result<RawObject<Pod>, BuildError> {
    let name = check_name(&controller.name_any());
    let annotations = BTreeMap::from([(annotations::CONFIG.to_owned(), id.to_owned())]);
    let mut spec = template["spec"].as_object().cloned().unwrap_or_default();
    let slurmctld = spec.get("containers").and_then(|containers| containers.get(0)).cloned();
    for field in NOT_NEEDED {
        spec.remove(*field);
    }
    spec.insert("containers".to_owned(), json!([build_container(&slurmctld.unwrap_or_default())]));
    spec.insert("volumes".to_owned(), Value::Array(volumes(&spec, controller)));
    spec.insert("restartPolicy".to_owned(), json!("Never"));
    spec.insert("activeDeadlineSeconds".to_owned(), json!(DEADLINE_SECONDS));
    spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": child_metadata(controller, &name, labels(controller), annotations),
        "spec": spec,
    });
    Ok(RawObject::new(pod)?)
}

/// They differ from those of slurmctld, so that neither Services nor the StatefulSet select the pod.
fn labels(controller: &Controller) -> Labels {
    Labels::from([
        (APP_NAME.to_owned(), CHECK_APP.to_owned()),
        (APP_INSTANCE.to_owned(), controller.name_any()),
    ])
}

fn build_container(slurmctld: &Value) -> Value {
    let kept = ["image", "imagePullPolicy", "env", "envFrom", "securityContext", "volumeMounts"];
    let mut container: Map<String, Value> =
        kept.iter().filter_map(|field| Some(((*field).to_owned(), slurmctld.get(*field)?.clone()))).collect();
    container.insert("name".to_owned(), json!("check"));
    container.insert("command".to_owned(), json!(["bash", "-c", CHECK]));
    container.insert("resources".to_owned(), json!({ "requests": { "cpu": "10m", "memory": "32Mi" } }));
    if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
        mounts.push(json!(read_only(mount(RUNNING, "/mnt/running"))));
    }
    Value::Object(container)
}

/// The volumes of slurmctld, with the candidate instead of the configuration in force, which gets a volume of its own.
/// Claims become empty directories, because only one pod at a time may be able to mount them.
fn volumes(spec: &Map<String, Value>, controller: &Controller) -> Vec<Value> {
    let name = controller.name_any();
    let mut volumes = spec.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    for volume in &mut volumes {
        if volume["name"] == SLURM_ETC {
            let sources = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut);
            for source in sources.into_iter().flatten() {
                if source.pointer("/configMap/name") == Some(&json!(names::config(&name))) {
                    source["configMap"]["name"] = json!(check_name(&name));
                }
            }
        }
        if volume.get("persistentVolumeClaim").is_some() || volume.get("ephemeral").is_some() {
            *volume = json!({ "name": volume["name"], "emptyDir": {} });
        }
    }
    let mounted = spec.get("containers").and_then(|containers| containers.pointer("/0/volumeMounts"));
    let mounted = mounted.and_then(Value::as_array).into_iter().flatten();
    // Volumes of claim templates are not in the pod template.
    for mount in mounted.filter(|mount| mount["name"] != RUNNING) {
        if !volumes.iter().any(|volume| volume["name"] == mount["name"]) {
            volumes.push(json!({ "name": mount["name"], "emptyDir": {} }));
        }
    }
    volumes.push(json!({ "name": RUNNING, "configMap": { "name": names::config(&name) } }));
    volumes
}

#[cfg(test)]
mod script_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::stateful_set::{Hashes, build_stateful_set};
    use crate::fixture::{contents, controller, texts};
    use slinky_api::labels::selector_labels;

    fn check(change: &Value) -> Value {
        let controller = controller(change);
        let hashes = Hashes { slurm_key: "1".to_owned(), jwt_key: "2".to_owned(), ..Hashes::default() };
        let set = build_stateful_set(&controller, hashes, None).unwrap();
        build_check(&controller, &set.as_json()["spec"]["template"], "id").unwrap().as_json().clone()
    }

    fn volume<'a>(pod: &'a Value, name: &str) -> &'a Value {
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        volumes.iter().find(|volume| volume["name"] == name).unwrap()
    }

    #[test]
    fn pod() {
        let mut pod = check(&json!({
            "configFileRefs": [{ "name": "files" }],
            "slurmctld": {
                "image": "slurmctld:26.05",
                "imagePullPolicy": "Never",
                "env": [{ "name": "A", "value": "1" }],
                "resources": { "limits": { "cpu": "8" } },
                "lifecycle": { "preStop": { "sleep": { "seconds": 5 } } },
            },
            "template": { "metadata": { "labels": { "mine": "1" } }, "spec": {
                "nodeSelector": { "n": "1" },
                "tolerations": [{ "operator": "Exists" }],
                "imagePullSecrets": [{ "name": "pull" }],
                "priorityClassName": "high",
                "hostNetwork": true,
                "containers": [{ "name": "beside", "image": "beside" }],
            } },
        }));
        pod["spec"]["containers"][0]["command"][2] = json!("(script)");
        insta::assert_yaml_snapshot!(pod);
    }

    #[test]
    fn check_pod_is_not_selected_as_slurmctld() {
        let controller = controller(&json!({}));
        let configuration =
            Configuration::new(texts(&[("slurm.conf", "A=1")]), contents(&[("gres.conf", "B=2")]));
        let candidate = build_candidate(&controller, &configuration);
        assert_eq!(candidate.data, Some(texts(&[("gres.conf", "B=2"), ("slurm.conf", "A=1")])));
        for labels in [json!(candidate.metadata.labels), check(&json!({}))["metadata"]["labels"].clone()] {
            let selected =
                selector_labels(&controller).iter().all(|(key, value)| labels[key] == json!(value));
            assert!(!selected, "{labels}");
        }
    }

    #[test]
    fn candidate_replaces_the_configuration_in_force() {
        let pod = check(&json!({ "configFileRefs": [{ "name": "files" }] }));
        let sources = volume(&pod, SLURM_ETC)["projected"]["sources"].as_array().unwrap();
        let maps: Vec<_> = sources.iter().filter_map(|source| source.pointer("/configMap/name")).collect();
        assert_eq!(maps, ["slurm-config-check"]);
        assert_eq!(volume(&pod, RUNNING)["configMap"]["name"], json!("slurm-config"));
    }

    #[test]
    fn check_pod_mounts_no_claims() {
        let empty = |name: &str| json!({ "name": name, "emptyDir": {} });
        assert_eq!(
            *volume(&check(&json!({})), "statesave"),
            empty("statesave"),
            "volume of a claim template"
        );
        let shared = check(&json!({ "persistence": { "existingClaim": "shared" } }));
        assert_eq!(*volume(&shared, "statesave"), empty("statesave"));
        let volumes = json!([
            { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
            { "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
        ]);
        let mine = check(&json!({ "template": { "spec": { "volumes": volumes } } }));
        assert_eq!((volume(&mine, "data"), volume(&mine, "scratch")), (&empty("data"), &empty("scratch")));
    }

    #[test]
    fn slurmctld_is_the_first_container_whatever_its_name() {
        let pod = check(&json!({
            "slurmctld": { "name": "mine", "image": "theirs" },
            "template": { "spec": { "containers": [{ "name": "slurmctld", "image": "beside" }] } },
        }));
        let containers = &pod["spec"]["containers"];
        assert_eq!((&containers[0]["name"], &containers[0]["image"]), (&json!("check"), &json!("theirs")));
        assert_eq!(containers.as_array().unwrap().len(), 1);
    }
}
