//! The golden cases: the objects that all controllers together create from a user's objects in a real API server.
//!
//! Every leaf of every object equals the golden data, or is listed in `golden/deviations.yaml` with its value and a
//! reason.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "golden/case.rs"]
mod case;
#[path = "golden/cluster.rs"]
mod cluster;
#[path = "golden/compare.rs"]
mod compare;
#[path = "golden/json.rs"]
mod json;
#[path = "golden/leaves.rs"]
mod leaves;
#[path = "golden/node.rs"]
mod node;
#[path = "golden/normalise.rs"]
mod normalise;
#[path = "golden/pods.rs"]
mod pods;
#[path = "golden/texts.rs"]
mod texts;

use anyhow::Result;
use case::{Case, id, kind, name};
use compare::compare;
use e2e::crds::{install_crds, install_service_monitor_crd};
use e2e::process::{Process, binary, scratch};
use e2e::{client, report};
use serde_json::Value;
use slinky_api::conditions::SLURM_REACHABLE;
use std::collections::BTreeSet;
use test_support::conformance::{self, Deviation};

/// The kinds of resources, each with a controller of its own.
const KINDS: &[&str] = &["Accounting", "Controller", "LoginSet", "NodeSet", "RestApi", "Token"];

const DEVIATIONS: &str = include_str!("golden/deviations.yaml");

/// The deviations; those with placeholders are expanded for each Controller of each case that is not external.
fn deviations(cases: &[Case]) -> Vec<Deviation> {
    let expand = |at: &String| -> Vec<String> {
        if !at.contains("{controller}") {
            return vec![at.clone()];
        }
        let of_case = |case: &Case, controller: &Value| {
            at.replace("{case}", &case.name).replace("{controller}", name(controller))
        };
        let runs = |object: &&Value| kind(object) == "Controller" && object["spec"]["external"] != true;
        cases
            .iter()
            .flat_map(|case| case.input.iter().filter(runs).map(|object| of_case(case, object)))
            .collect()
    };
    let mut deviations = conformance::deviations(DEVIATIONS);
    for deviation in &mut deviations {
        deviation.at = deviation.at.iter().flat_map(expand).collect();
    }
    deviations
}

/// Starts one controller of each kind for the namespaces of all cases.
fn start_controllers(cases: &[Case]) -> Result<Vec<Process>> {
    let namespaces = cases.iter().map(|case| case.namespace.as_str()).collect::<Vec<_>>().join(",");
    KINDS
        .iter()
        .map(|kind| {
            let name = format!("{}-controller", kind.to_lowercase());
            let log = scratch(&format!("golden-{name}.log"))?;
            Process::start_elected(binary(&name)?, &["--namespaces", &namespaces], &log)
        })
        .collect()
}

/// Whether all expected objects exist, and every NodeSet is managed without Slurm, as it has no RestApi.
fn is_complete(case: &Case, live: &[Value]) -> bool {
    let ids: BTreeSet<_> = live.iter().map(id).collect();
    let conditions = live.iter().filter_map(|object| object["status"]["conditions"].as_array()).flatten();
    case.expected.iter().all(|object| ids.contains(&id(object)))
        && !conditions.map(|condition| &condition["type"]).any(|type_| type_ == SLURM_REACHABLE)
}

#[tokio::test]
async fn every_leaf_equals_the_golden_data_or_is_a_listed_deviation() -> Result<()> {
    let Some(directory) = conformance::directory() else { return Ok(()) };
    let cases = case::load_all(&directory.join("golden"))?;
    let client = client().await?;
    install_crds(&client).await?;
    install_service_monitor_crd(&client).await?;
    // First, since they remove the finalizers of objects that an earlier run left.
    let controllers = start_controllers(&cases)?;
    cluster::clear(&client, &cases).await?;
    for case in &cases {
        cluster::apply(&client, case).await?;
    }
    let live = tokio::select! {
        live = cluster::wait_until_settled(&client, &cases, is_complete) => live?,
        ended = node::keep_ready(&client) => match ended? {},
    };
    node::delete(&client).await?;

    let (mut matched, mut expected, mut differences) = (0, 0, Vec::new());
    for (case, live) in cases.iter().zip(&live) {
        let comparison = compare(case, &case.expected, live);
        report(format_args!("golden {}: {}/{} leaves", case.name, comparison.matched, comparison.expected));
        matched += comparison.matched;
        expected += comparison.expected;
        differences.extend(comparison.differences);
    }
    report(format_args!("golden: {matched}/{expected} leaves, {} differences", differences.len()));
    conformance::assert_all_meant(&differences, &deviations(&cases));
    cluster::clear(&client, &cases).await?;
    drop(controllers);
    Ok(())
}

#[test]
fn reasons_of_deviations_do_not_cite_documents_outside_the_repository() {
    let citation = regex::Regex::new(r"\b(section|promise|row)s? \d").unwrap();
    for deviation in conformance::deviations(DEVIATIONS) {
        assert!(!citation.is_match(&deviation.reason), "{}", deviation.reason);
    }
}
