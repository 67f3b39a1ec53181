//! Scaling, volume claims, deletion and idle NodeSets.

use crate::fixture::{
    FIRST_WRITE, NAME, apply_nodeset, list, owners, requests, start, tear_down, uids, wait_for_objects,
    wait_for_pods, wait_until_managed_without_slurm,
};
use anyhow::Result;
use e2e::eventually;
use e2e::fixtures::apply_controller;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use serde_json::{Value, json};
use slinky_api::labels::{POD_INDEX, WORKERS_FINALIZER};
use slinky_api::v1beta1::{Controller, NodeSet};

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
async fn scaling_creates_and_deletes_pods_and_claims() -> Result<()> {
    let env = start("scale").await?;
    apply_controller(&env).await?;
    let nodeset = apply_nodeset(&env, NAME, with_claims(0, "Delete")).await?;
    let has_finalizer = |nodeset: &NodeSet| nodeset.finalizers().contains(&WORKERS_FINALIZER.to_owned());
    env.wait_until::<NodeSet>(NAME, has_finalizer).await?;

    apply_nodeset(&env, NAME, with_claims(5, "Delete")).await?;
    let five = wait_for_pods(&env, NAME, &["gpu-000", "gpu-001", "gpu-002", "gpu-003", "gpu-004"]).await?;
    let note = env.wait_for_event_note(NAME, "ScalingUp").await?;
    assert_eq!(note, "Creating 5 Pod(s) to stabilize at 5 replicas");
    let index = |pod: &Pod| pod.labels()[POD_INDEX].clone();
    assert_eq!(five.values().map(index).collect::<Vec<_>>(), ["000", "001", "002", "003", "004"]);
    let names = ["data-gpu-000", "data-gpu-001", "data-gpu-002", "data-gpu-003", "data-gpu-004"];
    let claims = wait_for_objects::<PersistentVolumeClaim>(&env, NAME, &names).await?;
    let owner = [(nodeset.uid().unwrap(), Some(true))];
    let list_claims = async || list::<PersistentVolumeClaim>(&env, NAME).await;
    let all_owned = |claims: &Vec<PersistentVolumeClaim>| claims.iter().all(|claim| owners(claim) == owner);
    eventually("claims owned by the NodeSet", FIRST_WRITE, list_claims, all_owned).await?;

    apply_nodeset(&env, NAME, with_claims(2, "Delete")).await?;
    let two = wait_for_pods(&env, NAME, &["gpu-000", "gpu-001"]).await?;
    let note = env.wait_for_event_note(NAME, "ScalingDown").await?;
    assert_eq!(note, "Deleting 3 Pod(s) to stabilize at 2 replicas");
    assert_eq!(uids(&two), uids(&five)[..2]);
    let kept = wait_for_objects::<PersistentVolumeClaim>(&env, NAME, &names[..2]).await?;
    assert_eq!(uids(&kept), uids(&claims)[..2]);
    assert_eq!(
        requests(&env, &["delete persistentvolumeclaims"])?,
        [""; 0],
        "the garbage collector deletes claims with their pods"
    );

    apply_nodeset(&env, NAME, with_claims(0, "Retain")).await?;
    wait_for_pods(&env, NAME, &[]).await?;
    apply_nodeset(&env, NAME, with_claims(1, "Retain")).await?;
    wait_for_pods(&env, NAME, &["gpu-000"]).await?;
    let reused = wait_for_objects::<PersistentVolumeClaim>(&env, NAME, &names[..2]).await?;
    assert_eq!(uids(&reused), uids(&kept));

    env.delete::<NodeSet>(NAME).await?;
    env.wait_until_deleted_within::<NodeSet>(NAME, FIRST_WRITE).await?;
    wait_for_objects::<PersistentVolumeClaim>(&env, NAME, &[]).await?;
    tear_down(env).await
}

#[tokio::test]
async fn deleting_a_nodeset_deletes_its_own_workers_only() -> Result<()> {
    let env = start("deleted").await?;
    apply_controller(&env).await?;
    let cluster = env.get::<Controller>("slurm").await?;
    apply_nodeset(&env, NAME, json!({ "replicas": 3 })).await?;
    let other = apply_nodeset(&env, "other", json!({ "replicas": 1 })).await?;
    wait_for_pods(&env, NAME, &["gpu-0", "gpu-1", "gpu-2"]).await?;
    let others = wait_for_pods(&env, "other", &["other-0"]).await?;
    let both = |service: &Service| owners(service).len() == 3;
    env.wait_until::<Service>("slurm-workers-slurm", both).await?;

    env.delete::<NodeSet>(NAME).await?;
    env.wait_until_deleted_within::<NodeSet>(NAME, FIRST_WRITE).await?;
    wait_for_pods(&env, NAME, &[]).await?;
    let remaining = [(other.uid().unwrap(), None), (cluster.uid().unwrap(), None)];
    env.wait_until::<Service>("slurm-workers-slurm", |service| owners(service) == remaining).await?;
    assert_eq!(uids(&wait_for_pods(&env, "other", &["other-0"]).await?), uids(&others));
    tear_down(env).await
}

#[tokio::test]
async fn idle_nodeset_causes_no_requests() -> Result<()> {
    let mut env = start("idle").await?;
    apply_controller(&env).await?;
    apply_nodeset(&env, NAME, json!({ "replicas": 2 })).await?;
    wait_for_pods(&env, NAME, &["gpu-0", "gpu-1"]).await?;
    wait_until_managed_without_slurm(&env, NAME).await?;
    env.ensure_idle().await?;
    env.ensure_restart_writes_nothing().await?;
    tear_down(env).await
}
