//! Keys of labels, annotations, finalizers and taints, and the label sets built from them.
//!
//! Keys are part of the API: users select by them, and pods that run today carry them.

use crate::v1beta1::{Accounting, Controller, LoginSet, NodeSet, RestApi};
use kube::ResourceExt;
use std::collections::BTreeMap;

/// A set of labels.
pub type Labels = BTreeMap<String, String>;

/// Which program runs: slurmctld, slurmd, ...
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Which custom resource the object belongs to.
pub const APP_INSTANCE: &str = "app.kubernetes.io/instance";
/// What part of a Slurm cluster the object is.
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// On worker pods: the name of their Controller.
pub const CLUSTER: &str = "slinky.slurm.net/cluster";
/// On slurmctld pods: `true` on the active one.
pub const CONTROLLER_ACTIVE: &str = "controller.slinky.slurm.net/active";
/// On worker pods: the pod's own name.
pub const POD_NAME: &str = "nodeset.slinky.slurm.net/pod-name";
/// On numbered worker pods: the padded ordinal.
pub const POD_INDEX: &str = "nodeset.slinky.slurm.net/pod-index";
/// On worker pods: the pod's hostname.
pub const POD_HOSTNAME: &str = "nodeset.slinky.slurm.net/pod-hostname";
/// On worker pods: `true` while a disruption budget must hold them.
pub const POD_PROTECT: &str = "nodeset.slinky.slurm.net/pod-protect";
/// On worker pods: the scaling mode that made them.
pub const SCALING_MODE: &str = "nodeset.slinky.slurm.net/scaling-mode";
/// On worker pods and revisions: the hash of the revision.
pub const REVISION_HASH: &str = "controller.kubernetes.io/hash";

/// The value of labels that are switches.
pub const TRUE: &str = "true";

/// Annotations.
pub mod annotations {
    /// The container that `kubectl logs` shows.
    pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
    /// kubectl's copy of what it applied; never copied to children.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    /// On worker pods: `true` if the Slurm node should be drained.
    pub const POD_CORDON: &str = "nodeset.slinky.slurm.net/pod-cordon";
    /// On worker pods: why the operator set [`POD_CORDON`]; absent if a person did.
    pub const POD_CORDON_BY: &str = "nodeset.slinky.slurm.net/pod-cordon-by";
    /// On NodeSets that are being deleted: `true` to wait neither for jobs nor for Slurm.
    pub const FORCE_DELETE: &str = "nodeset.slinky.slurm.net/force-delete";
    /// On NodeSets without partition: `true` to let the one that they had go although jobs name it.
    pub const FORCE_PARTITION_REMOVAL: &str = "nodeset.slinky.slurm.net/force-partition-removal";
    /// On NodeSets: the update reservation that Slurm was last seen with, as JSON.
    pub const RESERVATION: &str = "nodeset.slinky.slurm.net/reservation";
    /// On worker pods: lower goes first on scale-in.
    pub const POD_DELETION_COST: &str = "nodeset.slinky.slurm.net/pod-deletion-cost";
    /// On worker pods: when running work should be done.
    pub const POD_DEADLINE: &str = "nodeset.slinky.slurm.net/pod-deadline";
    /// On Kubernetes nodes: the drain reason to use when the node is cordoned.
    pub const NODE_CORDON_REASON: &str = "nodeset.slinky.slurm.net/node-cordon-reason";
    /// On Kubernetes nodes: the hostname of the worker pod there.
    pub const HOSTNAME_OVERRIDE: &str = "nodeset.slinky.slurm.net/hostname-override";
    /// On Kubernetes nodes and worker pods: Slurm's `Topology=` of the node.
    pub const TOPOLOGY: &str = "topology.slinky.slurm.net/spec";
    /// On Kubernetes nodes: features of the Slurm node there.
    pub const FEATURES: &str = "features.slinky.slurm.net/spec";
    /// On pods: hash of the Secret with the Slurm key.
    pub const SLURM_KEY_HASH: &str = "slinky.slurm.net/slurm-key-hash";
    /// On pods: hash of the Secret with the JWT key.
    pub const JWT_KEY_HASH: &str = "slinky.slurm.net/jwt-key-hash";
    /// On pods: hash of the generated Slurm configuration.
    pub const SLURM_CONFIG_HASH: &str = "slinky.slurm.net/slurm-config-hash";
    /// On slurmctld pods: the configuration that their kubelet was told to mount. On a check: the one it is about.
    pub const CONFIG: &str = "controller.slinky.slurm.net/config";
    /// On workloads and their pods: hash of what pods read at start and the other hashes do not cover.
    pub const CONTENT_HASH: &str = "slinky.slurm.net/content-hash";
    /// On pods: hash of slurmdbd.conf.
    pub const SLURMDBD_CONF_HASH: &str = "slinky.slurm.net/slurmdbd-conf-hash";
    /// On pods: hash of `sshd_config`.
    pub const SSHD_CONF_HASH: &str = "slinky.slurm.net/sshd-conf-hash";
    /// On pods: hash of sssd.conf.
    pub const SSSD_CONF_HASH: &str = "slinky.slurm.net/sssd-conf-hash";
    /// On pods: hash of the ssh host keys.
    pub const SSH_HOST_KEYS_HASH: &str = "slinky.slurm.net/ssh-host-keys-hash";
    /// On workloads: `true` while their pods run as another operator made them, before us.
    pub const INHERITED: &str = "slinky.slurm.net/inherited-template";
}

/// On NodeSets: a reservation has to be removed first.
pub const RESERVATION_FINALIZER: &str = "nodeset.slinky.slurm.net/reservation";
/// On NodeSets: workers, and job records that name the partition, have to go first.
pub const WORKERS_FINALIZER: &str = "nodeset.slinky.slurm.net/workers";
/// A taint that keeps everything but workers off a Kubernetes node.
pub const WORKER_TAINT: &str = "nodeset.slinky.slurm.net/worker";
/// Prefix of Slurm node features that come from Kubernetes.
pub const FEATURE_PREFIX: &str = "k8s/";

/// A program that the operator runs, as the labels name it.
pub trait App {
    /// Value of [`APP_NAME`], and the name of the main container and of its port.
    const NAME: &'static str;
    /// Value of [`APP_COMPONENT`].
    const COMPONENT: &'static str;
}

impl App for Controller {
    const NAME: &'static str = "slurmctld";
    const COMPONENT: &'static str = "controller";
}

impl App for Accounting {
    const NAME: &'static str = "slurmdbd";
    const COMPONENT: &'static str = "accounting";
}

impl App for RestApi {
    const NAME: &'static str = "slurmrestd";
    const COMPONENT: &'static str = "restapi";
}

impl App for LoginSet {
    const NAME: &'static str = "login";
    const COMPONENT: &'static str = "login";
}

impl App for NodeSet {
    const NAME: &'static str = "slurmd";
    const COMPONENT: &'static str = "worker";
}

/// What selects the pods of one custom resource.
pub fn selector_labels<K: App + ResourceExt>(owner: &K) -> Labels {
    Labels::from([(APP_NAME.to_owned(), K::NAME.to_owned()), (APP_INSTANCE.to_owned(), owner.name_any())])
}

/// What every child of one custom resource carries.
pub fn common_labels<K: App + ResourceExt>(owner: &K) -> Labels {
    let mut labels = selector_labels(owner);
    labels.insert(APP_COMPONENT.to_owned(), K::COMPONENT.to_owned());
    labels
}

/// What every worker pod of a NodeSet carries.
pub fn worker_labels(nodeset: &NodeSet) -> Labels {
    let mut labels = common_labels(nodeset);
    labels.insert(CLUSTER.to_owned(), nodeset.spec.controller_ref.name.clone());
    labels
}

/// `key=value` pairs in the order of their keys: the form of a selector in the API.
pub fn to_selector(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1beta1::LoginSetSpec;

    #[test]
    fn the_selector_of_the_scale_subresource_has_sorted_keys() {
        let login = LoginSet::new("front", LoginSetSpec::default());
        assert_eq!(
            to_selector(&selector_labels(&login)),
            "app.kubernetes.io/instance=front,app.kubernetes.io/name=login"
        );
    }
}
