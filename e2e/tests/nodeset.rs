//! NodeSets in a real API server without kubelet: taken over, scaled, updated, frozen when something is wrong, and gone
//! without a trace. Nobody starts their pods, few are given to the scheduler, and there is no Slurm to ask.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use anyhow::Result;
use e2e::eventually;
use e2e::node::{TestNode, all_of, one_of};
use e2e::stage::{SOON, Stage, condition};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodCondition, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::conditions::{DEGRADED, PROGRESSING, SLURM_REACHABLE};
use slinky_api::labels::annotations::HOSTNAME_OVERRIDE;
use slinky_api::labels::{APP_INSTANCE, POD_INDEX, REVISION_HASH, WORKERS_FINALIZER, worker_labels};
use slinky_api::v1beta1::{Controller, NodeSet};
use std::collections::BTreeMap;
use std::time::Duration;

const NAME: &str = "gpu";
/// The hash that another operator gave to the revision of the pods that run.
const THEIR_HASH: &str = "6c8f7d9b54";
/// A controller that was just started waits until writes of an earlier one must have landed, and takes its time to
/// conclude that there is no slurmrestd to ask.
const GRANTED: Duration = Duration::from_mins(3);
/// The scheduler of a cluster without nodes: it leaves all pods alone that do not name it.
const SCHEDULER: &str = "on-request";
/// After how many seconds without a place a worker is told of, and how many that may take.
const HOMELESS: std::ops::Range<i64> = 30..50;

async fn set(test: &str) -> Result<Stage> {
    Stage::set("nodeset-controller", test).await
}

async fn put_controller(stage: &Stage) -> Result<Controller> {
    let key = |name: &str| json!({ "name": "auth", "key": name });
    let spec = json!({ "slurmKeyRef": key("slurm.key"), "jwtKeyRef": key("jwt.key") });
    stage.put("slurm", json!({ "spec": spec })).await
}

async fn put_nodeset(stage: &Stage, name: &str, change: Value) -> Result<NodeSet> {
    let mut spec = json!({
        "controllerRef": { "name": "slurm" },
        "slurmd": { "image": "slurmd:26.05", "resources": { "limits": { "cpu": "2" } } },
        "logfile": { "image": "alpine:3" },
    });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    stage.put(name, json!({ "spec": spec })).await
}

async fn list<K: Object>(stage: &Stage, nodeset: &str) -> Result<Vec<K>> {
    let of_nodeset = ListParams::default().labels(&format!("{APP_INSTANCE}={nodeset}"));
    Ok(stage.api::<K>().list(&of_nodeset).await?.items)
}

/// Objects of a NodeSet by name, once these are all that there are.
async fn exactly<K: Object>(stage: &Stage, nodeset: &str, names: &[&str]) -> Result<BTreeMap<String, K>> {
    let look = async || {
        let objects = list::<K>(stage, nodeset).await?.into_iter();
        Ok(objects.map(|object| (object.name_any(), object)).collect::<BTreeMap<_, _>>())
    };
    let what = format!("{} {names:?}", K::kind(&()));
    eventually(&what, GRANTED, look, |objects| objects.keys().eq(names)).await
}

async fn pods(stage: &Stage, nodeset: &str, names: &[&str]) -> Result<BTreeMap<String, Pod>> {
    exactly(stage, nodeset, names).await
}

fn uids<K: Object>(objects: &BTreeMap<String, K>) -> Vec<String> {
    objects.values().map(|object| object.uid().unwrap()).collect()
}

fn hash(object: &impl Object) -> &str {
    object.labels().get(REVISION_HASH).map_or("", String::as_str)
}

fn is_ready(pod: &Pod) -> bool {
    pod_condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

fn pod_condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// The owners of an object: their UIDs, and whether they control it.
fn owners(object: &impl Object) -> Vec<(String, Option<bool>)> {
    object.owner_references().iter().map(|owner| (owner.uid.clone(), owner.controller)).collect()
}

/// The requests of the controller that begin like this.
fn requests(stage: &Stage, beginnings: &[&str]) -> Result<Vec<String>> {
    let mut requests = stage.requests()?;
    requests.retain(|request| beginnings.iter().any(|beginning| request.starts_with(beginning)));
    Ok(requests)
}

/// Waits until nobody expects word from Slurm any more.
async fn nobody_to_ask(stage: &Stage, nodeset: &str) -> Result<NodeSet> {
    let nodesets = stage.api::<NodeSet>();
    let is_silent =
        |nodeset: &NodeSet| nodeset.status.is_some() && condition(nodeset, SLURM_REACHABLE).is_err();
    eventually("nobody to ask", GRANTED, async || Ok(nodesets.get(nodeset).await?), is_silent).await
}

async fn gone<K: Object>(stage: &Stage, name: &str) -> Result<()> {
    let api = stage.api::<K>();
    let what = format!("the end of {} {name}", K::kind(&()));
    eventually(&what, GRANTED, async || Ok(api.get_opt(name).await?), Option::is_none).await?;
    Ok(())
}

/// Ends a test: NodeSets wait for nobody once their Controller is gone.
async fn end(stage: Stage) -> Result<()> {
    let params = DeleteParams::background();
    stage.api::<Controller>().delete_collection(&params, &ListParams::default()).await?;
    let nodesets = stage.api::<NodeSet>();
    nodesets.delete_collection(&params, &ListParams::default()).await?;
    let look = async || Ok(nodesets.list(&ListParams::default()).await?.items);
    eventually("the end of all NodeSets", GRANTED, look, Vec::is_empty).await?;
    stage.end().await
}

/// What another operator leaves: the same wishes in other words, under a hash of its own.
async fn leave_objects_of_another_operator(stage: &Stage, nodeset: &NodeSet) -> Result<()> {
    let owner = json!({
        "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": NAME, "uid": nodeset.uid(),
        "controller": true, "blockOwnerDeletion": true,
    });
    let owners = json!([owner]);
    let whole = "replace";
    let template =
        json!({ "$patch": whole, "metadata": { "creationTimestamp": null }, "spec": { "containers": [] } });
    let resources = json!({ "limits": { "cpu": "2000m" }, "requests": null });
    let slurmd =
        json!({ "$patch": whole, "name": "", "image": "slurmd:26.05", "resources": resources, "env": [] });
    let logfile = json!({ "$patch": whole, "image": "alpine:3", "resources": null });
    let data = json!({ "spec": { "slurmd": slurmd, "template": template, "logfile": logfile } });
    let metadata = json!({ "labels": { REVISION_HASH: THEIR_HASH }, "ownerReferences": owners });
    let revision = json!({ "metadata": metadata, "data": data, "revision": 4 });
    stage.put::<ControllerRevision>(&format!("{NAME}-{THEIR_HASH}"), revision).await?;
    for ordinal in 0..3 {
        let name = format!("{NAME}-{ordinal}");
        let mut labels = json!(worker_labels(nodeset));
        labels[REVISION_HASH] = json!(THEIR_HASH);
        labels["nodeset.slinky.slurm.net/pod-name"] = json!(name);
        labels["nodeset.slinky.slurm.net/pod-index"] = json!(ordinal.to_string());
        labels["nodeset.slinky.slurm.net/scaling-mode"] = json!("StatefulSet");
        let metadata = json!({ "labels": labels, "ownerReferences": owners });
        let container = json!({ "name": "slurmd", "image": "slurmd:26.05" });
        stage
            .put::<Pod>(&name, json!({ "metadata": metadata, "spec": { "containers": [container] } }))
            .await?;
    }
    let cluster = json!({ "slinky.slurm.net/cluster": "slurm" });
    let service =
        json!({ "clusterIP": "None", "selector": cluster, "ports": [{ "name": "slurmd", "port": 6818 }] });
    stage.put::<Service>("slurm-workers-slurm", json!({ "spec": service })).await?;
    let budget = json!({ "maxUnavailable": 0, "selector": { "matchLabels": cluster } });
    stage.put::<PodDisruptionBudget>("slurm-workers-pdb-slurm", json!({ "spec": budget })).await?;
    Ok(())
}

#[tokio::test]
async fn workers_of_another_operator_are_taken_over_and_replaced_one_by_one() -> Result<()> {
    let stage = set("taken-over").await?;
    let nodeset = put_nodeset(&stage, NAME, json!({ "replicas": 3 })).await?;
    stage.degraded::<NodeSet>(NAME, "ControllerMissing").await?;
    leave_objects_of_another_operator(&stage, &nodeset).await?;
    let theirs = pods(&stage, NAME, &["gpu-0", "gpu-1", "gpu-2"]).await?;
    let service = stage.api::<Service>().get("slurm-workers-slurm").await?;
    let budget = stage.api::<PodDisruptionBudget>().get("slurm-workers-pdb-slurm").await?;

    put_controller(&stage).await?;
    let taken = |nodeset: &NodeSet| {
        nodeset
            .status
            .as_ref()
            .is_some_and(|status| status.updated_replicas == 3 && status.node_set_hash == THEIR_HASH)
    };
    stage.child::<NodeSet>(NAME, taken).await?;
    // The next worker is made of what was taken over, when the first write about pods is granted.
    stage.edit::<NodeSet>(NAME, json!({ "replicas": 4 })).await?;
    let names = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"];
    let grown = pods(&stage, NAME, &names).await?;
    assert_eq!(uids(&grown)[..3], uids(&theirs));
    assert_eq!(grown.values().map(hash).collect::<Vec<_>>(), [THEIR_HASH; 4]);
    let created = requests(&stage, &["create pods", "delete ", "create controllerrevisions"])?;
    assert_eq!(created.len(), 1, "{created:?}");
    let revisions = list::<ControllerRevision>(&stage, NAME).await?;
    assert_eq!(revisions.iter().map(|one| one.revision).collect::<Vec<_>>(), [4]);
    let service = stage.child::<Service>(&service.name_any(), |now| now.uid() == service.uid()).await?;
    let budget =
        stage.child::<PodDisruptionBudget>(&budget.name_any(), |now| now.uid() == budget.uid()).await?;
    for owners in [owners(&service), owners(&budget)] {
        assert_eq!(owners, [(nodeset.uid().unwrap(), None)], "owned a little, controlled by nobody");
    }

    for name in names {
        stage.pod_becomes_ready(name).await?;
    }
    put_nodeset(&stage, NAME, json!({ "replicas": 4, "slurmd": { "image": "slurmd:26.11" } })).await?;
    replaced_one_by_one(&stage, &names).await?;
    let look = async || {
        let revisions = list::<ControllerRevision>(&stage, NAME).await?;
        Ok(revisions.iter().map(|one| one.revision).collect::<Vec<_>>())
    };
    eventually("the old revision to go with its last worker", SOON, look, |numbers| *numbers == [5]).await?;
    end(stage).await
}

/// Plays the kubelet of new pods until all pods are new, and sees to it that never more than one is away.
async fn replaced_one_by_one(stage: &Stage, names: &[&str]) -> Result<()> {
    let step = async || {
        let pods = list::<Pod>(stage, NAME).await?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        assert!(ready + 1 >= names.len(), "only {ready} are ready");
        for pod in pods.iter().filter(|pod| !is_ready(pod) && pod.metadata.deletion_timestamp.is_none()) {
            assert_ne!(hash(pod), THEIR_HASH);
            stage.pod_becomes_ready(&pod.name_any()).await?;
        }
        Ok(pods)
    };
    let all_new = |pods: &Vec<Pod>| {
        pods.len() == names.len() && pods.iter().all(|pod| is_ready(pod) && hash(pod) != THEIR_HASH)
    };
    eventually("new workers", GRANTED, step, all_new).await?;
    Ok(())
}

#[tokio::test]
async fn without_its_controller_a_nodeset_waits_and_freezes() -> Result<()> {
    let stage = set("missing").await?;
    put_nodeset(&stage, NAME, json!({ "replicas": 1 })).await?;
    let missing = stage.degraded::<NodeSet>(NAME, "ControllerMissing").await?;
    assert_eq!(missing, "Controller slurm does not exist");
    let event = stage.event(NAME, "ControllerMissing").await?;
    assert_eq!(event.note.as_deref(), Some("Controller slurm does not exist"));

    put_controller(&stage).await?;
    let made = pods(&stage, NAME, &["gpu-0"]).await?;
    let healed = |nodeset: &NodeSet| condition(nodeset, DEGRADED).is_ok_and(|it| it.status == "False");
    stage.child::<NodeSet>(NAME, healed).await?;

    stage.api::<Controller>().delete("slurm", &DeleteParams::default()).await?;
    stage.degraded::<NodeSet>(NAME, "ControllerMissing").await?;
    put_nodeset(&stage, NAME, json!({ "replicas": 0, "slurmd": { "image": "slurmd:26.11" } })).await?;
    stage.degraded::<NodeSet>(NAME, "ControllerMissing").await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0]);
    assert_eq!(uids(&pods(&stage, NAME, &["gpu-0"]).await?), uids(&made), "what runs is left alone");

    put_controller(&stage).await?;
    pods(&stage, NAME, &[]).await?;
    end(stage).await
}

#[tokio::test]
async fn nonsense_is_named_and_keeps_nobody_else_from_working() -> Result<()> {
    let stage = set("nonsense").await?;
    put_controller(&stage).await?;
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": "ReadWriteOnce" } });
    let cases = [
        ("items", json!({ "extraConf": "Weight10" }), "extraConf cannot be read: "),
        (
            "number",
            json!({ "replicas": 2_000_000_000 }),
            "spec.replicas: 2000000000 exceeds the maximum of 65536 nodes in a Slurm cluster",
        ),
        (
            "template",
            json!({ "template": { "spec": { "terminationGracePeriodSeconds": "soon" } } }),
            "template.spec.terminationGracePeriodSeconds cannot be read: ",
        ),
        (
            "claims",
            json!({ "volumeClaimTemplates": [claim] }),
            "volumeClaimTemplates[0].spec.accessModes cannot be read: ",
        ),
        (
            "hostname",
            json!({ "template": { "spec": { "hostname": "GPU-" } } }),
            r#"the hostname of a pod cannot be "GPU-0": "#,
        ),
        (
            "hostlist",
            json!({ "template": { "spec": { "hostname": "gpu[0-" } } }),
            "template.spec.hostname must not contain '['",
        ),
        (
            "dots.in.it",
            json!({}),
            r#"the hostname of a pod cannot be "dots.in.it-0": it must not contain dots"#,
        ),
    ];
    for (name, change, _) in &cases {
        let mut change = change.clone();
        change.as_object_mut().unwrap().entry("replicas").or_insert(json!(1));
        put_nodeset(&stage, name, change).await?;
    }
    put_nodeset(&stage, "good", json!({ "replicas": 2 })).await?;
    for (name, _, message) in &cases {
        let told = stage.degraded::<NodeSet>(name, "InvalidSpec").await?;
        assert!(told.starts_with(message), "{name}: {told}");
        assert_eq!(stage.event(name, "InvalidSpec").await?.note, Some(told));
    }
    put_nodeset(&stage, "image", json!({ "replicas": 1, "logfile": {} })).await?;
    let told = stage.degraded::<NodeSet>("image", "Rejected").await?;
    assert!(
        told.starts_with(r#"Pod image-0: Pod "image-0" is invalid: spec.initContainers[0].image: "#),
        "{told}"
    );
    pods(&stage, "good", &["good-0", "good-1"]).await?;
    for (name, ..) in &cases {
        assert_eq!(list::<Pod>(&stage, name).await?.len(), 0, "{name}");
    }

    put_nodeset(&stage, "items", json!({ "replicas": 1, "extraConf": "Weight=10" })).await?;
    pods(&stage, "items", &["items-0"]).await?;
    end(stage).await
}

#[tokio::test]
async fn of_nodes_with_odd_names_only_those_that_slurm_cannot_know_get_no_worker() -> Result<()> {
    let stage = set("odd").await?;
    put_controller(&stage).await?;
    let _dotted = TestNode::create(&stage, "a", json!({})).await?;
    let odd = TestNode::create(&stage, "b", json!({ HOSTNAME_OVERRIDE: "gpu[0-" })).await?;
    let spec = json!({ "nodeSelector": all_of(&stage), "tolerations": [{ "operator": "Exists" }] });
    put_nodeset(&stage, NAME, json!({ "scalingMode": "DaemonSet", "template": { "spec": spec } })).await?;
    put_nodeset(&stage, "good", json!({ "replicas": 1 })).await?;
    let told = stage.degraded::<NodeSet>(NAME, "InvalidSpec").await?;
    let odd = odd.name();
    assert!(told.starts_with(&format!(r#"the hostname of the pod on {odd} cannot be "gpu[0-": "#)), "{told}");
    assert_eq!(stage.event(NAME, "InvalidSpec").await?.note, Some(told));
    let hostnames = |pods: &Vec<Pod>| {
        let specs = pods.iter().filter_map(|pod| pod.spec.as_ref()?.hostname.as_deref());
        specs.collect::<Vec<_>>() == ["a"]
    };
    let look = async || list::<Pod>(&stage, NAME).await;
    eventually("a worker on a node with dots in its name", GRANTED, look, hostnames).await?;
    pods(&stage, "good", &["good-0"]).await?;
    end(stage).await
}

/// Puts a NodeSet whose workers the scheduler may place on one node alone, be it there or not.
async fn put_for_one_node(stage: &Stage, name: &str, change: Value) -> Result<NodeSet> {
    let spec = json!({
        "schedulerName": SCHEDULER,
        "nodeSelector": one_of(stage, name),
        "tolerations": [{ "operator": "Exists" }],
        // No kubelet ends those that have a place.
        "terminationGracePeriodSeconds": 0,
    });
    let mut change = change;
    change["template"] = json!({ "spec": spec });
    put_nodeset(stage, name, change).await
}

/// Waits until the scheduler has placed a pod, and plays the kubelet there.
async fn starts_on(stage: &Stage, pod: &str, node: &TestNode) -> Result<()> {
    let is_there =
        |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node.name());
    stage.child(pod, is_there).await?;
    stage.pod_becomes_ready(pod).await?;
    Ok(())
}

/// Waits until a NodeSet says of its one worker what the scheduler says, and sees to it that it does so in time.
async fn told_homeless(stage: &Stage, nodeset: &str) -> Result<()> {
    let pod = format!("{nodeset}-0");
    let look = async || {
        let degraded = condition(&stage.api::<NodeSet>().get(nodeset).await?, DEGRADED)?;
        Ok((degraded, stage.api::<Pod>().get(&pod).await?))
    };
    // In other words as soon as there is another node.
    let in_the_words_of_the_scheduler = |(degraded, pod): &(Condition, Pod)| {
        let words = pod_condition(pod, "PodScheduled").and_then(|it| it.message.as_deref());
        let told = words.map(|words| format!("no Kubernetes node takes 1 worker: {words} ({nodeset}-0)"));
        degraded.reason == "Unschedulable" && told.as_ref() == Some(&degraded.message)
    };
    let limit = Duration::from_secs(HOMELESS.end.unsigned_abs());
    let (degraded, pod) = eventually("homelessness", limit, look, in_the_words_of_the_scheduler).await?;
    assert_eq!(degraded.status, "True");
    let since = pod_condition(&pod, "PodScheduled").and_then(|it| it.last_transition_time.as_ref()).unwrap();
    let after = degraded.last_transition_time.0.duration_since(since.0).as_secs();
    assert!(HOMELESS.contains(&after), "told after {after} s");
    let beginning = "no Kubernetes node takes 1 worker: 0/";
    assert!(degraded.message.starts_with(beginning), "{}", degraded.message);
    let event = stage.event(nodeset, "Unschedulable").await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.note.as_ref().is_some_and(|note| note.starts_with(beginning)), "{event:?}");
    Ok(())
}

#[tokio::test]
async fn workers_without_a_place_are_told_of_until_there_is_one_and_hold_up_nobody() -> Result<()> {
    let stage = set("homeless").await?;
    put_controller(&stage).await?;
    let _elsewhere = TestNode::create(&stage, "elsewhere", json!({})).await?;
    put_for_one_node(&stage, NAME, json!({ "replicas": 1 })).await?;
    put_for_one_node(&stage, "daemon", json!({ "scalingMode": "DaemonSet" })).await?;
    let homeless = pods(&stage, NAME, &["gpu-0"]).await?;
    told_homeless(&stage, NAME).await?;
    let fits_nowhere =
        |nodeset: &NodeSet| condition(nodeset, PROGRESSING).is_ok_and(|it| it.reason == "NoNodeFits");
    let progress = condition(&stage.child::<NodeSet>("daemon", fits_nowhere).await?, PROGRESSING)?;
    assert_eq!(progress.status, "False");
    assert_eq!(progress.message, "no Kubernetes node fits the template");
    // Before there is a place: Kubernetes takes pods for lost whose node is silent for a minute, and these never speak.
    nobody_to_ask(&stage, NAME).await?;

    let node = TestNode::create(&stage, "good", json!({})).await?;
    put_for_one_node(&stage, "good", json!({ "replicas": 1 })).await?;
    starts_on(&stage, "good-0", &node).await?;
    stage.ready::<NodeSet>("good", "AsExpected").await?;
    stage.degraded::<NodeSet>(NAME, "Unschedulable").await?;

    let node = TestNode::create(&stage, NAME, json!({})).await?;
    starts_on(&stage, "gpu-0", &node).await?;
    stage.ready::<NodeSet>(NAME, "AsExpected").await?;
    assert_eq!(uids(&pods(&stage, NAME, &["gpu-0"]).await?), uids(&homeless), "there was nothing to replace");

    let node = TestNode::create(&stage, "daemon", json!({})).await?;
    let look = async || list::<Pod>(&stage, "daemon").await;
    let made = eventually("a worker on the new node", SOON, look, |pods| pods.len() == 1).await?;
    starts_on(&stage, &made[0].name_any(), &node).await?;
    let serves = |nodeset: &NodeSet| {
        nodeset.status.as_ref().is_some_and(|status| status.ready_replicas == 1)
            && condition(nodeset, PROGRESSING).is_ok_and(|progress| progress.reason == "AsExpected")
    };
    stage.child::<NodeSet>("daemon", serves).await?;
    end(stage).await
}

fn with_claims(replicas: u32, when_scaled: &str) -> Value {
    let request = json!({ "requests": { "storage": "1Gi" } });
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": request });
    json!({
        "replicas": replicas,
        "ordinalPadding": 3,
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": spec }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": when_scaled, "whenDeleted": "Delete" },
    })
}

#[tokio::test]
async fn numbers_and_claims_follow_the_scale() -> Result<()> {
    let stage = set("scale").await?;
    put_controller(&stage).await?;
    let nodeset = put_nodeset(&stage, NAME, with_claims(0, "Delete")).await?;
    let held = |nodeset: &NodeSet| nodeset.finalizers().contains(&WORKERS_FINALIZER.to_owned());
    stage.child::<NodeSet>(NAME, held).await?;

    put_nodeset(&stage, NAME, with_claims(5, "Delete")).await?;
    let five = pods(&stage, NAME, &["gpu-000", "gpu-001", "gpu-002", "gpu-003", "gpu-004"]).await?;
    let note = stage.event(NAME, "ScalingUp").await?.note;
    assert_eq!(note.as_deref(), Some("Creating 5 Pod(s) to stabilize at 5 replicas"));
    let index = |pod: &Pod| pod.labels()[POD_INDEX].clone();
    assert_eq!(five.values().map(index).collect::<Vec<_>>(), ["000", "001", "002", "003", "004"]);
    let names = ["data-gpu-000", "data-gpu-001", "data-gpu-002", "data-gpu-003", "data-gpu-004"];
    let claims = exactly::<PersistentVolumeClaim>(&stage, NAME, &names).await?;
    let owner = [(nodeset.uid().unwrap(), Some(true))];
    let look = async || list::<PersistentVolumeClaim>(&stage, NAME).await;
    let all_owned = |claims: &Vec<PersistentVolumeClaim>| claims.iter().all(|claim| owners(claim) == owner);
    eventually("claims of the NodeSet", GRANTED, look, all_owned).await?;

    put_nodeset(&stage, NAME, with_claims(2, "Delete")).await?;
    let two = pods(&stage, NAME, &["gpu-000", "gpu-001"]).await?;
    let note = stage.event(NAME, "ScalingDown").await?.note;
    assert_eq!(note.as_deref(), Some("Deleting 3 Pod(s) to stabilize at 2 replicas"));
    assert_eq!(uids(&two), uids(&five)[..2]);
    let kept = exactly::<PersistentVolumeClaim>(&stage, NAME, &names[..2]).await?;
    assert_eq!(uids(&kept), uids(&claims)[..2]);
    assert_eq!(requests(&stage, &["delete persistentvolumeclaims"])?, [""; 0], "they go with their pods");

    put_nodeset(&stage, NAME, with_claims(0, "Retain")).await?;
    pods(&stage, NAME, &[]).await?;
    put_nodeset(&stage, NAME, with_claims(1, "Retain")).await?;
    pods(&stage, NAME, &["gpu-000"]).await?;
    let same = exactly::<PersistentVolumeClaim>(&stage, NAME, &names[..2]).await?;
    assert_eq!(uids(&same), uids(&kept));

    stage.api::<NodeSet>().delete(NAME, &DeleteParams::default()).await?;
    gone::<NodeSet>(&stage, NAME).await?;
    exactly::<PersistentVolumeClaim>(&stage, NAME, &[]).await?;
    end(stage).await
}

#[tokio::test]
async fn a_deleted_nodeset_goes_with_its_workers_alone() -> Result<()> {
    let stage = set("deleted").await?;
    put_controller(&stage).await?;
    put_nodeset(&stage, NAME, json!({ "replicas": 3 })).await?;
    let other = put_nodeset(&stage, "other", json!({ "replicas": 1 })).await?;
    pods(&stage, NAME, &["gpu-0", "gpu-1", "gpu-2"]).await?;
    let others = pods(&stage, "other", &["other-0"]).await?;
    let both = |service: &Service| owners(service).len() == 2;
    stage.child::<Service>("slurm-workers-slurm", both).await?;

    stage.api::<NodeSet>().delete(NAME, &DeleteParams::default()).await?;
    gone::<NodeSet>(&stage, NAME).await?;
    pods(&stage, NAME, &[]).await?;
    let remaining = [(other.uid().unwrap(), None)];
    stage.child::<Service>("slurm-workers-slurm", |service| owners(service) == remaining).await?;
    assert_eq!(uids(&pods(&stage, "other", &["other-0"]).await?), uids(&others));
    end(stage).await
}

#[tokio::test]
async fn a_nodeset_that_needs_nothing_causes_no_requests() -> Result<()> {
    let mut stage = set("idle").await?;
    put_controller(&stage).await?;
    put_nodeset(&stage, NAME, json!({ "replicas": 2 })).await?;
    pods(&stage, NAME, &["gpu-0", "gpu-1"]).await?;
    nobody_to_ask(&stage, NAME).await?;
    assert_eq!(stage.requests_when_idle().await?, [""; 0], "an idle controller");
    assert_eq!(stage.writes_of_a_restart().await?, [""; 0], "a restart");
    end(stage).await
}
