//! Keys of labels, annotations, finalizers and taints, and the label sets built from them.
//!
//! Keys are part of the API: users select by them, and running pods carry them.

use crate::v1beta1::{Accounting, Controller, LoginSet, NodeSet, RestApi};
use kube::ResourceExt;
use std::collections::BTreeMap;

/// A set of labels.
pub type Labels = BTreeMap<String, String>;

/// The program: slurmctld, slurmd, ...
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// The custom resource that the object belongs to.
pub const APP_INSTANCE: &str = "app.kubernetes.io/instance";
/// The component of a Slurm cluster.
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
/// On worker pods: `true` while the PodDisruptionBudget protects them from eviction.
pub const POD_PROTECT: &str = "nodeset.slinky.slurm.net/pod-protect";
/// On worker pods: the scaling mode that created them.
pub const SCALING_MODE: &str = "nodeset.slinky.slurm.net/scaling-mode";
/// On worker pods and revisions: the hash of the revision.
pub const REVISION_HASH: &str = "controller.kubernetes.io/hash";

/// On login pods: the pod's own name.
pub const LOGIN_POD_NAME: &str = "loginset.slinky.slurm.net/pod-name";

/// The value of boolean labels and annotations.
pub const TRUE: &str = "true";

/// Annotations.
pub mod annotations {
    /// The container that `kubectl logs` shows.
    pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
    /// kubectl's copy of the applied object; never copied to children.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    /// On worker pods: `true` if the Slurm node should be drained.
    pub const POD_CORDON: &str = "nodeset.slinky.slurm.net/pod-cordon";
    /// On NodeSets: the pods that a user cordoned with [`POD_CORDON`], as a hostlist. A pod that replaces one of them is
    /// cordoned too.
    pub const CORDONED_PODS: &str = "nodeset.slinky.slurm.net/cordoned-pods";
    /// On worker pods: why the operator set [`POD_CORDON`]; absent if a user set it.
    pub const POD_CORDON_BY: &str = "nodeset.slinky.slurm.net/pod-cordon-by";
    /// On NodeSets in deletion: `true` to wait neither for jobs nor for Slurm.
    pub const FORCE_DELETE: &str = "nodeset.slinky.slurm.net/force-delete";
    /// On NodeSets whose partition was removed: `true` to remove it from Slurm although jobs name it.
    pub const FORCE_PARTITION_REMOVAL: &str = "nodeset.slinky.slurm.net/force-partition-removal";
    /// On NodeSets: the update reservation that Slurm was last seen with, as JSON.
    pub const RESERVATION: &str = "nodeset.slinky.slurm.net/reservation";
    /// On worker pods: pods with lower values are removed first on scale-in.
    pub const POD_DELETION_COST: &str = "nodeset.slinky.slurm.net/pod-deletion-cost";
    /// On worker pods that replace a failed one: seconds from their creation until they are replaced in their turn, should
    /// they fail.
    pub const POD_RETRY_DELAY: &str = "nodeset.slinky.slurm.net/pod-retry-delay";
    /// On worker pods: when the running jobs end at the latest.
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
    /// On slurmctld pods: the configuration to mount; its change makes the kubelet resync. On a configuration check: the
    /// checked configuration.
    pub const CONFIG: &str = "controller.slinky.slurm.net/config";
    /// On the ConfigMap of slurmctld's configuration: whether slurmctld has confirmed it, or since when that is awaited.
    pub const RECONFIGURATION: &str = "controller.slinky.slurm.net/reconfiguration";
    /// On Controllers: the configuration that takes effect although the check refuses it.
    pub const ACCEPTED_CONFIG: &str = "controller.slinky.slurm.net/accepted-config";
    /// On the ConfigMap of slurmctld's configuration: the configuration, and why no check accepted it.
    pub const UNCHECKED_CONFIG: &str = "controller.slinky.slurm.net/unchecked-config";
    /// On workloads and their pods: hash of the start-up inputs that the other hashes do not cover.
    pub const CONTENT_HASH: &str = "slinky.slurm.net/content-hash";
    /// On pods: hash of slurmdbd.conf.
    pub const SLURMDBD_CONF_HASH: &str = "slinky.slurm.net/slurmdbd-conf-hash";
    /// On pods: hash of `sshd_config`.
    pub const SSHD_CONF_HASH: &str = "slinky.slurm.net/sshd-conf-hash";
    /// On pods: hash of sssd.conf.
    pub const SSSD_CONF_HASH: &str = "slinky.slurm.net/sssd-conf-hash";
    /// On pods: hash of the ssh host keys.
    pub const SSH_HOST_KEYS_HASH: &str = "slinky.slurm.net/ssh-host-keys-hash";
    /// On workloads: `true` while they keep the pod template of the previous operator.
    pub const INHERITED: &str = "slinky.slurm.net/inherited-template";
}

/// On NodeSets: blocks deletion until the Slurm reservation is removed.
pub const RESERVATION_FINALIZER: &str = "nodeset.slinky.slurm.net/reservation";
/// On NodeSets: blocks deletion until no workers, and no job records that name the partition, are left.
pub const WORKERS_FINALIZER: &str = "nodeset.slinky.slurm.net/workers";
/// The taint of Kubernetes nodes that are reserved for workers.
pub const WORKER_TAINT: &str = "nodeset.slinky.slurm.net/worker";
/// Prefix of Slurm node features that come from Kubernetes.
pub const FEATURE_PREFIX: &str = "k8s/";

/// A program that the operator runs, with its label values.
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

/// The labels that select the pods of one custom resource.
pub fn selector_labels<K: App + ResourceExt>(owner: &K) -> Labels {
    Labels::from([(APP_NAME.to_owned(), K::NAME.to_owned()), (APP_INSTANCE.to_owned(), owner.name_any())])
}

/// The labels of every child of one custom resource.
pub fn common_labels<K: App + ResourceExt>(owner: &K) -> Labels {
    let mut labels = selector_labels(owner);
    labels.insert(APP_COMPONENT.to_owned(), K::COMPONENT.to_owned());
    labels
}

/// The labels of every worker pod of a NodeSet.
pub fn worker_labels(nodeset: &NodeSet) -> Labels {
    let mut labels = common_labels(nodeset);
    labels.insert(CLUSTER.to_owned(), nodeset.spec.controller_ref.name.clone());
    labels
}

/// A label selector in its string form, sorted by key.
pub fn to_selector(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1beta1::LoginSetSpec;

    #[test]
    fn selector_string_has_sorted_keys() {
        let login = LoginSet::new("front", LoginSetSpec::default());
        assert_eq!(
            to_selector(&selector_labels(&login)),
            "app.kubernetes.io/instance=front,app.kubernetes.io/name=login"
        );
    }
}
