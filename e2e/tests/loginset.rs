//! The loginset-controller against a real API server: children, SSH host keys, scale, missing references, foreign owners.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::{Context, Result};
use e2e::deployments::{ensure_frozen_without_controller, ensure_unchanged, replicas, wait_for_replicas};
use e2e::eventually;
use e2e::fixtures::{
    CONTROLLER, apply_controller, apply_foreign_service, apply_secret, ensure_changed_once,
    ensure_controlled_by, ensure_foreign_owners_are_reported, foreign_workload_spec, is_managed_by,
    secret_data, with_spec,
};
use e2e::test_env::{SOON, TestEnv, condition};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
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
/// Generating an RSA key of 4096 bits takes seconds, longer on a busy machine.
const KEY_GENERATION: Duration = Duration::from_mins(2);

async fn start(test: &str) -> Result<TestEnv> {
    TestEnv::start("loginset-controller", test).await
}

async fn apply_slurm_key(env: &TestEnv) -> Result<Secret> {
    apply_secret(env, "auth", &[("slurm.key", "k")]).await
}

async fn apply_sssd_conf(env: &TestEnv, text: &str) -> Result<Secret> {
    apply_secret(env, "sssd", &[("sssd.conf", text)]).await
}

/// Applies host keys of a user, so that the controller generates none.
async fn apply_host_keys(env: &TestEnv, files: &[&str], metadata: Value) -> Result<Secret> {
    let content: Vec<_> = files.iter().map(|file| (*file, *file)).collect();
    env.apply(HOST_KEYS, json!({ "metadata": metadata, "data": secret_data(&content) })).await
}

/// Applies everything that a LoginSet refers to.
async fn apply_references(env: &TestEnv) -> Result<()> {
    apply_controller(env).await?;
    apply_slurm_key(env).await?;
    apply_sssd_conf(env, "[sssd]").await?;
    apply_host_keys(env, &FILES, json!({})).await?;
    Ok(())
}

async fn apply_loginset(env: &TestEnv, replaced: Value) -> Result<LoginSet> {
    let spec = json!({
        "controllerRef": { "name": "slurm" },
        "login": { "image": "login:26.05" },
        "initconf": { "image": "slurmd:26.05" },
        "sssdConfRef": { "name": "sssd", "key": "sssd.conf" },
    });
    env.apply(NAME, with_spec(spec, &replaced)).await
}

async fn ensure_degraded(env: &TestEnv, reason: &str, text: &str) -> Result<()> {
    env.ensure_degraded::<LoginSet>(NAME, reason, text).await
}

async fn wait_for_deployment(env: &TestEnv) -> Result<Deployment> {
    env.wait_for(NAME).await
}

/// Waits for a Deployment whose pod template has another hash of this input.
async fn wait_for_changed_hash(env: &TestEnv, input: &str, before: &Deployment) -> Result<Deployment> {
    env.wait_until(NAME, |now| template_hash(now, input) != template_hash(before, input)).await
}

/// Waits for generated host keys other than those with `uid`.
async fn wait_for_host_keys(env: &TestEnv, uid: Option<String>) -> Result<Secret> {
    let get = async || env.get::<Secret>(HOST_KEYS).await;
    eventually("host keys", KEY_GENERATION, get, |keys| keys.uid() != uid).await
}

/// The annotation of the pod template with the hash of an input.
fn template_hash(deployment: &Deployment, input: &str) -> String {
    let metadata = deployment.spec.as_ref().unwrap().template.metadata.as_ref().unwrap();
    metadata.annotations.as_ref().unwrap()[&format!("slinky.slurm.net/{input}-hash")].clone()
}

#[tokio::test]
async fn children_are_created_with_owner_and_an_idle_controller_sends_no_requests() -> Result<()> {
    let mut env = start("children").await?;
    apply_references(&env).await?;
    let keys = "ssh-ed25519 AAAA admin";
    let login = apply_loginset(&env, json!({ "rootSshAuthorizedKeys": keys, "replicas": 0 })).await?;
    env.wait_for_ready_reason::<LoginSet>(NAME, "AsExpected").await?;
    let config = env.get::<ConfigMap>(CONFIG).await?;
    ensure_controlled_by(&config, &login)?;
    ensure_controlled_by(&wait_for_deployment(&env).await?, &login)?;
    ensure_controlled_by(&env.get::<Service>(NAME).await?, &login)?;
    assert!(config.data.unwrap()["authorized_keys"].contains(keys));
    assert!(env.wait_for_event_note(NAME, "CreateSucceeded").await?.starts_with("Created "));
    env.ensure_idle().await?;

    env.ensure_restart_writes_nothing().await?;
    env.tear_down().await
}

#[tokio::test]
async fn host_keys_are_generated_once_and_again_only_after_their_deletion() -> Result<()> {
    let mut env = start("keys").await?;
    apply_references(&env).await?;
    env.delete::<Secret>(HOST_KEYS).await?;
    let login = apply_loginset(&env, json!({})).await?;
    let first = wait_for_host_keys(&env, None).await?;
    assert_eq!(first.data.as_ref().unwrap().keys().collect::<Vec<_>>(), FILES);
    assert_eq!(
        (first.immutable, first.owner_references()[0].uid.clone()),
        (Some(true), login.uid().unwrap())
    );
    let before = wait_for_deployment(&env).await?;

    apply_loginset(&env, json!({ "extraSshdConfig": "LoginGraceTime 60" })).await?;
    let edited = wait_for_changed_hash(&env, "sshd-conf", &before).await?;
    env.restart_controller()?;
    env.ensure_idle().await?;
    let kept = wait_for_host_keys(&env, None).await?;
    assert_eq!((kept.uid(), kept.resource_version()), (first.uid(), first.resource_version()));
    ensure_changed_once(&before, &edited)?;

    env.delete::<Secret>(HOST_KEYS).await?;
    let second = wait_for_host_keys(&env, first.uid()).await?;
    assert_ne!(second.data, first.data);
    wait_for_changed_hash(&env, "ssh-host-keys", &edited).await?;
    env.ensure_event_note(NAME, "HostKeysReplaced", "scale to 0").await?;
    env.ensure_idle().await?;
    ensure_changed_once(&edited, &wait_for_deployment(&env).await?)?;
    let log = env.log()?;
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    env.tear_down().await
}

#[tokio::test]
async fn host_keys_of_a_user_are_used_and_not_adopted() -> Result<()> {
    let env = start("own-keys").await?;
    apply_references(&env).await?;
    let theirs = env.get::<Secret>(HOST_KEYS).await?;
    apply_loginset(&env, json!({})).await?;
    let first = wait_for_deployment(&env).await?;
    let now = env.get::<Secret>(HOST_KEYS).await?;
    assert_eq!(now.resource_version(), theirs.resource_version(), "the Secret of the user was changed");

    apply_host_keys(&env, &FILES[1..], json!({})).await?;
    ensure_degraded(&env, "SecretKeyMissing", "no key \"ssh_host_ecdsa_key\"").await?;
    let frozen = wait_for_deployment(&env).await?;
    assert_eq!(frozen.metadata.generation, first.metadata.generation);
    apply_host_keys(&env, &FILES, json!({})).await?;
    env.wait_for_ready_reason::<LoginSet>(NAME, "RollingOut").await?;
    env.tear_down().await
}

#[tokio::test]
async fn a_loginset_is_scaled_through_its_subresource() -> Result<()> {
    let env = start("scale").await?;
    apply_references(&env).await?;
    apply_loginset(&env, json!({})).await?;
    wait_for_deployment(&env).await?;
    let loginsets = env.api::<LoginSet>();
    let scale = async |replicas: i32| {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        loginsets.patch_scale(NAME, &PatchParams::default(), &patch).await
    };
    scale(3).await?;
    wait_for_replicas(&env, NAME, 3).await?;
    let get = async || Ok(loginsets.get_scale(NAME).await?.status.unwrap());
    let status = eventually("three replicas", SOON, get, |status| status.replicas == 3).await?;
    assert_eq!(status.selector.unwrap(), "app.kubernetes.io/instance=front,app.kubernetes.io/name=login");
    let refused = scale(-1).await.unwrap_err().to_string();
    assert!(refused.contains("spec.replicas"), "{refused}");
    assert_eq!(replicas(&wait_for_deployment(&env).await?), Some(3));
    env.patch_spec::<Deployment>(NAME, json!({ "replicas": 7 })).await?;
    wait_for_replicas(&env, NAME, 3).await?;
    env.tear_down().await
}

#[tokio::test]
async fn missing_controller_is_reported_and_freezes_the_deployment() -> Result<()> {
    let env = start("missing").await?;
    apply_slurm_key(&env).await?;
    apply_sssd_conf(&env, "[sssd]").await?;
    apply_loginset(&env, json!({})).await?;
    wait_for_host_keys(&env, None).await?;
    ensure_degraded(&env, "ControllerMissing", "Controller slurm does not exist").await?;
    env.ensure_event_note(NAME, "ControllerRefFailed", "Controller slurm").await?;
    assert!(env.exists::<Service>(NAME).await?, "the Service needs no Controller");
    assert!(env.exists::<ConfigMap>(CONFIG).await?, "the configuration needs no Controller");
    assert!(!env.exists::<Deployment>(NAME).await?);

    let counts_pods =
        |loginset: &LoginSet| loginset.status.as_ref().is_some_and(|status| status.replicas == 1);
    ensure_frozen_without_controller(&env, NAME, NAME, counts_pods).await?;
    env.tear_down().await
}

#[tokio::test]
async fn missing_secrets_are_reported_and_freeze_the_deployment() -> Result<()> {
    let env = start("secrets").await?;
    apply_controller(&env).await?;
    apply_host_keys(&env, &FILES, json!({})).await?;
    apply_loginset(&env, json!({})).await?;
    ensure_degraded(&env, "SecretMissing", "Secret auth does not exist").await?;
    apply_slurm_key(&env).await?;
    let text = "Secret sssd does not exist";
    env.wait_for_degraded_message::<LoginSet>(NAME, "SecretMissing", text).await?;
    apply_secret(&env, "sssd", &[("other.conf", "")]).await?;
    ensure_degraded(&env, "SecretKeyMissing", "Secret sssd has no key \"sssd.conf\"").await?;
    env.wait_for_event(NAME, "SecretKeyMissing").await?;
    assert!(!env.exists::<Deployment>(NAME).await?);

    apply_sssd_conf(&env, "[sssd]").await?;
    let created = wait_for_deployment(&env).await?;
    env.wait_for_ready_reason::<LoginSet>(NAME, "RollingOut").await?;
    apply_sssd_conf(&env, "[sssd]\nservices = nss").await?;
    let changed = wait_for_changed_hash(&env, "sssd-conf", &created).await?;
    ensure_changed_once(&created, &changed)?;

    env.delete::<Secret>("sssd").await?;
    env.wait_for_degraded::<LoginSet>(NAME, "SecretMissing").await?;
    ensure_unchanged(&env, &changed).await?;
    apply_sssd_conf(&env, "[sssd]\nservices = nss").await?;
    env.wait_for_ready_reason::<LoginSet>(NAME, "RollingOut").await?;
    assert_eq!(wait_for_deployment(&env).await?.metadata.generation, changed.metadata.generation);
    env.tear_down().await
}

#[tokio::test]
async fn children_controlled_by_another_owner_are_not_touched() -> Result<()> {
    let env = start("foreign").await?;
    apply_references(&env).await?;
    let metadata = env.metadata_with_foreign_owner().await?;
    let keys = apply_host_keys(&env, &FILES, metadata.clone()).await?;
    let config = json!({ "metadata": metadata, "data": { "authorized_keys": "ssh-ed25519 AAAA them" } });
    let config: ConfigMap = env.apply(CONFIG, config).await?;
    let service = apply_foreign_service(&env, NAME, &metadata).await?;

    apply_loginset(&env, json!({})).await?;
    let foreign =
        [env.foreign_owner_message::<ConfigMap>(CONFIG), env.foreign_owner_message::<Service>(NAME)];
    ensure_foreign_owners_are_reported::<LoginSet>(&env, NAME, &foreign).await?;
    env.delete::<ConfigMap>(CONFIG).await?;
    env.delete::<Service>(NAME).await?;
    let sentence = env.foreign_owner_message::<Secret>(HOST_KEYS);
    env.wait_for_degraded_message::<LoginSet>(NAME, "ForeignOwner", &sentence).await?;
    assert!(!env.exists::<Deployment>(NAME).await?, "pods must not use foreign host keys");
    let now = env.get::<Secret>(HOST_KEYS).await?;
    assert_eq!(now.resource_version(), keys.resource_version());
    env.wait_for_replacement::<ConfigMap>(CONFIG, config.uid()).await?;
    env.wait_for_replacement::<Service>(NAME, service.uid()).await?;

    env.delete::<Secret>(HOST_KEYS).await?;
    wait_for_host_keys(&env, keys.uid()).await?;
    env.wait_for_ready_reason::<LoginSet>(NAME, "RollingOut").await?;
    env.tear_down().await
}

#[tokio::test]
async fn objects_without_owner_are_adopted_only_with_our_labels() -> Result<()> {
    let env = start("unrelated").await?;
    apply_references(&env).await?;
    // As a Helm chart of the name `login` labels its objects.
    let labels = json!({ "app.kubernetes.io/name": "login", "app.kubernetes.io/instance": NAME });
    let service = apply_foreign_service(&env, NAME, &json!({ "labels": labels })).await?;
    let spec = foreign_workload_spec(&json!({ "app": "theirs" }));
    let deployment: Deployment =
        env.apply(NAME, json!({ "metadata": { "labels": labels }, "spec": spec })).await?;
    apply_loginset(&env, json!({})).await?;
    let message = env.wait_for_degraded::<LoginSet>(NAME, "NameConflict").await?;
    for kind in ["Service", "Deployment"] {
        let sentence =
            format!("{kind} {}/{NAME} exists and does not belong to this resource", env.namespace());
        assert!(
            message.contains(&sentence) && message.contains("app.kubernetes.io/component=login"),
            "{message}"
        );
    }
    env.wait_for_event(NAME, "NameConflict").await?;
    assert_eq!(env.get::<Service>(NAME).await?.resource_version(), service.resource_version());
    assert_eq!(wait_for_deployment(&env).await?.spec, deployment.spec);
    assert!(!is_managed_by(&wait_for_deployment(&env).await?, "loginset-controller"));

    // Without the conflict the children are created; without their LoginSet they stay, and its successor adopts them.
    env.delete::<Service>(NAME).await?;
    env.delete::<Deployment>(NAME).await?;
    let service = env.wait_for_replacement::<Service>(NAME, service.uid()).await?;
    let created = env.wait_for_replacement::<Deployment>(NAME, deployment.uid()).await?;
    // The garbage collector makes no orphan of an object that it has not seen. It has seen those that are older than an
    // object that it deletes.
    let absent = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent" });
    let metadata = json!({ "ownerReferences": [absent] });
    let garbage = "garbage";
    apply_foreign_service(&env, garbage, &metadata).await?;
    env.apply::<Deployment>(garbage, json!({ "metadata": metadata, "spec": spec })).await?;
    env.wait_until_deleted_within::<Service>(garbage, SOON * 3).await?;
    env.wait_until_deleted_within::<Deployment>(garbage, SOON * 3).await?;
    env.delete_without_children::<LoginSet>(NAME).await?;
    let loginset = apply_loginset(&env, json!({})).await?;
    let is_owned = |owners: &[OwnerReference]| {
        owners.iter().any(|owner| Some(&owner.uid) == loginset.metadata.uid.as_ref())
    };
    let adopted = env.wait_until::<Deployment>(NAME, |now| is_owned(now.owner_references())).await?;
    assert_eq!((adopted.uid(), adopted.metadata.generation), (created.uid(), created.metadata.generation));
    let adopted = env.wait_until::<Service>(NAME, |now| is_owned(now.owner_references())).await?;
    assert_eq!(adopted.uid(), service.uid());
    env.tear_down().await
}

#[tokio::test]
async fn login_pods_are_labelled_with_their_name_and_not_restarted() -> Result<()> {
    let env = start("podname").await?;
    apply_references(&env).await?;
    apply_loginset(&env, json!({ "replicas": 2 })).await?;
    let pods: Api<Pod> = env.api();
    let list = async || {
        Ok(pods.list(&ListParams::default().labels("app.kubernetes.io/instance=front")).await?.items)
    };
    let is_labelled =
        |pod: &Pod| pod.labels().get("loginset.slinky.slurm.net/pod-name") == Some(&pod.name_any());
    let all_labelled = |pods: &Vec<Pod>| pods.len() == 2 && pods.iter().all(is_labelled);
    let labelled = eventually("labelled login pods", SOON, list, all_labelled).await?;

    // A pod that takes the place of another gets its own label; the other one stays.
    env.delete::<Pod>(&labelled[0].name_any()).await?;
    let is_replaced =
        |pods: &Vec<Pod>| all_labelled(pods) && pods.iter().all(|pod| pod.uid() != labelled[0].uid());
    let now = eventually("a labelled successor", SOON, list, is_replaced).await?;
    assert!(now.iter().any(|pod| pod.uid() == labelled[1].uid()), "{now:?}");
    env.ensure_idle().await?;
    env.tear_down().await
}

#[tokio::test]
async fn invalid_spec_is_reported_and_does_not_change_the_deployment() -> Result<()> {
    let env = start("bad").await?;
    apply_references(&env).await?;
    apply_loginset(&env, json!({})).await?;
    let good = wait_for_deployment(&env).await?;
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
        apply_loginset(&env, change.clone()).await?;
        ensure_degraded(&env, reason, text).await.with_context(|| change.to_string())?;
        ensure_unchanged(&env, &good).await.with_context(|| change.to_string())?;
    }
    env.ensure_event_note(NAME, "Rejected", "spec.strategy: Unsupported").await?;
    apply_loginset(&env, json!({ "replicas": 2 })).await?;
    wait_for_replicas(&env, NAME, 2).await?;
    env.wait_for_ready_reason::<LoginSet>(NAME, "RollingOut").await?;
    env.tear_down().await
}

#[tokio::test]
async fn removed_root_key_rolls_the_pods_once() -> Result<()> {
    let env = start("rootkeys").await?;
    apply_references(&env).await?;
    apply_loginset(&env, json!({ "rootSshAuthorizedKeys": "ssh-ed25519 AAAA first" })).await?;
    let created = wait_for_deployment(&env).await?;
    let content_hash = |deployment: &Deployment| {
        let metadata = deployment.spec.clone().unwrap().template.metadata.unwrap();
        metadata.annotations.unwrap().get(CONTENT_HASH).cloned()
    };
    assert_eq!(content_hash(&created), None, "new pods read the current content");
    env.patch_spec::<LoginSet>(NAME, json!({ "rootSshAuthorizedKeys": "" })).await?;
    let changed = env.wait_until::<Deployment>(NAME, |deployment| content_hash(deployment).is_some()).await?;
    ensure_changed_once(&created, &changed)?;
    env.ensure_idle().await?;
    assert_eq!(wait_for_deployment(&env).await?.metadata.generation, changed.metadata.generation);
    env.tear_down().await
}

#[tokio::test]
async fn changed_strategy_reaches_the_deployment_and_can_be_reverted() -> Result<()> {
    let env = start("strategy").await?;
    apply_references(&env).await?;
    apply_loginset(&env, json!({})).await?;
    let strategy = |now: &Deployment| json!(now.spec.as_ref().unwrap().strategy);
    let stock =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } });
    env.wait_until::<Deployment>(NAME, |now| strategy(now) == stock).await?;
    apply_loginset(&env, json!({ "strategy": { "type": "Recreate" } })).await?;
    env.wait_until::<Deployment>(NAME, |now| strategy(now) == json!({ "type": "Recreate" })).await?;
    apply_loginset(&env, json!({})).await?;
    env.wait_until::<Deployment>(NAME, |now| strategy(now) == stock).await?;
    assert_eq!(
        condition(&env.wait_for_ready_reason::<LoginSet>(NAME, "RollingOut").await?, READY)?.status,
        "False"
    );
    env.tear_down().await
}

#[tokio::test]
async fn adopted_deployment_of_another_operator_is_not_restarted() -> Result<()> {
    let env = start("inherit").await?;
    apply_references(&env).await?;
    apply_loginset(&env, json!({})).await?;
    let created = wait_for_deployment(&env).await?;
    env.delete::<Controller>(CONTROLLER).await?;
    env.wait_for_ready_reason::<LoginSet>(NAME, "ControllerMissing").await?;
    env.delete::<Deployment>(NAME).await?;
    env.wait_until_deleted::<Deployment>(NAME).await?;

    let mut theirs = json!({ "metadata": { "labels": created.labels() }, "spec": created.spec });
    theirs["metadata"]["ownerReferences"] = json!(created.owner_references());
    theirs["spec"]["template"]["spec"]["initContainers"][0]["command"][2] = json!("set -e; cp /mnt/* /etc");
    let theirs: Deployment = env.create_as_other_operator(NAME, theirs).await?;
    apply_controller(&env).await?;
    env.wait_for_ready_reason::<LoginSet>(NAME, "RollingOut").await?;
    env.ensure_idle().await?;
    let kept = wait_for_deployment(&env).await?;
    assert!(is_managed_by(&kept, "loginset-controller"), "the Deployment was not adopted");
    assert_eq!((kept.uid(), &kept.spec), (theirs.uid(), &theirs.spec));

    apply_loginset(&env, json!({ "login": { "image": "login:next" } })).await?;
    let template = |now: &Deployment| now.spec.as_ref().unwrap().template.clone();
    let next = env.wait_until::<Deployment>(NAME, |now| template(now) != template(&kept)).await?;
    assert_eq!(
        template(&next).spec.unwrap().init_containers,
        template(&created).spec.unwrap().init_containers
    );
    env.tear_down().await
}
