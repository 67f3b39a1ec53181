//! What happens to every call before its message is read: the caller is authenticated, and the outcome is counted. The
//! message of a caller that is refused is never read.

use super::authentication::Authenticator;
use super::connections::ConnectionHandle;
use super::metrics::observe_call;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use tokio::time::Instant;
use tonic::{Code, Status};

/// Passes a call on if its caller is known.
pub async fn admit(
    State(authenticator): State<Arc<Authenticator>>,
    request: Request,
    next: Next,
) -> Response {
    let (method, started) = (method(request.uri().path()), Instant::now());
    let response = match authenticate(&authenticator, request).await {
        Ok(request) => next.run(request).await,
        Err(status) => status.into_http(),
    };
    // A call that failed has its status in the headers.
    let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
    observe_call(method, code, started.elapsed());
    response
}

/// The request with its caller.
async fn authenticate(authenticator: &Arc<Authenticator>, mut request: Request) -> Result<Request, Status> {
    let connection = request.extensions().get::<ConnectionHandle>().cloned();
    let connection = connection.ok_or_else(|| Status::internal("the connection is not known"))?;
    let caller = authenticator.authenticate(request.headers(), connection.peer()).await?;
    connection.set_authenticated();
    request.extensions_mut().insert(caller);
    Ok(request)
}

/// The method of a path, for metrics.
fn method(path: &str) -> &'static str {
    let methods = ["Join", "Begin", "Done", "Status"];
    let name = path.rsplit('/').next();
    methods.into_iter().find(|method| name == Some(method)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::method;
    use rstest::rstest;

    #[rstest]
    #[case("/slinky.expectations.v1.Expectations/Begin", "Begin")]
    #[case("/slinky.expectations.v1.Expectations/Anything", "unknown")]
    #[case("", "unknown")]
    fn metrics_have_one_label_per_method(#[case] path: &str, #[case] label: &str) {
        assert_eq!(method(path), label);
    }
}
