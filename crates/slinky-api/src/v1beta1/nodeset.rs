//! `NodeSet`: worker pods, each a Slurm node.

use super::common::{LocalObjectReference, PodTemplate, SecretKeySelector, enabled, is_zero, one};
use crate::conditions::{ConditionStatus, PARTITION_HELD, find};
use crate::{Duration, Raw, schema};
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// A set of identical Slurm nodes, each a pod with slurmd.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "slinky.slurm.net",
    version = "v1beta1",
    kind = "NodeSet",
    plural = "nodesets",
    shortname = "nodesets",
    shortname = "nss",
    shortname = "slurmd",
    namespaced,
    status = "NodeSetStatus",
    derive = "PartialEq",
    doc = "A set of identical Slurm nodes, each a pod with slurmd.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "DESIRED", type_ = "integer", json_path = ".status.desired"),
    printcolumn(name = "REPLICAS", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "UPDATED", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(name = "READY", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "IDLE", type_ = "integer", json_path = ".status.slurmIdle", priority = 1),
    printcolumn(name = "ALLOCATED", type_ = "integer", json_path = ".status.slurmAllocated", priority = 1),
    printcolumn(name = "DOWN", type_ = "integer", json_path = ".status.slurmDown", priority = 1),
    printcolumn(name = "DRAIN", type_ = "integer", json_path = ".status.slurmDrain", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the API has as many")]
pub struct NodeSetSpec {
    /// The Controller of the Slurm cluster that the nodes belong to.
    pub controller_ref: LocalObjectReference,
    /// Number of nodes. Ignored with scaling mode DaemonSet.
    #[serde(default = "one")]
    pub replicas: i32,
    /// StatefulSet: numbered pods. DaemonSet: one pod on each Kubernetes node that fits.
    #[serde(default)]
    pub scaling_mode: ScalingMode,
    /// Overrides for the slurmd container.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub slurmd: Raw<Container>,
    /// Login by ssh to nodes where the user has a job.
    pub ssh: Option<Ssh>,
    /// Overrides for the container that prints slurmd's log.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub logfile: Raw<Container>,
    /// Overrides for the worker pods.
    pub template: Option<PodTemplate>,
    /// Node parameters for slurmd's `--conf`: `Key=Value` items separated by blanks.
    pub extra_conf: Option<String>,
    /// The partition of these nodes.
    pub partition: Option<Partition>,
    /// Templates of each pod's volume claims, as a list of core/v1 PersistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    #[schemars(schema_with = "schema::anything")]
    pub volume_claim_templates: Raw<Vec<PersistentVolumeClaim>>,
    /// How pods are replaced when their template changes.
    pub update_strategy: Option<UpdateStrategy>,
    /// Number of old revisions to keep.
    #[serde(default)]
    pub revision_history_limit: i32,
    /// When the volume claims of pods are deleted.
    pub persistent_volume_claim_retention_policy: Option<ClaimRetentionPolicy>,
    /// Seconds that a pod must be ready to count as available.
    pub min_ready_seconds: Option<i32>,
    /// Width to which ordinals in names are padded with zeros.
    #[serde(default)]
    #[schemars(schema_with = "schema::integer")]
    pub ordinal_padding: i64,
    /// True to keep each ordinal on the Kubernetes node on which it first ran.
    #[serde(default)]
    pub pin_to_node: bool,
    /// False to allow evictions of pods that run jobs.
    #[serde(default = "enabled")]
    pub workload_disruption_protection: bool,
    /// When records of Slurm nodes without a pod are deleted.
    #[serde(default)]
    pub prune_slurm_node_records: PruneSlurmNodeRecords,
    /// True to allow several worker pods on one Kubernetes node.
    #[serde(default)]
    pub oversubscribe_node: bool,
    /// False to leave the topology of the Slurm nodes as it is, whatever the annotations of the Kubernetes nodes.
    #[serde(default = "enabled")]
    pub sync_topology: bool,
}

/// How the number of pods and their Kubernetes nodes are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScalingMode {
    /// One pod on each Kubernetes node that fits.
    DaemonSet,
    /// Numbered pods, as many as replicas.
    #[default]
    StatefulSet,
}

/// Login by ssh to nodes where the user has a job.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["enabled", "sssdConfRef"]))]
pub struct Ssh {
    /// True to run sshd in the worker pods.
    #[serde(default)]
    pub enabled: bool,
    /// Lines to append to `sshd_config`.
    pub extra_sshd_config: Option<String>,
    /// The sssd.conf, which defines the users who may log in.
    pub sssd_conf_ref: SecretKeySelector,
}

/// The partition of a NodeSet.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["enabled"]))]
pub struct Partition {
    /// True to create a partition with these nodes.
    #[serde(default)]
    pub enabled: bool,
    /// Parameters of the partition, on one line.
    #[schemars(regex(pattern = r"^[^\n]+$"))]
    pub config: Option<String>,
}

/// How pods are replaced when their template changes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[(
    "self.type != 'ScheduledUpdate' || (has(self.scheduledUpdate.startTime) && has(self.scheduledUpdate.duration))",
    "scheduledUpdate.startTime and scheduledUpdate.duration must be set when type is ScheduledUpdate",
)])))]
pub struct UpdateStrategy {
    /// The strategy.
    #[serde(rename = "type", default)]
    pub type_: UpdateStrategyType,
    /// Limits of a rolling update.
    pub rolling_update: Option<RollingUpdate>,
    /// Time and duration of a scheduled update.
    pub scheduled_update: Option<ScheduledUpdate>,
}

/// The strategies for replacing pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// A few at a time, each drained first.
    #[default]
    RollingUpdate,
    /// When a user deletes the old pod.
    OnDelete,
    /// All at once, inside a Slurm reservation.
    ScheduledUpdate,
}

/// Limits of a rolling update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// Maximum number of unavailable pods, as a number or a percentage.
    #[serde(default = "default_max_unavailable")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Raw<IntOrString>,
}

fn default_max_unavailable() -> Raw<IntOrString> {
    Raw::new(Value::from("25%"))
}

impl Default for RollingUpdate {
    fn default() -> Self {
        Self { max_unavailable: default_max_unavailable() }
    }
}

/// The Slurm reservation of a scheduled update.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledUpdate {
    /// Its start (RFC 3339).
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    #[schemars(schema_with = "schema::date_time")]
    pub start_time: Raw<Time>,
    /// Its duration, as a Go duration.
    #[serde(default = "default_reservation_duration")]
    #[schemars(schema_with = "schema::duration")]
    pub duration: Raw<Duration>,
    /// Additional flags of the reservation.
    #[schemars(extend("nullable" = true))]
    pub flags: Option<Vec<String>>,
}

fn default_reservation_duration() -> Raw<Duration> {
    Raw::new(Value::from("30m"))
}

/// When the volume claims of pods are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRetentionPolicy {
    /// After deletion of the NodeSet.
    #[serde(default)]
    pub when_deleted: ClaimRetention,
    /// After scale-in of the NodeSet.
    #[serde(default)]
    pub when_scaled: ClaimRetention,
}

/// Whether a volume claim is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimRetention {
    /// It is kept.
    #[default]
    Retain,
    /// It is deleted.
    Delete,
}

/// When records of Slurm nodes without a pod are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PruneSlurmNodeRecords {
    /// Never.
    #[default]
    Never,
    /// When the Kubernetes node no longer exists either.
    NodeNotFound,
}

/// How many workers may be unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnavailableLimit {
    /// So many.
    Count(usize),
    /// So many percent of the desired number, rounded up.
    Percent(usize),
}

/// The limit of unavailable workers is neither a number nor a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "updateStrategy.rollingUpdate.maxUnavailable must be a number or a percentage such as 25%, which {0} is not"
)]
pub struct InvalidLimit(Value);

impl UnavailableLimit {
    /// The number for a NodeSet of this size.
    pub fn of(self, desired: usize) -> usize {
        match self {
            Self::Count(count) => count.min(desired),
            Self::Percent(percent) => desired.saturating_mul(percent).div_ceil(100).min(desired),
        }
    }

    /// Whether no worker may be unavailable, so that none can be updated.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }
}

impl RollingUpdate {
    /// The limit of unavailable workers.
    pub fn limit(&self) -> Result<UnavailableLimit, InvalidLimit> {
        let limit = match self.max_unavailable.read() {
            Ok(None) => Some(UnavailableLimit::Count(1)),
            Ok(Some(IntOrString::Int(count))) => usize::try_from(count).ok().map(UnavailableLimit::Count),
            Ok(Some(IntOrString::String(text))) => {
                let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
                percent.map(UnavailableLimit::Percent)
            }
            Err(_) => None,
        };
        limit.ok_or_else(|| InvalidLimit(self.max_unavailable.as_value().clone()))
    }
}

impl NodeSetSpec {
    /// The update strategy, or its default.
    pub fn effective_update_strategy(&self) -> UpdateStrategy {
        self.update_strategy.clone().unwrap_or_default()
    }

    /// The retention policy of volume claims, or its default.
    pub fn claim_retention(&self) -> ClaimRetentionPolicy {
        self.persistent_volume_claim_retention_policy.clone().unwrap_or_default()
    }

    /// The ssh settings, if ssh is enabled.
    pub fn enabled_ssh(&self) -> Option<&Ssh> {
        self.ssh.as_ref().filter(|ssh| ssh.enabled)
    }

    /// The partition, if it is enabled.
    pub fn enabled_partition(&self) -> Option<&Partition> {
        self.partition.as_ref().filter(|partition| partition.enabled)
    }

    /// Minimum number of digits of an ordinal. The schema allows any number; a DNS label has at most 63 characters.
    pub fn padding(&self) -> usize {
        usize::try_from(self.ordinal_padding.clamp(0, 63)).unwrap_or_default()
    }
}

impl NodeSet {
    /// Whether [`PARTITION_HELD`] is `False` for the current generation: no job names a partition of the NodeSet.
    pub fn releases_partition(&self) -> bool {
        let held = self.status.as_ref().and_then(|status| find(&status.conditions, PARTITION_HELD));
        held.is_some_and(|condition| {
            condition.status == ConditionStatus::False.as_str()
                && condition.observed_generation == self.metadata.generation
        })
    }
}

/// Observed state of a NodeSet. Counters are omitted while they are zero.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSetStatus {
    /// Number of desired pods.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub desired: i32,
    /// Number of pods.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Number of pods with the current template.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// Number of ready pods.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Number of pods that have been ready for `minReadySeconds`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Number of pods that are not available.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unavailable_replicas: i32,
    /// Number of idle Slurm nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slurm_idle: i32,
    /// Number of Slurm nodes that run jobs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slurm_allocated: i32,
    /// Number of Slurm nodes that are down.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slurm_down: i32,
    /// Number of Slurm nodes that are draining or drained.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slurm_drain: i32,
    /// The generation from which this status was computed.
    pub observed_generation: Option<i64>,
    /// Hash of the current revision.
    pub node_set_hash: String,
    /// Number of hash collisions of revisions.
    pub collision_count: Option<i32>,
    /// Conditions of the current state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The Kubernetes node of each ordinal, while `pinToNode` is set.
    #[schemars(extend("nullable" = true))]
    pub ordinal_to_node: Option<BTreeMap<String, String>>,
    /// Label selector of the pods, for the scale subresource.
    pub selector: String,
}
