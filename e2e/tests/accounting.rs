//! The accounting-controller against a real API server: children, key rotation, missing references, foreign owners.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::{Context, Result};
use e2e::fixtures::{
    apply_foreign_service, apply_keys, apply_secret, ensure_controlled_by,
    ensure_foreign_owners_are_reported, ensure_missing_keys_are_reported, ensure_workload_is_restored,
    foreign_workload_spec, is_managed_by, secret_data, with_spec,
};
use e2e::test_env::{TestEnv, condition, metadata_controlled_by};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt;
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::conditions::READY;
use slinky_api::v1beta1::Accounting;

const NAME: &str = "books";
const CHILD: &str = "books-accounting";
const POD: &str = "books-accounting-0";
const PASSWORD: &str = "sesame";
const CONF_HASH: &str = "slinky.slurm.net/slurmdbd-conf-hash";

async fn start(test: &str) -> Result<TestEnv> {
    TestEnv::start("accounting-controller", test).await
}

async fn apply_password(env: &TestEnv, password: &str) -> Result<Secret> {
    apply_secret(env, "db", &[("password", password)]).await
}

/// Applies an Accounting that is complete once the Secrets with keys and password exist.
async fn apply_accounting(env: &TestEnv, name: &str, replaced: Value) -> Result<Accounting> {
    let spec = json!({
        "slurmKeyRef": { "name": "auth", "key": "slurm.key" },
        "jwtKeyRef": { "name": "tokens", "key": "jwt.key" },
        "slurmdbd": { "image": "slurmdbd:26.05" },
        "storageConfig": {
            "host": "mariadb", "username": "slurm", "passwordKeyRef": { "name": "db", "key": "password" },
        },
    });
    env.apply(name, with_spec(spec, &replaced)).await
}

async fn apply_all(env: &TestEnv) -> Result<Accounting> {
    apply_keys(env).await?;
    apply_password(env, PASSWORD).await?;
    apply_accounting(env, NAME, json!({})).await
}

async fn wait_for_stateful_set(env: &TestEnv) -> Result<StatefulSet> {
    env.wait_for(CHILD).await
}

/// slurmdbd.conf in its Secret.
fn slurmdbd_conf(config: &Secret) -> &str {
    let file = config.data.as_ref().and_then(|data| data.get("slurmdbd.conf"));
    file.and_then(|file| str::from_utf8(&file.0).ok()).unwrap_or_default()
}

/// Waits until slurmdbd.conf has this line, and returns its Secret.
async fn wait_for_conf_line(env: &TestEnv, line: &str) -> Result<Secret> {
    env.wait_until(CHILD, |secret| slurmdbd_conf(secret).lines().any(|it| it == line)).await
}

fn conf_hash(stateful_set: &StatefulSet) -> String {
    let template = &stateful_set.spec.as_ref().unwrap().template;
    template.metadata.as_ref().unwrap().annotations.as_ref().unwrap()[CONF_HASH].clone()
}

/// Versions of all children; of the StatefulSet without changes of its status.
async fn child_versions(env: &TestEnv) -> Result<[Option<String>; 3]> {
    Ok([
        env.get::<Service>(CHILD).await?.resource_version(),
        env.get::<Secret>(CHILD).await?.resource_version(),
        wait_for_stateful_set(env).await?.metadata.generation.map(|number| number.to_string()),
    ])
}

async fn ensure_degraded(env: &TestEnv, reason: &str, text: &str) -> Result<()> {
    env.ensure_degraded::<Accounting>(NAME, reason, text).await
}

#[tokio::test]
async fn children_are_created_with_owner_and_an_idle_controller_sends_no_requests() -> Result<()> {
    let mut env = start("children").await?;
    let accounting = apply_all(&env).await?;
    let stateful_set = wait_for_stateful_set(&env).await?;
    let secret = wait_for_conf_line(&env, "StoragePass=sesame").await?;
    ensure_controlled_by(&stateful_set, &accounting)?;
    ensure_controlled_by(&secret, &accounting)?;
    ensure_controlled_by(&env.get::<Service>(CHILD).await?, &accounting)?;
    assert_eq!((secret.immutable, conf_hash(&stateful_set).len()), (Some(false), 64));
    env.wait_for_event(NAME, "CreateSucceeded").await?;

    let rolling_out = condition(&env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?, READY)?;
    for part in ["mariadb:3306", "kubectl logs", POD] {
        assert!(rolling_out.message.contains(part), "{}", rolling_out.message);
    }
    env.mark_pod_ready(POD).await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "AsExpected").await?;
    env.ensure_idle_and_unchanged_by_restart(child_versions).await?;
    env.tear_down().await
}

#[tokio::test]
async fn missing_secret_is_reported_and_creating_it_resolves_the_condition() -> Result<()> {
    let env = start("missing").await?;
    apply_keys(&env).await?;
    apply_accounting(&env, NAME, json!({})).await?;
    ensure_degraded(&env, "SecretMissing", "Secret db does not exist").await?;
    env.ensure_event_note(NAME, "SecretMissing", "Secret db").await?;
    assert!(env.exists::<Service>(CHILD).await?, "the Service needs no password");
    assert!(!env.exists::<StatefulSet>(CHILD).await?, "slurmdbd cannot start without a password");

    apply_secret(&env, "db", &[("wrong", PASSWORD)]).await?;
    ensure_degraded(&env, "SecretKeyMissing", "Secret db has no key \"password\"").await?;
    apply_password(&env, PASSWORD).await?;
    let created = wait_for_stateful_set(&env).await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?;

    ensure_missing_keys_are_reported::<Accounting>(&env, NAME).await?;
    let kept = wait_for_stateful_set(&env).await?;
    let identity = (kept.uid(), kept.metadata.generation);
    assert_eq!(identity, (created.uid(), Some(1)), "a missing Secret does not change the StatefulSet");
    env.tear_down().await
}

#[tokio::test]
async fn missing_jwks_config_map_freezes_the_stateful_set() -> Result<()> {
    let env = start("jwks").await?;
    apply_all(&env).await?;
    wait_for_stateful_set(&env).await?;
    env.patch_spec::<Accounting>(NAME, json!({ "jwksKeyRef": { "name": "issuers", "key": "keys" } })).await?;
    ensure_degraded(&env, "ConfigMapMissing", "ConfigMap issuers does not exist").await?;
    env.apply::<ConfigMap>("issuers", json!({ "data": { "wrong": "{}" } })).await?;
    ensure_degraded(&env, "ConfigMapKeyMissing", "ConfigMap issuers has no key \"keys\"").await?;
    assert_eq!(wait_for_stateful_set(&env).await?.metadata.generation, Some(1));
    env.apply::<ConfigMap>("issuers", json!({ "data": { "keys": "{}" } })).await?;
    env.wait_for_generation::<StatefulSet>(CHILD, 2).await?;
    wait_for_conf_line(&env, "AuthAltParameters=jwt_key=/etc/slurm/jwt.key,jwks=/etc/slurm/jwks.json")
        .await?;
    env.tear_down().await
}

#[tokio::test]
async fn changed_password_or_key_rolls_the_stateful_set_once() -> Result<()> {
    let env = start("rotate").await?;
    apply_all(&env).await?;
    let before = wait_for_stateful_set(&env).await?;
    env.ensure_idle().await?;
    apply_password(&env, "open").await?;
    wait_for_conf_line(&env, "StoragePass=open").await?;
    let after = env.wait_until::<StatefulSet>(CHILD, |set| conf_hash(set) != conf_hash(&before)).await?;
    env.ensure_idle().await?;
    assert_eq!(wait_for_stateful_set(&env).await?.metadata.generation, Some(2));

    apply_secret(&env, "auth", &[("slurm.key", "another")]).await?;
    env.wait_for_generation::<StatefulSet>(CHILD, 3).await?;
    apply_secret(&env, "tokens", &[("jwt.key", "another")]).await?;
    env.wait_for_generation::<StatefulSet>(CHILD, 4).await?;
    env.ensure_idle().await?;
    let last = wait_for_stateful_set(&env).await?;
    assert_eq!((last.metadata.generation, conf_hash(&last)), (Some(4), conf_hash(&after)));

    // A comment does not change the meaning of slurmdbd.conf.
    let before = child_versions(&env).await?;
    env.patch_spec::<Accounting>(NAME, json!({ "extraConf": "# a remark" })).await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?;
    assert_eq!(child_versions(&env).await?, before);
    env.tear_down().await
}

#[tokio::test]
async fn unusable_values_are_rejected_without_a_change_and_secrets_are_not_disclosed() -> Result<()> {
    let env = start("text").await?;
    apply_all(&env).await?;
    wait_for_stateful_set(&env).await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?;
    let before = child_versions(&env).await?;
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
        apply_accounting(&env, NAME, change.clone()).await?;
        ensure_degraded(&env, "InvalidSpec", text).await.with_context(|| change.to_string())?;
        assert_eq!(child_versions(&env).await?, before, "{change}");
    }
    apply_accounting(&env, NAME, json!({})).await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?;

    apply_password(&env, "abracadabra\n\n").await?;
    let message = env.wait_for_degraded::<Accounting>(NAME, "PasswordUnusable").await?;
    assert!(message.contains("Secret db, key \"password\" must not contain '\\n'"), "{message}");
    let note = env.wait_for_event_note(NAME, "PasswordUnusable").await?;
    assert_eq!(child_versions(&env).await?, before);
    for text in [message, note, env.log()?] {
        assert!(!text.contains("abracadabra") && !text.contains(PASSWORD), "{text}");
    }
    // One newline at the end is no part of the password.
    apply_password(&env, &format!("{PASSWORD}\n")).await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?;
    assert_eq!(child_versions(&env).await?, before);
    env.tear_down().await
}

#[tokio::test]
async fn changed_or_deleted_children_are_restored() -> Result<()> {
    let env = start("repair").await?;
    apply_all(&env).await?;
    wait_for_stateful_set(&env).await?;
    let created = wait_for_conf_line(&env, "StoragePass=sesame").await?;
    assert_eq!(env.ensure_recreated::<Secret>(CHILD).await?.data, created.data);
    let garbage = secret_data(&[("slurmdbd.conf", "StoragePass=x")]);
    env.patch::<Secret>(CHILD, json!({ "data": garbage })).await?;
    wait_for_conf_line(&env, "StoragePass=sesame").await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?;
    assert_eq!(
        wait_for_stateful_set(&env).await?.metadata.generation,
        Some(1),
        "a restored Secret does not restart slurmdbd"
    );

    ensure_workload_is_restored::<StatefulSet>(&env, CHILD).await?;

    env.patch::<Secret>(CHILD, json!({ "immutable": true })).await?;
    apply_password(&env, "open").await?;
    ensure_degraded(&env, "ConfigImmutable", "Secret books-accounting is immutable").await?;
    env.delete::<Secret>(CHILD).await?;
    wait_for_conf_line(&env, "StoragePass=open").await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?;
    env.tear_down().await
}

/// Applies children with our names and labels that another owner controls.
async fn apply_foreign_children(env: &TestEnv) -> Result<(Service, Secret, StatefulSet)> {
    let mut metadata = env.metadata_with_foreign_owner().await?;
    metadata["labels"] = json!({ "app.kubernetes.io/name": "slurmdbd" });
    let secret = json!({ "metadata": metadata, "data": secret_data(&[("theirs", "theirs")]) });
    let spec = foreign_workload_spec(&json!({ "app": "theirs" }));
    Ok((
        apply_foreign_service(env, CHILD, &metadata).await?,
        env.apply(CHILD, secret).await?,
        env.apply(CHILD, json!({ "metadata": metadata, "spec": spec })).await?,
    ))
}

async fn assert_untouched<K: Object>(env: &TestEnv, theirs: &K) -> Result<()> {
    let now = env.get::<K>(CHILD).await?;
    let is_ours = is_managed_by(&now, "accounting-controller");
    assert!(!is_ours && now.uid() == theirs.uid(), "{:?}", now.meta());
    Ok(())
}

/// The fields of a spec whose slurmdbd is external.
fn external() -> Value {
    json!({ "external": true, "externalConfig": { "host": "db", "port": 6819 } })
}

#[tokio::test]
async fn children_controlled_by_another_owner_are_not_touched() -> Result<()> {
    let env = start("foreign").await?;
    let (service, secret, set) = apply_foreign_children(&env).await?;
    apply_all(&env).await?;
    let foreign = [env.foreign_owner_message::<Service>(CHILD), env.foreign_owner_message::<Secret>(CHILD)];
    let message = ensure_foreign_owners_are_reported::<Accounting>(&env, NAME, &foreign).await?;
    assert!(!message.contains("StatefulSet"), "slurmdbd is not run with a foreign Secret: {message}");
    assert_untouched(&env, &secret).await?;
    env.delete::<Secret>(CHILD).await?;
    wait_for_conf_line(&env, "StoragePass=sesame").await?;
    let sentence = env.foreign_owner_message::<StatefulSet>(CHILD);
    env.wait_for_degraded_message::<Accounting>(NAME, "ForeignOwner", &sentence).await?;
    assert_untouched(&env, &service).await?;
    assert_untouched(&env, &set).await?;

    // An external slurmdbd has no children; foreign objects are not deleted as such.
    env.patch_spec::<Accounting>(NAME, external()).await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "AsExpected").await?;
    assert_untouched(&env, &service).await?;
    assert_untouched(&env, &set).await?;
    env.tear_down().await
}

#[tokio::test]
async fn children_of_a_slurmdbd_that_becomes_external_are_deleted() -> Result<()> {
    let env = start("external").await?;
    apply_all(&env).await?;
    let created = wait_for_stateful_set(&env).await?;
    env.patch_spec::<Accounting>(NAME, external()).await?;
    env.wait_until_deleted::<StatefulSet>(CHILD).await?;
    env.wait_until_deleted::<Service>(CHILD).await?;
    env.wait_until_deleted::<Secret>(CHILD).await?;
    env.wait_for_event(NAME, "DeleteSucceeded").await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "AsExpected").await?;
    env.ensure_idle().await?;
    for secret in ["db", "auth", "tokens"] {
        assert!(env.exists::<Secret>(secret).await?, "Secret {secret} belongs to the user");
    }
    env.patch_spec::<Accounting>(NAME, json!({ "external": false })).await?;
    env.wait_for_replacement::<StatefulSet>(CHILD, created.uid()).await?;
    env.tear_down().await
}

#[tokio::test]
async fn name_that_is_invalid_for_a_child_is_reported() -> Result<()> {
    let env = start("name").await?;
    apply_keys(&env).await?;
    apply_password(&env, PASSWORD).await?;
    for (name, text) in [("b".repeat(42), "longer than 52 characters"), ("a.b".to_owned(), "has no dots")] {
        apply_accounting(&env, &name, json!({})).await?;
        env.ensure_degraded::<Accounting>(&name, "InvalidName", text).await?;
        env.wait_for_event(&name, "InvalidName").await?;
        assert!(!env.exists::<Service>(&format!("{name}-accounting")).await?);
    }
    let longest = "b".repeat(41);
    apply_accounting(&env, &longest, json!({})).await?;
    env.wait_for::<Pod>(&format!("{longest}-accounting-0")).await?;
    env.tear_down().await
}

/// slurmdbd.conf as another operator wrote it; the first hash is that of this text.
const THEIR_CONF: &str = "\
#
# written by an administrator
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
    (CONF_HASH, "5b8e6971e46f6877c3218ee27343a703190276114b2d3357cbb17dea376148a2"),
    ("slinky.slurm.net/slurm-key-hash", "e1345f101cee91f695f386a846937a0d9926a3031dc8efc296eace367bdf4149"),
    ("slinky.slurm.net/jwt-key-hash", "0090fe9079d4381d23560884657d9f394d1868f0780bc6f4d3515a228bb9af96"),
];

#[tokio::test]
async fn adopted_slurmdbd_of_another_operator_is_not_restarted() -> Result<()> {
    let env = start("inherit").await?;
    apply_keys(&env).await?;
    let accounting = apply_accounting(&env, NAME, json!({})).await?;
    env.wait_for_degraded::<Accounting>(NAME, "SecretMissing").await?;
    let metadata = metadata_controlled_by(&accounting)?;
    let secret = json!({ "metadata": metadata, "data": secret_data(&[("slurmdbd.conf", THEIR_CONF)]) });
    env.create_as_other_operator::<Secret>(CHILD, secret).await?;
    let stateful_set = their_stateful_set(metadata, env.namespace());
    env.create_as_other_operator::<StatefulSet>(CHILD, stateful_set).await?;

    apply_password(&env, PASSWORD).await?;
    env.wait_for_ready_reason::<Accounting>(NAME, "RollingOut").await?;
    let is_adopted = |set: &StatefulSet| is_managed_by(set, "accounting-controller");
    let adopted = env.wait_until(CHILD, is_adopted).await.context("waiting for the adoption")?;
    env.ensure_idle().await?;
    let generation = wait_for_stateful_set(&env).await?.metadata.generation;
    assert_eq!((adopted.metadata.generation, generation), (Some(1), Some(1)));
    assert_eq!(slurmdbd_conf(&env.get::<Secret>(CHILD).await?), THEIR_CONF);
    env.tear_down().await
}

fn their_stateful_set(mut metadata: Value, namespace: &str) -> Value {
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
    metadata["labels"] = labels;
    json!({ "metadata": metadata, "spec": {
        "podManagementPolicy": "Parallel", "replicas": 1, "revisionHistoryLimit": 0, "serviceName": CHILD,
        "selector": { "matchLabels": selector }, "template": template,
    }})
}
