//! Clients of the API server with a timeout for every request.
//!
//! kube sets no read timeout, because a watch may be idle for minutes: a plain request on a dead connection would never
//! return. Here every request (connecting, kube's retries, headers and body) has to end within [`LIMIT`]. A watch has
//! to start within it; afterwards kube's watcher ends an idle one by itself.
//!
//! kube also retries requests that were answered 429, 503 or 504, creates included. That suits reads and idempotent
//! writes. Where a duplicate request matters, use the client without retries, which returns every answer to the caller.

use futures::future::BoxFuture;
use http::header::{HeaderName, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{BoxError, Service};

/// The timeout of a request, retries included.
pub const LIMIT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a kubeconfig nor a service account was found.
    #[error("no Kubernetes configuration found")]
    Infer(#[from] kube::config::InferConfigError),
    /// The file of `--kubeconfig` is not usable.
    #[error("cannot use the kubeconfig file")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The configuration is not valid for a client.
    #[error("cannot build a Kubernetes client")]
    Build(#[from] kube::Error),
}

/// The request took longer than [`LIMIT`].
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", LIMIT.as_secs())]
struct TimedOut;

/// Address and credentials of the API server: from the given file, or else the first of `KUBECONFIG`,
/// ~/.kube/config and the pod's service account. `name` becomes the user agent in the audit log.
pub async fn config(name: &'static str, kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        None => Config::infer().await?,
        Some(path) => {
            let file = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
    };
    config.headers.push((USER_AGENT, HeaderValue::from_static(name)));
    Ok(config)
}

/// A client that retries requests which were answered 429, 503 or 504.
pub fn client(config: &Config) -> Result<Client, Error> {
    build(config, true)
}

/// A client that sends each request once.
pub fn no_retry_client(config: &Config) -> Result<Client, Error> {
    build(config, false)
}

/// The header with which a client names its request in the audit log.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A client that sends its requests through `client`, all with this id in the API server's audit log.
pub fn with_audit_id(client: &Client, id: &str) -> Client {
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let Ok(id) = HeaderValue::from_str(id) else { return inner };
    let send = move |mut request: Request<Body>| {
        request.headers_mut().insert(AUDIT_ID, id.clone());
        let inner = inner.clone();
        async move { inner.send(request).await }
    };
    Client::new(tower::service_fn(send), namespace)
}

fn build(config: &Config, retry: bool) -> Result<Client, Error> {
    let mut config = config.clone();
    config.default_retry = retry;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(LIMIT);
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&tower::layer::layer_fn(|inner| RequestTimeout { inner })).build())
}

/// Middleware that ends requests after [`LIMIT`].
#[derive(Clone, Debug)]
struct RequestTimeout<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for RequestTimeout<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_watch = is_watch(request.uri());
        let response = self.inner.call(request);
        Box::pin(async move {
            let exchange = async {
                let response = response.await?;
                if is_watch { Ok(response) } else { buffer_body(response).await }
            };
            tokio::time::timeout(LIMIT, exchange).await.map_err(|_| TimedOut)?
        })
    }
}

/// Reads the body within the timeout. kube would buffer it anyway.
async fn buffer_body(response: Response<Box<DynBody>>) -> Result<Response<Box<DynBody>>, BoxError> {
    let (head, body) = response.into_parts();
    let body = Full::new(body.collect().await?.to_bytes()).map_err(|never| match never {});
    Ok(Response::from_parts(head, Box::new(body)))
}

fn is_watch(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, RequestTimeout, with_audit_id};
    use futures::{StreamExt, TryStreamExt};
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, WatchEvent, WatchParams};
    use kube::client::{Body, DynBody};
    use kube::{Client, ResourceExt};
    use rstest::rstest;
    use std::time::Duration;
    use tower::BoxError;

    const OBJECT: &str = r#"{"metadata":{"name":"a"}}"#;
    const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";

    /// ConfigMaps of a server that sends the headers after one delay and the body after another.
    fn config_maps(headers_after: Duration, body_after: Duration, body: &'static str) -> Api<ConfigMap> {
        let inner = tower::service_fn(move |_: Request<Body>| async move {
            tokio::time::sleep(headers_after).await;
            let chunk = async move {
                tokio::time::sleep(body_after).await;
                Ok::<_, BoxError>(body)
            };
            let body = axum::body::Body::from_stream(futures::stream::once(chunk).boxed());
            let body: Box<DynBody> = Box::new(body.map_err(BoxError::from));
            Ok::<_, BoxError>(Response::new(body))
        });
        Api::default_namespaced(Client::new(RequestTimeout { inner }, "default"))
    }

    #[rstest]
    #[case::headers(LIMIT * 2, Duration::ZERO)]
    #[case::body(Duration::ZERO, LIMIT * 2)]
    #[case::headers_and_body_together(LIMIT * 2 / 3, LIMIT * 2 / 3)]
    #[tokio::test(start_paused = true)]
    async fn request_times_out(#[case] headers_after: Duration, #[case] body_after: Duration) {
        let started = tokio::time::Instant::now();
        let error = config_maps(headers_after, body_after, OBJECT).get("a").await.expect_err("a timeout");
        assert_eq!(started.elapsed(), LIMIT);
        assert!(error.to_string().contains("did not answer within 30 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn response_within_the_timeout_is_returned() {
        let object = config_maps(LIMIT / 3, LIMIT / 3, OBJECT).get("a").await.unwrap();
        assert_eq!(object.name_any(), "a");
    }

    #[tokio::test]
    async fn requests_have_the_audit_id() {
        let inner = tower::service_fn(|request: Request<Body>| async move {
            let id = request.headers().get("audit-id").unwrap().to_str().unwrap().to_owned();
            let error = kube::core::Status::failure(&id, "Conflict").with_code(409);
            let body = Body::from(serde_json::to_vec(&error).unwrap());
            Ok::<_, BoxError>(Response::builder().status(409).body(body).unwrap())
        });
        let client = with_audit_id(&Client::new(inner, "default"), "pod_1/17");
        let error = Api::<ConfigMap>::default_namespaced(client).get("a").await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.message == "pod_1/17"), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_watch_does_not_time_out() {
        let api = config_maps(Duration::ZERO, LIMIT * 5, EVENT);
        let mut events = api.watch(&WatchParams::default(), "1").await.unwrap().boxed();
        let event = events.try_next().await.unwrap();
        assert!(matches!(event, Some(WatchEvent::Added(object)) if object.name_any() == "a"));
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_does_not_start_times_out() {
        let api = config_maps(LIMIT * 2, Duration::ZERO, EVENT);
        assert!(api.watch(&WatchParams::default(), "1").await.is_err());
    }
}
