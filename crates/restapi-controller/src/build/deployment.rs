//! The Deployment of slurmrestd.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::parts::{
    PRIVATE, SLURM_ETC, config_map_items, container_user, env, item, mount, pod_user, projected, read_only,
    secret_items, tcp_port, tcp_probe, with_one_minute_threshold,
};
use pod_builder::{
    BuildError, Containers, Template, append_args, build_container, component_metadata,
    keep_running_template, pod_metadata,
};
use serde_json::{Value, json};
use slinky_api::labels::{App, selector_labels};
use slinky_api::names::{self, SLURMRESTD_ID, SLURMRESTD_PORT};
use slinky_api::v1beta1::{Controller, PodTemplate, RestApi};

/// Builds the Deployment `<name>-restapi` for the cluster of `controller`. An equivalent pod template of `live` is kept, so
/// that the pods are not replaced.
pub fn build_deployment(
    restapi: &RestApi,
    controller: &Controller,
    live: Option<&RawObject<Deployment>>,
) -> Result<RawObject<Deployment>, BuildError> {
    let name = names::restapi_workload(&restapi.name_any());
    let template = restapi.spec.template.clone().unwrap_or_default();
    let metadata = component_metadata(restapi, &name, template.metadata.as_ref());
    let pod_metadata = pod_metadata::<RestApi>(&metadata, []);
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": restapi.spec.replicas,
            "revisionHistoryLimit": 0,
            "selector": { "matchLabels": selector_labels(restapi) },
            "template": build_pod(restapi, controller, pod_metadata, &template)?.to_value(),
        },
    });
    Ok(RawObject::new(keep_running_template(deployment, live.map(RawObject::as_json), crate::NAME))?)
}

fn build_pod(
    restapi: &RestApi,
    controller: &Controller,
    metadata: ObjectMeta,
    template: &PodTemplate,
) -> Result<Template, BuildError> {
    let slurm_key = controller.spec.slurm_key_ref.clone().unwrap_or_default();
    let base = PodSpec {
        automount_service_account_token: Some(false),
        security_context: Some(pod_user(SLURMRESTD_ID)),
        volumes: Some(vec![projected(
            SLURM_ETC,
            PRIVATE,
            vec![
                config_map_items(
                    &names::controller::config(&controller.name_any()),
                    vec![item("slurm.conf", "slurm.conf", None)],
                ),
                secret_items(&slurm_key.name, vec![item(&slurm_key.key, "slurm.key", None)]),
            ],
        )]),
        ..PodSpec::default()
    };
    let containers = Containers { init: vec![], main: vec![build_slurmrestd(restapi, controller)?] };
    Ok(Template::build(metadata, &base, containers, "template.spec", &template.spec)?)
}

fn build_slurmrestd(restapi: &RestApi, controller: &Controller) -> Result<Value, BuildError> {
    // Without accounting slurmrestd would not start with the plugins that talk to slurmdbd.
    let plugins = controller.spec.accounting_ref.is_none().then_some(["-s", "openapi/slurmctld"]);
    let base = Container {
        name: RestApi::NAME.to_owned(),
        args: plugins.map(|args| args.map(str::to_owned).to_vec()),
        env: Some(vec![
            env("SLURM_JWT", "daemon"),
            env("SLURMRESTD_SECURITY", "disable_unshare_files,disable_unshare_sysv"),
        ]),
        ports: Some(vec![tcp_port(RestApi::NAME, SLURMRESTD_PORT)]),
        startup_probe: Some(with_one_minute_threshold(tcp_probe(SLURMRESTD_PORT))),
        liveness_probe: Some(with_one_minute_threshold(tcp_probe(SLURMRESTD_PORT))),
        readiness_probe: Some(tcp_probe(SLURMRESTD_PORT)),
        security_context: Some(container_user(SLURMRESTD_ID)),
        volume_mounts: Some(vec![read_only(mount(SLURM_ETC, "/etc/slurm"))]),
        ..Container::default()
    };
    let mut container = build_container(RestApi::NAME, &base, &restapi.spec.slurmrestd)?;
    // slurmrestd takes the address as its last argument, after those of the user.
    append_args(&mut container, [json!(format!("0.0.0.0:{SLURMRESTD_PORT}"))]);
    Ok(container)
}

#[cfg(test)]
mod tests {
    use super::*;
    use slinky_api::labels::annotations;

    fn restapi() -> RestApi {
        let json = json!({
            "metadata": {
                "name": "rest",
                "namespace": "ns",
                "uid": "u",
                "labels": { "team": "hpc" },
                "annotations": { annotations::LAST_APPLIED: "{}" },
            },
            "spec": {
                "controllerRef": { "name": "slurm" },
                "slurmrestd": { "image": "slurmrestd:26.05", "args": ["-vv"], "fieldOfTomorrow": true },
                "template": { "metadata": { "annotations": { "a": "1" } }, "spec": { "nodeSelector": { "n": "1" } } },
            },
        });
        serde_json::from_value(json).unwrap()
    }

    fn controller(accounting: bool) -> Controller {
        let mut spec = json!({ "slurmKeyRef": { "name": "auth", "key": "slurm" } });
        if accounting {
            spec["accountingRef"] = json!({ "name": "acct" });
        }
        serde_json::from_value(json!({ "metadata": { "name": "slurm", "namespace": "ns" }, "spec": spec }))
            .unwrap()
    }

    #[test]
    fn deployment() {
        insta::assert_yaml_snapshot!(build_deployment(&restapi(), &controller(false), None).unwrap());
    }

    #[test]
    fn accounting_enables_all_plugins_and_the_address_is_the_last_argument() {
        let deployment =
            serde_json::to_value(build_deployment(&restapi(), &controller(true), None).unwrap()).unwrap();
        let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        assert_eq!(*args, json!(["-vv", "0.0.0.0:6820"]));
    }

    #[test]
    fn error_of_an_ill_typed_override_names_the_field() {
        let mut restapi = restapi();
        restapi.spec.slurmrestd = slinky_api::Raw::new(json!({ "image": 5 }));
        let error = build_deployment(&restapi, &controller(false), None).unwrap_err().to_string();
        assert!(error.starts_with("slurmrestd.image"), "{error}");
    }
}
