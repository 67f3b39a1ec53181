//! What is measured, and what it is given to do. Pure.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::num::ParseIntError;
use std::path::PathBuf;

/// Where all objects are.
pub const NAMESPACE: &str = "bench";
/// Where the API server has the NodeSets.
pub const NODESETS: &str = "/apis/slinky.slurm.net/v1beta1/namespaces/bench/nodesets";
/// Where the API server has the pods.
pub const PODS: &str = "/api/v1/namespaces/bench/pods";
/// What selects those of the pods that belong to NodeSets.
pub const WORKERS: &str = "&labelSelector=app.kubernetes.io/name=slurmd";
/// The image that pods begin with, and the one that they are updated to; nothing is ever pulled.
pub const IMAGES: [&str; 2] = ["slurmd:1", "slurmd:2"];
/// The image of the container beside slurmd that shows its log.
const LOGFILE_IMAGE: &str = "logfile:1";

/// A program to measure and what to run it on.
pub struct Subject {
    /// The name in the results, which is also how its User-Agent begins.
    pub who: String,
    /// The file to execute.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What exists before it starts.
    pub objects: Vec<Value>,
}

impl Subject {
    /// An operator that takes the flags of ours.
    pub fn operator(program: PathBuf, workload: &Workload) -> Result<Self> {
        let who = program.file_name().and_then(|name| name.to_str()).context("a program without a name")?;
        Ok(Self {
            who: who.to_owned(),
            arguments: ["--metrics-addr", "0", "--health-addr", "127.0.0.1:0"].map(str::to_owned).into(),
            objects: workload.objects(),
            program,
        })
    }
}

/// Reads a number or a percentage.
pub fn max_unavailable(text: &str) -> Result<Value, ParseIntError> {
    match text.strip_suffix('%') {
        Some(percentage) => percentage.parse::<u32>().map(|_| text.into()),
        None => text.parse::<u32>().map(Value::from),
    }
}

/// The NodeSets of a measurement.
pub struct Workload {
    /// Name and size of each NodeSet.
    pub nodesets: Vec<(String, u32)>,
    max_unavailable: Value,
}

impl Workload {
    /// Spreads pods evenly over NodeSets.
    pub fn new(pods: u32, nodesets: u32, max_unavailable: &Value) -> Self {
        let size = |index| pods / nodesets + u32::from(index < pods % nodesets);
        Self {
            nodesets: (0..nodesets).map(|index| (format!("worker-{index}"), size(index))).collect(),
            max_unavailable: max_unavailable.clone(),
        }
    }

    /// How many pods there are at full size.
    pub fn pods(&self) -> u32 {
        self.nodesets.iter().map(|(_, size)| size).sum()
    }

    /// NodeSets of size 0, and what they refer to. No RestApi: so no Slurm is expected to answer.
    fn objects(&self) -> Vec<Value> {
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "slurm-auth"},
                "stringData": {"slurm.key": "protects-nothing", "jwt.key": "protects-nothing-either"},
            }),
            json!({
                "apiVersion": "slinky.slurm.net/v1beta1",
                "kind": "Controller",
                "metadata": {"name": "slurm"},
                "spec": {
                    "slurmKeyRef": {"name": "slurm-auth", "key": "slurm.key"},
                    "jwtKeyRef": {"name": "slurm-auth", "key": "jwt.key"},
                },
            }),
        ];
        objects.extend(self.nodesets.iter().map(|(name, _)| self.empty_nodeset(name)));
        objects
    }

    fn empty_nodeset(&self, name: &str) -> Value {
        json!({
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "NodeSet",
            "metadata": {"name": name},
            "spec": {
                "controllerRef": {"name": "slurm"},
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
    use super::{Subject, Workload, max_unavailable};
    use serde_json::json;

    #[test]
    fn pods_are_spread_evenly_and_none_is_lost() {
        let workload = Workload::new(11, 3, &json!("25%"));
        let sizes: Vec<u32> = workload.nodesets.iter().map(|(_, size)| *size).collect();
        assert_eq!(sizes, [4, 4, 3]);
        assert_eq!(workload.pods(), 11);
    }

    #[test]
    fn a_subject_is_named_by_its_file_and_starts_with_empty_nodesets() {
        let subject =
            Subject::operator("/builds/other-operator".into(), &Workload::new(5, 2, &json!(3))).unwrap();
        assert_eq!(subject.who, "other-operator");
        let nodesets: Vec<_> = subject.objects.iter().filter(|object| object["kind"] == "NodeSet").collect();
        assert_eq!(nodesets.len(), 2);
        for nodeset in nodesets {
            assert_eq!(nodeset["spec"]["replicas"], 0);
            assert_eq!(nodeset["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 3);
        }
    }

    #[test]
    fn numbers_and_percentages_are_told_apart() {
        assert_eq!(max_unavailable("3"), Ok(json!(3)));
        assert_eq!(max_unavailable("10%"), Ok(json!("10%")));
        for nonsense in ["", "%", "-1", "half", "10 %"] {
            assert!(max_unavailable(nonsense).is_err(), "{nonsense:?} was taken");
        }
    }
}
