//! Accountings in a real API server: made, rotated, frozen when something is missing, and nothing of others touched.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::{Context, Result};
use e2e::eventually;
use e2e::stage::{SOON, Stage, condition};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::conditions::{DEGRADED, READY};
use slinky_api::v1beta1::Accounting;

const NAME: &str = "books";
const CHILD: &str = "books-accounting";
const POD: &str = "books-accounting-0";
const PASSWORD: &str = "sesame";
const CONF_HASH: &str = "slinky.slurm.net/slurmdbd-conf-hash";

async fn set(test: &str) -> Result<Stage> {
    Stage::set("accounting-controller", test).await
}

async fn put_secret(stage: &Stage, name: &str, key: &str, value: &str) -> Result<Secret> {
    stage.put(name, json!({ "data": { key: ByteString(value.into()) } })).await
}

async fn put_password(stage: &Stage, password: &str) -> Result<Secret> {
    put_secret(stage, "db", "password", password).await
}

async fn put_keys(stage: &Stage) -> Result<()> {
    put_secret(stage, "auth", "slurm.key", "slurm-key").await?;
    put_secret(stage, "tokens", "jwt.key", "jwt-key").await?;
    Ok(())
}

/// An Accounting that has everything it needs, once keys and password are there.
async fn put_accounting(stage: &Stage, name: &str, change: Value) -> Result<Accounting> {
    let mut spec = json!({
        "slurmKeyRef": { "name": "auth", "key": "slurm.key" },
        "jwtKeyRef": { "name": "tokens", "key": "jwt.key" },
        "slurmdbd": { "image": "slurmdbd:26.05" },
        "storageConfig": {
            "host": "mariadb", "username": "slurm", "passwordKeyRef": { "name": "db", "key": "password" },
        },
    });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    stage.put(name, json!({ "spec": spec })).await
}

async fn put_all(stage: &Stage) -> Result<Accounting> {
    put_keys(stage).await?;
    put_password(stage, PASSWORD).await?;
    put_accounting(stage, NAME, json!({})).await
}

/// The StatefulSet, once it is there and `holds`.
async fn stateful_set(stage: &Stage, holds: impl Fn(&StatefulSet) -> bool) -> Result<StatefulSet> {
    stage.child(CHILD, holds).await
}

/// The file in a Secret.
fn file(config: &Secret) -> &str {
    let file = config.data.as_ref().and_then(|data| data.get("slurmdbd.conf"));
    file.and_then(|file| str::from_utf8(&file.0).ok()).unwrap_or_default()
}

/// The Secret with the configuration, once it is there and its file has this line.
async fn config(stage: &Stage, line: &str) -> Result<Secret> {
    stage.child(CHILD, |config| file(config).lines().any(|it| it == line)).await
}

fn conf_hash(stateful_set: &StatefulSet) -> String {
    let template = &stateful_set.spec.as_ref().unwrap().template;
    template.metadata.as_ref().unwrap().annotations.as_ref().unwrap()[CONF_HASH].clone()
}

async fn children_as_they_are(stage: &Stage) -> Result<[Option<String>; 3]> {
    Ok([
        stage.api::<Service>().get(CHILD).await?.resource_version(),
        stage.api::<Secret>().get(CHILD).await?.resource_version(),
        stateful_set(stage, |_| true).await?.metadata.generation.map(|number| number.to_string()),
    ])
}

/// Waits until it is not ready for that reason, and gives the sentence that tells why.
async fn degraded(stage: &Stage, reason: &str) -> Result<String> {
    stage.degraded::<Accounting>(NAME, reason).await
}

#[tokio::test]
async fn children_are_made_owned_and_kept_without_further_requests() -> Result<()> {
    let mut stage = set("made").await?;
    let accounting = put_all(&stage).await?;
    let made = stateful_set(&stage, |_| true).await?;
    let service = stage.api::<Service>().get(CHILD).await?;
    let secret = config(&stage, "StoragePass=sesame").await?;
    for owners in [made.owner_references(), service.owner_references(), secret.owner_references()] {
        assert_eq!((owners.len(), Some(&owners[0].uid)), (1, accounting.metadata.uid.as_ref()));
        assert_eq!(owners[0].controller, Some(true));
    }
    assert_eq!((secret.immutable, conf_hash(&made).len()), (Some(false), 64));
    stage.event(NAME, "CreateSucceeded").await?;

    let underway = condition(&stage.ready::<Accounting>(NAME, "RollingOut").await?, READY)?;
    for part in ["mariadb:3306", "kubectl logs", POD] {
        assert!(underway.message.contains(part), "{}", underway.message);
    }
    stage.pod_becomes_ready(POD).await?;
    stage.ready::<Accounting>(NAME, "AsExpected").await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0], "an idle controller");

    let before = children_as_they_are(&stage).await?;
    assert_eq!(stage.writes_of_a_restart().await?, [""; 0], "a restart");
    assert_eq!(children_as_they_are(&stage).await?, before);
    stage.end().await
}

#[tokio::test]
async fn what_is_missing_is_named_and_heals_when_it_appears() -> Result<()> {
    let stage = set("missing").await?;
    put_keys(&stage).await?;
    put_accounting(&stage, NAME, json!({})).await?;
    assert!(degraded(&stage, "SecretMissing").await?.contains("Secret db does not exist"));
    let event = stage.event(NAME, "SecretMissing").await?;
    assert!(event.note.unwrap().contains("Secret db"));
    assert!(stage.api::<Service>().get_opt(CHILD).await?.is_some(), "the Service needs no password");
    assert!(stage.api::<StatefulSet>().get_opt(CHILD).await?.is_none(), "there is nothing to run with");

    put_secret(&stage, "db", "wrong", PASSWORD).await?;
    assert!(degraded(&stage, "SecretKeyMissing").await?.contains("Secret db has no key \"password\""));
    put_password(&stage, PASSWORD).await?;
    let made = stateful_set(&stage, |_| true).await?;
    stage.ready::<Accounting>(NAME, "RollingOut").await?;

    for (secret, key, value) in [("auth", "slurm.key", "slurm-key"), ("tokens", "jwt.key", "jwt-key")] {
        stage.api::<Secret>().delete(secret, &DeleteParams::default()).await?;
        let message = degraded(&stage, "SecretMissing").await?;
        assert!(message.contains(&format!("Secret {secret} does not exist")), "{message}");
        put_secret(&stage, secret, "wrong", value).await?;
        let message = degraded(&stage, "SecretKeyMissing").await?;
        assert!(message.contains(&format!("Secret {secret} has no key {key:?}")), "{message}");
        put_secret(&stage, secret, key, value).await?;
        stage.ready::<Accounting>(NAME, "RollingOut").await?;
    }
    let same = stateful_set(&stage, |_| true).await?;
    assert_eq!((same.uid(), same.metadata.generation), (made.uid(), Some(1)), "what runs is left alone");
    stage.end().await
}

#[tokio::test]
async fn keys_of_other_issuers_are_waited_for_and_what_runs_is_frozen() -> Result<()> {
    let stage = set("jwks").await?;
    put_all(&stage).await?;
    stateful_set(&stage, |_| true).await?;
    stage.edit::<Accounting>(NAME, json!({ "jwksKeyRef": { "name": "issuers", "key": "keys" } })).await?;
    assert!(degraded(&stage, "ConfigMapMissing").await?.contains("ConfigMap issuers does not exist"));
    stage.put::<ConfigMap>("issuers", json!({ "data": { "wrong": "{}" } })).await?;
    assert!(degraded(&stage, "ConfigMapKeyMissing").await?.contains("ConfigMap issuers has no key \"keys\""));
    assert_eq!(stateful_set(&stage, |_| true).await?.metadata.generation, Some(1));
    stage.put::<ConfigMap>("issuers", json!({ "data": { "keys": "{}" } })).await?;
    stateful_set(&stage, |set| set.metadata.generation == Some(2)).await?;
    config(&stage, "AuthAltParameters=jwt_key=/etc/slurm/jwt.key,jwks=/etc/slurm/jwks.json").await?;
    stage.end().await
}

#[tokio::test]
async fn another_password_or_key_restarts_exactly_once() -> Result<()> {
    let stage = set("rotate").await?;
    put_all(&stage).await?;
    let before = stateful_set(&stage, |_| true).await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    put_password(&stage, "open").await?;
    config(&stage, "StoragePass=open").await?;
    let after = stateful_set(&stage, |set| conf_hash(set) != conf_hash(&before)).await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    assert_eq!(stateful_set(&stage, |_| true).await?.metadata.generation, Some(2));

    put_secret(&stage, "auth", "slurm.key", "another").await?;
    stateful_set(&stage, |set| set.metadata.generation == Some(3)).await?;
    put_secret(&stage, "tokens", "jwt.key", "another").await?;
    stateful_set(&stage, |set| set.metadata.generation == Some(4)).await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    let last = stateful_set(&stage, |_| true).await?;
    assert_eq!((last.metadata.generation, conf_hash(&last)), (Some(4), conf_hash(&after)));

    // What says nothing new to slurmdbd changes nothing.
    let before = children_as_they_are(&stage).await?;
    stage.edit::<Accounting>(NAME, json!({ "extraConf": "# a remark" })).await?;
    stage.ready::<Accounting>(NAME, "RollingOut").await?;
    assert_eq!(children_as_they_are(&stage).await?, before);
    stage.end().await
}

#[tokio::test]
async fn text_that_would_leave_its_line_changes_nothing_and_no_secret_is_told() -> Result<()> {
    let stage = set("text").await?;
    put_all(&stage).await?;
    stateful_set(&stage, |_| true).await?;
    stage.ready::<Accounting>(NAME, "RollingOut").await?;
    let before = children_as_they_are(&stage).await?;
    let storage = |field: &str, value: &str| {
        let mut storage = json!({
            "host": "mariadb", "username": "slurm", "passwordKeyRef": { "name": "db", "key": "password" },
        });
        storage[field] = json!(value);
        json!({ "storageConfig": storage })
    };
    let cases = [
        (storage("host", "db\nStorageType=x"), "spec.storageConfig.host must not contain '\\n'"),
        (storage("username", "a\nb"), "spec.storageConfig.username must not contain '\\n'"),
        (storage("database", "a b"), "spec.storageConfig.database must not contain ' '"),
        (json!({ "extraConf": "nonsense" }), "\"nonsense\": the line is not of the form Key=Value"),
        (json!({ "slurmKeyRef": { "name": "../x", "key": "k" } }), "spec.slurmKeyRef: \"../x\" cannot be"),
        (json!({ "slurmKeyRef": { "key": "k" } }), "spec.slurmKeyRef names no Secret"),
        (json!({ "slurmdbd": { "image": 5 } }), "slurmdbd.image"),
    ];
    for (change, text) in cases {
        put_accounting(&stage, NAME, change.clone()).await?;
        let message = degraded(&stage, "InvalidSpec").await?;
        assert!(message.contains(text), "{change}: {message}");
        assert_eq!(children_as_they_are(&stage).await?, before, "{change}");
    }
    put_accounting(&stage, NAME, json!({})).await?;
    stage.ready::<Accounting>(NAME, "RollingOut").await?;

    put_password(&stage, "abracadabra\n").await?;
    let message = degraded(&stage, "PasswordUnusable").await?;
    assert!(message.contains("Secret db, key \"password\" must not contain '\\n'"), "{message}");
    let event = stage.event(NAME, "PasswordUnusable").await?;
    assert_eq!(children_as_they_are(&stage).await?, before);
    for told in [message, event.note.unwrap(), stage.log()?] {
        assert!(!told.contains("abracadabra") && !told.contains(PASSWORD), "{told}");
    }
    put_password(&stage, PASSWORD).await?;
    stage.ready::<Accounting>(NAME, "RollingOut").await?;
    assert_eq!(children_as_they_are(&stage).await?, before);
    stage.end().await
}

#[tokio::test]
async fn what_was_changed_or_deleted_is_put_right() -> Result<()> {
    let stage = set("repair").await?;
    put_all(&stage).await?;
    let first = stateful_set(&stage, |_| true).await?;
    let made = config(&stage, "StoragePass=sesame").await?;
    stage.api::<Secret>().delete(CHILD, &DeleteParams::default()).await?;
    let look = async || Ok(stage.api::<Secret>().get(CHILD).await?);
    let again = eventually("a new Secret", SOON, look, |secret| secret.uid() != made.uid()).await?;
    assert_eq!(again.data, made.data);
    let garbage = json!({ "data": { "slurmdbd.conf": ByteString(b"StoragePass=x".to_vec()) } });
    stage.api::<Secret>().patch(CHILD, &PatchParams::default(), &Patch::Merge(garbage)).await?;
    config(&stage, "StoragePass=sesame").await?;
    stage.ready::<Accounting>(NAME, "RollingOut").await?;
    assert_eq!(stateful_set(&stage, |_| true).await?.metadata.generation, Some(1), "nothing restarted");

    stage.edit::<StatefulSet>(CHILD, json!({ "replicas": 0 })).await?;
    stateful_set(&stage, |set| set.metadata.generation >= Some(3)).await?;
    let replicas = |set: &StatefulSet| set.spec.as_ref().and_then(|spec| spec.replicas);
    assert_eq!(replicas(&stateful_set(&stage, |_| true).await?), Some(1));
    stage.api::<StatefulSet>().delete(CHILD, &DeleteParams::background()).await?;
    stateful_set(&stage, |set| set.uid() != first.uid()).await?;

    let freeze = Patch::Merge(json!({ "immutable": true }));
    stage.api::<Secret>().patch(CHILD, &PatchParams::default(), &freeze).await?;
    put_password(&stage, "open").await?;
    assert!(degraded(&stage, "ConfigImmutable").await?.contains("Secret books-accounting is immutable"));
    stage.api::<Secret>().delete(CHILD, &DeleteParams::default()).await?;
    config(&stage, "StoragePass=open").await?;
    stage.ready::<Accounting>(NAME, "RollingOut").await?;
    stage.end().await
}

/// Children of that name with another controller, which look like ours.
async fn put_foreign_children(stage: &Stage) -> Result<(Service, Secret, StatefulSet)> {
    let mut metadata = stage.metadata_of_somebody_else().await?;
    metadata["labels"] = json!({ "app.kubernetes.io/name": "slurmdbd" });
    let service = json!({ "metadata": metadata, "spec": { "ports": [{ "port": 1 }] } });
    let secret = json!({ "metadata": metadata, "data": { "theirs": ByteString(b"theirs".to_vec()) } });
    let labels = json!({ "app": "theirs" });
    let pod = json!({ "containers": [{ "name": "theirs", "image": "theirs" }] });
    let template = json!({ "metadata": { "labels": labels }, "spec": pod });
    let spec = json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": template });
    Ok((
        stage.put(CHILD, service).await?,
        stage.put(CHILD, secret).await?,
        stage.put(CHILD, json!({ "metadata": metadata, "spec": spec })).await?,
    ))
}

async fn assert_untouched<K: Object>(stage: &Stage, theirs: &K) -> Result<()> {
    let now = stage.api::<K>().get(CHILD).await?;
    let ours = now.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some("accounting-controller") && entry.subresource.is_none()
    });
    assert!(!ours && now.uid() == theirs.uid(), "{:?}", now.meta());
    Ok(())
}

#[tokio::test]
async fn children_of_somebody_else_are_left_alone() -> Result<()> {
    let stage = set("foreign").await?;
    let (service, secret, set) = put_foreign_children(&stage).await?;
    put_all(&stage).await?;
    let message = degraded(&stage, "ForeignOwner").await?;
    for child in ["Service", "Secret"] {
        let sentence = format!("{child} {}/{CHILD} is controlled by ConfigMap owner", stage.namespace());
        assert!(message.contains(&sentence), "{message}");
    }
    assert!(!message.contains("StatefulSet"), "nothing is run with a configuration of theirs: {message}");
    stage.event(NAME, "ForeignOwner").await?;
    assert_untouched(&stage, &secret).await?;
    stage.api::<Secret>().delete(CHILD, &DeleteParams::default()).await?;
    config(&stage, "StoragePass=sesame").await?;
    let look = async || degraded(&stage, "ForeignOwner").await;
    let sentence = format!("StatefulSet {}/{CHILD} is controlled by ConfigMap owner", stage.namespace());
    eventually("the StatefulSet", SOON, look, |message| message.contains(&sentence)).await?;
    assert_untouched(&stage, &service).await?;
    assert_untouched(&stage, &set).await?;

    // Nor is anything of theirs a leftover.
    let elsewhere = json!({ "external": true, "externalConfig": { "host": "db", "port": 6819 } });
    stage.edit::<Accounting>(NAME, elsewhere).await?;
    stage.ready::<Accounting>(NAME, "AsExpected").await?;
    assert_untouched(&stage, &service).await?;
    assert_untouched(&stage, &set).await?;
    stage.end().await
}

#[tokio::test]
async fn nothing_is_left_of_a_slurmdbd_that_runs_elsewhere() -> Result<()> {
    let stage = set("external").await?;
    put_all(&stage).await?;
    let made = stateful_set(&stage, |_| true).await?;
    let elsewhere = json!({ "external": true, "externalConfig": { "host": "db", "port": 6819 } });
    stage.edit::<Accounting>(NAME, elsewhere).await?;
    let look = async || {
        let set = stage.api::<StatefulSet>().get_opt(CHILD).await?.is_some();
        let service = stage.api::<Service>().get_opt(CHILD).await?.is_some();
        Ok([set, service, stage.api::<Secret>().get_opt(CHILD).await?.is_some()])
    };
    eventually("no children", SOON, look, |left| !left.contains(&true)).await?;
    stage.event(NAME, "DeleteSucceeded").await?;
    stage.ready::<Accounting>(NAME, "AsExpected").await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    for secret in ["db", "auth", "tokens"] {
        assert!(stage.api::<Secret>().get_opt(secret).await?.is_some(), "{secret} is the user's");
    }
    stage.edit::<Accounting>(NAME, json!({ "external": false })).await?;
    stateful_set(&stage, |set| set.uid() != made.uid()).await?;
    stage.end().await
}

#[tokio::test]
async fn a_name_that_its_children_cannot_have_is_told() -> Result<()> {
    let stage = set("name").await?;
    put_keys(&stage).await?;
    put_password(&stage, PASSWORD).await?;
    for (name, text) in [("b".repeat(42), "longer than 52 characters"), ("a.b".to_owned(), "has no dots")] {
        put_accounting(&stage, &name, json!({})).await?;
        let degraded = condition(&stage.ready::<Accounting>(&name, "InvalidName").await?, DEGRADED)?;
        assert!(degraded.message.contains(text), "{}", degraded.message);
        stage.event(&name, "InvalidName").await?;
        assert!(stage.api::<Service>().get_opt(&format!("{name}-accounting")).await?.is_none());
    }
    let longest = "b".repeat(41);
    put_accounting(&stage, &longest, json!({})).await?;
    let look = async || Ok(stage.api::<Pod>().get_opt(&format!("{longest}-accounting-0")).await?);
    eventually("the pod of the longest name", SOON, look, Option::is_some).await?;
    stage.end().await
}

/// slurmdbd.conf as another operator wrote it, and the hash of that.
const THEIR_CONF: &str = "\
#
# written by somebody else
DbdHost=books-accounting-0
DbdPort=6819
SlurmUser=slurm
AuthType=auth/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key
AuthInfo=use_client_ids
StorageType=accounting_storage/mysql
StorageHost=mariadb
StoragePort=3306
StorageUser=slurm
StorageLoc=slurm_acct_db
StoragePass=sesame
LogFile=/dev/null
";
const THEIR_HASHES: [(&str, &str); 3] = [
    (CONF_HASH, "04dc6d526d8619dca179051a49bbc1c8145829595c9194c15c31fec02e2616f6"),
    ("slinky.slurm.net/slurm-key-hash", "e1345f101cee91f695f386a846937a0d9926a3031dc8efc296eace367bdf4149"),
    ("slinky.slurm.net/jwt-key-hash", "0090fe9079d4381d23560884657d9f394d1868f0780bc6f4d3515a228bb9af96"),
];

#[tokio::test]
async fn a_slurmdbd_of_another_operator_goes_on_running() -> Result<()> {
    let stage = set("inherit").await?;
    put_keys(&stage).await?;
    let accounting = put_accounting(&stage, NAME, json!({})).await?;
    degraded(&stage, "SecretMissing").await?;
    let metadata = json!({ "name": CHILD, "ownerReferences": [{
        "apiVersion": "slinky.slurm.net/v1beta1", "kind": "Accounting", "name": NAME, "uid": accounting.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }] });
    let secret = json!({ "metadata": metadata, "data": { "slurmdbd.conf": ByteString(THEIR_CONF.into()) } });
    let them = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    stage.api::<Secret>().create(&them, &serde_json::from_value(secret)?).await?;
    let set = their_stateful_set(&metadata, stage.namespace());
    stage.api::<StatefulSet>().create(&them, &serde_json::from_value(set)?).await?;

    put_password(&stage, PASSWORD).await?;
    stage.ready::<Accounting>(NAME, "RollingOut").await?;
    let ours = |set: &StatefulSet| {
        set.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some("accounting-controller"))
    };
    let set = stateful_set(&stage, ours).await.context("the StatefulSet is taken over")?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    let generation = stateful_set(&stage, |_| true).await?.metadata.generation;
    assert_eq!((set.metadata.generation, generation), (Some(1), Some(1)));
    assert_eq!(file(&stage.api::<Secret>().get(CHILD).await?), THEIR_CONF);
    stage.end().await
}

fn their_stateful_set(metadata: &Value, namespace: &str) -> Value {
    let selector = json!({ "app.kubernetes.io/name": "slurmdbd", "app.kubernetes.io/instance": NAME });
    let mut labels = selector.clone();
    labels["app.kubernetes.io/component"] = json!("accounting");
    let mut annotations = json!({
        "kubectl.kubernetes.io/default-container": "slurmdbd",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    });
    for (key, hash) in THEIR_HASHES {
        annotations[key] = json!(hash);
    }
    let user = json!({ "runAsNonRoot": true, "runAsUser": 401, "runAsGroup": 401 });
    let mut pod_user = user.clone();
    pod_user["fsGroup"] = json!(401);
    let source = |secret: &str, key: &str| json!({ "secret": { "name": secret, "items": [{ "key": key, "path": key }] } });
    let sources = [source(CHILD, "slurmdbd.conf"), source("auth", "slurm.key"), source("tokens", "jwt.key")];
    let container = json!({
        "name": "slurmdbd", "image": "slurmdbd:26.05",
        "ports": [{ "name": "slurmdbd", "containerPort": 6819, "protocol": "TCP" }],
        "readinessProbe": { "tcpSocket": { "port": 6819 } },
        "securityContext": user,
        "volumeMounts": [
            { "name": "slurm-etc", "mountPath": "/etc/slurm", "readOnly": true },
            { "name": "run", "mountPath": "/run" },
        ],
    });
    let template = json!({
        "metadata": { "name": CHILD, "namespace": namespace, "labels": labels, "annotations": annotations },
        "spec": {
            "automountServiceAccountToken": false, "securityContext": pod_user, "containers": [container],
            "volumes": [
                { "name": "slurm-etc", "projected": { "defaultMode": 384, "sources": sources } },
                { "name": "run", "emptyDir": { "medium": "Memory" } },
            ],
        },
    });
    let mut metadata = metadata.clone();
    metadata["labels"] = labels;
    json!({ "metadata": metadata, "spec": {
        "podManagementPolicy": "Parallel", "replicas": 1, "revisionHistoryLimit": 0, "serviceName": CHILD,
        "selector": { "matchLabels": selector }, "template": template,
    }})
}
