//! The golden cases: what comes of a user's objects in a real API server with all controllers running.
//!
//! Every leaf of every object is as the golden data has it, or listed in `golden/deviations.yaml` with what it is here
//! and why.

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
#[path = "golden/normalise.rs"]
mod normalise;
#[path = "golden/pods.rs"]
mod pods;
#[path = "golden/texts.rs"]
mod texts;

use anyhow::Result;
use case::{Case, id, kind, name, owner_kinds};
use compare::compare;
use e2e::custom::{install_definitions, install_service_monitors};
use e2e::process::{Process, binary, scratch};
use e2e::{client, report};
use serde_json::Value;
use test_support::conformance::{self, Deviation};

/// The kinds of resources, each with a controller of its own.
const KINDS: &[&str] = &["Accounting", "Controller", "LoginSet", "NodeSet", "RestApi", "Token"];

/// Kinds without a controller so far: objects of these kinds, and objects that they own, are not compared.
const WITHOUT_CONTROLLER: &[&str] = &["NodeSet"];

const DEVIATIONS: &str = include_str!("golden/deviations.yaml");

fn is_compared(object: &Value) -> bool {
    !owner_kinds(object).chain([kind(object)]).any(|kind| WITHOUT_CONTROLLER.contains(&kind))
}

fn compared(objects: &[Value]) -> Vec<Value> {
    objects.iter().filter(|object| is_compared(object)).cloned().collect()
}

/// The deviations, with those that hold for each Controller that runs in a case written out.
fn deviations(cases: &[Case]) -> Vec<Deviation> {
    let written_out = |at: &String| -> Vec<String> {
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
        deviation.at = deviation.at.iter().flat_map(written_out).collect();
    }
    deviations
}

/// One controller of each kind for the namespaces of all cases.
fn start_controllers(cases: &[Case]) -> Result<Vec<Process>> {
    let namespaces = cases.iter().map(|case| case.namespace.as_str()).collect::<Vec<_>>().join(",");
    let kinds = KINDS.iter().filter(|kind| !WITHOUT_CONTROLLER.contains(*kind));
    kinds
        .map(|kind| {
            let name = format!("{}-controller", kind.to_lowercase());
            let log = scratch(&format!("golden-{name}.log"))?;
            Process::start(binary(&name)?, &["--namespaces", &namespaces], &log)
        })
        .collect()
}

#[tokio::test]
async fn every_leaf_is_as_expected_or_meant_otherwise() -> Result<()> {
    let Some(directory) = conformance::directory() else { return Ok(()) };
    let cases = case::load_all(&directory.join("golden"))?;
    let client = client().await?;
    install_definitions(&client).await?;
    install_service_monitors(&client).await?;
    cluster::clear(&client, &cases).await?;
    let controllers = start_controllers(&cases)?;
    for case in &cases {
        cluster::apply(&client, case).await?;
    }
    let awaited = |case: &Case| compared(&case.expected).iter().map(id).collect();
    let seen = cluster::settled(&client, &cases, awaited).await?;
    drop(controllers);

    let (mut matched, mut expected, mut differences) = (0, 0, Vec::new());
    for (case, seen) in cases.iter().zip(&seen) {
        let comparison = compare(case, &compared(&case.expected), &compared(seen));
        report(format_args!("golden {}: {}/{} leaves", case.name, comparison.matched, comparison.expected));
        matched += comparison.matched;
        expected += comparison.expected;
        differences.extend(comparison.differences);
    }
    report(format_args!("golden: {matched}/{expected} leaves, {} differences", differences.len()));
    conformance::assert_all_meant(&differences, &deviations(&cases));
    cluster::delete(&client, &cases).await
}

#[test]
fn every_deviation_names_the_page_that_asks_for_it() {
    let page = regex::Regex::new(r"^\d\d (section|promise) \d").unwrap();
    for deviation in conformance::deviations(DEVIATIONS) {
        assert!(page.is_match(&deviation.reason), "{}", deviation.reason);
    }
}
