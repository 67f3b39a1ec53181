//! LoginSets in a real API server: made, scaled, frozen when something is missing, with host keys that stay.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::Result;
use e2e::eventually;
use e2e::stage::{SOON, Stage, condition};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use slinky_api::conditions::READY;
use slinky_api::labels::annotations::CONTENT_HASH;
use slinky_api::v1beta1::{Controller, LoginSet};
use std::time::Duration;

const NAME: &str = "front";
const HOST_KEYS: &str = "front-ssh-host-keys";
const CONFIG: &str = "front-ssh-config";
const FILES: [&str; 6] = [
    "ssh_host_ecdsa_key",
    "ssh_host_ecdsa_key.pub",
    "ssh_host_ed25519_key",
    "ssh_host_ed25519_key.pub",
    "ssh_host_rsa_key",
    "ssh_host_rsa_key.pub",
];
/// A key of 4096 bits takes seconds, and longer where many tests share two processors.
const GENERATED: Duration = Duration::from_mins(2);

async fn set(test: &str) -> Result<Stage> {
    Stage::set("loginset-controller", test).await
}

fn data(content: &[(&str, &str)]) -> Value {
    content.iter().map(|(key, text)| ((*key).to_owned(), json!(ByteString((*text).into())))).collect()
}

async fn put_controller(stage: &Stage) -> Result<Controller> {
    let key = |name: &str| json!({ "name": "auth", "key": name });
    let spec = json!({ "slurmKeyRef": key("slurm.key"), "jwtKeyRef": key("jwt.key") });
    stage.put("slurm", json!({ "spec": spec })).await
}

async fn put_slurm_key(stage: &Stage) -> Result<Secret> {
    stage.put("auth", json!({ "data": data(&[("slurm.key", "k")]) })).await
}

async fn put_sssd_conf(stage: &Stage, text: &str) -> Result<Secret> {
    stage.put("sssd", json!({ "data": data(&[("sssd.conf", text)]) })).await
}

/// Host keys that somebody brought along, so that none have to be made.
async fn put_host_keys(stage: &Stage, files: &[&str], metadata: Value) -> Result<Secret> {
    let content: Vec<_> = files.iter().map(|file| (*file, *file)).collect();
    stage.put(HOST_KEYS, json!({ "metadata": metadata, "data": data(&content) })).await
}

/// Everything that a LoginSet needs.
async fn furnish(stage: &Stage) -> Result<()> {
    put_controller(stage).await?;
    put_slurm_key(stage).await?;
    put_sssd_conf(stage, "[sssd]").await?;
    put_host_keys(stage, &FILES, json!({})).await?;
    Ok(())
}

async fn put_loginset(stage: &Stage, change: Value) -> Result<LoginSet> {
    let mut spec = json!({
        "controllerRef": { "name": "slurm" },
        "login": { "image": "login:26.05" },
        "initconf": { "image": "slurmd:26.05" },
        "sssdConfRef": { "name": "sssd", "key": "sssd.conf" },
    });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    stage.put(NAME, json!({ "spec": spec })).await
}

/// Waits until the LoginSet is not ready for the given reason, and gives what is wrong with it.
async fn trouble(stage: &Stage, reason: &str) -> Result<String> {
    stage.degraded::<LoginSet>(NAME, reason).await
}

/// The Deployment, once it is there and `holds`.
async fn deployment(stage: &Stage, holds: impl Fn(&Deployment) -> bool) -> Result<Deployment> {
    stage.child(NAME, holds).await
}

/// The host keys, once there are some and they are not those with `uid`.
async fn host_keys(stage: &Stage, uid: Option<String>) -> Result<Secret> {
    let look = async || Ok(stage.api::<Secret>().get_opt(HOST_KEYS).await?);
    let is_new = |keys: &Option<Secret>| keys.as_ref().is_some_and(|keys| keys.uid() != uid);
    Ok(eventually("host keys", GENERATED, look, is_new).await?.unwrap())
}

fn hash(deployment: &Deployment, of: &str) -> String {
    let metadata = deployment.spec.as_ref().unwrap().template.metadata.as_ref().unwrap();
    metadata.annotations.as_ref().unwrap()[&format!("slinky.slurm.net/{of}-hash")].clone()
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

#[tokio::test]
async fn children_are_made_owned_and_kept_without_further_requests() -> Result<()> {
    let mut stage = set("made").await?;
    furnish(&stage).await?;
    let keys = "ssh-ed25519 AAAA admin";
    let login = put_loginset(&stage, json!({ "rootSshAuthorizedKeys": keys, "replicas": 0 })).await?;
    stage.ready::<LoginSet>(NAME, "AsExpected").await?;
    let made = deployment(&stage, |_| true).await?;
    let service = stage.api::<Service>().get(NAME).await?;
    let config = stage.api::<ConfigMap>().get(CONFIG).await?;
    for owners in [made.owner_references(), service.owner_references(), config.owner_references()] {
        assert_eq!((owners.len(), Some(&owners[0].uid)), (1, login.metadata.uid.as_ref()));
        assert_eq!(owners[0].controller, Some(true));
    }
    assert!(config.data.unwrap()["authorized_keys"].contains(keys));
    assert!(stage.event(NAME, "CreateSucceeded").await?.note.unwrap().starts_with("Created "));
    assert_eq!(stage.requests_when_idle().await?, [""; 0], "an idle controller");

    assert_eq!(stage.writes_of_a_restart().await?, [""; 0], "a restart");
    stage.end().await
}

#[tokio::test]
async fn host_keys_are_made_once_and_only_their_loss_changes_them() -> Result<()> {
    let mut stage = set("keys").await?;
    furnish(&stage).await?;
    stage.api::<Secret>().delete(HOST_KEYS, &DeleteParams::default()).await?;
    let login = put_loginset(&stage, json!({})).await?;
    let first = host_keys(&stage, None).await?;
    assert_eq!(first.data.as_ref().unwrap().keys().collect::<Vec<_>>(), FILES);
    assert_eq!(
        (first.immutable, first.owner_references()[0].uid.clone()),
        (Some(true), login.uid().unwrap())
    );
    let before = deployment(&stage, |_| true).await?;

    put_loginset(&stage, json!({ "extraSshdConfig": "LoginGraceTime 60" })).await?;
    let edited = deployment(&stage, |now| hash(now, "sshd-conf") != hash(&before, "sshd-conf")).await?;
    stage.restart()?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    let kept = host_keys(&stage, None).await?;
    assert_eq!((kept.uid(), kept.resource_version()), (first.uid(), first.resource_version()));
    assert_eq!(edited.metadata.generation, before.metadata.generation.map(|number| number + 1));

    stage.api::<Secret>().delete(HOST_KEYS, &DeleteParams::default()).await?;
    let second = host_keys(&stage, first.uid()).await?;
    assert_ne!(second.data, first.data);
    let of_first = hash(&edited, "ssh-host-keys");
    deployment(&stage, |now| hash(now, "ssh-host-keys") != of_first).await?;
    assert!(stage.event(NAME, "HostKeysReplaced").await?.note.unwrap().contains("scale to 0"));
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    let last = deployment(&stage, |_| true).await?;
    assert_eq!(last.metadata.generation, edited.metadata.generation.map(|number| number + 1));
    let log = stage.log()?;
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    stage.end().await
}

#[tokio::test]
async fn host_keys_of_a_user_are_used_as_they_are() -> Result<()> {
    let stage = set("own-keys").await?;
    furnish(&stage).await?;
    let theirs = stage.api::<Secret>().get(HOST_KEYS).await?;
    put_loginset(&stage, json!({})).await?;
    let first = deployment(&stage, |_| true).await?;
    let now = stage.api::<Secret>().get(HOST_KEYS).await?;
    assert_eq!(now.resource_version(), theirs.resource_version(), "not even adopted");

    put_host_keys(&stage, &FILES[1..], json!({})).await?;
    assert!(trouble(&stage, "SecretKeyMissing").await?.contains("no key \"ssh_host_ecdsa_key\""));
    let frozen = deployment(&stage, |_| true).await?;
    assert_eq!(frozen.metadata.generation, first.metadata.generation);
    put_host_keys(&stage, &FILES, json!({})).await?;
    stage.ready::<LoginSet>(NAME, "RollingOut").await?;
    stage.end().await
}

#[tokio::test]
async fn a_loginset_is_scaled_through_its_subresource() -> Result<()> {
    let stage = set("scale").await?;
    furnish(&stage).await?;
    put_loginset(&stage, json!({})).await?;
    deployment(&stage, |_| true).await?;
    let loginsets = stage.api::<LoginSet>();
    let scale = async |replicas: i32| {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        loginsets.patch_scale(NAME, &PatchParams::default(), &patch).await
    };
    scale(3).await?;
    deployment(&stage, |now| replicas(now) == Some(3)).await?;
    let look = async || Ok(loginsets.get_scale(NAME).await?.status.unwrap());
    let status = eventually("three pods", SOON, look, |status| status.replicas == 3).await?;
    assert_eq!(status.selector.unwrap(), "app.kubernetes.io/instance=front,app.kubernetes.io/name=login");
    let refused = scale(-1).await.unwrap_err().to_string();
    assert!(refused.contains("spec.replicas"), "{refused}");
    assert_eq!(replicas(&deployment(&stage, |_| true).await?), Some(3));
    stage.edit::<Deployment>(NAME, json!({ "replicas": 7 })).await?;
    deployment(&stage, |now| replicas(now) == Some(3)).await?;
    stage.end().await
}

#[tokio::test]
async fn without_its_controller_a_loginset_waits_and_freezes() -> Result<()> {
    let stage = set("missing").await?;
    put_slurm_key(&stage).await?;
    put_sssd_conf(&stage, "[sssd]").await?;
    put_loginset(&stage, json!({})).await?;
    host_keys(&stage, None).await?;
    assert!(trouble(&stage, "ControllerMissing").await?.contains("Controller slurm does not exist"));
    let event = stage.event(NAME, "ControllerRefFailed").await?;
    assert!(event.note.unwrap().contains("Controller slurm"));
    assert!(stage.api::<Service>().get_opt(NAME).await?.is_some(), "the Service needs no Controller");
    assert!(stage.api::<ConfigMap>().get_opt(CONFIG).await?.is_some(), "nor does the configuration");
    assert!(stage.api::<Deployment>().get_opt(NAME).await?.is_none());

    put_controller(&stage).await?;
    let made = deployment(&stage, |_| true).await?;
    stage.ready::<LoginSet>(NAME, "RollingOut").await?;

    stage.api::<Controller>().delete("slurm", &DeleteParams::default()).await?;
    stage.ready::<LoginSet>(NAME, "ControllerMissing").await?;
    stage.edit::<LoginSet>(NAME, json!({ "replicas": 3 })).await?;
    let login = stage.ready::<LoginSet>(NAME, "ControllerMissing").await?;
    assert_eq!(login.status.unwrap().replicas, 1, "the pods that run still count");
    let frozen = deployment(&stage, |_| true).await?;
    assert_eq!((frozen.uid(), frozen.spec), (made.uid(), made.spec), "what runs is left alone");

    put_controller(&stage).await?;
    deployment(&stage, |now| replicas(now) == Some(3)).await?;
    stage.end().await
}

#[tokio::test]
async fn secrets_that_are_missing_are_named_and_awaited() -> Result<()> {
    let stage = set("secrets").await?;
    put_controller(&stage).await?;
    put_host_keys(&stage, &FILES, json!({})).await?;
    put_loginset(&stage, json!({})).await?;
    assert!(trouble(&stage, "SecretMissing").await?.contains("Secret auth does not exist"));
    put_slurm_key(&stage).await?;
    let look = async || trouble(&stage, "SecretMissing").await;
    eventually("the next one", SOON, look, |message| message.contains("Secret sssd does not exist")).await?;
    stage.put::<Secret>("sssd", json!({ "data": data(&[("other.conf", "")]) })).await?;
    assert!(trouble(&stage, "SecretKeyMissing").await?.contains("Secret sssd has no key \"sssd.conf\""));
    stage.event(NAME, "SecretKeyMissing").await?;
    assert!(stage.api::<Deployment>().get_opt(NAME).await?.is_none());

    put_sssd_conf(&stage, "[sssd]").await?;
    let made = deployment(&stage, |_| true).await?;
    stage.ready::<LoginSet>(NAME, "RollingOut").await?;
    put_sssd_conf(&stage, "[sssd]\nservices = nss").await?;
    let changed = deployment(&stage, |now| hash(now, "sssd-conf") != hash(&made, "sssd-conf")).await?;
    assert_eq!(changed.metadata.generation, made.metadata.generation.map(|number| number + 1));

    stage.api::<Secret>().delete("sssd", &DeleteParams::default()).await?;
    trouble(&stage, "SecretMissing").await?;
    let frozen = deployment(&stage, |_| true).await?;
    assert_eq!((frozen.uid(), frozen.spec), (changed.uid(), changed.spec), "what runs is left alone");
    put_sssd_conf(&stage, "[sssd]\nservices = nss").await?;
    stage.ready::<LoginSet>(NAME, "RollingOut").await?;
    assert_eq!(deployment(&stage, |_| true).await?.metadata.generation, changed.metadata.generation);
    stage.end().await
}

#[tokio::test]
async fn children_of_somebody_else_are_left_alone() -> Result<()> {
    let stage = set("foreign").await?;
    furnish(&stage).await?;
    let metadata = stage.metadata_of_somebody_else().await?;
    let keys = put_host_keys(&stage, &FILES, metadata.clone()).await?;
    let config = json!({ "metadata": metadata, "data": { "authorized_keys": "ssh-ed25519 AAAA them" } });
    let config: ConfigMap = stage.put(CONFIG, config).await?;
    let service = json!({ "metadata": metadata, "spec": { "ports": [{ "port": 1 }] } });
    let service: Service = stage.put(NAME, service).await?;

    put_loginset(&stage, json!({})).await?;
    let message = trouble(&stage, "ForeignOwner").await?;
    for child in
        [format!("ConfigMap {}/{CONFIG}", stage.namespace()), format!("Service {}/{NAME}", stage.namespace())]
    {
        assert!(message.contains(&format!("{child} is controlled by ConfigMap owner")), "{message}");
    }
    stage.event(NAME, "ForeignOwner").await?;
    stage.api::<ConfigMap>().delete(CONFIG, &DeleteParams::default()).await?;
    stage.api::<Service>().delete(NAME, &DeleteParams::default()).await?;
    let look = async || trouble(&stage, "ForeignOwner").await;
    let theirs = format!("Secret {}/{HOST_KEYS} is controlled by ConfigMap owner", stage.namespace());
    eventually("the host keys are theirs", SOON, look, |message| message.contains(&theirs)).await?;
    assert!(stage.api::<Deployment>().get_opt(NAME).await?.is_none(), "pods with the keys of somebody else");
    let now = stage.api::<Secret>().get(HOST_KEYS).await?;
    assert_eq!(now.resource_version(), keys.resource_version());
    stage.child::<ConfigMap>(CONFIG, |now| now.uid() != config.uid()).await?;
    stage.child::<Service>(NAME, |now| now.uid() != service.uid()).await?;

    stage.api::<Secret>().delete(HOST_KEYS, &DeleteParams::default()).await?;
    host_keys(&stage, keys.uid()).await?;
    stage.ready::<LoginSet>(NAME, "RollingOut").await?;
    stage.end().await
}

#[tokio::test]
async fn what_cannot_be_is_named_and_stops_nothing_that_runs() -> Result<()> {
    let stage = set("bad").await?;
    furnish(&stage).await?;
    put_loginset(&stage, json!({})).await?;
    let good = deployment(&stage, |_| true).await?;
    let port = json!({ "spec": { "ports": [{ "name": "login", "port": 1 }] } });
    let cases = [
        (json!({ "login": { "image": 5 } }), "InvalidSpec", "login.image"),
        (json!({ "initconf": { "env": "A=b" } }), "InvalidSpec", "initconf.env"),
        (
            json!({ "template": { "spec": { "hostNetwork": "yes" } } }),
            "InvalidSpec",
            "template.spec.hostNetwork",
        ),
        (json!({ "service": port }), "InvalidSpec", "port name 'login' is already taken"),
        (json!({ "sssdConfRef": { "key": "k" } }), "InvalidSpec", "spec.sssdConfRef names no Secret"),
        (json!({ "sssdConfRef": { "name": "../sssd", "key": "k" } }), "InvalidSpec", "cannot be the name"),
        (json!({ "strategy": { "type": "Sideways" } }), "Rejected", "spec.strategy: Unsupported"),
    ];
    for (change, reason, text) in cases {
        put_loginset(&stage, change.clone()).await?;
        let message = trouble(&stage, reason).await?;
        assert!(message.contains(text), "{change}: {message}");
        let now = deployment(&stage, |_| true).await?;
        assert_eq!((now.uid(), now.spec), (good.uid(), good.spec.clone()), "{change}");
    }
    assert!(stage.event(NAME, "Rejected").await?.note.unwrap().contains("spec.strategy: Unsupported"));
    put_loginset(&stage, json!({ "replicas": 2 })).await?;
    deployment(&stage, |now| replicas(now) == Some(2)).await?;
    stage.ready::<LoginSet>(NAME, "RollingOut").await?;
    stage.end().await
}

#[tokio::test]
async fn a_key_that_is_taken_away_is_gone_from_the_pods() -> Result<()> {
    let stage = set("rootkeys").await?;
    furnish(&stage).await?;
    put_loginset(&stage, json!({ "rootSshAuthorizedKeys": "ssh-ed25519 AAAA first" })).await?;
    let made = deployment(&stage, |_| true).await?;
    let generation = |deployment: &Deployment| deployment.metadata.generation.unwrap();
    let hash = |deployment: &Deployment| {
        let metadata = deployment.spec.clone().unwrap().template.metadata.unwrap();
        metadata.annotations.unwrap().get(CONTENT_HASH).cloned()
    };
    assert_eq!(hash(&made), None, "pods that are new read what there is");
    stage.edit::<LoginSet>(NAME, json!({ "rootSshAuthorizedKeys": "" })).await?;
    let changed = deployment(&stage, |deployment| hash(deployment).is_some()).await?;
    assert_eq!(generation(&changed), generation(&made) + 1);
    let requests = stage.requests_when_idle().await?;
    assert!(requests.is_empty(), "{requests:#?}");
    assert_eq!(generation(&deployment(&stage, |_| true).await?), generation(&changed));
    stage.end().await
}

#[tokio::test]
async fn pods_can_be_replaced_in_another_way_and_back() -> Result<()> {
    let stage = set("strategy").await?;
    furnish(&stage).await?;
    put_loginset(&stage, json!({})).await?;
    let strategy = |now: &Deployment| json!(now.spec.as_ref().unwrap().strategy);
    let stock =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } });
    deployment(&stage, |now| strategy(now) == stock).await?;
    put_loginset(&stage, json!({ "strategy": { "type": "Recreate" } })).await?;
    deployment(&stage, |now| strategy(now) == json!({ "type": "Recreate" })).await?;
    put_loginset(&stage, json!({})).await?;
    deployment(&stage, |now| strategy(now) == stock).await?;
    assert_eq!(condition(&stage.ready::<LoginSet>(NAME, "RollingOut").await?, READY)?.status, "False");
    stage.end().await
}

#[tokio::test]
async fn pods_of_the_operator_before_us_keep_running() -> Result<()> {
    let stage = set("inherit").await?;
    furnish(&stage).await?;
    put_loginset(&stage, json!({})).await?;
    let made = deployment(&stage, |_| true).await?;
    stage.api::<Controller>().delete("slurm", &DeleteParams::default()).await?;
    stage.ready::<LoginSet>(NAME, "ControllerMissing").await?;
    let deployments = stage.api::<Deployment>();
    deployments.delete(NAME, &DeleteParams::background()).await?;
    let look = async || Ok(deployments.get_opt(NAME).await?);
    eventually("no Deployment", SOON, look, Option::is_none).await?;

    let mut theirs = json!({ "metadata": { "name": NAME, "labels": made.labels() }, "spec": made.spec });
    theirs["metadata"]["ownerReferences"] = json!(made.owner_references());
    theirs["spec"]["template"]["spec"]["initContainers"][0]["command"][2] = json!("set -e; cp /mnt/* /etc");
    let manager = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    let theirs = deployments.create(&manager, &serde_json::from_value(theirs)?).await?;
    put_controller(&stage).await?;
    stage.ready::<LoginSet>(NAME, "RollingOut").await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    let kept = deployment(&stage, |_| true).await?;
    let owns = |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some("loginset-controller");
    assert!(kept.managed_fields().iter().any(owns), "nobody took it over");
    assert_eq!((kept.uid(), &kept.spec), (theirs.uid(), &theirs.spec));

    put_loginset(&stage, json!({ "login": { "image": "login:next" } })).await?;
    let template = |now: &Deployment| now.spec.as_ref().unwrap().template.clone();
    let next = deployment(&stage, |now| template(now) != template(&kept)).await?;
    assert_eq!(template(&next).spec.unwrap().init_containers, template(&made).spec.unwrap().init_containers);
    stage.end().await
}
