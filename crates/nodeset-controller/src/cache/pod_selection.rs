//! Which worker pods this replica watches: all but those of NodeSets that other replicas own, which change as often as its
//! own and would cost as much to decode and to keep.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use slinky_api::labels::{APP_INSTANCE, APP_NAME, App};
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeSet;
use tokio::sync::Notify;

/// Longest list of names in the selectors of one watch, in bytes: proxies before API servers accept URLs of about 8 KiB.
const MAX_SELECTOR_LENGTH: usize = 4096;
/// The field selector that leaves out a namespace, up to its name.
const OTHER_NAMESPACE: &str = ",metadata.namespace!=";

/// Worker pods that are left out of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusion {
    /// Namespaces that are left out.
    namespaces: BTreeSet<String>,
    /// Names of NodeSets whose pods are left out, in every namespace.
    nodesets: BTreeSet<String>,
}

impl Exclusion {
    /// Leaves out as many pods as a selector can of those that belong to NodeSets for which `is_owned` is false.
    pub fn of<'a>(
        nodesets: impl IntoIterator<Item = &'a NodeSet>,
        is_owned: impl Fn(&NodeSet) -> bool,
    ) -> Self {
        let key = |nodeset: &NodeSet| (nodeset.namespace().unwrap_or_default(), nodeset.name_any());
        let (owned, foreign): (Vec<_>, Vec<_>) = nodesets.into_iter().partition(|nodeset| is_owned(nodeset));
        let (owned_namespaces, owned_names): (BTreeSet<_>, BTreeSet<_>) = owned.into_iter().map(key).unzip();
        let foreign: Vec<_> = foreign.into_iter().map(key).collect();
        let mut left = MAX_SELECTOR_LENGTH;
        let mut fits = |before: &str, name: &str| {
            let rest = left.checked_sub(before.len() + name.len());
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        let namespaces: BTreeSet<String> =
            foreign.iter().map(|key| key.0.clone()).filter(|name| !owned_namespaces.contains(name)).collect();
        let namespaces: BTreeSet<String> =
            namespaces.into_iter().filter(|name| fits(OTHER_NAMESPACE, name)).collect();
        let nodesets = foreign.into_iter().filter(|(namespace, _)| !namespaces.contains(namespace));
        let nodesets: BTreeSet<String> =
            nodesets.map(|key| key.1).filter(|name| !owned_names.contains(name)).collect();
        let nodesets = nodesets.into_iter().filter(|name| fits(",", name)).collect();
        Self { namespaces, nodesets }
    }

    /// The watch of all other worker pods.
    pub fn config(&self) -> watcher::Config {
        let workers = format!("{APP_NAME}={}", NodeSet::NAME);
        let names: Vec<&str> = self.nodesets.iter().map(String::as_str).collect();
        let labels = match names.join(",") {
            none if none.is_empty() => workers,
            names => format!("{workers},{APP_INSTANCE} notin ({names})"),
        };
        let fields: String = self.namespaces.iter().flat_map(|name| [OTHER_NAMESPACE, name]).collect();
        let config = watcher::Config::default().labels(&labels);
        if fields.is_empty() { config } else { config.fields(fields.trim_start_matches(',')) }
    }

    /// Whether the pods of a NodeSet are left out.
    pub fn leaves_out(&self, namespace: &str, nodeset: &str) -> bool {
        self.namespaces.contains(namespace) || self.nodesets.contains(nodeset)
    }

    /// Whether nothing is left out that `other` has.
    fn is_within(&self, other: &Self) -> bool {
        self.namespaces.is_subset(&other.namespaces) && self.nodesets.is_subset(&other.nodesets)
    }
}

/// What the cache of pods may lack: pods that its watch leaves out, and pods that the running list has not added yet.
#[derive(Default)]
pub struct PodSelection {
    exclusions: Mutex<Exclusions>,
    /// A reconcile needs pods that the watch leaves out.
    is_outdated: Notify,
}

#[derive(Default)]
struct Exclusions {
    /// Of the last complete list.
    listed: Exclusion,
    /// Of the list that has begun since.
    listing: Option<Exclusion>,
}

impl PodSelection {
    /// To be called before a watch begins that leaves out these pods.
    pub fn begin(&self, exclusion: Exclusion) {
        self.exclusions.lock().listing = Some(exclusion);
    }

    /// To be called for every event of the watch, after the cache has applied it.
    pub fn observe(&self, event: &Event<Pod>) {
        if matches!(event, Event::InitDone) {
            let mut exclusions = self.exclusions.lock();
            if let Some(listed) = exclusions.listing.take() {
                exclusions.listed = listed;
            }
        }
    }

    /// Whether the cache has the pods of a NodeSet. If not, the watch begins again with them.
    pub fn includes(&self, nodeset: &NodeSet) -> bool {
        let (namespace, name) = (nodeset.namespace().unwrap_or_default(), nodeset.name_any());
        let leaves_out = |exclusion: &Exclusion| exclusion.leaves_out(&namespace, &name);
        let exclusions = self.exclusions.lock();
        let latest = exclusions.listing.as_ref().unwrap_or(&exclusions.listed);
        if leaves_out(latest) {
            self.is_outdated.notify_one();
        }
        !leaves_out(latest) && !leaves_out(&exclusions.listed)
    }

    /// Resolves when a reconcile needs pods that the watch leaves out.
    pub async fn outdated(&self) {
        self.is_outdated.notified().await;
    }

    /// Whether a watch that leaves out these pods would leave out more.
    pub fn would_shrink(&self, exclusion: &Exclusion) -> bool {
        let exclusions = self.exclusions.lock();
        !exclusion.is_within(exclusions.listing.as_ref().unwrap_or(&exclusions.listed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use rstest::rstest;
    use serde_json::json;

    /// A NodeSet `namespace/name`.
    fn nodeset(key: &str) -> NodeSet {
        let (namespace, name) = key.split_once('/').unwrap();
        let metadata = json!({ "namespace": namespace, "name": name });
        serde_json::from_value(json!({ "metadata": metadata, "spec": { "controllerRef": { "name": "c" } } }))
            .unwrap()
    }

    fn exclusion(owned: &[&str], foreign: &[&str]) -> Exclusion {
        let (own, others): (Vec<_>, Vec<_>) = (
            owned.iter().map(|key| nodeset(key)).collect(),
            foreign.iter().map(|key| nodeset(key)).collect(),
        );
        let is_owned = |nodeset: &NodeSet| own.contains(nodeset);
        Exclusion::of(own.iter().chain(&others), is_owned)
    }

    #[rstest]
    #[case::nothing(&[], &[], "", "")]
    #[case::all_owned(&["a/x", "b/y"], &[], "", "")]
    #[case::same_namespace(&["a/x"], &["a/y", "a/z"], ",app.kubernetes.io/instance notin (y,z)", "")]
    #[case::other_namespaces(
        &["a/x"], &["b/x", "c/x", "c/y"], "", "metadata.namespace!=b,metadata.namespace!=c"
    )]
    #[case::same_name_in_a_shared_namespace(&["a/x", "b/y"], &["b/x"], "", "")]
    #[case::both(&["a/x"], &["a/y", "b/y", "b/z"], ",app.kubernetes.io/instance notin (y)", "metadata.namespace!=b")]
    fn selectors_leave_out_what_other_replicas_own(
        #[case] owned: &[&str],
        #[case] foreign: &[&str],
        #[case] labels: &str,
        #[case] fields: &str,
    ) {
        let exclusion = exclusion(owned, foreign);
        let config = exclusion.config();
        let expected = format!("app.kubernetes.io/name=slurmd{labels}");
        assert_eq!(config.label_selector, Some(expected));
        assert_eq!(config.field_selector.unwrap_or_default(), fields);
        for key in owned {
            let (namespace, name) = key.split_once('/').unwrap();
            assert!(!exclusion.leaves_out(namespace, name), "{key} is owned");
        }
    }

    #[test]
    fn selectors_have_a_limited_length() {
        let names: Vec<String> = (0..2000).map(|number| format!("a/worker-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let config = exclusion(&["a/x"], &names).config();
        let length = config.label_selector.unwrap().len();
        assert!((4000..MAX_SELECTOR_LENGTH + 100).contains(&length), "{length} bytes");
    }

    #[test]
    fn pods_are_missing_from_the_start_of_a_list_without_them_to_the_end_of_one_with_them() {
        let (selection, ours, theirs) = (PodSelection::default(), nodeset("a/x"), nodeset("a/y"));
        let restrict = |owned: &[&str], foreign: &[&str]| selection.begin(exclusion(owned, foreign));
        assert!(selection.includes(&theirs));
        restrict(&["a/x"], &["a/y"]);
        assert!(
            selection.includes(&ours) && !selection.includes(&theirs),
            "the list may be complete any time"
        );
        selection.observe(&Event::InitDone);
        assert!(selection.includes(&ours) && !selection.includes(&theirs));

        restrict(&["a/y"], &["a/x"]);
        selection.observe(&Event::Init);
        assert!(!selection.includes(&ours) && !selection.includes(&theirs));
        selection.observe(&Event::InitDone);
        assert!(!selection.includes(&ours) && selection.includes(&theirs));
    }

    #[test]
    fn need_for_pods_that_the_watch_leaves_out_is_reported() {
        let (selection, theirs) = (PodSelection::default(), nodeset("a/y"));
        selection.begin(exclusion(&["a/x"], &["a/y"]));
        selection.observe(&Event::InitDone);
        assert_eq!(selection.outdated().now_or_never(), None);
        assert!(!selection.includes(&theirs));
        assert_eq!(selection.outdated().now_or_never(), Some(()));
        selection.begin(Exclusion::default());
        assert!(!selection.includes(&theirs), "the list is not complete");
        assert_eq!(selection.outdated().now_or_never(), None, "the list that has begun has them");
    }

    #[test]
    fn watch_is_not_restarted_to_leave_out_less() {
        let selection = PodSelection::default();
        let (few, more) = (exclusion(&["a/x"], &["a/y"]), exclusion(&["a/x"], &["a/y", "b/z"]));
        assert!(selection.would_shrink(&few));
        selection.begin(more.clone());
        assert!(!selection.would_shrink(&few) && !selection.would_shrink(&more));
        selection.begin(few);
        assert!(selection.would_shrink(&more));
    }
}
