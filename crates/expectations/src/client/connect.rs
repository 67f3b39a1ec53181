//! Connections to the processes of the service: one per address, always over TLS.

use crate::Unavailable;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Time limit of connecting, TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of HTTP/2 pings, and how long their answers may take: a process that is stopped answers none.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The port of a URL without one.
const HTTPS_PORT: u16 = 443;

/// The processes of the service.
pub struct Targets {
    endpoints: Vec<Uri>,
    ca_file: PathBuf,
}

/// Connections by address. They are made when they are first used, and again when they were lost.
pub type Channels = BTreeMap<SocketAddr, Channel>;

impl Targets {
    pub fn new(endpoints: Vec<Uri>, ca_file: PathBuf) -> Self {
        Self { endpoints, ca_file }
    }

    /// Resolves the hosts again, keeps the connections to addresses that are still there and drops the others. A host
    /// without an address is an error only if all are.
    pub async fn refresh(&self, channels: &mut Channels) -> Result<(), Unavailable> {
        let (mut known, mut errors) = (std::mem::take(channels), Vec::new());
        for endpoint in &self.endpoints {
            if let Err(error) = self.resolve(endpoint, &mut known, channels).await {
                errors.push(format!("{endpoint}: {error}"));
            }
        }
        if channels.is_empty() {
            return Err(Unavailable(errors.join("; ").into()));
        }
        Ok(())
    }

    /// Adds the addresses of an endpoint, with their `known` connections.
    async fn resolve(&self, endpoint: &Uri, known: &mut Channels, found: &mut Channels) -> io::Result<()> {
        let host = endpoint.host().ok_or_else(|| io::Error::other("the URL has no host"))?;
        let port = endpoint.port_u16().unwrap_or(HTTPS_PORT);
        // The host of an IPv6 address is in brackets.
        let name = host.trim_matches(['[', ']']);
        let server_name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        for address in tokio::net::lookup_host((name, port)).await? {
            let channel = match known.remove(&address) {
                Some(channel) => channel,
                None => self.channel(address, endpoint, server_name.clone())?,
            };
            found.insert(address, channel);
        }
        Ok(())
    }

    fn channel(
        &self,
        address: SocketAddr,
        endpoint: &Uri,
        server_name: ServerName<'static>,
    ) -> io::Result<Channel> {
        let ca_file = self.ca_file.clone();
        let connector = service_fn(move |_: Uri| {
            let (ca_file, server_name) = (ca_file.clone(), server_name.clone());
            async move { connect(address, server_name, &ca_file).await.map(TokioIo::new) }
        });
        // The connector brings TLS; tonic would refuse https without its own.
        let target = Endpoint::from_shared(format!("http://{address}")).map_err(io::Error::other)?;
        let target = target
            .origin(endpoint.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        Ok(target.connect_with_connector_lazy(connector))
    }
}

async fn connect(
    address: SocketAddr,
    server_name: ServerName<'static>,
    ca_file: &Path,
) -> io::Result<TlsStream<TcpStream>> {
    let config = tls_config(ca_file)?;
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(server_name, stream).await
}

/// The authorities are read for every connection: they may have been rotated.
fn tls_config(ca_file: &Path) -> io::Result<ClientConfig> {
    let unreadable = |error| io::Error::other(format!("cannot use {}: {error}", ca_file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(ca_file).map_err(|error| unreadable(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
