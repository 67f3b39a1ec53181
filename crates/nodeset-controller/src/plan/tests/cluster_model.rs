//! A model of executor, Kubernetes and Slurm that executes plans until nothing is left to do.

use crate::build::{build_revision, build_revision_data};
use crate::plan::daemons::target_of;
use crate::plan::effect::{Drain, Effect, Evidence, NewPod, NodeMirror, PodMirror, Undo};
use crate::plan::fixture::Fixture;
use crate::plan::testing::minute;
use crate::plan::{Plan, RevisionStep, plan};
use crate::slurm::View;
use crate::worker::{PERSON_PREFIX, Worker};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use slinky_api::labels::annotations::{POD_CORDON, POD_CORDON_BY};
use slurm_rest::{Node, NodeState, NodeUpdate};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Minutes between two plans: longer than every timeout.
const STEP: i64 = 3;

/// A fixture that changes over time.
pub struct ClusterModel {
    /// The current observation.
    pub fixture: Fixture,
    minute: i64,
    writes: u32,
}

impl ClusterModel {
    /// Starts from this observation.
    pub const fn of(fixture: Fixture) -> Self {
        Self { fixture, minute: 60, writes: 0 }
    }

    /// Executes up to this many plans, until one is empty; returns that one, or else the effects of all.
    pub fn converge(&mut self, rounds: usize) -> Result<Plan, String> {
        let mut log = vec![];
        for _ in 0..rounds {
            let plan = self.plan();
            if is_empty(&plan) {
                return Ok(plan);
            }
            log.push(plan.effects.iter().map(crate::plan::summarize).collect::<Vec<_>>().join(", "));
            self.execute(&plan);
            self.advance();
        }
        Err(log.join("\n"))
    }

    /// The current plan.
    pub fn plan(&self) -> Plan {
        plan(&self.fixture.observed, minute(self.minute))
    }

    /// Executes a plan in the order of the executor: uncordons before deletes.
    fn execute(&mut self, plan: &Plan) {
        let is_delete = |effect: &&Effect| effect.is_delete();
        let is_uncordon = |effect: &&Effect| matches!(effect, Effect::Uncordon { .. });
        let first = plan.effects.iter().filter(|effect| !is_delete(effect) && !is_uncordon(effect));
        let uncordons = plan.effects.iter().filter(is_uncordon);
        for effect in first.chain(uncordons).chain(plan.effects.iter().filter(is_delete)) {
            self.execute_effect(effect);
        }
        plan.pod_mirrors.iter().for_each(|mirror| self.mirror_pod(mirror));
        plan.node_mirrors.iter().for_each(|mirror| self.mirror_node(mirror));
        plan.revisions.steps.iter().for_each(|step| self.apply_revision_step(step));
        if let Some(change) = &plan.metadata {
            let nodeset = Arc::make_mut(&mut self.fixture.observed.nodeset);
            for (key, value) in &change.annotations {
                match value {
                    Some(value) => drop(nodeset.annotations_mut().insert(key.clone(), value.clone())),
                    None => drop(nodeset.annotations_mut().remove(key)),
                }
            }
        }
    }

    fn execute_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::CreatePod(new) => self.create(new),
            Effect::Cordon { pod, cause, person, drain } => {
                let by = format!("{}{}", if *person { PERSON_PREFIX } else { "" }, cause.as_str());
                self.annotate(&pod.name, POD_CORDON, Some("true"));
                self.annotate(&pod.name, POD_CORDON_BY, Some(&by));
                if let Some(drain) = drain {
                    self.drain(drain);
                }
            }
            Effect::Drain(drain) => self.drain(drain),
            Effect::Uncordon { pod, unmark, person, undo } => {
                if *unmark {
                    self.annotate(&pod.name, POD_CORDON_BY, None);
                    self.annotate(&pod.name, POD_CORDON, person.then_some("true"));
                }
                if let Some(undo) = undo {
                    self.undo(undo);
                }
            }
            Effect::DeletePod(deletion) => {
                if self.has_evidence(&deletion.evidence) {
                    self.remove_pod(&deletion.pod.name);
                }
            }
            Effect::AdoptPod { pod, owners } => {
                self.edit(&pod.name, |pod| pod.metadata.owner_references = Some(owners.clone()));
            }
            Effect::ReleasePod(pod) => self.edit(&pod.name, |pod| pod.metadata.owner_references = None),
            Effect::DeleteNodeRecord { node, .. } => drop(self.nodes().remove(node)),
            Effect::SetFinalizers { .. }
            | Effect::SetClaimOwners { .. }
            | Effect::PutReservation(_)
            | Effect::SetReservationNodes { .. }
            | Effect::DeleteReservation(_) => panic!("no fixture has such an effect: {effect:?}"),
        }
    }

    /// Whether a live read right before the delete shows the evidence.
    fn has_evidence(&mut self, evidence: &Evidence) -> bool {
        match evidence {
            Evidence::NotNeeded => true,
            Evidence::NoRestApi => matches!(self.fixture.observed.slurm, View::NoRestApi),
            Evidence::Absent { node, .. } => !self.nodes().contains_key(node),
            Evidence::Drained { node, .. } => self.nodes().get(node).is_some_and(Node::is_drained),
        }
    }

    fn nodes(&mut self) -> &mut BTreeMap<String, Node> {
        let View::Known(known) = &mut self.fixture.observed.slurm else { panic!("Slurm is unreachable") };
        &mut Arc::make_mut(&mut known.snapshot).nodes
    }

    fn node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes().get_mut(name) {
            change(node);
        }
    }

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        self.writes += 1;
        let version = format!("w{}", self.writes);
        let mut pods = self.fixture.observed.pods.iter_mut();
        let pod = Arc::make_mut(pods.find(|pod| pod.name_any() == name).unwrap());
        change(pod);
        pod.metadata.resource_version = Some(version);
    }

    fn annotate(&mut self, name: &str, key: &str, value: Option<&str>) {
        self.edit(name, |pod| {
            let annotations = pod.annotations_mut();
            match value {
                Some(value) => drop(annotations.insert(key.to_owned(), value.to_owned())),
                None => drop(annotations.remove(key)),
            }
        });
    }

    /// Creates a pod, whose slurmd registers.
    fn create(&mut self, new: &NewPod) {
        assert!(
            self.fixture.observed.pods.iter().all(|pod| pod.name_any() != new.name),
            "{} exists",
            new.name
        );
        let mut pod: Pod = serde_json::from_value(new.pod.clone()).unwrap();
        self.writes += 1;
        pod.metadata.uid = Some(format!("created-{}", self.writes));
        pod.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(minute(self.minute)));
        self.fixture.observed.pods.push(Arc::new(pod));
        self.start(&new.name);
    }

    fn start(&mut self, name: &str) {
        let now = minute(self.minute);
        let status: Value = json!({
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": now }],
            "containerStatuses": [{ "name": "slurmd", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": { "startedAt": now } } }],
        });
        self.edit(name, |pod| {
            let target = target_of(pod).unwrap_or("node-a").to_owned();
            pod.spec.get_or_insert_default().node_name = Some(target);
            pod.status = serde_json::from_value(status).unwrap();
        });
        let pods = &self.fixture.observed.pods;
        let node = Worker::new(pods.iter().find(|pod| pod.name_any() == name).unwrap().clone()).slurm_name;
        let fresh = Node { name: node.clone(), state: vec![NodeState::Idle], ..Node::default() };
        // slurmctld does not resume a node by itself.
        let node = self.nodes().entry(node).or_insert(fresh);
        node.slurmd_start_time = Some(now);
        node.state.retain(|state| *state != NodeState::NotResponding);
    }

    /// Removes a pod. Its preStop hook sets its Slurm node down, unless that is drained.
    fn remove_pod(&mut self, name: &str) {
        let (mut removed, mut left) = (None, vec![]);
        for pod in std::mem::take(&mut self.fixture.observed.pods) {
            if pod.name_any() == name { removed = Some(Worker::new(pod)) } else { left.push(pod) }
        }
        let is_shared = |node: &str| left.iter().any(|pod| Worker::new(pod.clone()).slurm_name == node);
        let node = removed.map(|worker| worker.slurm_name).filter(|node| !is_shared(node));
        self.fixture.observed.pods = left;
        let now = minute(self.minute);
        self.node(&node.unwrap_or_default(), |node| {
            node.state.push(NodeState::NotResponding);
            if !node.is(&NodeState::Drain) && !node.is(&NodeState::Down) {
                node.state = vec![NodeState::Down, NodeState::NotResponding];
                node.reason = "slurm-operator: Pod is terminating".to_owned();
                node.reason_changed_at = Some(now);
            }
        });
    }

    fn drain(&mut self, drain: &Drain) {
        let now = minute(self.minute);
        self.node(&drain.node, |node| {
            node.state.retain(|state| !matches!(state, NodeState::Drain | NodeState::Undrain));
            node.state.push(NodeState::Drain);
            if !drain.reason.is_empty() {
                node.reason.clone_from(&drain.reason);
                node.reason_changed_at = Some(now);
            }
        });
    }

    fn undo(&mut self, undo: &Undo) {
        let (Undo::Undrain(name) | Undo::Resume(name)) = undo;
        self.node(name, |node| {
            node.state.retain(|state| *state != NodeState::Drain);
            if matches!(undo, Undo::Resume(_)) {
                node.state = vec![NodeState::Idle];
            }
            node.reason.clear();
            node.reason_changed_at = None;
        });
    }

    fn mirror_pod(&mut self, mirror: &PodMirror) {
        // A pod that an effect has changed is left to the next plan.
        let exact = |pod: &Arc<Pod>| {
            pod.name_any() == mirror.pod.name && pod.resource_version() == Some(mirror.pod.version.clone())
        };
        if !self.fixture.observed.pods.iter().any(exact) {
            return;
        }
        self.edit(&mirror.pod.name, |pod| {
            put(pod.labels_mut(), &mirror.labels);
            put(pod.annotations_mut(), &mirror.annotations);
            let set = |type_: &String| mirror.conditions.iter().any(|condition| condition.type_ == *type_);
            let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
            conditions.retain(|condition| !mirror.ended.contains(&condition.type_) && !set(&condition.type_));
            conditions.extend(mirror.conditions.iter().cloned());
        });
    }

    fn mirror_node(&mut self, mirror: &NodeMirror) {
        self.node(&mirror.node, |node| match &mirror.update {
            NodeUpdate::Comment(comment) => node.comment.clone_from(comment),
            NodeUpdate::Topology(topology) => node.topology = Some(topology.clone()),
            NodeUpdate::Features { available, active } => {
                node.features.clone_from(available);
                node.active_features.clone_from(active);
            }
            NodeUpdate::Drain { .. }
            | NodeUpdate::Undrain
            | NodeUpdate::Resume
            | NodeUpdate::Idle
            | NodeUpdate::Down { .. } => panic!("{mirror:?} needs a batch"),
        });
    }

    fn apply_revision_step(&mut self, step: &RevisionStep) {
        let observed = &mut self.fixture.observed;
        match step {
            RevisionStep::Create { hash, number } => {
                let nodeset = observed.nodeset.as_ref();
                let revision = build_revision(nodeset, build_revision_data(nodeset), hash, *number);
                observed.revisions.push(Arc::new(revision));
            }
            RevisionStep::Delete(name) => observed.revisions.retain(|revision| revision.name_any() != *name),
            RevisionStep::Adopt(_) | RevisionStep::Label { .. } | RevisionStep::Renumber { .. } => {
                panic!("all revisions of the fixtures are ours: {step:?}")
            }
        }
    }

    /// Advances the time: jobs end, terminating pods are removed, pending pods start.
    fn advance(&mut self) {
        self.minute += STEP;
        for node in self.nodes().values_mut() {
            let busy = |state: &NodeState| matches!(state, NodeState::Allocated | NodeState::Mixed);
            node.state.iter_mut().filter(|state| busy(state)).for_each(|state| *state = NodeState::Idle);
            node.state.retain(|state| *state != NodeState::Completing);
        }
        for worker in self.fixture.observed.pods.clone().into_iter().map(Worker::new) {
            if worker.terminating {
                self.remove_pod(&worker.name());
            } else if !worker.started && !worker.is_finished() {
                self.start(&worker.name());
            }
        }
    }
}

fn put(present: &mut BTreeMap<String, String>, changes: &BTreeMap<String, Option<String>>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(present.insert(key.clone(), value.clone())),
            None => drop(present.remove(key)),
        }
    }
}

/// Whether a plan has no changes.
pub fn is_empty(plan: &Plan) -> bool {
    plan.effects.is_empty()
        && plan.pod_mirrors.is_empty()
        && plan.node_mirrors.is_empty()
        && plan.revisions.steps.is_empty()
        && plan.metadata.is_none()
}
