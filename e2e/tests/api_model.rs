//! Compares the API server that simulations run against with the real one: random requests must have the same responses
//! and watch events.
//!
//! Not modelled, and so not part of the requests:
//! - Schemas: defaults, validation, and atomic lists and maps in a spec. The model accepts any JSON.
//! - An apply without force, and an apply of empty maps: their conflicts depend on former owners of the map itself, which
//!   the server drops and keeps by rules of its own. Our controllers do neither.
//! - An apply to an object without managed fields, whose fields the server assigns to a made-up manager. Every object here
//!   has a field that stays.
//! - Managers of fields that were not written by an apply: the model records them, but does not show them.
//! - Labels and annotations in a write of a pod's status, which the server writes and the model ignores.
//! - The order of items in lists with keys, which has no meaning.
//! - Foreground deletion and orphans: the model deletes in the background only.
//! - Values of times: the servers have different clocks.

#![expect(clippy::unwrap_used, reason = "a panic is method a test fails")]

#[path = "api_model/operation.rs"]
mod operation;
#[path = "api_model/request.rs"]
mod request;
#[path = "api_model/server.rs"]
mod server;

use anyhow::{Context, Result, bail, ensure};
use e2e::crds::install_crds;
use e2e::test_env::SOON;
use e2e::{TestNamespace, client, eventually, report};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use operation::{Operation, Sequence, sequences};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::{Value, json};
use server::ComparedServer;
use similar::TextDiff;
use std::sync::atomic::{AtomicUsize, Ordering};
use test_support::api_model::ApiModel;
use tokio::runtime::Runtime;

/// The environment variable with the seed of the random requests.
const SEED: &str = "API_MODEL_SEED";
/// The environment variable with the number of sequences.
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
        install_crds(&client).await?;
        let namespace = TestNamespace::create(&client, "api-model").await?;
        let accounts = namespace.api::<ServiceAccount>();
        let get = async || Ok(accounts.get_opt("default").await?);
        eventually("the default service account", SOON, get, Option::is_some).await?;
        Ok(Self { client, namespace, sequences: AtomicUsize::new(0) })
    }

    /// Sends a sequence to both servers; the first difference is an error.
    async fn compare(&self, sequence: &Sequence) -> Result<()> {
        let prefix = format!("s{}-", self.sequences.fetch_add(1, Ordering::Relaxed));
        let (namespace, kind) = (self.namespace.name(), sequence.kind);
        let real = ComparedServer::new(self.client.clone(), namespace, kind, &prefix).await?;
        let api_model = ApiModel::new(|| Timestamp::UNIX_EPOCH);
        let model = ComparedServer::new(api_model.client("test"), "model", kind, &prefix).await?;
        let outcome = compare(sequence, &real, &model, &api_model).await;
        real.clean().await?;
        outcome
    }
}

async fn compare(
    sequence: &Sequence,
    real: &ComparedServer,
    model: &ComparedServer,
    api_model: &ApiModel,
) -> Result<()> {
    let since = real.version().await?;
    for (index, operation) in sequence.operations.iter().chain([&Operation::last()]).enumerate() {
        let (expected, actual) = (real.perform(operation).await?, model.perform(operation).await?);
        ensure_equal(&format!("operation {index}, {operation:?}"), &expected, &actual)?;
    }
    let changes = api_model.history(0);
    let events =
        changes.iter().filter_map(|change| model.event(&format!("{:?}", change.event), &change.object));
    ensure_equal("events", &real.events(&since).await?, &events.collect())
}

fn ensure_equal(what: &str, real: &Value, model: &Value) -> Result<()> {
    let [expected, actual] = [real, model].map(|value| format!("{value:#}\n"));
    let difference =
        TextDiff::from_lines(&expected, &actual).unified_diff().header("real", "model").to_string();
    ensure!(real == model, "{what}:\n{difference}");
    Ok(())
}

fn number_from_env(variable: &str) -> Result<Option<u32>> {
    let text = std::env::var(variable).ok();
    text.map(|text| text.parse().with_context(|| format!("{variable}={text}"))).transpose()
}

#[test]
fn model_and_real_api_server_give_the_same_responses() -> Result<()> {
    let runtime = Runtime::new()?;
    let real = runtime.block_on(Real::new())?;
    let (seed, cases) = (number_from_env(SEED)?.unwrap_or_default(), number_from_env(CASES)?.unwrap_or(64));
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
async fn model_and_real_api_server_reject_objects_in_a_terminating_namespace() -> Result<()> {
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
    let mut rejections = Vec::new();
    for config_maps in [config_maps.clone(), Api::namespaced(model.client("test"), &name)] {
        let Err(kube::Error::Api(status)) = config_maps.create(&PostParams::default(), &late).await else {
            bail!("the object was created")
        };
        let causes = status.details.context("no details")?.causes;
        rejections.push((
            status.code,
            status.reason,
            causes.into_iter().map(|cause| cause.reason).collect::<Vec<_>>(),
        ));
    }
    let unfinalized = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    config_maps.patch("held", &PatchParams::default(), &unfinalized).await?;
    ensure!(rejections[0] == rejections[1], "{rejections:?}");
    Ok(())
}
