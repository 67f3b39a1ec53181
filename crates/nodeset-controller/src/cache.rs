//! Caches of Kubernetes objects, trimmed to the fields that decisions use and indexed for lookup.

mod by_nodeset;
mod live_pods;
mod nodes;
mod pod_selection;
mod pods;
mod secrets;

pub use by_nodeset::ByNodeSet;
pub use live_pods::LivePods;
pub use nodes::NodeCache;
pub use pod_selection::{Exclusion, PodSelection};
pub use pods::{PodCache, concerns, nodesets_of, trim_pod};
pub use secrets::SecretHashes;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use slinky_api::labels::APP_INSTANCE;
use slinky_api::ownership::controller_of;
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeSet;

/// The NodeSet that the label of a claim names.
pub fn nodesets_of_claim(claim: &PersistentVolumeClaim) -> BTreeSet<String> {
    claim.labels().get(APP_INSTANCE).into_iter().cloned().collect()
}

/// The NodeSets that may own a revision, adopt it, or need a name that differs from it: its controller, the one in its label,
/// and all whose names it begins with.
pub fn nodesets_of_revision(revision: &ControllerRevision) -> BTreeSet<String> {
    let name = revision.name_any();
    let prefixes = name.match_indices('-').filter_map(|(end, _)| name.get(..end));
    let controller = controller_of(&revision.metadata).map(|owner| owner.name.as_str());
    let label = revision.labels().get(APP_INSTANCE).map(String::as_str);
    prefixes.chain(controller).chain(label).map(str::to_owned).collect()
}

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

#[cfg(test)]
mod tests {
    use super::{ByNodeSet, nodesets_of_revision};
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use kube::ResourceExt;
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use slinky_api::labels::APP_INSTANCE;
    use std::sync::Arc;

    fn revision(name: &str, label: &str) -> ControllerRevision {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "ns", "labels": { APP_INSTANCE: label } },
            "revision": 1,
        }))
        .unwrap()
    }

    #[test]
    fn revisions_are_found_by_label_and_by_every_prefix_of_their_name_without_a_copy() {
        let (store, mut writer) = reflector::store();
        let revisions = ByNodeSet::new(store.clone(), nodesets_of_revision);
        for event in [revision("gpu-a-1", "gpu-a"), revision("gpu-2", "gpu"), revision("x-3", "gpu")] {
            let event = Event::Apply(event);
            writer.apply_watcher_event(&event);
            revisions.observe(&event);
        }
        let names = |nodeset: &str| {
            let found = revisions.of("ns", nodeset);
            assert!(found.iter().all(|one| store.state().iter().any(|cached| Arc::ptr_eq(one, cached))));
            found.iter().map(|revision| revision.name_any()).collect::<Vec<_>>()
        };
        assert_eq!(names("gpu"), ["gpu-2", "gpu-a-1", "x-3"], "a new name must differ from all of them");
        assert_eq!((names("gpu-a"), names("g")), (vec!["gpu-a-1".to_owned()], vec![]));
        assert!(revisions.of("other", "gpu").is_empty());
    }
}
