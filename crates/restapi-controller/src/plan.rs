//! Decides what the children of a RestApi should be.

use crate::build::{build_deployment, build_service};
use crate::observe::Observed;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use operator_runtime::{Class, Classify, Exact};
use pod_builder::BuildError;
use slinky_api::v1beta1::RestApi;
use std::time::Duration;

/// How long to wait for a Controller; its appearance is noticed at once.
const MISSING: Duration = Duration::from_mins(5);

/// What the children should be, each on its own.
pub struct Plan {
    /// The Service.
    pub service: Result<Exact<Service>, Obstacle>,
    /// The Deployment.
    pub deployment: Result<Exact<Deployment>, Obstacle>,
}

/// Why a child is not made.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// The cluster that it would serve is not there.
    #[error("Controller {0} does not exist")]
    NoController(String),
    /// It cannot be built; only an edit helps.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl Classify for Obstacle {
    fn class(&self) -> Class {
        match self {
            Self::NoController(_) => Class::Waiting(MISSING),
            Self::Build(_) => Class::Invalid,
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::NoController(_) => "ControllerMissing",
            Self::Build(_) => "InvalidSpec",
        }
    }
}

/// Decides.
pub fn plan(restapi: &RestApi, observed: &Observed) -> Plan {
    let missing = || Obstacle::NoController(restapi.spec.controller_ref.name.clone());
    let deployment =
        observed.controller.as_ref().ok_or_else(missing).and_then(|controller| {
            Ok(build_deployment(restapi, controller, observed.deployment.as_deref())?)
        });
    Plan { service: build_service(restapi).map_err(Obstacle::from), deployment }
}
