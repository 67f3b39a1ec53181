//! Clients for the API server in which no request can hang.
//!
//! kube sets no read timeout, because a watch may be silent for minutes: a plain request on a dead connection would wait
//! for ever. Here every exchange (connecting, kube's retries, headers and body) has to end within [`LIMIT`]; a watch
//! has to begin within it and is then looked after by kube's watcher, which gives up a silent one by itself.
//!
//! kube also repeats requests that were answered 429, 503 or 504, creates included. That suits reads and idempotent
//! writes. Where a second copy of a request matters, the client without retries is used, and every answer is seen.

use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{BoxError, Service};

/// The longest that one exchange may take, retries included.
pub const LIMIT: Duration = Duration::from_secs(30);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The clients could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no usable cluster configuration.
    #[error("no way to reach a Kubernetes API server was found")]
    Infer(#[source] kube::config::InferConfigError),
    /// The file given by flag is unusable.
    #[error("cannot use the kubeconfig file")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The configuration does not make a client.
    #[error("cannot make a Kubernetes client")]
    Build(#[source] kube::Error),
}

/// The exchange took longer than [`LIMIT`].
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", LIMIT.as_secs())]
struct TimedOut;

/// Where the API server is and who we are: the given file, else `KUBECONFIG`, else the pod's service account. `name` is
/// what its audit log calls us.
pub async fn config(name: &'static str, kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        None => Config::infer().await.map_err(Error::Infer)?,
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(Error::Kubeconfig)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(Error::Kubeconfig)?
        }
    };
    config.headers.push((USER_AGENT, HeaderValue::from_static(name)));
    Ok(config)
}

/// A client that repeats requests which the server was too busy for.
pub fn client(config: &Config) -> Result<Client, Error> {
    build(config, true)
}

/// A client that sends each request once.
pub fn no_retry_client(config: &Config) -> Result<Client, Error> {
    build(config, false)
}

fn build(config: &Config, retry: bool) -> Result<Client, Error> {
    let mut config = config.clone();
    config.default_retry = retry;
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.write_timeout = Some(LIMIT);
    let builder = ClientBuilder::try_from(config).map_err(Error::Build)?;
    Ok(builder.with_layer(&tower::layer::layer_fn(|inner| Bounded { inner })).build())
}

/// Ends exchanges that take too long.
#[derive(Clone, Debug)]
struct Bounded<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Bounded<S>
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
        let streams = is_watch(request.uri());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let exchange = async {
                let response = answer.await?;
                if streams { Ok(response) } else { read_whole(response).await }
            };
            tokio::time::timeout(LIMIT, exchange).await.map_err(|_| TimedOut)?
        })
    }
}

/// Reads the body here, within the deadline. kube would read it as a whole anyway.
async fn read_whole(response: Response<Box<DynBody>>) -> Result<Response<Box<DynBody>>, BoxError> {
    let (head, body) = response.into_parts();
    let body = Full::new(body.collect().await?.to_bytes()).map_err(|never| match never {});
    Ok(Response::from_parts(head, Box::new(body)))
}

fn is_watch(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

#[cfg(test)]
mod tests {
    use super::{Bounded, LIMIT};
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

    /// Config maps on a server that sends the headers after one delay and the body after another.
    fn config_maps(headers_after: Duration, body_after: Duration, body: &'static str) -> Api<ConfigMap> {
        let inner = tower::service_fn(move |_: Request<Body>| async move {
            tokio::time::sleep(headers_after).await;
            let piece = async move {
                tokio::time::sleep(body_after).await;
                Ok::<_, BoxError>(body)
            };
            let body = axum::body::Body::from_stream(futures::stream::once(piece).boxed());
            let body: Box<DynBody> = Box::new(body.map_err(BoxError::from));
            Ok::<_, BoxError>(Response::new(body))
        });
        Api::default_namespaced(Client::new(Bounded { inner }, "default"))
    }

    #[rstest]
    #[case::headers(LIMIT * 2, Duration::ZERO)]
    #[case::body(Duration::ZERO, LIMIT * 2)]
    #[case::both_together(LIMIT * 2 / 3, LIMIT * 2 / 3)]
    #[tokio::test(start_paused = true)]
    async fn a_plain_request_ends(#[case] headers_after: Duration, #[case] body_after: Duration) {
        let begun = tokio::time::Instant::now();
        let error = config_maps(headers_after, body_after, OBJECT).get("a").await.expect_err("too late");
        assert_eq!(begun.elapsed(), LIMIT);
        assert!(error.to_string().contains("did not answer within 30 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timely_answer_is_passed_on() {
        let object = config_maps(LIMIT / 3, LIMIT / 3, OBJECT).get("a").await.unwrap();
        assert_eq!(object.name_any(), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_lives_on() {
        let api = config_maps(Duration::ZERO, LIMIT * 5, EVENT);
        let mut events = api.watch(&WatchParams::default(), "1").await.unwrap().boxed();
        let event = events.try_next().await.unwrap();
        assert!(matches!(event, Some(WatchEvent::Added(object)) if object.name_any() == "a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_does_not_begin_ends() {
        let api = config_maps(LIMIT * 2, Duration::ZERO, EVENT);
        assert!(api.watch(&WatchParams::default(), "1").await.is_err());
    }
}
