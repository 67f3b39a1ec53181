//! The StatefulSet of slurmctld.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, PodAffinityTerm, PodSpec, VolumeProjection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::parts::{
    AUTH_SOCKET, LOG_FILES, SLURM_ETC, config_map_source, container_user, empty_dir, http_probe, item,
    logfile, memory_dir, mount, pod_user, projected, read_only, reconfigure, secret_items, tcp_port,
    with_one_minute_threshold,
};
use pod_builder::{
    BuildError, Containers, REQUIRED_ANTI_AFFINITY, Template, build_container, component_metadata,
    keep_running_template, pod_metadata, roll_on_change,
};
use serde_json::{Value, json};
use slinky_api::labels::{App, annotations, selector_labels};
use slinky_api::names::{self, SLURM_ID, SLURMCTLD_PORT};
use slinky_api::v1beta1::Controller;

/// Mode of the files in /etc/slurm: the group may execute the scripts among them.
const ETC_MODE: i32 = 0o610;
const STATE: &str = "statesave";
const RUN: &str = "run";
const SLURMCTLD_LOG: &str = "/var/log/slurm/slurmctld.log";

/// Hashes of the inputs that slurmctld reads at its start, and the name of its cluster.
#[derive(Default)]
pub struct Hashes {
    /// The name of the cluster in the configuration, if it has one. A changed name of the spec is not in it while the state
    /// belongs to another cluster.
    pub cluster: Option<String>,
    /// Of the Secret with the Slurm key.
    pub slurm_key: String,
    /// Of the Secret with the signing key.
    pub jwt_key: String,
    /// Of the generated files.
    pub generated_files: String,
    /// Of the user's files, if there are any.
    pub user_files: Option<String>,
    /// The user's files are those that the pods mounted at their start.
    pub are_user_files_unchanged: bool,
}

/// The StatefulSet `<name>-controller` for a configuration. An equivalent pod template of `live` is kept, so that its pods
/// keep running.
pub fn build_stateful_set(
    controller: &Controller,
    hashes: Hashes,
    live: Option<&RawObject<StatefulSet>>,
) -> Result<RawObject<StatefulSet>, BuildError> {
    let user = controller.spec.template.as_ref().and_then(|template| template.metadata.as_ref());
    let name = names::controller::workload(&controller.name_any());
    let metadata = component_metadata(controller, &name, user);
    let mut content =
        vec![(annotations::SLURM_KEY_HASH, hashes.slurm_key), (annotations::JWT_KEY_HASH, hashes.jwt_key)];
    // With an in-place reconfigure slurmctld reads a changed configuration without a restart.
    if !controller.spec.inplace_reconfigure {
        content.push((annotations::SLURM_CONFIG_HASH, hashes.generated_files));
    }
    let pods = pod_metadata::<Controller>(&metadata, content);
    let claims = claim_templates(controller, live);
    // The volume of a claim template is not part of the pod template.
    let state = if claims.is_some() { None } else { state_volume(controller, live) };
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": {
            "replicas": controller.spec.daemons(),
            "revisionHistoryLimit": 0,
            "serviceName": names::controller::internal_service(&controller.name_any()),
            "selector": { "matchLabels": selector_labels(controller) },
            "template": build_pod(controller, hashes.cluster, pods, state)?.to_value(),
        },
    });
    if let Some(claims) = claims {
        set["spec"]["volumeClaimTemplates"] = claims;
    }
    if let Some(live) =
        live.filter(|live| hashes.are_user_files_unchanged && mounts_user_files(controller, live))
    {
        keep_etc_sources(&mut set, live);
    }
    let live = live.map(RawObject::as_json);
    // It reads the files that the spec refers to without a restart, too.
    if let Some(hash) = hashes.user_files.filter(|_| !controller.spec.inplace_reconfigure) {
        set = roll_on_change(set, live, &hash);
    }
    Ok(RawObject::new(keep_running_template(set, live, crate::NAME))?)
}

/// True if pods mount the user's files from the user's objects. Another operator, and earlier versions of this one, build
/// such pods.
pub fn mounts_user_files(controller: &Controller, live: &RawObject<StatefulSet>) -> bool {
    let own = names::controller::config(&controller.name_any());
    let names = etc_sources_of(live.as_json()).into_iter().flatten();
    names.filter_map(|source| source.pointer("/configMap/name")).any(|name| *name != own.as_str())
}

/// Mounts the files from where the live pods have them: a change of the volume alone is no reason to restart slurmctld.
fn keep_etc_sources(set: &mut Value, live: &RawObject<StatefulSet>) {
    let sources = etc_sources_of(live.as_json()).cloned();
    let volumes = set.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut);
    if let Some(volume) = volumes.into_iter().flatten().find(|volume| volume["name"] == SLURM_ETC) {
        volume["projected"]["sources"] = sources.into();
    }
}

fn etc_sources_of(set: &Value) -> Option<&Vec<Value>> {
    let volumes = set.pointer("/spec/template/spec/volumes")?.as_array()?;
    volumes.iter().find(|volume| volume["name"] == SLURM_ETC)?.pointer("/projected/sources")?.as_array()
}

/// The claim templates. They are immutable, so those of a live StatefulSet stay.
fn claim_templates(controller: &Controller, live: Option<&RawObject<StatefulSet>>) -> Option<Value> {
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

fn build_pod(
    controller: &Controller,
    cluster: Option<String>,
    metadata: ObjectMeta,
    state: Option<Value>,
) -> Result<Template, BuildError> {
    let spec = &controller.spec;
    let base = PodSpec {
        automount_service_account_token: Some(false),
        security_context: Some(pod_user(SLURM_ID)),
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
    let containers = Containers { init, main: vec![build_slurmctld(controller, cluster)?] };
    let user = spec.template.clone().unwrap_or_default().spec;
    let mut template = Template::build(metadata, &base, containers, "template.spec", &user)?;
    template.require(REQUIRED_ANTI_AFFINITY, &apart(controller));
    if let Some(volume) = state {
        template.require(&["volumes"], &volume);
    }
    Ok(template)
}

/// Keeps daemons that replace each other off the same Kubernetes node.
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

/// The volume with slurmctld's state. If the spec wants a claim template that cannot be added any more, the live volume stays.
fn state_volume(controller: &Controller, live: Option<&RawObject<StatefulSet>>) -> Option<Value> {
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    if !persistence.enabled {
        return Some(json!({ "name": STATE, "emptyDir": {} }));
    }
    if let Some(claim) = persistence.existing_claim() {
        return Some(json!({ "name": STATE, "persistentVolumeClaim": { "claimName": claim } }));
    }
    let volumes = live?.as_json().pointer("/spec/template/spec/volumes")?.as_array()?;
    volumes.iter().find(|volume| volume["name"] == STATE).cloned()
}

/// Everything in /etc/slurm. The first ConfigMap has copies of the user's files.
fn etc_sources(controller: &Controller) -> Vec<VolumeProjection> {
    let spec = &controller.spec;
    let slurm_key = spec.slurm_key_ref.clone().unwrap_or_default();
    let jwt_key = spec.signing_key_ref().cloned().unwrap_or_default();
    vec![
        config_map_source(&names::controller::config(&controller.name_any())),
        secret_items(&slurm_key.name, vec![item(&slurm_key.key, "slurm.key", None)]),
        secret_items(&jwt_key.name, vec![item(&jwt_key.key, "jwt.key", None)]),
    ]
}

fn build_slurmctld(controller: &Controller, cluster: Option<String>) -> Result<Value, BuildError> {
    let state = format!("/var/spool/slurmctld/{}", cluster.unwrap_or_else(|| controller.cluster_name()));
    // A standby never answers /readyz, and would block the rolling update of the next pod.
    let ready = if controller.spec.is_highly_available() { "/livez" } else { "/readyz" };
    let base = Container {
        name: Controller::NAME.to_owned(),
        ports: Some(vec![tcp_port(Controller::NAME, SLURMCTLD_PORT)]),
        startup_probe: Some(with_one_minute_threshold(http_probe("/livez", Controller::NAME))),
        liveness_probe: Some(with_one_minute_threshold(http_probe("/livez", Controller::NAME))),
        readiness_probe: Some(http_probe(ready, Controller::NAME)),
        security_context: Some(container_user(SLURM_ID)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{controller, high_availability, stateful_set};
    use rstest::rstest;

    fn hashes() -> Hashes {
        Hashes {
            slurm_key: "1".to_owned(),
            jwt_key: "2".to_owned(),
            generated_files: "3".to_owned(),
            ..Hashes::default()
        }
    }

    fn build_over(change: &Value, live: Option<&RawObject<StatefulSet>>) -> Value {
        let set = build_stateful_set(&controller(change), hashes(), live);
        set.unwrap().as_json().clone()
    }

    fn build(change: &Value) -> Value {
        build_over(change, None)
    }

    fn state(set: &Value) -> Option<&Value> {
        let volumes = set.pointer("/spec/template/spec/volumes").unwrap().as_array().unwrap();
        volumes.iter().find(|volume| volume["name"] == STATE)
    }

    /// Replaces the texts of scripts, which other tests cover.
    fn readable(mut set: Value) -> Value {
        for container in
            set.pointer_mut("/spec/template/spec/initContainers").unwrap().as_array_mut().unwrap()
        {
            *container["command"].as_array_mut().unwrap().last_mut().unwrap() = json!("(script)");
        }
        set
    }

    #[test]
    fn minimal() {
        insta::assert_yaml_snapshot!(readable(build(&json!({}))));
    }

    #[test]
    fn everything() {
        let files = |name: &str| json!([{ "name": name }]);
        let set = build(&json!({
            "clusterName": "hpc",
            "ha": { "enabled": true, "backups": 2 },
            "persistence": { "existingClaim": "shared" },
            "inplaceReconfigure": true,
            "reconfigure": { "image": "slurmctld:26.05" },
            "logfile": { "image": "alpine" },
            "slurmctld": { "image": "slurmctld:26.05", "args": ["-vv"], "fieldOfTomorrow": true },
            "jwksKeyRef": { "name": "issuers", "key": "keys" },
            "configFileRefs": files("zz-files"),
            "prologScriptRefs": files("scripts"),
            "epilogSlurmctldScriptRefs": files("scripts"),
            "template": {
                "metadata": { "labels": { "tier": "control" }, "annotations": { "a": "1" } },
                "spec": { "nodeSelector": { "n": "1" }, "volumes": [{ "name": "mine", "emptyDir": {} }] },
            },
        }));
        insta::assert_yaml_snapshot!(readable(set));
    }

    #[rstest]
    #[case::unset(json!({}), true, None)]
    #[case::enabled(json!({ "persistence": { "enabled": true } }), true, None)]
    #[case::empty_name(json!({ "persistence": { "existingClaim": "" } }), true, None)]
    #[case::existing_claim(json!({ "persistence": { "existingClaim": "mine" } }), false,
        Some(json!({ "persistentVolumeClaim": { "claimName": "mine" } })))]
    #[case::high_availability(high_availability(), false, Some(json!({ "persistentVolumeClaim": { "claimName": "shared" } })))]
    #[case::disabled(json!({ "persistence": { "enabled": false } }), false, Some(json!({ "emptyDir": {} })))]
    #[case::disabled_wins_over_a_claim(json!({ "persistence": { "enabled": false, "existingClaim": "mine" } }), false,
        Some(json!({ "emptyDir": {} })))]
    fn state_is_in_a_claim_template_unless_the_spec_says_otherwise(
        #[case] change: Value,
        #[case] is_claimed: bool,
        #[case] source: Option<Value>,
    ) {
        let set = build(&change);
        assert_eq!(set["spec"].get("volumeClaimTemplates").is_some(), is_claimed);
        let volume = source.map(|mut source| {
            source["name"] = json!(STATE);
            source
        });
        assert_eq!(state(&set), volume.as_ref());
    }

    #[test]
    fn claim_template_is_copied_from_the_spec() {
        let claim = json!({ "storageClassName": "fast", "resources": { "requests": { "storage": "4Gi" } } });
        let claims = &build(&json!({ "persistence": claim }))["spec"]["volumeClaimTemplates"];
        assert_eq!(claims[0]["metadata"], json!({ "name": STATE, "namespace": "ns" }));
        assert_eq!((claims[0]["spec"].clone(), claims.as_array().unwrap().len()), (claim, 1));
    }

    #[test]
    fn live_claim_template_is_never_changed() {
        let templates = json!([{ "metadata": { "name": STATE }, "spec": { "storageClassName": "slow" } }]);
        let live = stateful_set(&json!({ "volumeClaimTemplates": templates }), true);
        for persistence in [json!({ "storageClassName": "fast" }), json!({ "enabled": false })] {
            let set = build_over(&json!({ "persistence": persistence }), Some(&live));
            assert_eq!((&set["spec"]["volumeClaimTemplates"], state(&set)), (&templates, None));
        }
    }

    #[test]
    fn live_volume_stays_if_no_claim_template_can_be_added() {
        let volume = json!({ "name": STATE, "emptyDir": {} });
        let live = stateful_set(&json!({ "template": { "spec": { "volumes": [volume] } } }), true);
        let set = build_over(&json!({}), Some(&live));
        assert_eq!((set["spec"].get("volumeClaimTemplates"), state(&set)), (None, Some(&volume)));
    }

    #[test]
    fn changed_configuration_replaces_pods_unless_it_is_read_in_place() {
        let annotations = |in_place: bool, hash: &str| {
            let controller = controller(&json!({ "inplaceReconfigure": in_place }));
            let hashes = Hashes { generated_files: hash.to_owned(), ..hashes() };
            let set = build_stateful_set(&controller, hashes, None);
            set.unwrap().as_json()["spec"]["template"]["metadata"]["annotations"].clone()
        };
        assert_ne!(annotations(false, "A=1"), annotations(false, "A=2"));
        assert_eq!(annotations(true, "A=1"), annotations(true, "A=2"));
        assert_eq!(annotations(true, "A=1").get(annotations::SLURM_CONFIG_HASH), None);
    }

    #[test]
    fn changed_user_files_replace_pods_unless_they_are_read_in_place() {
        let build = |in_place: bool, hash: &str, live: Option<&RawObject<StatefulSet>>| {
            let controller = controller(&json!({ "inplaceReconfigure": in_place }));
            let hashes = Hashes { user_files: Some(hash.to_owned()), ..hashes() };
            build_stateful_set(&controller, hashes, live).unwrap()
        };
        for (in_place, is_rolled) in [(false, true), (true, false)] {
            let before = build(in_place, "1", None);
            let template =
                |hash: &str| build(in_place, hash, Some(&before)).as_json()["spec"]["template"].clone();
            assert_eq!(template("1"), before.as_json()["spec"]["template"]);
            assert_eq!(template("2") != before.as_json()["spec"]["template"], is_rolled);
        }
    }

    #[test]
    fn pods_that_mount_the_users_files_are_kept_until_these_change() {
        let change = json!({ "configFileRefs": [{ "name": "files" }] });
        let mut live = build(&change);
        let volumes = live["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap();
        let etc = volumes.iter_mut().find(|volume| volume["name"] == SLURM_ETC).unwrap();
        etc["projected"]["sources"].as_array_mut().unwrap().push(json!({ "configMap": { "name": "files" } }));
        let live = RawObject::new(live).unwrap();
        let own = RawObject::new(build(&change)).unwrap();
        let controller = controller(&change);
        assert!(mounts_user_files(&controller, &live) && !mounts_user_files(&controller, &own));
        for are_user_files_unchanged in [true, false] {
            let hashes = Hashes { are_user_files_unchanged, ..hashes() };
            let set = build_stateful_set(&controller, hashes, Some(&live)).unwrap();
            let expected = if are_user_files_unchanged { &live } else { &own };
            assert_eq!(set.as_json()["spec"]["template"], expected.as_json()["spec"]["template"]);
        }
    }

    #[test]
    fn standby_daemons_count_as_ready() {
        let ready = |set: &Value| {
            let probe = "/spec/template/spec/containers/0/readinessProbe/httpGet/path";
            (set["spec"]["replicas"].clone(), set.pointer(probe).unwrap().clone())
        };
        assert_eq!(ready(&build(&json!({}))), (json!(1), json!("/readyz")));
        assert_eq!(ready(&build(&high_availability())), (json!(2), json!("/livez")));
    }

    #[test]
    fn anti_affinity_of_daemons_is_added_to_that_of_the_user() {
        let mine = json!({ "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "db" } } });
        let rules =
            json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [mine] } });
        let set = build(&json!({ "template": { "spec": { "affinity": rules } } }));
        let terms = &set["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!((&terms[0], &terms[1]["topologyKey"]), (&mine, &json!("kubernetes.io/hostname")));
        assert_eq!(terms.as_array().unwrap().len(), 2);
    }

    #[test]
    fn equivalent_pod_template_is_kept() {
        let mut live = build(&json!({}));
        live["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        let live = RawObject::new(live).unwrap();
        let template = |change| build_over(&change, Some(&live))["spec"]["template"].clone();
        assert_eq!(template(json!({})), live.as_json()["spec"]["template"]);
        assert_ne!(template(json!({ "clusterName": "other" })), live.as_json()["spec"]["template"]);
    }

    #[rstest]
    #[case("slurmctld", json!({ "image": 5 }), "slurmctld.image")]
    #[case("logfile", json!({ "env": "A=b" }), "logfile.env")]
    #[case("template", json!({ "spec": { "hostNetwork": "yes" } }), "template.spec.hostNetwork")]
    fn ill_typed_override_names_its_field(#[case] field: &str, #[case] value: Value, #[case] text: &str) {
        let controller = controller(&json!({ field: value }));
        let error = build_stateful_set(&controller, hashes(), None).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
}
