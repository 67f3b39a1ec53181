//! The NodeSets that are scaled and updated, and their exact state.

use anyhow::Result;
use e2e::eventually;
use e2e::expectations::ExpectationsEnv;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use slinky_api::labels::annotations::POD_CORDON;
use slinky_api::v1beta1::{Controller, NodeSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Slurm clusters, each with two NodeSets.
const CLUSTERS: [&str; 3] = ["amber", "blue", "coral"];
/// NodeSets per cluster.
const NODESETS: [&str; 2] = ["cpu", "gpu"];
/// How long it may take after the last fault: expired batches, terms and half-open times, and after a hand-over the time
/// until a Controller without RestApi counts as one without Slurm.
const CONVERGE_LIMIT: Duration = Duration::from_mins(8);
/// Interval at which pods are reported as ready in a cluster without kubelets.
const READY_INTERVAL: Duration = Duration::from_millis(300);
/// Concurrent requests of the test.
const CONCURRENCY: usize = 16;

/// NodeSets and their desired state.
pub struct Workload {
    controllers: Api<Controller>,
    pub nodesets: Api<NodeSet>,
    pub pods: Api<Pod>,
    /// Pods per NodeSet at full size.
    size: u32,
    desired: Mutex<Desired>,
    /// Whether pods are reported as ready; locked while they are.
    reports_ready: Arc<AsyncMutex<bool>>,
    _kubelet: JoinSet<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Desired {
    replicas: u32,
    image: String,
}

impl Workload {
    /// Empty NodeSets. Without nodes the test reports their pods as ready.
    pub async fn create(env: &ExpectationsEnv, pods: u32, has_nodes: bool) -> Result<Self> {
        let reports_ready = Arc::new(AsyncMutex::new(!has_nodes));
        let kubelet = report_ready(env.api(), reports_ready.clone());
        let workload = Self {
            controllers: env.api(),
            nodesets: env.api(),
            pods: env.api(),
            size: pods / u32::try_from(CLUSTERS.len() * NODESETS.len())?,
            desired: Mutex::new(Desired { replicas: 0, image: "slurmd:0".to_owned() }),
            reports_ready,
            _kubelet: kubelet,
        };
        let keys = json!({ "slurm.key": "protects-nothing", "jwt.key": "protects-nothing-either" });
        create(&env.api::<Secret>(), json!({ "metadata": { "name": "keys" }, "stringData": keys })).await?;
        for cluster in CLUSTERS {
            let spec = json!({
                "slurmKeyRef": { "name": "keys", "key": "slurm.key" },
                "jwtKeyRef": { "name": "keys", "key": "jwt.key" },
            });
            create(&workload.controllers, json!({ "metadata": { "name": cluster }, "spec": spec })).await?;
            for nodeset in NODESETS {
                create(&workload.nodesets, empty_nodeset(cluster, nodeset)).await?;
            }
        }
        Ok(workload)
    }

    /// Changes all NodeSets: scales out, scales in, or updates and scales out; returns which.
    pub async fn change(&self, round: u32) -> Result<String> {
        let image = self.desired.lock().unwrap().image.clone();
        match round % 3 {
            0 => self.set(self.size, &image).await,
            1 => self.set(self.size / 3, &image).await,
            _ => self.set(self.size / 2, &format!("slurmd:{round}")).await,
        }
    }

    /// Scales all NodeSets.
    pub async fn scale(&self, replicas: u32) -> Result<()> {
        let image = self.desired.lock().unwrap().image.clone();
        self.set(replicas, &image).await.map(drop)
    }

    /// Sets size and image of all NodeSets; returns the change.
    async fn set(&self, replicas: u32, image: &str) -> Result<String> {
        let desired = Desired { replicas, image: image.to_owned() };
        let before = std::mem::replace(&mut *self.desired.lock().unwrap(), desired);
        let description = format!("{} to {replicas} pods of {image} each", before.replicas);
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas, "slurmd": { "image": image } } }));
        for name in names() {
            self.nodesets.patch(&name, &PatchParams::default(), &patch).await?;
        }
        Ok(description)
    }

    /// Waits until all NodeSets have exactly the desired pods, and nothing is left of what was done on the way.
    pub async fn wait_until_exact(&self) -> Result<()> {
        let differences = async || self.differences().await;
        eventually("the exact state", CONVERGE_LIMIT, differences, Vec::is_empty).await?;
        Ok(())
    }

    /// Waits until a pod with this ordinal exists in one of the NodeSets, and returns its NodeSet.
    pub async fn wait_for_pod(&self, ordinal: u32, limit: Duration) -> Result<()> {
        let suffix = format!("-{ordinal}");
        let names = async || {
            let pods = self.pods.list_metadata(&ListParams::default()).await?;
            Ok(pods.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
        };
        let is_there = |names: &Vec<String>| names.iter().any(|name| name.ends_with(&suffix));
        eventually("a new pod", limit, names, is_there).await?;
        Ok(())
    }

    /// Waits until so many pods exist, and returns when.
    pub async fn wait_for_created(&self, count: usize, limit: Duration) -> Result<Instant> {
        self.wait_for_pods("pods", limit, |pods| pods.len() >= count).await
    }

    /// Waits until so many pods are deleted or being deleted, of those that have to be when all NodeSets are scaled in from
    /// two pods to one, and returns when.
    pub async fn wait_for_deleted(&self, count: usize, limit: Duration) -> Result<Instant> {
        let is_left = |pod: &&PartialObjectMeta<Pod>| pod.metadata.deletion_timestamp.is_none();
        let all = 2 * names().count();
        self.wait_for_pods("deleted pods", limit, |pods| pods.iter().filter(is_left).count() + count <= all)
            .await
    }

    async fn wait_for_pods(
        &self,
        what: &str,
        limit: Duration,
        is_expected: impl Fn(&Vec<PartialObjectMeta<Pod>>) -> bool,
    ) -> Result<Instant> {
        let list = async || Ok(self.pods.list_metadata(&ListParams::default()).await?.items);
        eventually(what, limit, list, is_expected).await?;
        Ok(Instant::now())
    }

    /// Leaves the readiness of pods to [`Self::set_ready`].
    pub async fn stop_reporting_ready(&self) {
        *self.reports_ready.lock().await = false;
    }

    /// Reports all pods as ready again.
    pub async fn resume_reporting_ready(&self) {
        *self.reports_ready.lock().await = true;
    }

    /// Reports one pod as ready or not.
    pub async fn set_ready(&self, pod: &str, is_ready: bool) -> Result<()> {
        self.pods.patch_status(pod, &PatchParams::default(), &pod_status(is_ready)).await?;
        Ok(())
    }

    /// Deletes everything, while the operator runs. Without their Controller, NodeSets wait for no Slurm.
    pub async fn delete(self) -> Result<()> {
        let (params, all) = (DeleteParams::background(), ListParams::default());
        self.controllers.delete_collection(&params, &all).await?;
        self.nodesets.delete_collection(&params, &all).await?;
        let list = async || Ok(self.nodesets.list(&all).await?.items);
        eventually("deletion of all NodeSets", CONVERGE_LIMIT, list, Vec::is_empty).await?;
        Ok(())
    }

    async fn differences(&self) -> Result<Vec<String>> {
        let Desired { replicas, image } = self.desired.lock().unwrap().clone();
        let mut differences = vec![];
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let mut by_name: BTreeMap<String, Pod> = pods.into_iter().map(|pod| (pod.name_any(), pod)).collect();
        let desired: BTreeSet<String> =
            names().flat_map(|name| (0..replicas).map(move |ordinal| format!("{name}-{ordinal}"))).collect();
        for name in &desired {
            match by_name.remove(name) {
                None => differences.push(format!("{name} is missing")),
                Some(pod) => differences.extend(difference(&pod, &image)),
            }
        }
        differences.extend(by_name.into_keys().map(|name| format!("{name} is too much")));
        Ok(differences)
    }
}

fn difference(pod: &Pod, image: &str) -> Option<String> {
    let name = pod.name_any();
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let is_updated = containers.into_iter().any(|container| container.image.as_deref() == Some(image));
    if pod.metadata.deletion_timestamp.is_some() {
        Some(format!("{name} is terminating"))
    } else if !is_ready {
        Some(format!("{name} is not ready"))
    } else if !is_updated {
        Some(format!("{name} is not updated"))
    } else if pod.annotations().contains_key(POD_CORDON) {
        Some(format!("{name} is marked"))
    } else {
        None
    }
}

fn names() -> impl Iterator<Item = String> {
    CLUSTERS.iter().flat_map(|cluster| NODESETS.iter().map(move |nodeset| format!("{cluster}-{nodeset}")))
}

fn empty_nodeset(cluster: &str, nodeset: &str) -> Value {
    let update = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "40%" } });
    json!({
        "metadata": { "name": format!("{cluster}-{nodeset}") },
        "spec": {
            "controllerRef": { "name": cluster },
            "replicas": 0,
            "oversubscribeNode": true,
            "slurmd": { "image": "slurmd:0" },
            "logfile": { "image": "logfile:1" },
            "updateStrategy": update,
        },
    })
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// The status of a pod as a kubelet reports it.
fn pod_status(is_ready: bool) -> Patch<Value> {
    let status = if is_ready { "True" } else { "False" };
    let conditions =
        json!([{ "type": "Ready", "status": status, "lastTransitionTime": "2027-01-01T00:00:00Z" }]);
    Patch::Merge(json!({ "status": { "phase": "Running", "conditions": conditions } }))
}

/// Reports pods as running and ready, as kubelets do, while `is_active`.
fn report_ready(pods: Api<Pod>, is_active: Arc<AsyncMutex<bool>>) -> JoinSet<()> {
    let mut task = JoinSet::new();
    task.spawn(async move {
        loop {
            let is_active = is_active.lock().await;
            if *is_active {
                report_all_ready(&pods).await;
            }
            drop(is_active);
            sleep(READY_INTERVAL).await;
        }
    });
    task
}

/// Reports those pods as running and ready that are not.
async fn report_all_ready(pods: &Api<Pod>) {
    let patch = &pod_status(true);
    let listed = pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let waiting =
        listed.into_iter().filter(|pod| difference(pod, "").is_some_and(|why| why.ends_with("not ready")));
    let reports = stream::iter(waiting).map(|pod| {
        // The pod may be gone by now.
        async move { drop(pods.patch_status(&pod.name_any(), &PatchParams::default(), patch).await) }
    });
    reports.buffer_unordered(CONCURRENCY).collect::<()>().await;
}
