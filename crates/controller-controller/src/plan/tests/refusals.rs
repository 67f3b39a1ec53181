//! NodeSets with which slurmctld refuses a configuration.

use super::plan_now;
use crate::build::{Files, RefusedNodeSets};
use crate::fixture::{node_set, observed, running, second};
use crate::observe::Observed;
use crate::plan::{Decision, Plan, Step, plan};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use slinky_api::v1beta1::NodeSet;
use std::sync::Arc;

fn with_options(name: &str, options: &str) -> Arc<NodeSet> {
    node_set(name, 1, &json!({ "partition": { "enabled": true, "config": options } }))
}

/// A cluster that changes over several reconciles. slurmctld refuses configurations that contain a word.
struct Cluster {
    spec: Value,
    node_sets: Vec<Arc<NodeSet>>,
    in_force: Files,
    refusals: RefusedNodeSets,
    refused_word: &'static str,
}

impl Cluster {
    /// A cluster with a NodeSet `old` in force.
    fn start() -> Self {
        let node_sets = vec![with_options("old", "State=UP")];
        let first = plan_now(&Observed { node_sets: node_sets.clone(), ..observed(&json!({})) });
        Self {
            spec: json!({}),
            node_sets,
            in_force: written(&first).unwrap(),
            refusals: RefusedNodeSets::new(),
            refused_word: "BAD",
        }
    }

    /// Reconciles until nothing is left to do; returns the last plan and the number of check pods.
    fn settle(&mut self) -> (Plan, usize) {
        let (mut pending, mut check, mut checks) = (None, None, 0);
        for pass in 0..100 {
            let observed = Observed {
                node_sets: self.node_sets.clone(),
                refusals: self.refusals.clone(),
                pending: pending.take(),
                check: check.take(),
                ..running(&self.spec, &self.in_force)
            };
            let plan = plan(&observed, second(100 * pass));
            self.refusals = plan.refusals.clone();
            pending = plan.pending.clone();
            for step in &plan.steps {
                if let Step::CreateCheck { candidate, pod } = step {
                    let text = &candidate.data.as_ref().unwrap()["slurm.conf"];
                    check = Some(Arc::new(self.checked(pod.as_json(), text, 100 * pass)));
                    checks += 1;
                }
            }
            self.in_force = written(&plan).unwrap();
            if matches!(plan.config.as_ref().unwrap().decision, Decision::Keep | Decision::Refuse(_)) {
                return (plan, checks);
            }
        }
        unreachable!("the cluster does not settle")
    }

    fn checked(&self, pod: &Value, text: &str, now: i64) -> Pod {
        let mut pod = pod.clone();
        pod["metadata"]["creationTimestamp"] = json!(second(now).to_string());
        pod["status"] = if text.contains(self.refused_word) {
            let end = json!({ "terminated": { "exitCode": 3, "message": "fatal: BAD" } });
            json!({ "phase": "Failed", "containerStatuses": [{ "name": "check", "image": "", "imageID": "",
                "ready": false, "restartCount": 0, "state": end }] })
        } else {
            json!({ "phase": "Succeeded" })
        };
        serde_json::from_value(pod).unwrap()
    }
}

/// The files that a plan applies.
fn written(plan: &Plan) -> Option<Files> {
    plan.steps
        .iter()
        .find_map(|step| if let Step::ApplyConfig(config) = step { config.data.clone() } else { None })
}

fn refused(plan: &Plan) -> Vec<String> {
    plan.config.as_ref().unwrap().refused_node_sets.iter().map(ToString::to_string).collect()
}

#[test]
fn change_of_one_node_set_that_slurmctld_refuses_is_refused_alone() {
    let mut cluster = Cluster::start();
    let before = cluster.in_force.clone();
    cluster.node_sets = vec![with_options("old", "MaxTime=BAD")];
    let (plan, checks) = cluster.settle();
    assert_eq!((refused(&plan), checks), (vec!["NodeSet old: fatal: BAD".to_owned()], 1));
    assert_eq!(cluster.in_force, before);
    assert_eq!(cluster.settle().1, 0, "it is not tried again");

    cluster.node_sets = vec![with_options("old", "MaxTime=5")];
    let (plan, _) = cluster.settle();
    assert_eq!(refused(&plan), [""; 0]);
    assert!(cluster.in_force["slurm.conf"].contains("MaxTime=5"), "an edit of the NodeSet is tried");
}

#[test]
fn other_changes_go_on_without_the_node_set_that_slurmctld_refuses() {
    let mut cluster = Cluster::start();
    cluster.spec = json!({ "extraConf": "MinJobAge=7" });
    cluster.node_sets = vec![
        with_options("a", "State=UP"),
        with_options("bad", "MaxTime=BAD"),
        with_options("old", "State=DOWN"),
    ];
    let (plan, checks) = cluster.settle();
    assert_eq!(refused(&plan), ["NodeSet bad: fatal: BAD"]);
    let text = &cluster.in_force["slurm.conf"];
    for line in ["MinJobAge=7", "PartitionName=a Nodes=a State=UP", "PartitionName=old Nodes=old State=DOWN"]
    {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("=bad"), "{text}");
    assert_eq!(checks, 5, "all together, without NodeSets, and each NodeSet");

    cluster.spec = json!({ "extraConf": "MinJobAge=8" });
    assert_eq!(cluster.settle().1, 1, "the refused NodeSet costs no further check");
    assert!(cluster.in_force["slurm.conf"].contains("MinJobAge=8"));
}

#[test]
fn refused_change_of_the_controller_is_no_fault_of_a_node_set() {
    let mut cluster = Cluster::start();
    cluster.spec = json!({ "extraConf": "SchedulerType=BAD" });
    cluster.node_sets.push(with_options("a", "State=UP"));
    let (plan, _) = cluster.settle();
    assert_eq!(plan.config.as_ref().unwrap().decision, Decision::Refuse("fatal: BAD".to_owned()));
    assert_eq!(refused(&plan), [""; 0]);
    cluster.spec = json!({});
    let (plan, _) = cluster.settle();
    assert!(refused(&plan).is_empty() && cluster.in_force["slurm.conf"].contains("PartitionName=a Nodes=a"));
}
