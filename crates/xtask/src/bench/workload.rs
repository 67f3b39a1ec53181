//! The NodeSets of a measurement, and the objects that they refer to. Pure.

use serde_json::{Value, json};
use std::num::ParseIntError;

/// The namespace of all objects.
pub const NAMESPACE: &str = "bench";
/// The API path of the NodeSets.
pub const NODESETS: &str = "/apis/slinky.slurm.net/v1beta1/namespaces/bench/nodesets";
/// The API path of the pods.
pub const PODS: &str = "/api/v1/namespaces/bench/pods";
/// The query that selects the pods of NodeSets.
pub const WORKER_SELECTOR: &str = "&labelSelector=app.kubernetes.io/name=slurmd";
/// The initial image of the pods and the image of the update; neither is ever pulled.
pub const IMAGES: [&str; 2] = ["slurmd:1", "slurmd:2"];
/// The image of the sidecar with the log of slurmd.
const LOGFILE_IMAGE: &str = "logfile:1";

/// Parses a number or a percentage.
pub fn parse_max_unavailable(text: &str) -> Result<Value, ParseIntError> {
    match text.strip_suffix('%') {
        Some(percentage) => percentage.parse::<u32>().map(|_| text.into()),
        None => text.parse::<u32>().map(Value::from),
    }
}

/// The NodeSets of a measurement.
pub struct Workload {
    /// Name and size of each NodeSet.
    pub nodesets: Vec<(String, u32)>,
    /// Number of Slurm clusters that the NodeSets are spread over evenly.
    clusters: u32,
    max_unavailable: Value,
}

impl Workload {
    /// Spreads pods evenly over NodeSets, and these over Slurm clusters.
    pub fn new(pods: u32, nodesets: u32, clusters: u32, max_unavailable: &Value) -> Self {
        let size = |index| pods / nodesets + u32::from(index < pods % nodesets);
        Self {
            nodesets: (0..nodesets).map(|index| (format!("worker-{index}"), size(index))).collect(),
            clusters,
            max_unavailable: max_unavailable.clone(),
        }
    }

    /// The number of Slurm clusters.
    pub fn clusters(&self) -> usize {
        usize::try_from(self.clusters).unwrap_or(usize::MAX)
    }

    /// The number of pods at full size.
    pub fn pods(&self) -> u32 {
        self.nodesets.iter().map(|(_, size)| size).sum()
    }

    /// NodeSets with 0 replicas, and the objects that they refer to. Without a RestApi they are managed without Slurm.
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "slurm-auth"},
                "stringData": {"slurm.key": "protects-nothing", "jwt.key": "protects-nothing-either"},
            }),
        ];
        objects.extend((0..self.clusters).map(|number| {
            json!({
                "apiVersion": "slinky.slurm.net/v1beta1",
                "kind": "Controller",
                "metadata": {"name": format!("slurm-{number}")},
                "spec": {
                    "slurmKeyRef": {"name": "slurm-auth", "key": "slurm.key"},
                    "jwtKeyRef": {"name": "slurm-auth", "key": "jwt.key"},
                },
            })
        }));
        let clusters = (0..self.clusters).cycle().map(|number| format!("slurm-{number}"));
        let nodesets = self.nodesets.iter().zip(clusters);
        objects.extend(nodesets.map(|((name, _), cluster)| self.empty_nodeset(name, &cluster)));
        objects
    }

    fn empty_nodeset(&self, name: &str, cluster: &str) -> Value {
        json!({
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "NodeSet",
            "metadata": {"name": name},
            "spec": {
                "controllerRef": {"name": cluster},
                "replicas": 0,
                "oversubscribeNode": true,
                "slurmd": {"image": IMAGES[0]},
                "logfile": {"image": LOGFILE_IMAGE},
                "updateStrategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": self.max_unavailable},
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Workload, parse_max_unavailable};
    use serde_json::{Value, json};

    #[test]
    fn pods_are_spread_evenly() {
        let workload = Workload::new(11, 3, 1, &json!("25%"));
        let sizes: Vec<u32> = workload.nodesets.iter().map(|(_, size)| *size).collect();
        assert_eq!(sizes, [4, 4, 3]);
        assert_eq!(workload.pods(), 11);
    }

    #[test]
    fn nodesets_are_spread_evenly_over_clusters() {
        let objects = Workload::new(6, 6, 2, &json!(1)).objects();
        let cluster_of = |object: &Value| object["spec"]["controllerRef"]["name"].as_str().map(str::to_owned);
        let clusters: Vec<_> = objects.iter().filter_map(cluster_of).collect();
        assert_eq!(clusters, ["slurm-0", "slurm-1", "slurm-0", "slurm-1", "slurm-0", "slurm-1"]);
    }

    #[test]
    fn nodesets_start_empty() {
        let objects = Workload::new(5, 2, 1, &json!(3)).objects();
        let nodesets: Vec<_> = objects.iter().filter(|object| object["kind"] == "NodeSet").collect();
        assert_eq!(nodesets.len(), 2);
        for nodeset in nodesets {
            assert_eq!(nodeset["spec"]["replicas"], 0);
            assert_eq!(nodeset["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 3);
        }
    }

    #[test]
    fn max_unavailable_is_a_number_or_a_percentage() {
        assert_eq!(parse_max_unavailable("3"), Ok(json!(3)));
        assert_eq!(parse_max_unavailable("10%"), Ok(json!("10%")));
        for invalid in ["", "%", "-1", "half", "10 %"] {
            assert!(parse_max_unavailable(invalid).is_err(), "{invalid:?} was accepted");
        }
    }
}
