//! RestApis in a real API server: made, kept, frozen when something is missing, and nothing of others touched.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::Result;
use e2e::eventually;
use e2e::stage::{SOON, Stage, condition};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use slinky_api::conditions::{DEGRADED, READY};
use slinky_api::v1beta1::{Controller, RestApi};
use std::time::Duration;
use tokio::time::sleep;

const NAME: &str = "rest";
const CHILD: &str = "rest-restapi";

async fn set(test: &str) -> Result<Stage> {
    Stage::set("restapi-controller", test).await
}

async fn put_controller(stage: &Stage) -> Result<Controller> {
    let key = |name: &str| json!({ "name": "auth", "key": name });
    let spec = json!({ "slurmKeyRef": key("slurm.key"), "jwtKeyRef": key("jwt.key") });
    stage.put("slurm", json!({ "spec": spec })).await
}

async fn put_restapi(stage: &Stage, name: &str, change: Value) -> Result<RestApi> {
    let mut spec =
        json!({ "controllerRef": { "name": "slurm" }, "slurmrestd": { "image": "slurmrestd:26.05" } });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    stage.put(name, json!({ "spec": spec })).await
}

/// The Deployment, once it is there and `holds`.
async fn deployment(stage: &Stage, holds: impl Fn(&Deployment) -> bool) -> Result<Deployment> {
    stage.child(CHILD, holds).await
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

fn args(deployment: &Deployment) -> Vec<String> {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).unwrap();
    pod.containers[0].args.clone().unwrap_or_default()
}

#[tokio::test]
async fn children_are_made_owned_and_kept_without_further_requests() -> Result<()> {
    let mut stage = set("made").await?;
    put_controller(&stage).await?;
    let restapi = put_restapi(&stage, NAME, json!({})).await?;
    let made = deployment(&stage, |_| true).await?;
    let service = stage.api::<Service>().get(CHILD).await?;
    for owners in [made.owner_references(), service.owner_references()] {
        assert_eq!((owners.len(), Some(&owners[0].uid)), (1, restapi.metadata.uid.as_ref()));
        assert_eq!(owners[0].controller, Some(true));
    }
    assert_eq!(args(&made), ["-s", "openapi/slurmctld", "0.0.0.0:6820"]);
    let underway = condition(&stage.ready::<RestApi>(NAME, "RollingOut").await?, READY)?;
    assert_eq!(underway.status, "False");
    let event = stage.event(NAME, "CreateSucceeded").await?;
    assert!(event.note.unwrap().starts_with("Created "));

    stage.edit::<RestApi>(NAME, json!({ "replicas": 0 })).await?;
    let ready = condition(&stage.ready::<RestApi>(NAME, "AsExpected").await?, READY)?;
    assert_eq!(ready.status, "True");
    let before = deployment(&stage, |deployment| replicas(deployment) == Some(0)).await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0], "an idle controller");

    assert_eq!(stage.writes_of_a_restart().await?, [""; 0], "a restart");
    assert_eq!(deployment(&stage, |_| true).await?.resource_version(), before.resource_version());
    stage.end().await
}

#[tokio::test]
async fn what_was_changed_or_deleted_is_put_right() -> Result<()> {
    let stage = set("repair").await?;
    put_restapi(&stage, NAME, json!({})).await?;
    // As long as there is no Deployment, its progress cannot be what makes the controller look at the Service.
    stage.ready::<RestApi>(NAME, "ControllerMissing").await?;
    stage.edit::<Service>(CHILD, json!({ "selector": { "app.kubernetes.io/name": "elsewhere" } })).await?;
    let look = async || Ok(stage.api::<Service>().get(CHILD).await?.spec.unwrap().selector.unwrap());
    eventually("the selector", SOON, look, |selector| selector["app.kubernetes.io/name"] == "slurmrestd")
        .await?;
    stage.api::<Service>().delete(CHILD, &DeleteParams::default()).await?;
    let look = async || Ok(stage.api::<Service>().get_opt(CHILD).await?);
    eventually("a new Service", SOON, look, Option::is_some).await?;

    put_controller(&stage).await?;
    let first = deployment(&stage, |_| true).await?;
    stage.edit::<Deployment>(CHILD, json!({ "replicas": 7 })).await?;
    deployment(&stage, |deployment| replicas(deployment) == Some(1)).await?;
    stage.api::<Deployment>().delete(CHILD, &DeleteParams::default()).await?;
    deployment(&stage, |deployment| deployment.uid() != first.uid()).await?;
    stage.end().await
}

#[tokio::test]
async fn without_its_controller_a_restapi_waits_and_freezes() -> Result<()> {
    let stage = set("missing").await?;
    put_restapi(&stage, NAME, json!({})).await?;
    let waiting = stage.ready::<RestApi>(NAME, "ControllerMissing").await?;
    let degraded = condition(&waiting, DEGRADED)?;
    assert_eq!((degraded.status.as_str(), degraded.message.contains("Controller slurm")), ("True", true));
    let event = stage.event(NAME, "ControllerMissing").await?;
    assert!(event.note.unwrap().contains("Controller slurm"));
    assert!(stage.api::<Service>().get_opt(CHILD).await?.is_some(), "the Service needs no Controller");
    assert!(stage.api::<Deployment>().get_opt(CHILD).await?.is_none());

    put_controller(&stage).await?;
    let made = deployment(&stage, |_| true).await?;
    stage.ready::<RestApi>(NAME, "RollingOut").await?;

    stage.api::<Controller>().delete("slurm", &DeleteParams::default()).await?;
    stage.ready::<RestApi>(NAME, "ControllerMissing").await?;
    stage.edit::<RestApi>(NAME, json!({ "replicas": 3 })).await?;
    stage.ready::<RestApi>(NAME, "ControllerMissing").await?;
    let frozen = deployment(&stage, |_| true).await?;
    assert_eq!((frozen.uid(), frozen.spec), (made.uid(), made.spec), "what runs is left alone");

    put_controller(&stage).await?;
    deployment(&stage, |deployment| replicas(deployment) == Some(3)).await?;
    stage.end().await
}

#[tokio::test]
async fn children_of_somebody_else_are_left_alone() -> Result<()> {
    let stage = set("foreign").await?;
    put_controller(&stage).await?;
    let metadata = stage.metadata_of_somebody_else().await?;
    let service = json!({ "metadata": metadata, "spec": { "ports": [{ "port": 1 }] } });
    let service: Service = stage.put(CHILD, service).await?;
    let labels = json!({ "app": "theirs" });
    let pod = json!({ "containers": [{ "name": "theirs", "image": "theirs" }] });
    let template = json!({ "metadata": { "labels": labels }, "spec": pod });
    let spec = json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": template });
    let theirs: Deployment = stage.put(CHILD, json!({ "metadata": metadata, "spec": spec })).await?;

    put_restapi(&stage, NAME, json!({})).await?;
    let message = condition(&stage.ready::<RestApi>(NAME, "ForeignOwner").await?, DEGRADED)?.message;
    for child in ["Service", "Deployment"] {
        let sentence = format!("{child} {}/{CHILD} is controlled by ConfigMap owner", stage.namespace());
        assert!(message.contains(&sentence), "{message}");
    }
    stage.event(NAME, "ForeignOwner").await?;
    assert_eq!(stage.api::<Service>().get(CHILD).await?.resource_version(), service.resource_version());
    assert_eq!(deployment(&stage, |_| true).await?.spec, theirs.spec);

    stage.api::<Service>().delete(CHILD, &DeleteParams::default()).await?;
    stage.api::<Deployment>().delete(CHILD, &DeleteParams::background()).await?;
    deployment(&stage, |deployment| deployment.uid() != theirs.uid()).await?;
    stage.ready::<RestApi>(NAME, "RollingOut").await?;
    stage.end().await
}

#[tokio::test]
async fn what_cannot_be_is_named_and_stops_nothing_that_runs() -> Result<()> {
    let stage = set("bad").await?;
    put_controller(&stage).await?;
    put_restapi(&stage, NAME, json!({})).await?;
    let good = deployment(&stage, |_| true).await?;
    let port = json!({ "spec": { "ports": [{ "name": "slurmrestd", "port": 1 }] } });
    let cases = [
        (json!({ "slurmrestd": { "image": 5 } }), "InvalidSpec", "slurmrestd.image"),
        (
            json!({ "template": { "spec": { "hostNetwork": "yes" } } }),
            "InvalidSpec",
            "template.spec.hostNetwork",
        ),
        (json!({ "service": port }), "InvalidSpec", "port name 'slurmrestd' is already taken"),
        (json!({ "replicas": -1 }), "Rejected", "spec.replicas"),
        (json!({ "slurmrestd": { "fieldOfTomorrow": true } }), "InvalidSpec", "fieldOfTomorrow"),
    ];
    for (change, reason, text) in cases {
        put_restapi(&stage, NAME, change.clone()).await?;
        let degraded = condition(&stage.ready::<RestApi>(NAME, reason).await?, DEGRADED)?;
        assert!(degraded.message.contains(text), "{change}: {}", degraded.message);
        let now = deployment(&stage, |_| true).await?;
        assert_eq!((now.uid(), now.spec), (good.uid(), good.spec.clone()), "{change}");
    }
    // The last one stays bad for a while: the attempts become rare.
    let before = stage.requests()?.len();
    sleep(Duration::from_secs(5)).await;
    let attempts = stage.requests()?.split_off(before);
    assert!(attempts.len() <= 4, "{attempts:?}");

    let event = stage.event(NAME, "Rejected").await?;
    assert!(event.note.as_ref().unwrap().contains("spec.replicas"), "{event:?}");
    put_restapi(&stage, NAME, json!({ "replicas": 2 })).await?;
    deployment(&stage, |deployment| replicas(deployment) == Some(2)).await?;
    stage.ready::<RestApi>(NAME, "RollingOut").await?;
    stage.end().await
}

#[tokio::test]
async fn a_name_that_is_too_long_for_its_children_is_told() -> Result<()> {
    let stage = set("long").await?;
    put_controller(&stage).await?;
    let name = "r".repeat(60);
    put_restapi(&stage, &name, json!({})).await?;
    let degraded = condition(&stage.ready::<RestApi>(&name, "Rejected").await?, DEGRADED)?;
    assert!(degraded.message.contains("must be no more than 63"), "{}", degraded.message);
    stage.event(&name, "Rejected").await?;
    stage.end().await
}

#[tokio::test]
async fn accounting_changes_the_arguments_once() -> Result<()> {
    let stage = set("args").await?;
    put_controller(&stage).await?;
    put_restapi(&stage, NAME, json!({})).await?;
    let before = deployment(&stage, |_| true).await?;
    assert_eq!(args(&before), ["-s", "openapi/slurmctld", "0.0.0.0:6820"]);
    stage.edit::<Controller>("slurm", json!({ "accountingRef": { "name": "acct" } })).await?;
    let after = deployment(&stage, |deployment| args(deployment) != args(&before)).await?;
    assert_eq!(args(&after), ["0.0.0.0:6820"]);
    stage.edit::<Controller>("slurm", json!({ "extraConf": "MinJobAge=1" })).await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    let last = deployment(&stage, |_| true).await?;
    assert_eq!(last.metadata.generation, before.metadata.generation.map(|number| number + 1));
    stage.end().await
}
