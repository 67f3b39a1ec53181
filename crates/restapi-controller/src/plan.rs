//! Decides what the children of a RestApi should be.

use crate::build::{build_deployment, build_service};
use crate::observe::Observed;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use operator_runtime::{Class, Classify, MissingReference, RawObject};
use pod_builder::BuildError;
use slinky_api::v1beta1::RestApi;

/// What the children should be, each on its own.
pub struct Plan {
    /// The Service.
    pub service: Result<RawObject<Service>, Obstacle>,
    /// The Deployment.
    pub deployment: Result<RawObject<Deployment>, Obstacle>,
}

/// Why a child is not made.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// The cluster that it would serve is not there.
    #[error(transparent)]
    Missing(#[from] MissingReference),
    /// It cannot be built; only an edit helps.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl Classify for Obstacle {
    fn class(&self) -> Class {
        match self {
            Self::Missing(missing) => missing.class(),
            Self::Build(_) => Class::Invalid,
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Missing(missing) => missing.category(),
            Self::Build(_) => "InvalidSpec",
        }
    }
}

/// Decides.
pub fn plan(restapi: &RestApi, observed: &Observed) -> Plan {
    let missing = || MissingReference::Controller(restapi.spec.controller_ref.name.clone());
    let deployment =
        observed.controller.as_ref().ok_or_else(missing).map_err(Obstacle::from).and_then(|controller| {
            Ok(build_deployment(restapi, controller, observed.deployment.as_deref())?)
        });
    Plan { service: build_service(restapi).map_err(Obstacle::from), deployment }
}
