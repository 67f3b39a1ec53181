//! Objects and runtime parts for the tests of several modules.

use crate::build::{Hashes, WorkerTemplate, build_template};
use crate::cache::{
    ByNodeSet, LivePods, NodeCache, PodCache, SecretHashes, nodesets_of_claim, nodesets_of_revision,
};
use crate::coordination::Coordination;
use crate::execute::Executor;
use crate::observe::Sources;
use crate::slurm::{ClientFactory, ClusterDeps, Clusters, KeyError};
use expectations::{Embedded, Epoch, Limits, Parameters, Predecessor, Timing};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use operator_runtime::PerObject;
use serde_json::{Value, json};
use slinky_api::v1beta1::{Controller, NodeSet, RestApi};
use slurm_fake::KEY;
use slurm_jwt::SigningKey;
use slurm_rest::{Clock, EndpointError, SlurmClient, TokenSource, Transport};
use std::sync::Arc;
use test_support::fixture::{object_with_spec, owner_metadata};

/// A complete NodeSet with some spec fields changed; `null` unsets a field.
pub fn nodeset(change: &Value) -> NodeSet {
    let spec = json!({
        "controllerRef": { "name": "slurm" },
        "slurmd": { "image": "slurmd:26.05" },
        "logfile": { "image": "alpine:3" },
    });
    object_with_spec(&owner_metadata("gpu"), &spec, change)
}

/// UID of the Controller.
pub const CLUSTER_UID: &str = "cluster";

/// The Controller that the NodeSet refers to.
pub fn controller() -> Controller {
    serde_json::from_value(json!({
        "metadata": { "name": "slurm", "namespace": "ns", "uid": CLUSTER_UID },
        "spec": { "slurmKeyRef": { "name": "auth", "key": "slurm" } },
    }))
    .unwrap()
}

/// The worker template of a NodeSet.
pub fn template(nodeset: &NodeSet) -> WorkerTemplate {
    let hashes = Hashes { sshd_conf: "h1".to_owned(), sssd_conf: "h2".to_owned() };
    build_template(nodeset, &controller(), hashes, "cluster.test").unwrap()
}

/// The RestApi of the cluster.
pub fn restapi() -> RestApi {
    serde_json::from_value(json!({
        "metadata": { "name": "api", "namespace": "ns", "creationTimestamp": "2027-01-01T00:00:00Z" },
        "spec": { "controllerRef": { "name": "slurm" } },
    }))
    .unwrap()
}

/// Connects to one slurmrestd, whatever its URL.
struct FixedEndpoint<T> {
    transport: T,
    clock: Clock,
}

impl<T: Transport + Clone> ClientFactory for FixedEndpoint<T> {
    fn signing_key<'a>(&'a self, _: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>> {
        async { Ok(SigningKey::new(KEY)?) }.boxed()
    }

    fn client(
        &self,
        _: &str,
        key: SigningKey,
        limits: slurm_rest::Limits,
    ) -> Result<SlurmClient, EndpointError> {
        let tokens = TokenSource::new("slurm", key, self.clock.clone());
        Ok(SlurmClient::new(self.transport.clone(), tokens, limits))
    }
}

/// The Slurm cluster of the Controller, with the stores of its objects.
pub struct Reached {
    pub clusters: Clusters,
    pub controllers: Store<Controller>,
    pub restapis: Writer<RestApi>,
    _controllers: Writer<Controller>,
}

/// The Slurm cluster behind this slurmrestd. `spawn` runs its background task.
pub fn reached<T: Transport + Clone>(
    transport: T,
    clock: Clock,
    spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static,
) -> Reached {
    let (controllers, mut controller_writer) = reflector::store();
    let (restapis, mut restapi_writer) = reflector::store();
    controller_writer.apply_watcher_event(&Event::Apply(controller()));
    restapi_writer.apply_watcher_event(&Event::Apply(restapi()));
    let clusters = Clusters::new(ClusterDeps {
        controllers: controllers.clone(),
        restapis,
        client_factory: Box::new(FixedEndpoint { transport, clock: clock.clone() }),
        clock,
        spawn: Box::new(spawn),
        is_owned: Box::new(|_| true),
    });
    Reached { clusters, controllers, restapis: restapi_writer, _controllers: controller_writer }
}

/// The embedded expectations service of the replica with this name, in an epoch of this name.
pub fn embedded(
    name: &str,
    limits: Limits,
    predecessor: Predecessor,
    clock: expectations::Clock,
) -> Arc<Embedded> {
    let parameters = Parameters { epoch: Epoch::from(name), timing: Timing::default(), limits, predecessor };
    Arc::new(Embedded::new(parameters, clock, name.into()).unwrap())
}

/// The executor of the replica of this name.
pub fn executor(
    name: &str,
    client: Client,
    clusters: Clusters,
    service: Arc<Embedded>,
    clock: expectations::Clock,
) -> Executor {
    Executor {
        client,
        clusters,
        coordination: Coordination::new(service, name.into()),
        clock,
        is_stopping: Box::new(|| false),
        bases: Arc::default(),
    }
}

/// Sources whose caches are empty except for that of Controllers.
pub fn sources(executor: &Executor, controllers: Store<Controller>) -> Sources {
    Sources {
        nodesets: reflector::store().0,
        controllers,
        pods: PodCache::new(reflector::store().0, Arc::default()),
        live_pods: LivePods::new(executor.client.clone()),
        nodes: NodeCache::new(reflector::store().0, Arc::from([])),
        revisions: ByNodeSet::new(reflector::store().0, nodesets_of_revision),
        claims: ByNodeSet::new(reflector::store().0, nodesets_of_claim),
        services: reflector::store().0,
        pdbs: reflector::store().0,
        ssh_configs: reflector::store().0,
        secret_hashes: SecretHashes::default(),
        clusters: executor.clusters.clone(),
        client: executor.client.clone(),
        pod_backoff: PerObject::default(),
        cluster_domain: "cluster.local".to_owned(),
        propagated_conditions: Arc::from([]),
    }
}
