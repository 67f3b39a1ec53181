//! The verdicts on the cases of the conformance data.

use anyhow::{Context, Result};
use e2e::crds::dynamic_api;
use e2e::report;
use e2e::webhook::WebhookEnv;
use http::header::{CONTENT_TYPE, WARNING};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};
use test_support::conformance::{self, Difference};

const DEVIATIONS: &str = include_str!("deviations.yaml");

#[derive(Deserialize)]
struct Data {
    fixtures: Vec<Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    id: String,
    operation: String,
    kind: String,
    field_validation: Option<String>,
    object: Option<Value>,
    old_object: Option<Value>,
    expect: Expected,
}

#[derive(Deserialize)]
struct Expected {
    allowed: bool,
    code: u16,
    layer: String,
    #[serde(default)]
    warnings: Vec<String>,
}

/// What the API server answered.
struct Verdict {
    code: StatusCode,
    warnings: usize,
    message: String,
}

#[tokio::test]
async fn verdicts_are_those_of_the_conformance_data() -> Result<()> {
    let Some(directory) = conformance::directory() else { return Ok(()) };
    let (env, _webhook) = WebhookEnv::start("cases").await?;
    let yaml = std::fs::read_to_string(directory.join("admission/cases.yaml"))?;
    let data: Data = serde_saphyr::from_str(&yaml)?;
    for fixture in &data.fixtures {
        let fixture: ConfigMap = serde_json::from_value(in_namespace(fixture, env.name()))?;
        env.namespace.api::<ConfigMap>().create(&PostParams::default(), &fixture).await?;
    }
    let mut differences = Vec::new();
    for case in &data.cases {
        let verdict = decide(&env, case).await.with_context(|| case.id.clone())?;
        let Expected { allowed, code, layer, warnings } = &case.expect;
        let is_webhook = verdict.message.contains("admission webhook");
        let by_webhook = layer.starts_with("webhook");
        if verdict.code.is_success() != *allowed
            || !allowed && (verdict.code != *code || is_webhook != by_webhook)
        {
            let detail = format!("{}: {}; expected {code} by {layer}", verdict.code, verdict.message);
            differences.push(Difference { at: format!("{}.verdict", case.id), detail });
        }
        if verdict.warnings != warnings.len() {
            let detail = format!("{} warnings, expected {}", verdict.warnings, warnings.len());
            differences.push(Difference { at: format!("{}.warnings", case.id), detail });
        }
    }
    conformance::assert_all_meant(&differences, &conformance::deviations(DEVIATIONS));
    report(format!("{} admission cases compared", data.cases.len()));
    env.tear_down().await
}

/// An object in the namespace of the test.
fn in_namespace(object: &Value, namespace: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!(namespace);
    object
}

async fn decide(env: &WebhookEnv, case: &Case) -> Result<Verdict> {
    let api = dynamic_api(&env.client, env.name(), &case.kind);
    let here = |object: &Value| in_namespace(object, env.name());
    let named = case.object.as_ref().or(case.old_object.as_ref()).context("a case without object")?;
    let name = named["metadata"]["name"].as_str().context("an object without name")?;
    let mut old = None;
    if let Some(object) = &case.old_object {
        let created: DynamicObject = serde_json::from_value(here(object))?;
        old = Some(api.create(&PostParams::default(), &created).await?);
    }
    let object = case.object.as_ref().map(here);
    let url = api.resource_url().to_owned();
    let verdict = match (case.operation.as_str(), object, old) {
        ("CREATE", Some(object), _) => {
            let query =
                case.field_validation.as_ref().map(|validation| format!("?fieldValidation={validation}"));
            send(env, Method::POST, &format!("{url}{}", query.unwrap_or_default()), &object).await?
        }
        ("UPDATE", Some(mut object), Some(old)) => {
            object["metadata"]["resourceVersion"] = json!(old.metadata.resource_version);
            send(env, Method::PUT, &format!("{url}/{name}"), &object).await?
        }
        _ => send(env, Method::DELETE, &format!("{url}/{name}"), &json!({})).await?,
    };
    remove(&api, name).await?;
    Ok(verdict)
}

/// Sends a request, and reads code and warnings of the answer.
async fn send(env: &WebhookEnv, method: Method, url: &str, body: &Value) -> Result<Verdict> {
    let request = Request::builder().method(method).uri(url).header(CONTENT_TYPE, "application/json");
    let response = env.client.send(request.body(Body::from(serde_json::to_vec(body)?))?).await?;
    let (head, body) = response.into_parts();
    let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
    Ok(Verdict {
        code: head.status,
        warnings: head.headers.get_all(WARNING).iter().count(),
        message: body["message"].as_str().unwrap_or_default().to_owned(),
    })
}

async fn remove(api: &Api<DynamicObject>, name: &str) -> Result<()> {
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => Ok(result.map(drop)?),
    }
}
