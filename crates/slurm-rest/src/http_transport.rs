//! HTTP and HTTPS with reqwest.

use crate::transport::{Transport, TransportError};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::uri::Scheme;
use http::{Request, Response, Uri};
use reqwest::Certificate;
use std::time::Duration;

/// A connection inside one Kubernetes cluster is established within milliseconds or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// slurmrestd keeps idle connections for more than 40 s; closing ours first avoids requests on a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Why no client can be created for an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Neither `http://host` nor `https://host`.
    #[error("{0:?} is not a URL of the form http://host or https://host")]
    Url(String),
    /// The certificates are not PEM.
    #[error("the CA certificates are not valid PEM")]
    Certificates(#[source] reqwest::Error),
    /// reqwest rejected the configuration.
    #[error("creating the HTTP client failed")]
    Client(#[source] reqwest::Error),
}

/// A slurmrestd behind a URL.
#[derive(Debug)]
pub struct HttpTransport {
    base: String,
    http: reqwest::Client,
}

impl HttpTransport {
    /// A slurmrestd at `base`, for example `http://name:6820`.
    ///
    /// For an `https` base only `certificates` (PEM) are trusted, because a Slurm cluster has its own CA. The process
    /// needs an installed rustls provider in both cases.
    pub fn new(base: &str, certificates: Option<&[u8]>) -> Result<Self, EndpointError> {
        let trusted = certificates.map(Certificate::from_pem_bundle).transpose();
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tls_certs_only(trusted.map_err(EndpointError::Certificates)?.unwrap_or_default())
            // The token must not reach any other server.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .map_err(EndpointError::Client)?;
        Ok(Self { base: server_of(base)?, http })
    }
}

/// Scheme and authority of the URL; an error if it has a path or another scheme.
fn server_of(base: &str) -> Result<String, EndpointError> {
    let url = || EndpointError::Url(base.to_owned());
    let uri: Uri = base.parse().map_err(|_| url())?;
    match (uri.scheme(), uri.authority(), uri.path()) {
        (Some(scheme), Some(authority), "/") if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS => {
            Ok(format!("{scheme}://{authority}"))
        }
        _ => Err(url()),
    }
}

impl Transport for HttpTransport {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let url = format!("{}{}", self.base, parts.uri);
            let sent = self.http.request(parts.method, url).headers(parts.headers).body(body).send().await;
            let answer = sent.map_err(failure)?;
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = answer.status();
            *response.headers_mut() = answer.headers().clone();
            *response.body_mut() = answer.bytes().await.map_err(failure)?;
            Ok(response)
        })
    }
}

/// reqwest errors contain the URL but no headers, hence no token.
fn failure(error: reqwest::Error) -> TransportError {
    if error.is_connect() || error.is_builder() {
        TransportError::Unreachable(error.into())
    } else {
        TransportError::Interrupted(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::service("http://slurm-restapi.ns:6820", Some("http://slurm-restapi.ns:6820"))]
    #[case::trailing_slash("https://10.0.0.1:6820/", Some("https://10.0.0.1:6820"))]
    #[case::no_scheme("slurm-restapi:6820", None)]
    #[case::other_scheme("ftp://slurm-restapi", None)]
    #[case::path("http://slurm-restapi/slurm", None)]
    #[case::empty("", None)]
    fn base_url_is_http_or_https_without_a_path(#[case] base: &str, #[case] server: Option<&str>) {
        assert_eq!(server_of(base).ok().as_deref(), server);
    }
}
