//! What people do: they change the NodeSet and its workers, cordon, drain, delete, and run jobs.

use super::invariants::{annotation, text};
use super::kubernetes::FOREGROUND;
use super::process::NAMESPACE;
use super::site::{HOSTS, MAX_REPLICAS, Site, is_terminating};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use slinky_api::labels::annotations::{POD_CORDON, POD_CORDON_BY};
use slinky_api::v1beta1::NodeSet;
use slurm_rest::NodeUpdate;
use std::time::Duration;

impl Site {
    pub fn scale(&mut self) {
        if self.api.get::<NodeSet>(NAMESPACE, self.nodeset).is_none_or(|nodeset| is_terminating(&nodeset)) {
            return;
        }
        let replicas = i64::try_from(self.random.below(MAX_REPLICAS + 1)).unwrap_or_default();
        self.note(format!("scale to {replicas}"));
        self.invariants.set_desired(replicas);
        self.api.edit::<NodeSet>(NAMESPACE, self.nodeset, |nodeset| {
            nodeset["spec"]["replicas"] = json!(replicas);
        });
    }

    pub fn change_template(&mut self) {
        if self.api.get::<NodeSet>(NAMESPACE, self.nodeset).is_none() {
            return;
        }
        let value = self.random.below(3).to_string();
        self.note(format!("template {value}"));
        self.api.edit::<NodeSet>(NAMESPACE, self.nodeset, |nodeset| {
            nodeset["spec"]["slurmd"]["env"] = json!([{ "name": "V", "value": value }]);
        });
    }

    pub fn cordon(&mut self) {
        let host = *self.random.one_of(&HOSTS).unwrap();
        let cordoned = self.random.percent(50);
        self.note(format!("cordon {host} {cordoned}"));
        self.api.edit::<Node>("", host, |node| node["spec"]["unschedulable"] = json!(cordoned));
    }

    /// Submits or ends a job.
    pub fn use_slurm(&mut self) {
        if self.random.percent(60) {
            let prefix = if self.random.percent(20) { "x-" } else { "" };
            let node = format!("{prefix}{}-{}", self.nodeset, self.random.below(MAX_REPLICAS));
            self.note(format!("submit to {node}"));
            let job = self.slurm.submit_job(&[&node], 1, Some(10));
            self.jobs.push(job);
        } else if !self.jobs.is_empty() {
            let index = usize::try_from(self.random.next()).unwrap_or_default() % self.jobs.len();
            let job = self.jobs.swap_remove(index);
            self.note(format!("end job {job}"));
            self.slurm.end_job(job);
        }
    }

    /// A person drains or undrains a Slurm node.
    pub async fn drain_by_hand(&mut self) {
        // A concurrent write of the operator could not detect it: Slurm has no conditional writes.
        let may_write = self.slurm_fails_until.is_some()
            || self.slurm_recovered.elapsed() < Duration::from_secs(6)
            || self.world.ledger.is_in_batch(self.nodeset);
        if may_write {
            return;
        }
        let node = format!("{}-{}", self.nodeset, self.random.below(MAX_REPLICAS));
        let client = self.slurm.client();
        if self.invariants.drained_by_person.remove(&node) {
            self.note(format!("a person resumes {node}"));
            // With the drain, the person lifts that of a cordon too.
            self.invariants.cordoned_by_person.entry(node.clone()).and_modify(|seen| *seen = false);
            let _ = client.update_nodes(&[&node], &NodeUpdate::Undrain).await;
        } else if self.slurm.unavailable_reason(&node).is_none() {
            let update = NodeUpdate::Drain { reason: "person".to_owned() };
            if client.update_nodes(&[&node], &update).await.is_ok() {
                self.note(format!("a person drains {node}"));
                self.invariants.drained_by_person.insert(node);
            }
        }
    }

    /// A person deletes a pod, whether or not it has a job.
    pub fn delete_pod_by_hand(&mut self) {
        let alive: Vec<_> = self.pods().into_iter().filter(|(_, pod)| !is_terminating(pod)).collect();
        let Some((name, pod)) = self.random.one_of(&alive).cloned() else { return };
        self.note(format!("a person deletes {name}"));
        self.invariants.deleted_by_person.insert(text(&pod, "/metadata/uid"));
        let grace = json!("2027-01-15T08:00:00Z");
        self.api.edit::<Pod>(NAMESPACE, &name, |pod| pod["metadata"]["deletionTimestamp"] = grace);
    }

    /// A person cordons a pod, or lifts the cordon.
    pub fn cordon_pod(&mut self) {
        let alive: Vec<_> = self.pods().into_iter().filter(|(_, pod)| !is_terminating(pod)).collect();
        let Some((name, pod)) = self.random.one_of(&alive).cloned() else { return };
        if is_cordoned_by_person(&pod) {
            self.lift_cordon(&name);
        } else if text(&pod, &annotation(POD_CORDON)).is_empty() {
            self.note(format!("a person cordons {name}"));
            self.api.edit::<Pod>(NAMESPACE, &name, |pod| {
                pod["metadata"]["annotations"][POD_CORDON] = json!("true");
            });
            self.invariants.cordoned_by_person.insert(name, false);
        }
    }

    fn lift_cordon(&mut self, name: &str) {
        self.note(format!("a person lifts the cordon of {name}"));
        self.invariants.cordoned_by_person.remove(name);
        self.api.edit::<Pod>(NAMESPACE, name, |pod| {
            pod["metadata"]["annotations"].as_object_mut().unwrap().remove(POD_CORDON);
        });
    }

    /// A person lifts all cordons of people.
    pub fn lift_cordons(&mut self) {
        self.invariants.cordoned_by_person.clear();
        for (name, _) in self.pods().iter().filter(|(_, pod)| is_cordoned_by_person(pod)) {
            self.lift_cordon(name);
        }
    }

    /// A person suspends a job, or resumes it.
    pub fn suspend_or_resume(&mut self) {
        let Some(job) = self.random.one_of(&self.jobs).copied() else { return };
        if self.random.percent(60) {
            self.note(format!("a person suspends job {job}"));
            self.slurm.suspend_job(job);
        } else {
            self.note(format!("a person resumes job {job}"));
            self.slurm.resume_job(job);
        }
    }

    /// A person deletes the NodeSet, in the foreground.
    pub fn delete_nodeset(&mut self) {
        let Some(nodeset) = self.api.get::<NodeSet>(NAMESPACE, self.nodeset) else { return };
        if nodeset["metadata"]["deletionTimestamp"].is_null() {
            self.note("a person deletes the NodeSet in the foreground");
            self.invariants.set_desired(0);
            self.api.edit::<NodeSet>(NAMESPACE, self.nodeset, |nodeset| {
                nodeset["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
                nodeset["metadata"]["finalizers"].as_array_mut().unwrap().push(json!(FOREGROUND));
            });
        }
    }
}

fn is_cordoned_by_person(pod: &Value) -> bool {
    !text(pod, &annotation(POD_CORDON)).is_empty() && text(pod, &annotation(POD_CORDON_BY)).is_empty()
}
