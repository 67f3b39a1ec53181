//! What Kubernetes does by itself: the kubelet runs pods, and the garbage collector follows owner references.

use super::invariants::{is_ready, text};
use super::process::NAMESPACE;
use super::site::{HOSTS, Site, is_terminating};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use slinky_api::v1beta1::NodeSet;
use slurm_rest::NodeUpdate;

/// The finalizer of an object in foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";

impl Site {
    /// The kubelet starts pods, sets them ready, and removes terminating ones: `all` of them, or some.
    pub fn run_kubelet(&mut self, all: bool) {
        for (name, pod) in self.pods() {
            if !all && self.random.percent(40) {
                continue;
            }
            if is_terminating(&pod) {
                self.stop(&name, &pod);
            } else if text(&pod, "/spec/nodeName").is_empty() {
                self.start(&name, &pod, all);
            } else if !is_ready(&pod) {
                self.set_ready(&name, true);
            } else if !all && self.random.percent(3) {
                self.note(format!("{name} is not ready"));
                self.set_ready(&name, false);
            }
        }
    }

    /// The readiness probes of all pods fail, until the kubelet runs them again.
    pub fn fail_probes(&mut self) {
        self.note("all probes fail");
        for (name, _) in self.pods().into_iter().filter(|(_, pod)| is_ready(pod)) {
            self.set_ready(&name, false);
        }
    }

    /// Starts the slurmd of a pod; now and then it registers under another name.
    fn start(&mut self, name: &str, pod: &Value, all: bool) {
        let host = *self.random.one_of(&HOSTS).unwrap();
        let (second, address) = (self.now(), format!("10.0.0.{}", self.random.below(250)));
        if !all && self.random.percent(5) {
            let other = format!("x-{name}");
            self.note(format!("{name} registers as {other}"));
            self.slurm.start_slurmd_at(&other, &address);
            self.invariants.other_names.insert(text(pod, "/metadata/uid"), other);
        } else {
            self.slurm.start_slurmd_at(name, &address);
        }
        self.api.edit::<Pod>(NAMESPACE, name, |pod| {
            pod["spec"]["nodeName"] = json!(host);
            pod["status"]["phase"] = json!("Running");
            pod["status"]["podIP"] = json!(address);
            pod["status"]["containerStatuses"] = json!([{ "name": "slurmd", "image": "", "imageID": "",
                "ready": true, "restartCount": 0, "state": { "running": { "startedAt": second } } }]);
        });
    }

    /// Stops the slurmd of a pod, and with it its jobs, and removes the pod.
    fn stop(&mut self, name: &str, pod: &Value) {
        let node = self.invariants.other_names.remove(&text(pod, "/metadata/uid"));
        let node = node.unwrap_or_else(|| name.to_owned());
        self.slurm.stop_slurmd(&node);
        if self.slurm.is_busy(&node) {
            let jobs = std::mem::take(&mut self.jobs);
            for job in jobs {
                self.slurm.end_job(job);
            }
        }
        self.api.finish_deletion(NAMESPACE, name);
        if self.api.get::<Pod>(NAMESPACE, name).is_some() {
            self.api.remove::<Pod>(NAMESPACE, name);
        }
    }

    fn set_ready(&mut self, name: &str, ready: bool) {
        let now = self.now();
        self.api.edit::<Pod>(NAMESPACE, name, |pod| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let others = conditions.into_iter().filter(|condition| condition["type"] != "Ready");
            let status = if ready { "True" } else { "False" };
            let condition = json!({ "type": "Ready", "status": status, "lastTransitionTime": now });
            pod["status"]["conditions"] = others.chain([condition]).collect();
        });
    }

    /// A person restarts each slurmd that registered under another name with the name of its pod, and resumes its node.
    pub async fn correct_names(&mut self) {
        for (name, pod) in self.pods() {
            if let Some(other) = self.invariants.other_names.remove(&text(&pod, "/metadata/uid")) {
                self.slurm.stop_slurmd(&other);
                self.slurm.start_slurmd_at(&name, &text(&pod, "/status/podIP"));
                let _ = self.slurm.client().update_nodes(&[&name], &NodeUpdate::Resume).await;
            }
        }
    }

    /// The garbage collector in a foreground deletion of the NodeSet: it deletes the pods that the NodeSet alone owns, and
    /// takes the others from it.
    pub fn collect_garbage(&mut self) -> Result<(), String> {
        let Some(nodeset) = self.api.get::<NodeSet>(NAMESPACE, self.nodeset) else {
            return Ok(());
        };
        let finalizers = nodeset["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if is_terminating(&nodeset) && finalizers.is_empty() {
            self.api.remove::<NodeSet>(NAMESPACE, self.nodeset);
        }
        if !finalizers.contains(&json!(FOREGROUND)) {
            return Ok(());
        }
        let uid = nodeset["metadata"]["uid"].clone();
        for (name, pod) in self.pods() {
            let owners = pod["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            if is_terminating(&pod) || !owners.iter().any(|owner| owner["uid"] == uid) {
                continue;
            }
            if owners.iter().any(|owner| owner["uid"] == self.controller_uid) {
                let others: Vec<_> = owners.into_iter().filter(|owner| owner["uid"] != uid).collect();
                self.api
                    .edit::<Pod>(NAMESPACE, &name, |pod| pod["metadata"]["ownerReferences"] = json!(others));
            } else if self.slurm.is_busy(&name) && pod["status"]["containerStatuses"].is_array() {
                return Err(format!("the garbage collector deleted {name} with a running job"));
            } else {
                self.api.edit::<Pod>(NAMESPACE, &name, |pod| {
                    pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
                });
            }
        }
        let others: Vec<_> = finalizers.into_iter().filter(|name| *name != FOREGROUND).collect();
        self.api.edit::<NodeSet>(NAMESPACE, self.nodeset, |nodeset| {
            nodeset["metadata"]["finalizers"] = json!(others);
        });
        Ok(())
    }
}
