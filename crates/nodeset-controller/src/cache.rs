//! Caches of Kubernetes objects, trimmed to the fields that decisions use and indexed for lookup.

mod live_pods;
mod nodes;
mod pods;
mod secrets;

pub use live_pods::LivePods;
pub use nodes::NodeCache;
pub use pods::{PodCache, concerns, nodesets_of, trim_pod};
pub use secrets::SecretHashes;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use slinky_api::ownership::controller_of;
use slinky_api::v1beta1::NodeSet;

/// Drops the data of revisions that other kinds of workloads own.
pub fn trim_revision(revision: &mut ControllerRevision) {
    let kind = <NodeSet as kube::Resource>::kind(&());
    if controller_of(&revision.metadata).is_some_and(|owner| owner.kind != kind) {
        revision.data = None;
    }
    revision.metadata.managed_fields = None;
}

/// Drops everything but the metadata: decisions need the owner of a claim.
pub fn trim_claim(claim: &mut PersistentVolumeClaim) {
    claim.spec = None;
    claim.status = None;
    claim.metadata.managed_fields = None;
}
