//! The six kinds of `slinky.slurm.net/v1beta1`, one file each, and their common types.

#![expect(clippy::duplicated_attributes, reason = "printer columns of one kind repeat their type")]

mod accounting;
mod common;
mod controller;
mod loginset;
mod nodeset;
mod restapi;
mod token;

pub use accounting::{Accounting, AccountingSpec, AccountingStatus, StorageConfig};
pub use common::{
    ConfigMapKeySelector, ExternalConfig, LocalObjectReference, Metadata, PodTemplate, SecretKeySelector,
    ServiceTemplate,
};
pub use controller::{
    Controller, ControllerSpec, ControllerStatus, HighAvailability, MAX_BACKUPS, Metrics, MetricsEndpoint,
    Persistence, RefusedNodeSet, ServiceMonitor,
};
pub use loginset::{DeploymentStrategy, LoginSet, LoginSetSpec, LoginSetStatus, RollingUpdateDeployment};
pub use nodeset::{
    ClaimRetention, ClaimRetentionPolicy, InvalidLimit, NodeSet, NodeSetSpec, NodeSetStatus, Partition,
    PruneSlurmNodeRecords, RollingUpdate, ScalingMode, ScheduledUpdate, Ssh, UnavailableLimit,
    UpdateStrategy, UpdateStrategyType,
};
pub use restapi::{RestApi, RestApiSpec, RestApiStatus};
pub use token::{Token, TokenSpec, TokenStatus};
