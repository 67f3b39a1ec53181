//! Holds the API server that simulations run against to the real one: the same random requests, the same answers and
//! the same events of a watch.
//!
//! What is not modelled, and so not asked for here:
//! - Schemas: defaults, validation, and which lists and maps in a spec are owned as a whole. The model takes all JSON.
//! - An apply without force, and an apply of empty maps: whom they conflict with depends on who once owned the map
//!   itself, which the server forgets and remembers by rules of its own. Our controllers do neither.
//! - An apply to an object that has no managed fields at all, whose fields the server then gives to an owner that it
//!   makes up. Every object here has a field that stays.
//! - Who owns what was written otherwise than by an apply: the model knows, and does not tell.
//! - Labels and annotations in a status of a pod, which the server writes and the model keeps.
//! - The order of items in lists that have keys: it means nothing.
//! - Foreground deletion and orphans: the model deletes in the background only.
//! - Times, but for their presence: the servers have different clocks.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "api_model/body.rs"]
mod body;
#[path = "api_model/operation.rs"]
mod operation;
#[path = "api_model/side.rs"]
mod side;

use anyhow::{Context, Result, bail, ensure};
use e2e::custom::install_definitions;
use e2e::stage::SOON;
use e2e::{TestNamespace, client, eventually, report};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use operation::{Operation, Sequence, sequences};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::{Value, json};
use side::Side;
use similar::TextDiff;
use std::sync::atomic::{AtomicUsize, Ordering};
use test_support::api_model::ApiModel;
use tokio::runtime::Runtime;

/// Names another seed than the usual one, to look further.
const SEED: &str = "API_MODEL_SEED";
/// Names another number of sequences than the usual one.
const CASES: &str = "API_MODEL_CASES";

/// The real API server.
struct Real {
    client: Client,
    namespace: TestNamespace,
    sequences: AtomicUsize,
}

impl Real {
    async fn new() -> Result<Self> {
        let client = client().await?;
        install_definitions(&client).await?;
        let namespace = TestNamespace::create(&client, "api-model").await?;
        let accounts = namespace.api::<ServiceAccount>();
        let account = async || Ok(accounts.get_opt("default").await?);
        eventually("a service account for pods", SOON, account, Option::is_some).await?;
        Ok(Self { client, namespace, sequences: AtomicUsize::new(0) })
    }

    /// Does the same in both; the first difference is an error.
    async fn compare(&self, sequence: &Sequence) -> Result<()> {
        let prefix = format!("s{}-", self.sequences.fetch_add(1, Ordering::Relaxed));
        let (namespace, kind) = (self.namespace.name(), sequence.kind);
        let real = Side::new(self.client.clone(), namespace, kind, &prefix).await?;
        let server = ApiModel::new(|| Timestamp::UNIX_EPOCH);
        let model = Side::new(server.client("test"), "model", kind, &prefix).await?;
        let outcome = compare(sequence, &real, &model, &server).await;
        real.clean().await?;
        outcome
    }
}

async fn compare(sequence: &Sequence, real: &Side, model: &Side, server: &ApiModel) -> Result<()> {
    let since = real.version().await?;
    for (index, operation) in sequence.operations.iter().chain([&Operation::last()]).enumerate() {
        let (expected, actual) = (real.perform(operation).await?, model.perform(operation).await?);
        ensure_equal(&format!("operation {index}, {operation:?}"), &expected, &actual)?;
    }
    let changes = server.history(0);
    let told =
        changes.iter().filter_map(|change| model.event(&format!("{:?}", change.event), &change.object));
    ensure_equal("events", &real.events(&since).await?, &told.collect())
}

fn ensure_equal(what: &str, real: &Value, model: &Value) -> Result<()> {
    let [expected, actual] = [real, model].map(|value| format!("{value:#}\n"));
    let difference =
        TextDiff::from_lines(&expected, &actual).unified_diff().header("real", "model").to_string();
    ensure!(real == model, "{what}:\n{difference}");
    Ok(())
}

fn number(variable: &str) -> Result<Option<u32>> {
    let text = std::env::var(variable).ok();
    text.map(|text| text.parse().with_context(|| format!("{variable}={text}"))).transpose()
}

#[test]
fn the_model_answers_as_the_real_api_server_does() -> Result<()> {
    let runtime = Runtime::new()?;
    let real = runtime.block_on(Real::new())?;
    let (seed, cases) = (number(SEED)?.unwrap_or_default(), number(CASES)?.unwrap_or(64));
    report(format!("{SEED}={seed} {CASES}={cases}"));
    let seed: Vec<u8> = seed.to_le_bytes().into_iter().cycle().take(32).collect();
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let compared = runner.run(&sequences(), |sequence| {
        let compared = runtime.block_on(real.compare(&sequence));
        compared.map_err(|error| TestCaseError::fail(format!("{error:#}")))
    });
    ensure!(compared.is_ok(), "{}", compared.unwrap_err());
    runtime.block_on(real.namespace.delete())
}

#[tokio::test]
async fn a_namespace_that_goes_refuses_objects_as_the_model_does() -> Result<()> {
    let client = client().await?;
    let namespace = TestNamespace::create(&client, "api-model").await?;
    let name = namespace.name().to_owned();
    let config_maps = namespace.api::<ConfigMap>();
    let held: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "held", "finalizers": ["example.com/a"]}}))?;
    config_maps.create(&PostParams::default(), &held).await?;
    namespace.delete().await?;
    let model = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    model.terminate_namespace(&name);
    let late: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "late"}}))?;
    let mut refusals = Vec::new();
    for config_maps in [config_maps.clone(), Api::namespaced(model.client("test"), &name)] {
        let Err(kube::Error::Api(status)) = config_maps.create(&PostParams::default(), &late).await else {
            bail!("not refused")
        };
        let causes = status.details.context("no details")?.causes;
        refusals.push((
            status.code,
            status.reason,
            causes.into_iter().map(|cause| cause.reason).collect::<Vec<_>>(),
        ));
    }
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    config_maps.patch("held", &PatchParams::default(), &free).await?;
    ensure!(refusals[0] == refusals[1], "{refusals:?}");
    Ok(())
}
