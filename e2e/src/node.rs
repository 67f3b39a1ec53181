//! Kubernetes nodes that are no machines: enough for those who only look at them.

use crate::stage::Stage;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// The label that tells the test which a node is meant for, by its namespace.
const OF_TEST: &str = "of-test";
/// The label that tells the nodes of one test from each other.
const NODE: &str = "node";

/// A node that is meant for one test alone. It is deleted when it goes out of scope: unlike a namespace, one that a failed
/// test left would be seen by all others.
pub struct TestNode {
    name: String,
}

impl TestNode {
    /// Makes a node with room for pods, which only those that tolerate its taint use.
    pub async fn create(stage: &Stage, name: &str, annotations: Value) -> Result<Self> {
        let test_node = Self { name: format!("{name}.{}.test", stage.namespace()) };
        let mut labels = one_of(stage, name);
        labels["kubernetes.io/hostname"] = json!(test_node.name);
        let resources = json!({ "cpu": "64", "memory": "256Gi", "pods": "110" });
        let node = json!({
            "metadata": { "name": test_node.name, "annotations": annotations, "labels": labels },
            "spec": { "taints": [{ "key": OF_TEST, "effect": "NoSchedule" }] },
            "status": { "allocatable": resources, "capacity": resources },
        });
        let nodes = Api::<Node>::all(stage.client().clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await.context("a node")?;
        Ok(test_node)
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        // A drop cannot wait for a client of its runtime.
        let mut delete = Command::new("kubectl");
        delete.args(["delete", "node", "--wait=false", &self.name]).stdout(Stdio::null());
        let _status = delete.status();
    }
}

/// The labels of all nodes of a test.
pub fn all_of(stage: &Stage) -> Value {
    json!({ OF_TEST: stage.namespace() })
}

/// The labels of one node of a test, by the name that the test gives it.
pub fn one_of(stage: &Stage, name: &str) -> Value {
    json!({ OF_TEST: stage.namespace(), NODE: name })
}
