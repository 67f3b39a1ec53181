//! Node objects without a machine, for controllers that only read them.

use crate::test_env::TestEnv;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// The label with the namespace of the test that a node belongs to; also the key of the node's taint.
const OF_TEST: &str = "of-test";
/// The label that distinguishes the nodes of one test.
const NODE: &str = "node";

/// A node for one test. It is deleted when it goes out of scope: nodes are not namespaced, so one that a failed test left
/// would be visible to all others.
pub struct TestNode {
    name: String,
}

impl TestNode {
    /// Creates a node with capacity for pods and a taint that only pods of its test tolerate.
    pub async fn create(env: &TestEnv, name: &str, annotations: Value) -> Result<Self> {
        let test_node = Self { name: format!("{name}.{}.test", env.namespace()) };
        let mut labels = node_labels(env, name);
        labels["kubernetes.io/hostname"] = json!(test_node.name);
        let resources = json!({ "cpu": "64", "memory": "256Gi", "pods": "110" });
        let node = json!({
            "metadata": { "name": test_node.name, "annotations": annotations, "labels": labels },
            "spec": { "taints": [{ "key": OF_TEST, "effect": "NoSchedule" }] },
            "status": { "allocatable": resources, "capacity": resources },
        });
        let nodes = Api::<Node>::all(env.client().clone());
        nodes
            .create(&PostParams::default(), &serde_json::from_value(node)?)
            .await
            .context("creating a node")?;
        Ok(test_node)
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        // A drop cannot await an asynchronous client.
        let mut delete = Command::new("kubectl");
        delete.args(["delete", "node", "--wait=false", &self.name]).stdout(Stdio::null());
        let _status = delete.status();
    }
}

/// The labels of all nodes of a test.
pub fn test_labels(env: &TestEnv) -> Value {
    json!({ OF_TEST: env.namespace() })
}

/// The labels of one node of a test, by its name within the test.
pub fn node_labels(env: &TestEnv, name: &str) -> Value {
    json!({ OF_TEST: env.namespace(), NODE: name })
}
