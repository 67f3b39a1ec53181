//! Decides the desired children of a RestApi. Pure.

use crate::build::{build_deployment, build_service};
use crate::observe::Observed;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use operator_runtime::{MissingReference, Obstacle, RawObject};

/// The desired children. An obstacle to one does not affect the other.
pub struct Plan {
    /// The Service.
    pub service: Result<RawObject<Service>, Obstacle>,
    /// The Deployment.
    pub deployment: Result<RawObject<Deployment>, Obstacle>,
}

/// Decides the desired children.
pub fn plan(observed: &Observed) -> Plan {
    Plan {
        service: build_service(&observed.restapi).map_err(Obstacle::invalid),
        deployment: plan_deployment(observed),
    }
}

fn plan_deployment(observed: &Observed) -> Result<RawObject<Deployment>, Obstacle> {
    let restapi = &observed.restapi;
    let Some(controller) = &observed.controller else {
        return Err(MissingReference::Controller(restapi.spec.controller_ref.name.clone()).into());
    };
    build_deployment(restapi, controller, observed.deployment.as_deref()).map_err(Obstacle::invalid)
}
