//! The PodDisruptionBudget of a cluster's workers: the API server rejects evictions of protected ones.

use super::shared::{shared_metadata, worker_selector};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use slinky_api::labels::{POD_PROTECT, TRUE};
use slinky_api::names::controller::workers_budget;
use slinky_api::v1beta1::{Controller, NodeSet};

/// The PodDisruptionBudget `slurm-workers-pdb-<controller>`, which selects the workers that are labelled as busy. `None`
/// without a NodeSet to own it.
pub fn build_worker_pdb<'a>(
    nodeset: &NodeSet,
    controller: &Controller,
    siblings: impl IntoIterator<Item = &'a NodeSet>,
) -> Option<PodDisruptionBudget> {
    let name = workers_budget(&nodeset.spec.controller_ref.name);
    Some(PodDisruptionBudget {
        metadata: shared_metadata(nodeset, controller, name, siblings)?,
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(0)),
            selector: Some(LabelSelector {
                match_labels: Some(worker_selector(nodeset, POD_PROTECT, TRUE)),
                match_expressions: None,
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::shared::fixture::siblings;
    use crate::fixture::controller;

    #[test]
    fn pdb() {
        let siblings = siblings();
        insta::assert_yaml_snapshot!(build_worker_pdb(&siblings[0], &controller(), &siblings).unwrap());
    }
}
