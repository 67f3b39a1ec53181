//! The objects that are created in every new cluster. Pure.

use super::volumes;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The objects of every new cluster.
pub fn all() -> [Value; 4] {
    [
        volumes::storage_class(),
        dns_role(),
        binding("system:coredns", "system:coredns"),
        binding("system:volume-provisioner", "system:persistent-volume-provisioner"),
    ]
}

/// The first `count` simulated nodes, without those in `present`, which has one `node/NAME` per line.
pub fn simulated_nodes(count: usize, present: &str) -> Vec<Value> {
    let present: BTreeSet<&str> = present.lines().collect();
    let names = (0..count).map(|number| format!("simulated-{number}"));
    names
        .filter(|name| !present.contains(format!("node/{name}").as_str()))
        .map(|name| simulated_node(&name))
        .collect()
}

fn simulated_node(name: &str) -> Value {
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "status": {"allocatable": resources, "capacity": resources},
    })
}

/// The permissions of CoreDNS.
fn dns_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [
            {"apiGroups": [""], "resources": ["namespaces", "pods", "services"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    })
}

fn binding(user: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

#[cfg(test)]
mod tests {
    use super::simulated_nodes;

    #[test]
    fn only_missing_nodes_are_created() {
        let names = |count, present| -> Vec<_> {
            simulated_nodes(count, present).iter().map(|node| node["metadata"]["name"].clone()).collect()
        };
        assert_eq!(names(2, ""), ["simulated-0", "simulated-1"]);
        assert_eq!(names(3, "node/simulated-1\nnode/simulated-12"), ["simulated-0", "simulated-2"]);
        assert!(names(1, "node/simulated-0\nnode/simulated-1").is_empty());
    }
}
