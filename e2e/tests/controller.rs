//! Controllers in a real API server: made, kept, frozen when something is missing, and nothing of others touched.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::Result;
use e2e::custom::install_service_monitors;
use e2e::eventually;
use e2e::stage::{SOON, Stage, condition};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::conditions::{CONFIGURED, DEGRADED, MONITORED, READY};
use slinky_api::labels::CONTROLLER_ACTIVE;
use slinky_api::v1beta1::{Accounting, Controller, NodeSet};

const NAME: &str = "slurm";
/// The StatefulSet and the Service for clients.
const CHILD: &str = "slurm-controller";
const INTERNAL: &str = "slurm-controller-internal";
const CONFIG: &str = "slurm-config";
const POD: &str = "slurm-controller-0";
/// The pod that checks a configuration, and its files.
const CHECK: &str = "slurm-config-check";
/// Parameters of a partition that the schema lets pass and that no line can hold.
const BROKEN: &str = "State=UP\rSlurmUser=root";

async fn set(test: &str) -> Result<Stage> {
    Stage::set("controller-controller", test).await
}

async fn put_secret(stage: &Stage, name: &str, key: &str) -> Result<Secret> {
    stage.put(name, json!({ "data": { key: ByteString(key.into()) } })).await
}

async fn put_keys(stage: &Stage) -> Result<()> {
    put_secret(stage, "auth", "slurm.key").await?;
    put_secret(stage, "tokens", "jwt.key").await?;
    Ok(())
}

/// A Controller that has everything it needs, once the keys are there.
async fn put_controller(stage: &Stage, name: &str, change: Value) -> Result<Controller> {
    let mut spec = json!({
        "slurmKeyRef": { "name": "auth", "key": "slurm.key" },
        "jwtKeyRef": { "name": "tokens", "key": "jwt.key" },
        "slurmctld": { "image": "slurmctld:26.05" },
        "logfile": { "image": "alpine" },
        "persistence": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    stage.put(name, json!({ "spec": spec })).await
}

async fn put_all(stage: &Stage) -> Result<Controller> {
    put_keys(stage).await?;
    put_controller(stage, NAME, json!({})).await
}

async fn put_node_set(stage: &Stage, name: &str, partition: &str) -> Result<NodeSet> {
    let spec =
        json!({ "controllerRef": { "name": NAME }, "partition": { "enabled": true, "config": partition } });
    stage.put(name, json!({ "spec": spec })).await
}

async fn stateful_set(stage: &Stage, holds: impl Fn(&StatefulSet) -> bool) -> Result<StatefulSet> {
    stage.child(CHILD, holds).await
}

async fn is_gone<K: Object>(stage: &Stage, name: &str) -> Result<()> {
    let api = stage.api::<K>();
    eventually("it is gone", SOON, async || Ok(api.get_opt(name).await?), Option::is_none).await?;
    Ok(())
}

/// The lines of slurm.conf.
fn lines(config: &ConfigMap) -> Vec<&str> {
    config.data.as_ref().map_or(vec![], |files| files["slurm.conf"].lines().collect())
}

/// The ConfigMap, once its slurm.conf has this line.
async fn config(stage: &Stage, line: &str) -> Result<ConfigMap> {
    stage.child(CONFIG, |config| lines(config).contains(&line)).await
}

async fn degraded(stage: &Stage, reason: &str) -> Result<String> {
    stage.degraded::<Controller>(NAME, reason).await
}

/// What must not change by a mistake of somebody else.
async fn as_it_is(stage: &Stage) -> Result<(Option<StatefulSetSpec>, [Option<String>; 5])> {
    let set = stateful_set(stage, |_| true).await?;
    let versions = [
        set.uid(),
        set.metadata.generation.map(|number| number.to_string()),
        stage.api::<ConfigMap>().get(CONFIG).await?.resource_version(),
        stage.api::<Service>().get(CHILD).await?.resource_version(),
        stage.api::<Service>().get(INTERNAL).await?.resource_version(),
    ];
    Ok((set.spec, versions))
}

#[tokio::test]
async fn children_are_made_owned_and_kept_without_further_requests() -> Result<()> {
    let mut stage = set("made").await?;
    let controller = put_all(&stage).await?;
    let underway = condition(&stage.ready::<Controller>(NAME, "RollingOut").await?, READY)?;
    assert_eq!(underway.status, "False");
    let set = stateful_set(&stage, |_| true).await?;
    let config = config(&stage, &format!("ClusterName={}_{NAME}", stage.namespace())).await?;
    let owners = [
        set.owner_references(),
        config.owner_references(),
        stage.api::<Service>().get(CHILD).await?.owner_references(),
        stage.api::<Service>().get(INTERNAL).await?.owner_references(),
    ]
    .map(<[_]>::to_vec);
    for owners in owners {
        assert_eq!((owners.len(), Some(&owners[0].uid)), (1, controller.metadata.uid.as_ref()));
        assert_eq!(owners[0].controller, Some(true));
    }
    stage.event(NAME, "CreateSucceeded").await?;

    stage.pod_becomes_ready(POD).await?;
    stage.child::<Pod>(POD, |pod| pod.labels().get(CONTROLLER_ACTIVE).is_some_and(|is| is == "true")).await?;
    let ready = stage.ready::<Controller>(NAME, "AsExpected").await?;
    let configured = condition(&ready, CONFIGURED)?;
    assert_eq!((configured.status.as_str(), configured.reason.as_str()), ("True", "Applied"));
    assert_eq!(stage.event(NAME, "Applied").await?.note, Some(configured.message));
    assert_eq!(stage.requests_when_idle().await?, [""; 0], "an idle controller");

    let before = as_it_is(&stage).await?;
    assert_eq!(stage.writes_of_a_restart().await?, [""; 0], "a restart");
    assert_eq!(as_it_is(&stage).await?, before);
    stage.end().await
}

#[tokio::test]
async fn what_was_changed_or_deleted_is_put_right() -> Result<()> {
    let stage = set("repair").await?;
    put_all(&stage).await?;
    let first = stateful_set(&stage, |_| true).await?;
    let is_marked = |pod: &Pod| pod.labels().contains_key(CONTROLLER_ACTIVE);
    stage.child(POD, is_marked).await?;
    // Once nothing else happens only the change itself can tell.
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);

    let patch = Patch::Merge(json!({ "data": { "slurm.conf": "SlurmUser=root\n" } }));
    stage.api::<ConfigMap>().patch(CONFIG, &PatchParams::default(), &patch).await?;
    let mended = config(&stage, "SlurmUser=slurm").await?;
    stage.api::<ConfigMap>().delete(CONFIG, &DeleteParams::default()).await?;
    stage.child::<ConfigMap>(CONFIG, |config| config.uid() != mended.uid()).await?;

    stage.edit::<Service>(CHILD, json!({ "selector": { CONTROLLER_ACTIVE: "false" } })).await?;
    let selector = |service: &Service| service.spec.as_ref().unwrap().selector.clone().unwrap();
    stage.child::<Service>(CHILD, |service| selector(service)[CONTROLLER_ACTIVE] == "true").await?;
    let headless = stage.api::<Service>().get(INTERNAL).await?;
    stage.api::<Service>().delete(INTERNAL, &DeleteParams::default()).await?;
    stage.child::<Service>(INTERNAL, |service| service.uid() != headless.uid()).await?;

    let unmarked = Patch::Merge(json!({ "metadata": { "labels": { CONTROLLER_ACTIVE: null } } }));
    stage.api::<Pod>().patch(POD, &PatchParams::default(), &unmarked).await?;
    stage.child(POD, is_marked).await?;

    let replicas = |set: &StatefulSet| set.spec.as_ref().unwrap().replicas;
    stage.edit::<StatefulSet>(CHILD, json!({ "replicas": 7 })).await?;
    stateful_set(&stage, |set| replicas(set) == Some(1)).await?;
    stage.api::<StatefulSet>().delete(CHILD, &DeleteParams::default()).await?;
    stateful_set(&stage, |set| set.uid() != first.uid()).await?;
    stage.end().await
}

#[tokio::test]
async fn without_its_keys_slurmctld_is_not_started_and_not_stopped() -> Result<()> {
    let stage = set("keys").await?;
    put_controller(&stage, NAME, json!({})).await?;
    assert!(degraded(&stage, "SecretMissing").await?.contains("Secret auth does not exist"));
    assert!(stage.event(NAME, "SecretMissing").await?.note.unwrap().contains("Secret auth"));
    config(&stage, "SlurmUser=slurm").await?;
    assert!(stage.api::<Service>().get_opt(CHILD).await?.is_some(), "the Service needs no key");
    assert!(stage.api::<StatefulSet>().get_opt(CHILD).await?.is_none());

    put_keys(&stage).await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    let made = as_it_is(&stage).await?;
    for (secret, key) in [("auth", "slurm.key"), ("tokens", "jwt.key")] {
        stage.api::<Secret>().delete(secret, &DeleteParams::default()).await?;
        let message = degraded(&stage, "SecretMissing").await?;
        assert!(message.contains(&format!("Secret {secret} does not exist")), "{message}");
        put_secret(&stage, secret, "another").await?;
        let message = degraded(&stage, "SecretKeyMissing").await?;
        assert!(message.contains(&format!("Secret {secret} has no key {key:?}")), "{message}");
        stage.event(NAME, "SecretKeyMissing").await?;
        assert_eq!(as_it_is(&stage).await?, made, "what runs is left alone");
        put_secret(&stage, secret, key).await?;
        stage.ready::<Controller>(NAME, "RollingOut").await?;
    }
    assert_eq!(as_it_is(&stage).await?, made, "the same keys as before");

    stage.put::<Secret>("auth", json!({ "data": { "slurm.key": ByteString("new".into()) } })).await?;
    let generation = |set: &StatefulSet| set.metadata.generation;
    stateful_set(&stage, |set| generation(set) == Some(2)).await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    assert_eq!(generation(&stateful_set(&stage, |_| true).await?), Some(2), "one change for one new key");
    stage.end().await
}

#[tokio::test]
async fn what_the_configuration_is_made_of_is_waited_for_and_missed() -> Result<()> {
    let stage = set("parts").await?;
    put_keys(&stage).await?;
    put_controller(&stage, NAME, json!({ "configFileRefs": [{ "name": "files" }] })).await?;
    assert!(degraded(&stage, "ConfigMapMissing").await?.contains("ConfigMap files does not exist"));
    assert!(stage.event(NAME, "ConfigMapMissing").await?.note.unwrap().contains("ConfigMap files"));
    assert!(stage.api::<ConfigMap>().get_opt(CONFIG).await?.is_none(), "half a configuration");
    assert!(stage.api::<StatefulSet>().get_opt(CHILD).await?.is_none(), "there is nothing to run with");

    let put_files = |text: &str| stage.put::<ConfigMap>("files", json!({ "data": { "gres.conf": text } }));
    put_files("AutoDetect=off\n").await?;
    let made = stateful_set(&stage, |_| true).await?;
    put_files("AutoDetect=nvml\n").await?;
    stateful_set(&stage, |set| set.metadata.generation > made.metadata.generation).await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    let before = as_it_is(&stage).await?;
    stage.api::<ConfigMap>().delete("files", &DeleteParams::default()).await?;
    degraded(&stage, "ConfigMapMissing").await?;
    assert_eq!(as_it_is(&stage).await?, before, "what runs is left alone");
    put_files("AutoDetect=nvml\n").await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;

    // What a user refers to too early does not stop the slurmctld that runs.
    let accounting =
        json!({ "accountingRef": { "name": "books" }, "prologScriptRefs": [{ "name": "scripts" }] });
    stage.edit::<Controller>(NAME, accounting).await?;
    assert!(degraded(&stage, "AccountingMissing").await?.contains("Accounting books does not exist"));
    assert!(stage.event(NAME, "AccountingMissing").await?.note.unwrap().contains("Accounting books"));
    let elsewhere = json!({ "external": true, "externalConfig": { "host": "dbd.example", "port": 7819 } });
    stage.put::<Accounting>("books", json!({ "spec": elsewhere })).await?;
    degraded(&stage, "ConfigMapMissing").await?;
    assert_eq!(as_it_is(&stage).await?, before, "what runs is left alone");
    stage.put::<ConfigMap>("scripts", json!({ "data": { "prolog.sh": "" } })).await?;
    let new = config(&stage, "AccountingStorageHost=dbd.example").await?;
    assert!(lines(&new).contains(&"Prolog=prolog.sh"));
    stage.ready::<Controller>(NAME, "RollingOut").await?;

    let before = as_it_is(&stage).await?;
    stage.api::<Accounting>().delete("books", &DeleteParams::default()).await?;
    degraded(&stage, "AccountingMissing").await?;
    assert_eq!(as_it_is(&stage).await?, before, "what runs is left alone");
    stage.end().await
}

#[tokio::test]
async fn names_that_children_cannot_have_are_told_and_nothing_is_made() -> Result<()> {
    let stage = set("long").await?;
    put_keys(&stage).await?;
    let name = "c".repeat(60);
    put_controller(&stage, &name, json!({})).await?;
    let degraded = condition(&stage.ready::<Controller>(&name, "InvalidName").await?, DEGRADED)?;
    let expected = format!("\"{name}-controller\" cannot be the name of a StatefulSet (longer than 52");
    assert!(degraded.message.contains(&expected), "{}", degraded.message);
    stage.event(&name, "InvalidName").await?;
    assert!(stage.api::<ConfigMap>().get_opt(&format!("{name}-config")).await?.is_none());

    let longest = "c".repeat(41);
    put_controller(&stage, &longest, json!({})).await?;
    stage.ready::<Controller>(&longest, "RollingOut").await?;
    stage.child::<Pod>(&format!("{longest}-controller-0"), |_| true).await?;
    stage.end().await
}

#[tokio::test]
async fn children_of_somebody_else_are_left_alone() -> Result<()> {
    let stage = set("foreign").await?;
    put_keys(&stage).await?;
    let mut metadata = stage.metadata_of_somebody_else().await?;
    let config = json!({ "metadata": metadata, "data": { "slurm.conf": "theirs" } });
    let config: ConfigMap = stage.put(CONFIG, config).await?;
    let service = json!({ "metadata": metadata, "spec": { "ports": [{ "port": 1 }] } });
    let service: Service = stage.put(CHILD, service).await?;
    // One that looks like an old one of ours.
    let labels = json!({ "app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "theirs" });
    metadata["labels"] = labels.clone();
    let template = json!({
        "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "theirs", "image": "theirs" }] },
    });
    let spec = json!({
        "replicas": 0, "serviceName": CHILD, "selector": { "matchLabels": labels }, "template": template,
    });
    let theirs: StatefulSet = stage.put(CHILD, json!({ "metadata": metadata, "spec": spec })).await?;

    put_controller(&stage, NAME, json!({})).await?;
    let message = degraded(&stage, "ForeignOwner").await?;
    for child in [
        format!("ConfigMap {}/{CONFIG}", stage.namespace()),
        format!("StatefulSet {}/{CHILD}", stage.namespace()),
        format!("Service {}/{CHILD}", stage.namespace()),
    ] {
        assert!(message.contains(&format!("{child} is controlled by ConfigMap owner")), "{message}");
    }
    stage.event(NAME, "ForeignOwner").await?;
    assert!(stage.api::<Service>().get_opt(INTERNAL).await?.is_some(), "other steps go on");
    assert_eq!(stage.api::<ConfigMap>().get(CONFIG).await?.resource_version(), config.resource_version());
    assert_eq!(stage.api::<Service>().get(CHILD).await?.resource_version(), service.resource_version());
    let now = stateful_set(&stage, |_| true).await?;
    assert_eq!((now.uid(), now.spec), (theirs.uid(), theirs.spec.clone()));

    // Not wanted is not ours either.
    stage.edit::<Controller>(NAME, elsewhere()).await?;
    assert!(degraded(&stage, "ForeignOwner").await?.contains(CONFIG), "the configuration is still wanted");
    assert_eq!(stateful_set(&stage, |_| true).await?.uid(), theirs.uid());
    stage.edit::<Controller>(NAME, here()).await?;

    stage.api::<ConfigMap>().delete(CONFIG, &DeleteParams::default()).await?;
    stage.api::<Service>().delete(CHILD, &DeleteParams::default()).await?;
    stage.api::<StatefulSet>().delete(CHILD, &DeleteParams::background()).await?;
    stateful_set(&stage, |set| set.uid() != theirs.uid()).await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    stage.end().await
}

#[tokio::test]
async fn what_cannot_be_is_named_and_stops_nothing_that_runs() -> Result<()> {
    let stage = set("bad").await?;
    put_all(&stage).await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    let good = as_it_is(&stage).await?;
    let port = json!({ "spec": { "ports": [{ "name": "slurmctld", "port": 1 }] } });
    let cases = [
        (
            json!({ "clusterName": "hpc\nSlurmUser=root" }),
            "InvalidSpec",
            "clusterName must not contain '\\n'",
        ),
        (
            json!({ "extraConf": "just words" }),
            "ConfigRefused",
            "\"just\": the line is not of the form Key=Value",
        ),
        (
            json!({ "extraConf": "NodeName=gpu[0- CPUs=1" }),
            "ConfigRefused",
            "nodename: a bracket of the hostlist is left open",
        ),
        (json!({ "configFileRefs": [{ "name": "../x" }] }), "InvalidSpec", "\"../x\" cannot be the name"),
        (json!({ "slurmKeyRef": { "name": "../x", "key": "k" } }), "InvalidSpec", "slurmKeyRef: \"../x\""),
        (json!({ "slurmctld": { "image": 5 } }), "InvalidSpec", "slurmctld.image"),
        (
            json!({ "template": { "spec": { "hostNetwork": "yes" } } }),
            "InvalidSpec",
            "template.spec.hostNetwork",
        ),
        (json!({ "service": port }), "InvalidSpec", "port name 'slurmctld' is already taken"),
        (
            json!({ "slurmctld": { "image": "i", "volumeMounts": [{ "name": "no", "mountPath": "/no" }] } }),
            "Rejected",
            "volumeMounts",
        ),
    ];
    for (change, reason, text) in cases {
        put_controller(&stage, NAME, change.clone()).await?;
        let message = degraded(&stage, reason).await?;
        assert!(message.contains(text), "{change}: {message}");
        assert_eq!(as_it_is(&stage).await?, good, "{change}");
    }
    assert!(stage.event(NAME, "ConfigRefused").await?.note.unwrap().contains("just"));
    put_controller(&stage, NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    config(&stage, "MinJobAge=99").await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    stage.end().await
}

#[tokio::test]
async fn node_sets_are_configured_at_once_while_nothing_runs() -> Result<()> {
    let stage = set("nodesets").await?;
    put_all(&stage).await?;
    let before = stateful_set(&stage, |_| true).await?;
    put_node_set(&stage, "gpu", "State=UP").await?;
    let with_gpu = config(&stage, "PartitionName=gpu Nodes=gpu State=UP").await?;
    assert!(lines(&with_gpu).contains(&"NodeSet=gpu Feature=gpu"));
    stateful_set(&stage, |set| set.spec != before.spec).await?;

    put_node_set(&stage, "bad", BROKEN).await?;
    put_node_set(&stage, "cpu", "State=UP").await?;
    let message = degraded(&stage, "NodeSetRefused").await?;
    assert_eq!(message, "NodeSet bad: partition.config must not contain '\\r'");
    config(&stage, "NodeSet=cpu Feature=cpu").await?;
    put_node_set(&stage, "gpu", BROKEN).await?;
    stage.api::<NodeSet>().delete("bad", &DeleteParams::default()).await?;
    let look = async || degraded(&stage, "NodeSetRefused").await;
    eventually("another bad one", SOON, look, |message| message.starts_with("NodeSet gpu:")).await?;
    let kept = config(&stage, "PartitionName=gpu Nodes=gpu State=UP").await?;
    assert!(!kept.data.unwrap()["slurm.conf"].contains("SlurmUser=root"));

    stage.api::<NodeSet>().delete("gpu", &DeleteParams::default()).await?;
    let has_gpu = |config: &ConfigMap| lines(config).iter().any(|line| line.contains("gpu"));
    stage.child::<ConfigMap>(CONFIG, |config| !has_gpu(config)).await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    assert!(stage.api::<Pod>().get_opt(CHECK).await?.is_none());
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    stage.end().await
}

/// A Controller whose slurmctld runs, and its configuration.
async fn put_running(stage: &Stage) -> Result<ConfigMap> {
    put_all(stage).await?;
    stage.pod_becomes_ready(POD).await?;
    stage.ready::<Controller>(NAME, "AsExpected").await?;
    Ok(stage.api().get(CONFIG).await?)
}

/// Plays a check that ends; gives the uid of its pod.
async fn check_ends(stage: &Stage, phase: &str, exit_code: i32, message: &str) -> Result<Option<String>> {
    let is_new =
        |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Pending"));
    let pod = stage.child(CHECK, is_new).await?;
    let end = json!({ "terminated": { "exitCode": exit_code, "message": message } });
    let container = json!({
        "name": "check", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": end,
    });
    let status = json!({ "phase": phase, "containerStatuses": [container] });
    let patch = Patch::Merge(json!({ "status": status }));
    stage.api::<Pod>().patch_status(CHECK, &PatchParams::default(), &patch).await?;
    Ok(pod.uid())
}

#[tokio::test]
async fn a_change_that_slurmctld_refuses_is_kept_out_even_while_it_restarts() -> Result<()> {
    let mut stage = set("check").await?;
    let good = put_running(&stage).await?;
    stage.edit::<Controller>(NAME, json!({ "extraConf": "MinJobAge=98" })).await?;
    let uid = check_ends(&stage, "Failed", 3, "fatal: not with me").await?;
    let message = degraded(&stage, "ConfigRefused").await?;
    assert!(message.ends_with("fatal: not with me"), "{message}");
    assert!(stage.event(NAME, "Refused").await?.note.unwrap().contains("fatal: not with me"));

    let down = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    stage.api::<Pod>().patch_status(POD, &PatchParams::default(), &Patch::Merge(down)).await?;
    stage.restart()?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    degraded(&stage, "ConfigRefused").await?;
    let still = stage.api::<ConfigMap>().get(CONFIG).await?;
    assert_eq!(still.resource_version(), good.resource_version(), "it was written");
    assert_eq!(stage.api::<Pod>().get(CHECK).await?.uid(), uid, "one change is checked once");

    stage.edit::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    check_ends(&stage, "Succeeded", 0, "").await?;
    config(&stage, "MinJobAge=99").await?;
    is_gone::<Pod>(&stage, CHECK).await?;
    is_gone::<ConfigMap>(&stage, CHECK).await?;
    stage.end().await
}

#[tokio::test]
async fn a_check_that_nobody_permits_does_not_stop_a_change() -> Result<()> {
    let stage = set("unchecked").await?;
    put_running(&stage).await?;
    let restricted =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: Api<Namespace> = Api::all(stage.client().clone());
    namespaces.patch(stage.namespace(), &PatchParams::default(), &Patch::Merge(restricted)).await?;
    stage.edit::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    config(&stage, "MinJobAge=99").await?;
    let note = stage.event(NAME, "ConfigUnchecked").await?.note.unwrap();
    assert!(note.contains("violates PodSecurity"), "{note}");
    is_gone::<ConfigMap>(&stage, CHECK).await?;
    stage.end().await
}

/// slurmctld runs elsewhere.
fn elsewhere() -> Value {
    json!({ "external": true, "externalConfig": { "host": "ctl.example", "port": 7817 } })
}

/// slurmctld does not run elsewhere any more.
fn here() -> Value {
    json!({ "external": false, "externalConfig": null })
}

#[tokio::test]
async fn a_slurmctld_that_moves_elsewhere_leaves_its_configuration_and_state() -> Result<()> {
    let stage = set("external").await?;
    put_all(&stage).await?;
    let old = stateful_set(&stage, |_| true).await?;
    let claims = stage.api::<PersistentVolumeClaim>();
    let claim = format!("statesave-{POD}");
    eventually("a claim", SOON, async || Ok(claims.get_opt(&claim).await?), Option::is_some).await?;

    stage.edit::<Controller>(NAME, elsewhere()).await?;
    let config_elsewhere = config(&stage, "SlurmctldHost=ctl.example").await?;
    assert!(lines(&config_elsewhere).contains(&"SlurmctldPort=7817"));
    is_gone::<StatefulSet>(&stage, CHILD).await?;
    is_gone::<Service>(&stage, CHILD).await?;
    is_gone::<Service>(&stage, INTERNAL).await?;
    let ready = stage.ready::<Controller>(NAME, "AsExpected").await?;
    assert!(condition(&ready, CONFIGURED).is_err(), "nobody knows what runs there");
    stage.event(NAME, "DeleteSucceeded").await?;
    assert!(claims.get_opt(&claim).await?.is_some(), "the state was lost");
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);

    stage.edit::<Controller>(NAME, here()).await?;
    stateful_set(&stage, |set| set.uid() != old.uid()).await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    let now = config(&stage, "SlurmUser=slurm").await?;
    assert!(!lines(&now).contains(&"SlurmctldHost=ctl.example"));
    assert!(stage.api::<Service>().get_opt(CHILD).await?.is_some());
    stage.end().await
}

async fn put_claim(stage: &Stage, mode: &str) -> Result<PersistentVolumeClaim> {
    let resources = json!({ "requests": { "storage": "1Gi" } });
    stage.put("shared", json!({ "spec": { "accessModes": [mode], "resources": resources } })).await
}

#[tokio::test]
async fn standby_daemons_need_a_state_that_they_share() -> Result<()> {
    let stage = set("standby").await?;
    put_keys(&stage).await?;
    let ha = |persistence: Value| json!({ "ha": { "enabled": true }, "persistence": persistence });
    let refused = put_controller(&stage, NAME, ha(json!({ "enabled": true }))).await.unwrap_err();
    assert!(format!("{refused:#}").contains("existingClaim"), "{refused:#}");

    put_claim(&stage, "ReadWriteOnce").await?;
    put_controller(&stage, NAME, ha(json!({ "enabled": true, "existingClaim": "shared" }))).await?;
    let message = degraded(&stage, "ClaimNotShared").await?;
    assert!(message.contains("ReadWriteMany, which PersistentVolumeClaim shared is not"), "{message}");
    stage.event(NAME, "ClaimNotShared").await?;
    assert!(stage.api::<StatefulSet>().get_opt(CHILD).await?.is_none());

    stage.api::<PersistentVolumeClaim>().delete("shared", &DeleteParams::default()).await?;
    is_gone::<PersistentVolumeClaim>(&stage, "shared").await?;
    put_claim(&stage, "ReadWriteMany").await?;
    stage.edit::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    let set = stateful_set(&stage, |_| true).await?;
    assert_eq!(set.spec.unwrap().replicas, Some(2));
    let config = config(&stage, "MinJobAge=99").await?;
    let hosts = lines(&config).iter().filter(|line| line.starts_with("SlurmctldHost=")).count();
    assert_eq!(hosts, 2);
    stage.end().await
}

#[tokio::test]
async fn the_volume_of_a_slurmctld_stays_whatever_is_asked_for_later() -> Result<()> {
    let stage = set("volume").await?;
    put_all(&stage).await?;
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    let before = as_it_is(&stage).await?;
    put_controller(&stage, NAME, json!({ "persistence": { "enabled": false } })).await?;
    assert!(degraded(&stage, "PersistenceUnchanged").await?.contains("persistence cannot change later"));
    assert_eq!(as_it_is(&stage).await?, before);
    let shared = json!({ "enabled": true, "existingClaim": "shared" });
    put_controller(&stage, NAME, json!({ "ha": { "enabled": true }, "persistence": shared })).await?;
    assert!(degraded(&stage, "InvalidSpec").await?.contains("a state that all daemons share"));
    assert_eq!(as_it_is(&stage).await?.0, before.0, "daemons without a common state");
    stage.end().await
}

#[tokio::test]
async fn a_stateful_set_of_an_older_form_is_made_anew_around_its_pod() -> Result<()> {
    let stage = set("takeover").await?;
    put_all(&stage).await?;
    let ours = stateful_set(&stage, |_| true).await?;
    let pod: Pod = stage.child(POD, |_| true).await?;

    // Nothing is made while a key is missing: time to put an old StatefulSet in the place of ours.
    stage.api::<Secret>().delete("auth", &DeleteParams::default()).await?;
    degraded(&stage, "SecretMissing").await?;
    let sets = stage.api::<StatefulSet>();
    sets.delete(CHILD, &DeleteParams::orphan()).await?;
    is_gone::<StatefulSet>(&stage, CHILD).await?;
    let mut old = StatefulSet { spec: ours.spec.clone(), ..StatefulSet::default() };
    old.metadata.name = Some(CHILD.to_owned());
    old.metadata.labels = ours.metadata.labels.clone();
    old.metadata.owner_references = ours.metadata.owner_references.clone();
    let spec = old.spec.as_mut().unwrap();
    spec.service_name = Some(CHILD.to_owned());
    spec.pod_management_policy = Some("Parallel".to_owned());
    let old = sets.create(&PostParams::default(), &old).await?;
    let owner = |pod: &Pod| pod.owner_references().first().map(|owner| owner.uid.clone());
    stage.child::<Pod>(POD, |pod| owner(pod) == old.uid()).await?;

    put_keys(&stage).await?;
    let new = stateful_set(&stage, |set| set.uid() != old.uid()).await?;
    assert_eq!(new.spec.as_ref().unwrap().service_name.as_deref(), Some(INTERNAL));
    let adopted = stage.child::<Pod>(POD, |pod| owner(pod) == new.uid()).await?;
    assert_eq!(adopted.uid(), pod.uid(), "the pod was restarted");
    stage.ready::<Controller>(NAME, "RollingOut").await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    assert_eq!(stage.api::<Pod>().get(POD).await?.uid(), pod.uid(), "the pod was restarted");
    stage.end().await
}

const SERVICE_MONITORS: &str = "servicemonitors.monitoring.coreos.com";

async fn remove_service_monitors(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    if definitions.get_opt(SERVICE_MONITORS).await?.is_some() {
        definitions.delete(SERVICE_MONITORS, &DeleteParams::default()).await?;
    }
    let look = async || Ok(definitions.get_opt(SERVICE_MONITORS).await?);
    eventually("no such kind", SOON, look, Option::is_none).await?;
    Ok(())
}

/// Whether the kind is there is a matter of the whole cluster, so one test takes it away and brings it back.
#[tokio::test]
async fn metrics_are_read_where_there_is_somebody_to_read_them() -> Result<()> {
    let stage = set("metrics").await?;
    remove_service_monitors(stage.client()).await?;
    put_keys(&stage).await?;
    let metrics =
        |enabled| json!({ "metrics": { "enabled": true, "serviceMonitor": { "enabled": enabled } } });
    put_controller(&stage, NAME, metrics(true)).await?;
    let unread = stage.ready::<Controller>(NAME, "RollingOut").await?;
    let monitored = condition(&unread, MONITORED)?;
    assert_eq!(
        (monitored.status.as_str(), monitored.reason.as_str()),
        ("False", "ServiceMonitorUnavailable")
    );
    assert_eq!(stage.event(NAME, "ServiceMonitorUnavailable").await?.note, Some(monitored.message));
    config(&stage, "MetricsType=metrics/openmetrics").await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0], "nobody asks for the kind again and again");

    install_service_monitors(stage.client()).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("monitoring.coreos.com", "v1", "ServiceMonitor"));
    let monitors: Api<DynamicObject> = Api::namespaced_with(stage.client().clone(), stage.namespace(), &kind);
    stage.edit::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    let look = async || Ok(monitors.get(CHILD).await?);
    let made = eventually("a ServiceMonitor", SOON, look, |_| true).await?;
    assert_eq!(made.data["spec"]["endpoints"].as_array().unwrap().len(), 4);
    let is_monitored = |controller: &Controller| {
        condition(controller, MONITORED).is_ok_and(|monitored| monitored.status == "True")
    };
    stage.child(NAME, is_monitored).await?;

    monitors.delete(CHILD, &DeleteParams::default()).await?;
    eventually("it comes back", SOON, look, |monitor| monitor.uid() != made.uid()).await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);

    stage.edit::<Controller>(NAME, metrics(false)).await?;
    let gone = async || Ok(monitors.get_opt(CHILD).await?);
    eventually("it goes", SOON, gone, Option::is_none).await?;
    let controller = stage.child(NAME, |controller: &Controller| condition(controller, MONITORED).is_err());
    assert_eq!(condition(&controller.await?, READY)?.reason, "RollingOut");
    stage.end().await
}
