//! A NodeSet with its surroundings, for tests: what is there, and what is planned.

use super::testing::{minute, pod};
use super::{Effect, Evidence, Plan, plan};
use crate::fixture::{controller, nodeset};
use crate::node_facts::NodeFacts;
use crate::observe::Observed;
use crate::pod_backoff::RetryTimes;
use crate::slurm::{Jobs, Known, Snapshot, View};
use serde_json::{Value, json};
use slinky_api::labels::{REVISION_HASH, WORKERS_FINALIZER, selector_labels};
use slinky_api::ownership::controller_reference;
use slurm_rest::{Deadline, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What is there.
pub struct Fixture {
    /// All of it.
    pub observed: Observed,
    hash: String,
}

impl Fixture {
    /// A NodeSet that is held, its Controller, a Kubernetes node, and a Slurm without nodes.
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
            nodes: Arc::default(),
            slurm: View::Known(Known { snapshot: Arc::default(), uncertain: BTreeSet::new(), is_new: false }),
            unreachable_for: Duration::ZERO,
            sssd_conf: Ok(String::new()),
            cluster_domain: "cluster.local".to_owned(),
            propagated_conditions: Arc::from([]),
            retry_times: RetryTimes::default(),
        };
        let hash = plan(&observed, minute(60)).revisions.hash;
        Self { observed, hash }.host("node-a", &json!({}))
    }

    /// With so many workers that serve, of the current revision, each an idle Slurm node.
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

    /// With a worker like this, or with one changed.
    pub fn worker(mut self, name: &str, change: &Value) -> Self {
        let owner = controller_reference(self.observed.nodeset.as_ref()).unwrap();
        let mut labels = json!(selector_labels(self.observed.nodeset.as_ref()));
        labels[REVISION_HASH] = json!(self.hash);
        let mut base = json!({
            "metadata": { "labels": labels, "ownerReferences": [owner] },
            "status": {
                "containerStatuses": [{ "name": "slurmd", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": { "running": {} } }],
            },
        });
        super::testing::merge(&mut base, change);
        let made = pod(name, &base);
        self.observed.pods.retain(|other| other.metadata.name.as_deref() != Some(name));
        self.observed.pods.push(made);
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

    /// With a job that runs on this node until then at the latest.
    pub fn job_until(self, node: &str, deadline: Deadline) -> Self {
        self.snapshot(|snapshot| {
            let jobs = snapshot.jobs.get_or_insert_with(Jobs::default);
            jobs.deadlines.insert(node.to_owned(), deadline);
        })
    }

    /// With so many job records that name a partition.
    pub fn jobs(self, partition: &str, records: usize) -> Self {
        self.snapshot(|snapshot| {
            let jobs = snapshot.jobs.get_or_insert_with(Jobs::default);
            jobs.by_partition.insert(partition.to_owned(), records);
        })
    }

    /// With these partitions taking new jobs, and no others.
    pub fn open(self, partitions: &[&str]) -> Self {
        self.snapshot(|snapshot| {
            let jobs = snapshot.jobs.get_or_insert_with(Jobs::default);
            jobs.open_partitions = Some(partitions.iter().map(|name| (*name).to_owned()).collect());
        })
    }

    fn snapshot(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        let View::Known(known) = &mut self.observed.slurm else { panic!("Slurm is not known") };
        let mut snapshot = (*known.snapshot).clone();
        change(&mut snapshot);
        known.snapshot = Arc::new(snapshot);
        self
    }

    /// With this known of Slurm.
    pub fn view(mut self, view: View) -> Self {
        self.observed.slurm = view;
        self
    }

    /// With Slurm out of reach.
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

    /// What is planned, an hour after the pods were made.
    pub fn plan(&self) -> Plan {
        plan(&self.observed, minute(60))
    }

    /// What is planned, in short.
    pub fn effects(&self) -> Vec<String> {
        self.plan().effects.iter().map(short).collect()
    }
}

/// An effect in a few words.
pub fn short(effect: &Effect) -> String {
    match effect {
        Effect::SetFinalizers { finalizers } => format!("release to {finalizers:?}"),
        Effect::AdoptPod(pod) => format!("adopt {}", pod.name),
        Effect::ReleasePod(pod) => format!("disown {}", pod.name),
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
        Effect::DeletePod(removal) => {
            let evidence = match &removal.evidence {
                Evidence::NotNeeded => "needless",
                Evidence::SlurmNotExpected => "no slurm",
                Evidence::Absent(_) => "absent",
                Evidence::Drained(_) => "drained",
            };
            format!("delete {} ({:?}, {evidence})", removal.pod.name, removal.why)
        }
        Effect::SetClaimOwners { claim, .. } => format!("own {claim}"),
        Effect::PutReservation(request) => format!("reserve {}", request.name),
        Effect::SetReservationNodes { name, .. } => format!("reserve nodes {name}"),
        Effect::DeleteReservation(name) => format!("unreserve {name}"),
        Effect::DeleteNodeRecord { node, .. } => format!("forget {node}"),
    }
}
