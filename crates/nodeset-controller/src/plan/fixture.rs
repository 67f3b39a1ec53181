//! Test fixture: an observed NodeSet with its pods, nodes and Slurm cluster, and the plan for it.

use super::testing::{minute, pod};
use super::{Effect, Evidence, Plan, plan};
use crate::fixture::{controller, nodeset};
use crate::node_facts::NodeFacts;
use crate::observe::Observed;
use crate::pod_backoff::{RetryDelays, RetryTimes};
use crate::slurm::{Jobs, Known, Snapshot, View};
use serde_json::{Value, json};
use slinky_api::labels::{REVISION_HASH, WORKERS_FINALIZER, selector_labels};
use slinky_api::ownership::{controller_reference, retaining_reference};
use slurm_rest::{Deadline, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// An observation that tests build step by step.
pub struct Fixture {
    /// The observation.
    pub observed: Observed,
    hash: String,
}

impl Fixture {
    /// A NodeSet with finalizer, its Controller, a Kubernetes node, and a Slurm cluster without nodes.
    pub fn new(change: &Value) -> Self {
        let mut nodeset = nodeset(change);
        nodeset.metadata.finalizers = Some(vec![WORKERS_FINALIZER.to_owned()]);
        nodeset.metadata.generation = Some(1);
        let nodeset = Arc::new(nodeset);
        let observed = Observed {
            siblings: vec![nodeset.clone()],
            nodeset,
            controller: Some(Arc::new(controller())),
            pods: vec![],
            revisions: vec![],
            claims: BTreeMap::new(),
            service: None,
            pdb: None,
            ssh_config: None,
            nodes: Arc::default(),
            slurm: View::Known(Known { snapshot: Arc::default(), uncertain: BTreeSet::new(), is_new: false }),
            unreachable_for: Duration::ZERO,
            sssd_conf: Ok(String::new()),
            cluster_domain: "cluster.local".to_owned(),
            propagated_conditions: Arc::from([]),
            retry_times: RetryTimes::default(),
            retry_delays: RetryDelays::default(),
        };
        let hash = plan(&observed, minute(60)).revisions.hash;
        Self { observed, hash }.host("node-a", &json!({}))
    }

    /// With this many available workers of the current revision, each with an idle Slurm node.
    pub fn workers(mut self, count: usize) -> Self {
        for ordinal in 0..count {
            let name = format!("{}-{ordinal}", self.name());
            self = self.worker(&name, &json!({})).slurm(&name, &["IDLE"], "");
        }
        self
    }

    fn name(&self) -> String {
        kube::ResourceExt::name_any(self.observed.nodeset.as_ref())
    }

    /// With this worker, or with this worker replaced.
    pub fn worker(mut self, name: &str, change: &Value) -> Self {
        let cluster = self.observed.controller.as_deref().and_then(retaining_reference);
        let owners: Vec<_> =
            controller_reference(self.observed.nodeset.as_ref()).into_iter().chain(cluster).collect();
        let mut labels = json!(selector_labels(self.observed.nodeset.as_ref()));
        labels[REVISION_HASH] = json!(self.hash);
        let mut base = json!({
            "metadata": { "labels": labels, "ownerReferences": owners },
            "status": {
                "containerStatuses": [{ "name": "slurmd", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": { "running": {} } }],
            },
        });
        super::testing::merge(&mut base, change);
        let worker = pod(name, &base);
        self.observed.pods.retain(|other| other.metadata.name.as_deref() != Some(name));
        self.observed.pods.push(worker);
        self
    }

    /// With a Kubernetes node.
    pub fn host(mut self, name: &str, change: &Value) -> Self {
        let mut node = json!({ "metadata": { "name": name } });
        super::testing::merge(&mut node, change);
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node).unwrap();
        let mut nodes = (*self.observed.nodes).clone();
        nodes.insert(name.to_owned(), Arc::new(NodeFacts::new(&node, &self.observed.propagated_conditions)));
        self.observed.nodes = Arc::new(nodes);
        self
    }

    /// With a Slurm node in these states.
    pub fn slurm(self, name: &str, states: &[&str], reason: &str) -> Self {
        self.slurm_node(json!({ "name": name, "state": states, "reason": reason }))
    }

    /// With this Slurm node.
    pub fn slurm_node(self, node: Value) -> Self {
        let node: Node = serde_json::from_value(node).unwrap();
        self.snapshot(|snapshot| {
            snapshot.nodes.insert(node.name.clone(), node);
        })
    }

    /// Without this Slurm node.
    pub fn without_slurm_node(self, name: &str) -> Self {
        self.snapshot(|snapshot| {
            snapshot.nodes.remove(name);
        })
    }

    /// With a job that holds this Slurm node although its state does not show it.
    pub fn hidden_job(self, node: &str, job: &str) -> Self {
        self.snapshot(|snapshot| snapshot.nodes.get_mut(node).unwrap().hidden_job = Some(job.to_owned()))
    }

    /// With a job on this Slurm node that ends by `deadline`.
    pub fn job_until(self, node: &str, deadline: Deadline) -> Self {
        self.snapshot(|snapshot| {
            let jobs = snapshot.jobs.get_or_insert_with(Jobs::default);
            jobs.deadlines.insert(node.to_owned(), deadline);
        })
    }

    /// With this many job records that name a partition.
    pub fn jobs(self, partition: &str, records: usize) -> Self {
        self.snapshot(|snapshot| {
            let jobs = snapshot.jobs.get_or_insert_with(Jobs::default);
            jobs.by_partition.insert(partition.to_owned(), records);
        })
    }

    /// With only these partitions accepting new jobs.
    pub fn open(self, partitions: &[&str]) -> Self {
        self.snapshot(|snapshot| {
            let jobs = snapshot.jobs.get_or_insert_with(Jobs::default);
            jobs.open_partitions = Some(partitions.iter().map(|name| (*name).to_owned()).collect());
        })
    }

    fn snapshot(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        let View::Known(known) = &mut self.observed.slurm else { panic!("Slurm is unreachable") };
        let mut snapshot = (*known.snapshot).clone();
        change(&mut snapshot);
        known.snapshot = Arc::new(snapshot);
        self
    }

    /// With this view of Slurm.
    pub fn view(mut self, view: View) -> Self {
        self.observed.slurm = view;
        self
    }

    /// With Slurm unreachable.
    pub fn unknown(self) -> Self {
        self.view(View::unreachable("slurmrestd cannot be reached".to_owned()))
    }

    /// With the NodeSet changed.
    pub fn nodeset(mut self, change: impl FnOnce(&mut slinky_api::v1beta1::NodeSet)) -> Self {
        let mut nodeset = (*self.observed.nodeset).clone();
        change(&mut nodeset);
        self.observed.nodeset = Arc::new(nodeset);
        self.observed.siblings = vec![self.observed.nodeset.clone()];
        self
    }

    /// The plan an hour after the pods were created.
    pub fn plan(&self) -> Plan {
        plan(&self.observed, minute(60))
    }

    /// The planned effects, summarized.
    pub fn effects(&self) -> Vec<String> {
        self.plan().effects.iter().map(summarize).collect()
    }
}

/// A one-line summary of an effect.
pub fn summarize(effect: &Effect) -> String {
    match effect {
        Effect::SetFinalizers { finalizers } => format!("set finalizers {finalizers:?}"),
        Effect::AdoptPod { pod, .. } => format!("adopt {}", pod.name),
        Effect::ReleasePod(pod) => format!("release {}", pod.name),
        Effect::CreatePod(new) => format!("create {}", new.name),
        Effect::Cordon { pod, cause, drain, .. } => {
            let drain =
                drain.as_ref().map(|drain| format!(" and drain: {}", drain.reason)).unwrap_or_default();
            format!("mark {} for {}{drain}", pod.name, cause.as_str())
        }
        Effect::Drain(drain) => format!("drain {}: {}", drain.node, drain.reason),
        Effect::Uncordon { pod, unmark, undo, .. } => {
            let unmark = if *unmark { "unmark " } else { "" };
            let undo = undo.as_ref().map(|undo| format!("{undo:?}")).unwrap_or_default();
            format!("{unmark}{} {undo}", pod.name)
        }
        Effect::DeletePod(deletion) => {
            let evidence = match &deletion.evidence {
                Evidence::NotNeeded => "no evidence needed",
                Evidence::NoRestApi => "no slurm",
                Evidence::Absent { .. } => "absent",
                Evidence::Drained { .. } => "drained",
            };
            format!("delete {} ({:?}, {evidence})", deletion.pod.name, deletion.why)
        }
        Effect::SetClaimOwners { claim, .. } => format!("set owners of {claim}"),
        Effect::PutReservation(request) => format!("reserve {}", request.name),
        Effect::SetReservationNodes { name, .. } => format!("reserve nodes {name}"),
        Effect::DeleteReservation(name) => format!("delete reservation {name}"),
        Effect::DeleteNodeRecord { node, .. } => format!("delete record {node}"),
    }
}
