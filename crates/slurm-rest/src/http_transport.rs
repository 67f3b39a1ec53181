//! HTTP and HTTPS by reqwest.

use crate::transport::{Transport, TransportError};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::uri::Scheme;
use http::{Request, Response, Uri};
use reqwest::Certificate;
use std::time::Duration;

/// A connection inside one cluster stands within milliseconds or never.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// slurmrestd keeps idle connections for more than 40 s; ours go first, so that no request meets a closing one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Why no client can be made for an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Neither `http://host` nor `https://host`.
    #[error("{0:?} is not the URL of a server")]
    Url(String),
    /// No certificates in PEM form.
    #[error("the certificates are not readable")]
    Certificates(#[source] reqwest::Error),
    /// The TLS library refuses its configuration.
    #[error("no HTTP client")]
    Client(#[source] reqwest::Error),
}

/// A slurmrestd behind a URL.
#[derive(Debug)]
pub struct HttpTransport {
    base: String,
    http: reqwest::Client,
}

impl HttpTransport {
    /// A slurmrestd at `base`, `http://name:6820` for example.
    ///
    /// `certificates`, in PEM form, are the only ones trusted with an `https` base: a Slurm cluster's authority is
    /// its own. The process needs an installed rustls provider either way.
    pub fn new(base: &str, certificates: Option<&[u8]>) -> Result<Self, EndpointError> {
        let trusted = certificates.map(Certificate::from_pem_bundle).transpose();
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tls_certs_only(trusted.map_err(EndpointError::Certificates)?.unwrap_or_default())
            // A token goes to this server and to no other.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .map_err(EndpointError::Client)?;
        Ok(Self { base: server_of(base)?, http })
    }
}

/// The URL without path, if it is one of a server.
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

/// Errors of reqwest name the URL, never a header.
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
    fn a_base_is_the_url_of_a_server(#[case] base: &str, #[case] server: Option<&str>) {
        assert_eq!(server_of(base).ok().as_deref(), server);
    }
}
