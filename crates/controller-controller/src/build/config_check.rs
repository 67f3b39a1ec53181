//! The pod in which slurmctld tries a configuration before it replaces the one that is in force.
//!
//! Slurm has no way to check a configuration other than to start with it. So it is started, with the image and the pod
//! that it is meant for, but apart: with a state of its own, without peers, database or network Services.

use super::config::Files;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use operator_runtime::Exact;
use pod_builder::parts::{SLURM_ETC, mount, read_only};
use pod_builder::{BuildError, child_metadata};
use serde_json::{Map, Value, json};
use slinky_api::labels::{APP_INSTANCE, APP_NAME, Labels, annotations};
use slinky_api::names::controller as names;
use slinky_api::v1beta1::Controller;
use std::collections::BTreeMap;

/// Value of the name label of check pods and their files.
pub const CHECK_APP: &str = "slurm-config-check";

const CHECK: &str = include_str!("../../scripts/check.sh");
const RUNNING: &str = "running-config";
/// A check that takes longer tells nothing.
const DEADLINE_SECONDS: i64 = 60;

/// Name of a check pod and of the ConfigMap with its files.
pub fn check_name(controller: &str) -> String {
    format!("{controller}-config-check")
}

/// The ConfigMap with the files to be checked.
pub fn build_candidate(controller: &Controller, files: Files) -> ConfigMap {
    ConfigMap {
        metadata: child_metadata(
            controller,
            &check_name(&controller.name_any()),
            labels(controller),
            BTreeMap::new(),
        ),
        data: Some(files),
        ..ConfigMap::default()
    }
}

/// The pod that checks the candidate, made from the slurmctld pod that would run with it. `id` says what is checked.
pub fn build_check(controller: &Controller, template: &Value, id: &str) -> Result<Exact<Pod>, BuildError> {
    let name = check_name(&controller.name_any());
    let annotations = BTreeMap::from([(annotations::CONFIG.to_owned(), id.to_owned())]);
    let mut spec = template["spec"].as_object().cloned().unwrap_or_default();
    let slurmctld = spec.get("containers").and_then(|containers| containers.get(0)).cloned();
    // None of these is needed to read files and exit; each could keep the pod from being placed.
    for field in
        ["initContainers", "affinity", "topologySpreadConstraints", "hostNetwork", "hostPID", "hostIPC"]
    {
        spec.remove(field);
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
    Ok(Exact::new(pod)?)
}

/// Not those of slurmctld: no Service and no StatefulSet may take the pod for one of its own.
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

/// The volumes of slurmctld with the candidate in the place of the configuration, which comes apart, and without claims:
/// they may be mountable only once.
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
    // Those of claim templates are in no pod template.
    for mount in mounted.filter(|mount| mount["name"] != RUNNING) {
        if !volumes.iter().any(|volume| volume["name"] == mount["name"]) {
            volumes.push(json!({ "name": mount["name"], "emptyDir": {} }));
        }
    }
    volumes.push(json!({ "name": RUNNING, "configMap": { "name": names::config(&name) } }));
    volumes
}
