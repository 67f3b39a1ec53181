//! What is decided for objects that exist: deletion, finalizers, topology, evictions.

use anyhow::{Context, Result, ensure};
use e2e::eventually;
use e2e::test_env::SOON;
use e2e::webhook::WebhookEnv;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use slinky_api::labels::annotations::TOPOLOGY;
use slinky_api::v1beta1::{Controller, NodeSet};

/// A NodeSet that breaks a rule.
fn invalid_nodeset(name: &str) -> Result<NodeSet> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "finalizers": ["e2e/hold"] },
        "spec": {
            "controllerRef": { "name": "slurm" },
            "template": { "spec": { "hostname": "Not_A_Hostname" } },
        },
    }))?)
}

#[tokio::test]
async fn objects_from_before_a_rule_can_be_changed_and_deleted() -> Result<()> {
    let env = WebhookEnv::create("before").await?;
    let nodesets: Api<NodeSet> = env.namespace.api();
    nodesets.create(&PostParams::default(), &invalid_nodeset("old")?).await?;
    env.configure().await?;
    let webhook = env.start_process(&[])?;
    env.wait_until_ready(&webhook).await?;

    let merge = |fields: Value| Patch::Merge(fields);
    let params = PatchParams::default();
    let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
    nodesets.patch("old", &params, &merge(labelled)).await.context("a label")?;
    let status = json!({ "status": { "replicas": 1, "nodeSetHash": "", "selector": "" } });
    nodesets.patch_status("old", &params, &merge(status)).await.context("the status")?;
    let refused = nodesets.patch("old", &params, &merge(json!({ "spec": { "replicas": 3 } }))).await;
    let refused = refused.err().context("a change of an invalid spec was accepted")?.to_string();
    ensure!(refused.contains("Not_A_Hostname"), "{refused}");

    nodesets.delete("old", &DeleteParams::foreground()).await?;
    let released = json!({ "metadata": { "finalizers": null }, "spec": { "replicas": 0 } });
    nodesets.patch("old", &params, &merge(released)).await.context("removal of the finalizers")?;
    eventually("the deletion", SOON, async || Ok(nodesets.get_opt("old").await?), Option::is_none).await?;
    env.tear_down().await
}

#[tokio::test]
async fn missing_config_map_is_named_and_its_creation_is_seen_at_once() -> Result<()> {
    let (env, _webhook) = WebhookEnv::start("references").await?;
    let controllers: Api<Controller> = env.namespace.api();
    let controller: Controller = serde_json::from_value(json!({
        "metadata": { "name": "slurm" },
        "spec": {
            "clusterName": "c",
            "slurmKeyRef": { "name": "a", "key": "k" },
            "jwtKeyRef": { "name": "a", "key": "k" },
            "configFileRefs": [{ "name": "files" }],
        },
    }))?;
    let refused = controllers.create(&PostParams::default(), &controller).await;
    let refused = refused.err().context("a missing ConfigMap was accepted")?.to_string();
    ensure!(refused.contains(r#"configmaps "files" not found"#), "{refused}");
    let files = json!({ "metadata": { "name": "files" }, "data": { "gres.conf": "" } });
    let files = serde_json::from_value(files)?;
    env.namespace
        .api::<k8s_openapi::api::core::v1::ConfigMap>()
        .create(&PostParams::default(), &files)
        .await?;
    controllers.create(&PostParams::default(), &controller).await?;
    env.tear_down().await
}

/// A pod that no scheduler places, as a NodeSet makes it or not.
fn pod(name: &str, nodeset: Option<&NodeSet>) -> Result<Pod> {
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": { "schedulerName": "none", "containers": [{ "name": "slurmd", "image": "none" }] },
    });
    if let Some(nodeset) = nodeset {
        pod["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "slurmd" });
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "controller": true,
            "name": nodeset.name_any(), "uid": nodeset.uid(),
        }]);
    }
    Ok(serde_json::from_value(pod)?)
}

#[tokio::test]
async fn worker_gets_the_topology_of_its_node_when_it_is_bound() -> Result<()> {
    let (env, _webhook) = WebhookEnv::start("binding").await?;
    let nodes: Api<Node> = Api::all(env.client.clone());
    let (nodesets, pods): (Api<NodeSet>, Api<Pod>) = (env.namespace.api(), env.namespace.api());
    let created = PostParams::default();
    let annotated = json!({ "metadata": { "name": env.name(), "annotations": { TOPOLOGY: "topo:a" } } });
    nodes.create(&created, &serde_json::from_value(annotated)?).await?;
    let mut synced = Vec::new();
    for (name, sync) in [("synced", true), ("not-synced", false)] {
        let nodeset = json!({
            "metadata": { "name": name },
            "spec": { "controllerRef": { "name": "slurm" }, "replicas": 0, "syncTopology": sync },
        });
        synced.push(nodesets.create(&created, &serde_json::from_value(nodeset)?).await?);
    }
    for (name, nodeset, node, expected) in [
        ("worker", Some(&synced[0]), env.name(), Some("topo:a")),
        ("worker-elsewhere", Some(&synced[0]), "no-such-node", None),
        ("not-synced", Some(&synced[1]), env.name(), None),
        ("other-pod", None, env.name(), None),
    ] {
        pods.create(&created, &pod(name, nodeset)?).await?;
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": node } });
        let _: Value = pods.create_subresource("binding", name, &created, &binding).await?;
        let topology = pods.get(name).await?.annotations().get(TOPOLOGY).cloned();
        ensure!(topology.as_deref() == expected, "{name}: {topology:?}");
    }
    nodes.delete(env.name(), &DeleteParams::default()).await?;
    env.tear_down().await
}

#[tokio::test]
async fn eviction_is_allowed_where_no_job_can_run_or_slurm_cannot_be_asked() -> Result<()> {
    let (env, webhook) = WebhookEnv::start("eviction").await?;
    let (nodesets, pods): (Api<NodeSet>, Api<Pod>) = (env.namespace.api(), env.namespace.api());
    let nodeset = json!({ "metadata": { "name": "n" }, "spec": { "controllerRef": { "name": "slurm" }, "replicas": 0 } });
    let nodeset = nodesets.create(&PostParams::default(), &serde_json::from_value(nodeset)?).await?;
    for (name, nodeset, phase, warning) in [
        ("other-pod", None, "Running", ""),
        ("pending", Some(&nodeset), "Pending", ""),
        ("running", Some(&nodeset), "Running", "Slurm cannot be asked"),
    ] {
        pods.create(&PostParams::default(), &pod(name, nodeset)?).await?;
        let status = Patch::Merge(json!({ "status": { "phase": phase } }));
        pods.patch_status(name, &PatchParams::default(), &status).await?;
        pods.evict(name, &EvictParams::default()).await.with_context(|| name.to_owned())?;
        let log = webhook.log()?;
        ensure!(warning.is_empty() || log.contains(warning), "{name}: {log}");
    }
    env.tear_down().await
}
