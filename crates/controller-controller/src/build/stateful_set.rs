//! The StatefulSet of slurmctld.

use super::config::Files;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, PodAffinityTerm,
    PodSecurityContext, PodSpec, SecurityContext, Volume, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;
use operator_runtime::Exact;
use pod_builder::parts::{
    AUTH_SOCKET, LOG_FILES, SLURM_ETC, config_map_items, config_map_source, empty_dir, http_probe, item,
    logfile, memory_dir, mount, patient, projected, read_only, reconfigure, secret_items,
};
use pod_builder::{
    BuildError, Containers, REQUIRED_ANTI_AFFINITY, Template, build_container, child_metadata, hash_values,
    keep_running_template, layered, layered_annotations,
};
use serde_json::{Value, json};
use slinky_api::labels::{App, annotations, common_labels, selector_labels};
use slinky_api::names::{self, SLURM_ID, SLURMCTLD_PORT};
use slinky_api::v1beta1::{Controller, Persistence};
use std::collections::BTreeMap;

/// Mode of the files in /etc/slurm: their group may run the scripts among them.
const ETC_MODE: i32 = 0o610;
const STATE: &str = "statesave";
const RUN: &str = "run";
const SLURMCTLD_LOG: &str = "/var/log/slurm/slurmctld.log";

/// Hashes of what slurmctld reads at its start.
pub struct Hashes {
    /// Of the Secret with the Slurm key.
    pub slurm_key: String,
    /// Of the Secret with the signing key.
    pub jwt_key: String,
}

/// The StatefulSet `<name>-controller`, with the configuration that is about to be in force. Pods of `live` that mean the
/// same keep running.
pub fn build_stateful_set(
    controller: &Controller,
    files: &Files,
    hashes: &Hashes,
    live: Option<&Exact<StatefulSet>>,
) -> Result<Exact<StatefulSet>, BuildError> {
    let name = names::controller::workload(&controller.name_any());
    let user = controller.spec.template.clone().unwrap_or_default().metadata.unwrap_or_default();
    let annotations = layered_annotations([Some(controller.annotations()), user.annotations.as_ref()]);
    let labels = layered([Some(controller.labels()), user.labels.as_ref(), Some(&common_labels(controller))]);
    let pod_metadata = ObjectMeta {
        name: Some(name.clone()),
        namespace: controller.namespace(),
        labels: Some(labels.clone()),
        annotations: Some(layered([Some(&annotations), Some(&content(controller, files, hashes))])),
        ..ObjectMeta::default()
    };
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": child_metadata(controller, &name, labels, annotations),
        "spec": {
            "replicas": controller.spec.daemons(),
            "revisionHistoryLimit": 0,
            "serviceName": names::controller::internal_service(&controller.name_any()),
            "selector": { "matchLabels": selector_labels(controller) },
            "template": build_pod(controller, pod_metadata)?.to_value(),
        },
    });
    if let Some(claims) = claim_templates(controller, live) {
        set["spec"]["volumeClaimTemplates"] = claims;
    }
    Ok(Exact::new(keep_running_template(set, live.map(Exact::as_json), crate::NAME))?)
}

/// What makes pods new when it changes. With reconfiguration in place the configuration does not.
fn content(controller: &Controller, files: &Files, hashes: &Hashes) -> BTreeMap<String, String> {
    let mut content = BTreeMap::from([
        (annotations::SLURM_KEY_HASH.to_owned(), hashes.slurm_key.clone()),
        (annotations::JWT_KEY_HASH.to_owned(), hashes.jwt_key.clone()),
        (annotations::DEFAULT_CONTAINER.to_owned(), Controller::NAME.to_owned()),
    ]);
    if !controller.spec.inplace_reconfigure {
        content.insert(annotations::SLURM_CONFIG_HASH.to_owned(), hash_values(files));
    }
    content
}

/// The claim templates. Kubernetes never lets them change, so those of a StatefulSet that exists stay.
fn claim_templates(controller: &Controller, live: Option<&Exact<StatefulSet>>) -> Option<Value> {
    if let Some(live) = live {
        return live.as_json().pointer("/spec/volumeClaimTemplates").cloned();
    }
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    (persistence.enabled && persistence.existing_claim().is_none()).then(|| {
        json!([{
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": { "name": STATE, "namespace": controller.namespace() },
            "spec": persistence.claim,
        }])
    })
}

fn build_pod(controller: &Controller, metadata: ObjectMeta) -> Result<Template, BuildError> {
    let spec = &controller.spec;
    let base = PodSpec {
        automount_service_account_token: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(SLURM_ID),
            run_as_group: Some(SLURM_ID),
            fs_group: Some(SLURM_ID),
            ..PodSecurityContext::default()
        }),
        volumes: Some(vec![
            projected(SLURM_ETC, ETC_MODE, etc_sources(controller)),
            memory_dir(LOG_FILES),
            memory_dir(RUN),
            empty_dir(AUTH_SOCKET),
        ]),
        ..PodSpec::default()
    };
    let mut init = Vec::new();
    if spec.inplace_reconfigure {
        init.push(build_container("reconfigure", &reconfigure(), &spec.reconfigure)?);
    }
    init.push(build_container("logfile", &logfile(SLURMCTLD_LOG), &spec.logfile)?);
    let containers = Containers { init, main: vec![build_slurmctld(controller)?] };
    let user = spec.template.clone().unwrap_or_default().spec;
    let mut template = Template::build(metadata, &base, containers, "template.spec", &user)?;
    template.require(REQUIRED_ANTI_AFFINITY, &apart(controller));
    if let Some(volume) = state_volume(&spec.persistence.clone().unwrap_or_default()) {
        template.require(&["volumes"], &volume);
    }
    Ok(template)
}

/// Daemons that stand in for each other must not fall together.
fn apart(controller: &Controller) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(selector_labels(controller)),
            ..LabelSelector::default()
        }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// The volume with slurmctld's state, unless it comes from a claim template.
fn state_volume(persistence: &Persistence) -> Option<Volume> {
    let volume = Volume { name: STATE.to_owned(), ..Volume::default() };
    if !persistence.enabled {
        return Some(Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..volume });
    }
    let claim_name = persistence.existing_claim()?.to_owned();
    let claim = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
    Some(Volume { persistent_volume_claim: Some(claim), ..volume })
}

/// Everything in /etc/slurm: of two files with one name the later one wins.
fn etc_sources(controller: &Controller) -> Vec<VolumeProjection> {
    let spec = &controller.spec;
    let slurm_key = spec.slurm_key_ref.clone().unwrap_or_default();
    let jwt_key = spec.signing_key_ref().cloned().unwrap_or_default();
    let mut sources = vec![
        config_map_source(&names::controller::config(&controller.name_any())),
        secret_items(&slurm_key.name, vec![item(&slurm_key.key, "slurm.key", None)]),
        secret_items(&jwt_key.name, vec![item(&jwt_key.key, "jwt.key", None)]),
    ];
    sources.extend(spec.config_map_names().iter().map(|name| config_map_source(name)));
    if let Some(jwks) = &spec.jwks_key_ref {
        sources.push(config_map_items(&jwks.name, vec![item(&jwks.key, "jwks.json", None)]));
    }
    sources
}

fn build_slurmctld(controller: &Controller) -> Result<Value, BuildError> {
    let state = format!("/var/spool/slurmctld/{}", controller.cluster_name());
    // A daemon that stands by is never "ready", and would hold up the update of the next one.
    let ready = if controller.spec.is_highly_available() { "/livez" } else { "/readyz" };
    let base = Container {
        name: Controller::NAME.to_owned(),
        ports: Some(vec![ContainerPort {
            name: Some(Controller::NAME.to_owned()),
            container_port: SLURMCTLD_PORT,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        startup_probe: Some(patient(http_probe("/livez", Controller::NAME))),
        liveness_probe: Some(patient(http_probe("/livez", Controller::NAME))),
        readiness_probe: Some(http_probe(ready, Controller::NAME)),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(SLURM_ID),
            run_as_group: Some(SLURM_ID),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![
            read_only(mount(SLURM_ETC, "/etc/slurm")),
            mount(RUN, "/run"),
            mount(STATE, &state),
            mount(AUTH_SOCKET, "/run/slurmctld"),
            mount(LOG_FILES, "/var/log/slurm"),
        ]),
        ..Container::default()
    };
    Ok(build_container(Controller::NAME, &base, &controller.spec.slurmctld)?)
}
