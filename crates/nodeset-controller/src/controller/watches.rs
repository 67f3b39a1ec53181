//! The watches of one scope: the caches that they fill, and the NodeSets that each change enqueues.

use super::mappers::{self, ClusterMembers};
use super::node_watch::NodeWatch;
use super::pod_watch::watch_pods;
use crate::cache::{
    ByNodeSet, LivePods, PodCache, PodSelection, SecretHashes, nodesets_of_claim, nodesets_of_revision,
    trim_claim, trim_pod, trim_revision,
};
use crate::coordination::Coordination;
use crate::execute::Bases;
use crate::observe::Sources;
use crate::slurm::Clusters;
use futures::channel::mpsc::UnboundedReceiver;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller as Runner, WatchStreamExt, watcher};
use operator_runtime::{PerObject, RawObject, Scope, changed_by, changed_objects};
use slinky_api::labels::{APP_NAME, App};
use slinky_api::v1beta1::{Controller, NodeSet, RestApi};
use std::sync::Arc;

/// The changes of one kind.
type Changes<K> = BoxStream<'static, watcher::Result<K>>;

/// The changes of every kind that NodeSets depend on.
pub struct Watches {
    nodesets: Changes<NodeSet>,
    pods: Changes<Pod>,
    nodes: UnboundedReceiver<String>,
    claims: Changes<PersistentVolumeClaim>,
    revisions: Changes<ControllerRevision>,
    services: Changes<RawObject<Service>>,
    pdbs: Changes<PodDisruptionBudget>,
    ssh_configs: Changes<ConfigMap>,
    controllers: Changes<Controller>,
    restapis: Changes<RestApi>,
    secrets: Changes<PartialObjectMeta<Secret>>,
}

/// Starts all watches of a scope. `bases` sees the events of pods before they enqueue a NodeSet.
pub fn watch(
    scope: &Scope,
    node_watch: &NodeWatch,
    propagated_conditions: Arc<[String]>,
    bases: Arc<Bases>,
    coordination: Coordination,
    clock: fn() -> Timestamp,
) -> (Sources, Watches) {
    let workers = || watcher::Config::default().labels(&format!("{APP_NAME}={}", NodeSet::NAME));
    let all = watcher::Config::default;
    let (nodesets, nodeset_changes) = scope.cache::<NodeSet>(all());
    let (controllers, controller_changes) = scope.cache::<Controller>(all());
    let (restapis, restapi_changes) = scope.cache::<RestApi>(all());
    let selection = Arc::new(PodSelection::default());
    let pod_events = watch_pods(scope.api(), nodesets.clone(), coordination.clone(), selection.clone());
    let (pods, pod_events) = scope.cache_from(pod_events.modify(trim_pod));
    let (nodes, changed_nodes) = node_watch.subscribe(scope);
    let (revisions, revision_events) = scope.cache_of(scope.api(), all(), trim_revision);
    let (claims, claim_events) = scope.cache_of(scope.api(), workers(), trim_claim);
    let (services, service_changes) = scope.cache(all());
    let (pdbs, pdb_changes) = scope.cache(all());
    let (ssh_configs, ssh_config_changes) = scope.cache(workers());
    let clusters = Clusters::start(
        scope,
        controllers.clone(),
        restapis,
        Arc::new(clock),
        Box::new(move |key| coordination.owns_cluster(key)),
    );
    let sources = Sources {
        pods: PodCache::new(pods.clone(), selection),
        live_pods: LivePods::new(scope.client()),
        nodes,
        secret_hashes: SecretHashes::default(),
        client: scope.client(),
        pod_backoff: PerObject::default(),
        cluster_domain: scope.cluster_domain(),
        nodesets,
        controllers,
        revisions: ByNodeSet::new(revisions.clone(), nodesets_of_revision),
        claims: ByNodeSet::new(claims.clone(), nodesets_of_claim),
        services,
        pdbs,
        ssh_configs,
        clusters,
        propagated_conditions,
    };
    // The indexes and the bases see each event before it enqueues a NodeSet.
    let (pod_index, claim_index) = (sources.pods.clone(), sources.claims.clone());
    let revision_index = sources.revisions.clone();
    let claim_events = claim_events.inspect_ok(move |event| claim_index.observe(event));
    let revision_events = revision_events.inspect_ok(move |event| revision_index.observe(event));
    let pod_events = pod_events.inspect_ok(move |event| {
        pod_index.observe(event);
        bases.observe(event);
    });
    let (secrets, secret_events) = scope.metadata(all());
    let watches = Watches {
        pods: changed_objects(pods, pod_events),
        nodes: changed_nodes,
        claims: changed_objects(claims, claim_events),
        revisions: changed_objects(revisions, revision_events),
        secrets: mappers::secret_changes(secrets, secret_events, sources.secret_hashes.clone()),
        controllers: changed_by(controller_changes, sources.controllers.clone(), |controller| {
            let status = controller.status.as_ref();
            (controller.metadata.generation, status.map(|status| status.refused_node_sets.clone()))
        }),
        nodesets: nodeset_changes,
        services: service_changes,
        pdbs: pdb_changes,
        ssh_configs: ssh_config_changes,
        restapis: restapi_changes,
    };
    (sources, watches)
}

impl Watches {
    /// A controller of NodeSets that all changes enqueue. `finished_runs` are NodeSets whose background run ended;
    /// `on_change` is called with every NodeSet that changed or was deleted.
    pub fn into_controller(
        self,
        sources: &Sources,
        finished_runs: impl Stream<Item = ObjectRef<NodeSet>> + Send + 'static,
        on_change: impl Fn(&NodeSet) + Send + 'static,
    ) -> Runner<NodeSet> {
        let Sources { nodesets, controllers, clusters, pods, .. } = sources;
        let members = ClusterMembers {
            nodesets: nodesets.clone(),
            controllers: controllers.clone(),
            clusters: clusters.clone(),
        };
        let nodeset_changes = self.nodesets.inspect_ok(on_change).boxed();
        let of_node = mappers::of_node(nodesets.clone(), pods.clone());
        Runner::for_stream(desired_changes(nodeset_changes, nodesets.clone()), nodesets.clone())
            .watches_stream(self.pods, |pod| mappers::of_pod(&pod))
            .watches_stream(self.claims, |claim| mappers::of_label(&claim))
            .watches_stream(self.services, |service| mappers::of_owners(&service))
            .watches_stream(self.pdbs, |pdb| mappers::of_owners(&pdb))
            .watches_stream(self.revisions, |revision| mappers::of_owners(&revision))
            .owns_stream(self.ssh_configs)
            .watches_stream(self.controllers, members.of_controller())
            .watches_stream(self.restapis, members.of_restapi())
            .watches_stream(self.secrets, members.of_secret())
            .reconcile_on(self.nodes.flat_map(move |node| stream::iter(of_node(&node))))
            .reconcile_on(members.of_slurm())
            .reconcile_on(finished_runs)
    }
}

/// Spec, label, annotation or finalizer changes; status changes are ignored, because they are our own.
fn desired_changes(changes: Changes<NodeSet>, nodesets: Store<NodeSet>) -> Changes<NodeSet> {
    changed_by(changes, nodesets, |nodeset| {
        let metadata = &nodeset.metadata;
        (
            metadata.generation,
            metadata.labels.clone(),
            metadata.annotations.clone(),
            metadata.finalizers.clone(),
        )
    })
}
