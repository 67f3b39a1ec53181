//! AdmissionReviews as they arrive and as they are answered, in the version of the request.

use crate::metrics;
use crate::verdict::Verdict;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::core::response::StatusSummary;
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;
use tokio::time::Instant;
use tracing::{error, info};

/// A request of the API server.
pub type Request = AdmissionRequest<DynamicObject>;
/// The answer.
pub type Answer = AdmissionResponse;

/// The versions in which reviews are understood. They differ in nothing that is used here.
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

/// Reads a review, has it decided and answers it. A panic in the decision is a denial.
pub async fn answer<F>(
    hook: &'static str,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    decide: impl FnOnce(Request) -> F,
) -> Response
where
    F: Future<Output = Answer> + Send + 'static,
{
    let started = Instant::now();
    let request = match body.map_err(Unreadable::from).and_then(|body| read(headers, &body)) {
        Ok(request) => request,
        Err(Unreadable { code, problem }) => {
            metrics::count(hook, "invalid", started.elapsed());
            return axum::Json(denied(Answer::invalid(problem), code).into_review()).into_response();
        }
    };
    let panicked = Answer::from(&request);
    let decided = AssertUnwindSafe(decide(request)).catch_unwind().await;
    let answer = decided.unwrap_or_else(|_| {
        error!(hook, "Deciding an admission request panicked");
        denied(panicked.deny("the admission webhook failed"), StatusCode::INTERNAL_SERVER_ERROR)
    });
    metrics::count(hook, if answer.allowed { "allowed" } else { "denied" }, started.elapsed());
    axum::Json(answer.into_review()).into_response()
}

/// A request that is not an AdmissionReview.
struct Unreadable {
    code: StatusCode,
    problem: String,
}

impl From<BytesRejection> for Unreadable {
    fn from(rejection: BytesRejection) -> Self {
        Self { code: rejection.status(), problem: rejection.body_text() }
    }
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self { code: StatusCode::BAD_REQUEST, problem: error.to_string() }
    }
}

impl From<String> for Unreadable {
    fn from(problem: String) -> Self {
        Self { code: StatusCode::BAD_REQUEST, problem }
    }
}

fn read(headers: &HeaderMap, body: &Bytes) -> Result<Request, Unreadable> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.split(';').next() != Some("application/json") {
        return Err(format!("the content type must be application/json, not {content_type:?}").into());
    }
    let mut review: Value = serde_json::from_slice(body)?;
    let fields = review.as_object_mut().ok_or_else(|| "an AdmissionReview is expected".to_owned())?;
    fields.entry("apiVersion").or_insert_with(|| json!(VERSIONS[0]));
    fields.entry("kind").or_insert_with(|| json!("AdmissionReview"));
    let review: AdmissionReview<DynamicObject> = serde_json::from_value(review)?;
    if !VERSIONS.contains(&review.types.api_version.as_str()) {
        return Err(format!("AdmissionReview of {} is not supported", review.types.api_version).into());
    }
    review.try_into().map_err(|_| "the AdmissionReview has no request".to_owned().into())
}

/// Allows the request.
pub fn allow(request: &Request) -> Answer {
    let mut answer = Answer::from(request);
    answer.result.code = StatusCode::OK.as_u16();
    answer
}

/// Allows the request with a warning.
pub fn allow_with_warning(request: &Request, warning: String) -> Answer {
    let mut answer = allow(request);
    answer.warnings = Some(vec![warning]);
    answer
}

/// Denies the request.
pub fn deny(request: &Request, code: StatusCode, reason: &str, message: impl ToString) -> Answer {
    let mut answer = denied(Answer::from(request).deny(message), code);
    reason.clone_into(&mut answer.result.reason);
    answer
}

fn denied(mut answer: Answer, code: StatusCode) -> Answer {
    answer.result.code = code.as_u16();
    answer.result.status = Some(StatusSummary::Failure);
    answer
}

/// Answers with a verdict.
pub fn decided(request: &Request, verdict: Verdict) -> Answer {
    let mut answer = match verdict.refusal() {
        None => allow(request),
        Some(refusal) => {
            info!(
                kind = request.kind.kind,
                namespace = request.namespace,
                name = request.name,
                user = request.user_info.username,
                refusal,
                "Request denied"
            );
            deny(request, StatusCode::FORBIDDEN, "Forbidden", refusal)
        }
    };
    let warnings = verdict.into_warnings();
    answer.warnings = (!warnings.is_empty()).then_some(warnings);
    answer
}

#[cfg(test)]
mod tests {
    use super::{allow, answer, deny};
    use axum::body::Bytes;
    use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
    use axum::response::Response;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn review(api_version: Option<&str>) -> Value {
        let mut review = json!({
            "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "userInfo": {}, "name": "x",
                "kind": { "group": "g", "version": "v", "kind": "K" },
                "resource": { "group": "g", "version": "v", "resource": "ks" },
                "object": { "metadata": { "name": "x" } },
            },
        });
        if let Some(api_version) = api_version {
            review["apiVersion"] = json!(api_version);
        }
        review
    }

    async fn json_of(response: Response) -> Value {
        assert_eq!(response.status(), StatusCode::OK);
        serde_json::from_slice(&axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap()).unwrap()
    }

    async fn post(content_type: &'static str, body: impl Into<Bytes>) -> Value {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        json_of(answer("test", &headers, Ok(body.into()), async |request| allow(&request)).await).await
    }

    #[rstest]
    #[case(Some("admission.k8s.io/v1"), "admission.k8s.io/v1")]
    #[case(Some("admission.k8s.io/v1beta1"), "admission.k8s.io/v1beta1")]
    #[case::omitted(None, "admission.k8s.io/v1")]
    #[tokio::test]
    async fn answer_has_version_and_uid_of_the_request(
        #[case] version: Option<&str>,
        #[case] expected: &str,
    ) {
        let answer = post("application/json; charset=utf-8", review(version).to_string()).await;
        assert_eq!(answer["apiVersion"], expected);
        assert_eq!((&answer["response"]["uid"], &answer["response"]["allowed"]), (&json!("u"), &json!(true)));
        assert_eq!(answer["response"]["status"]["code"], 200);
    }

    #[rstest]
    #[case::content_type("text/plain", review(None).to_string(), "the content type must be application/json")]
    #[case::empty("application/json", String::new(), "EOF")]
    #[case::not_a_review("application/json", "[]".to_owned(), "an AdmissionReview is expected")]
    #[case::no_request("application/json", "{}".to_owned(), "has no request")]
    #[case::unknown_version("application/json", review(Some("admission.k8s.io/v7")).to_string(), "v7 is not supported")]
    #[tokio::test]
    async fn what_is_no_review_is_denied(
        #[case] content_type: &'static str,
        #[case] body: String,
        #[case] problem: &str,
    ) {
        let answer = post(content_type, body).await;
        let response = &answer["response"];
        assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(400)));
        assert!(response["status"]["message"].as_str().unwrap().contains(problem), "{response}");
    }

    #[tokio::test]
    async fn panic_is_a_denial() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Bytes::from(review(None).to_string());
        let response = answer("test", &headers, Ok(body), async |_| panic!("a fault")).await;
        let response = &json_of(response).await["response"];
        assert_eq!((&response["allowed"], &response["uid"]), (&json!(false), &json!("u")));
        assert_eq!(response["status"]["code"], 500);
    }

    #[tokio::test]
    async fn denial_has_code_and_reason() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Bytes::from(review(None).to_string());
        let decide =
            async |request| deny(&request, StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "later");
        let response = &json_of(answer("test", &headers, Ok(body), decide).await).await["response"];
        assert_eq!(
            response["status"],
            json!({ "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "later" })
        );
    }
}
