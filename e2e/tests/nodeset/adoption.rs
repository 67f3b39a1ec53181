//! Workers that another operator created.

use crate::fixture::{
    FIRST_WRITE, NAME, apply_nodeset, list, owners, pod_condition, requests, start, tear_down, uids,
    wait_for_pods,
};
use anyhow::Result;
use e2e::eventually;
use e2e::fixtures::apply_controller;
use e2e::test_env::{SOON, TestEnv, metadata_controlled_by};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use operator_runtime::apply::Object;
use serde_json::json;
use slinky_api::labels::{REVISION_HASH, worker_labels};
use slinky_api::ownership::shared_reference;
use slinky_api::v1beta1::{Controller, NodeSet};

/// The revision hash of the pods of another operator.
const THEIR_HASH: &str = "6c8f7d9b54";

fn revision_hash(object: &impl Object) -> &str {
    object.labels().get(REVISION_HASH).map_or("", String::as_str)
}

fn is_ready(pod: &Pod) -> bool {
    pod_condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Applies the objects of another operator: the same desired state in another notation, with a revision hash of its own.
async fn apply_objects_of_another_operator(env: &TestEnv, nodeset: &NodeSet) -> Result<()> {
    let owned = metadata_controlled_by(nodeset)?;
    let replace = "replace";
    let template =
        json!({ "$patch": replace, "metadata": { "creationTimestamp": null }, "spec": { "containers": [] } });
    let resources = json!({ "limits": { "cpu": "2000m" }, "requests": null });
    let slurmd =
        json!({ "$patch": replace, "name": "", "image": "slurmd:26.05", "resources": resources, "env": [] });
    let logfile = json!({ "$patch": replace, "image": "alpine:3", "resources": null });
    let data = json!({ "spec": { "slurmd": slurmd, "template": template, "logfile": logfile } });
    let mut metadata = owned.clone();
    metadata["labels"] = json!({ REVISION_HASH: THEIR_HASH });
    let revision = json!({ "metadata": metadata, "data": data, "revision": 4 });
    env.apply::<ControllerRevision>(&format!("{NAME}-{THEIR_HASH}"), revision).await?;
    for ordinal in 0..3 {
        let name = format!("{NAME}-{ordinal}");
        let mut labels = json!(worker_labels(nodeset));
        labels[REVISION_HASH] = json!(THEIR_HASH);
        labels["nodeset.slinky.slurm.net/pod-name"] = json!(name);
        labels["nodeset.slinky.slurm.net/pod-index"] = json!(ordinal.to_string());
        labels["nodeset.slinky.slurm.net/scaling-mode"] = json!("StatefulSet");
        let mut metadata = owned.clone();
        metadata["labels"] = labels;
        let container = json!({ "name": "slurmd", "image": "slurmd:26.05" });
        env.apply::<Pod>(&name, json!({ "metadata": metadata, "spec": { "containers": [container] } }))
            .await?;
    }
    let shared = json!({ "ownerReferences": [shared_reference(nodeset)] });
    let cluster = json!({ "slinky.slurm.net/cluster": "slurm" });
    let service =
        json!({ "clusterIP": "None", "selector": cluster, "ports": [{ "name": "slurmd", "port": 6818 }] });
    env.apply::<Service>("slurm-workers-slurm", json!({ "metadata": shared, "spec": service })).await?;
    let budget = json!({ "maxUnavailable": 0, "selector": { "matchLabels": cluster } });
    let budget = json!({ "metadata": shared, "spec": budget });
    env.apply::<PodDisruptionBudget>("slurm-workers-pdb-slurm", budget).await?;
    Ok(())
}

#[tokio::test]
async fn workers_of_another_operator_are_adopted_and_updated_one_by_one() -> Result<()> {
    let env = start("adopted").await?;
    let nodeset = apply_nodeset(&env, NAME, json!({ "replicas": 3 })).await?;
    env.wait_for_degraded::<NodeSet>(NAME, "ControllerMissing").await?;
    apply_objects_of_another_operator(&env, &nodeset).await?;
    let theirs = wait_for_pods(&env, NAME, &["gpu-0", "gpu-1", "gpu-2"]).await?;
    let service = env.get::<Service>("slurm-workers-slurm").await?;
    let budget = env.get::<PodDisruptionBudget>("slurm-workers-pdb-slurm").await?;

    apply_controller(&env).await?;
    let is_adopted = |nodeset: &NodeSet| {
        nodeset
            .status
            .as_ref()
            .is_some_and(|status| status.updated_replicas == 3 && status.node_set_hash == THEIR_HASH)
    };
    env.wait_until::<NodeSet>(NAME, is_adopted).await?;
    // The next worker is created from the adopted revision, with the first write of pods.
    env.patch_spec::<NodeSet>(NAME, json!({ "replicas": 4 })).await?;
    let names = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"];
    let grown = wait_for_pods(&env, NAME, &names).await?;
    assert_eq!(uids(&grown)[..3], uids(&theirs));
    assert_eq!(grown.values().map(revision_hash).collect::<Vec<_>>(), [THEIR_HASH; 4]);
    let created = requests(&env, &["create pods", "delete ", "create controllerrevisions"])?;
    assert_eq!(created.len(), 1, "{created:?}");
    let revisions = list::<ControllerRevision>(&env, NAME).await?;
    assert_eq!(revisions.iter().map(|one| one.revision).collect::<Vec<_>>(), [4]);
    let service = env.wait_until::<Service>(&service.name_any(), |now| now.uid() == service.uid()).await?;
    let budget =
        env.wait_until::<PodDisruptionBudget>(&budget.name_any(), |now| now.uid() == budget.uid()).await?;
    let cluster = env.get::<Controller>("slurm").await?;
    for owners in [owners(&service), owners(&budget)] {
        assert_eq!(
            owners,
            [(nodeset.uid().unwrap(), None), (cluster.uid().unwrap(), None)],
            "NodeSet and Controller own the shared objects without controlling them"
        );
    }

    for name in names {
        env.mark_pod_ready(name).await?;
    }
    apply_nodeset(&env, NAME, json!({ "replicas": 4, "slurmd": { "image": "slurmd:26.11" } })).await?;
    wait_until_replaced_one_by_one(&env, &names).await?;
    let list_revisions = async || {
        let revisions = list::<ControllerRevision>(&env, NAME).await?;
        Ok(revisions.iter().map(|one| one.revision).collect::<Vec<_>>())
    };
    eventually("deletion of the old revision", SOON, list_revisions, |numbers| *numbers == [5]).await?;
    tear_down(env).await
}

/// Reports new pods as ready until all pods are new, and checks that at most one is unavailable at a time.
async fn wait_until_replaced_one_by_one(env: &TestEnv, names: &[&str]) -> Result<()> {
    let step = async || {
        let pods = list::<Pod>(env, NAME).await?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        assert!(ready + 1 >= names.len(), "only {ready} are ready");
        for pod in pods.iter().filter(|pod| !is_ready(pod) && pod.metadata.deletion_timestamp.is_none()) {
            assert_ne!(revision_hash(pod), THEIR_HASH);
            env.mark_pod_ready(&pod.name_any()).await?;
        }
        Ok(pods)
    };
    let all_new = |pods: &Vec<Pod>| {
        pods.len() == names.len() && pods.iter().all(|pod| is_ready(pod) && revision_hash(pod) != THEIR_HASH)
    };
    eventually("new workers", FIRST_WRITE, step, all_new).await?;
    Ok(())
}
