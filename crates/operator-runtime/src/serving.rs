//! Certificates of the servers in this process, replaced without dropping a connection.
//!
//! The certificate comes from a Secret of type `kubernetes.io/tls`, which is watched: whether cert-manager, a person or
//! this operator ([`issue`]) writes it makes no difference to the server. A handshake uses the certificate of its moment.

mod authorities;
mod issue;
mod secret;

pub use authorities::Authorities;
pub use issue::Names;
pub use secret::{SecretAuthorities, SecretCertificate, SelfIssued};

use arc_swap::ArcSwapOption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, crypto};
use std::sync::Arc;

/// The certificate that a server presents. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServingCertificate {
    current: Arc<ArcSwapOption<CertifiedKey>>,
}

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The PEM text is not valid.
    #[error("{part} is not valid PEM")]
    Pem {
        /// `tls.crt` or `tls.key`.
        part: &'static str,
        /// What is wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// There is no certificate in the PEM text.
    #[error("tls.crt contains no certificate")]
    Empty,
    /// The key is not supported, or is that of another certificate.
    #[error("tls.key is not the key of tls.crt")]
    Key(#[from] rustls::Error),
}

impl ServingCertificate {
    /// Replaces the certificate from PEM texts. The one before stays if they are not valid.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        let pem = |part| move |source| CertificateError::Pem { part, source };
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(pem("tls.crt"))?;
        if chain.is_empty() {
            return Err(CertificateError::Empty);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(pem("tls.key"))?;
        let certified = CertifiedKey::from_der(chain, key, &crypto::ring::default_provider())?;
        self.current.store(Some(Arc::new(certified)));
        Ok(())
    }

    /// The configuration of a server that presents this certificate and speaks these protocols.
    pub fn server_config(&self, protocols: &[&str]) -> ServerConfig {
        let mut config =
            ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        config
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::issue::{Issued, Names};
    use super::{CertificateError, ServingCertificate};
    use jiff::Timestamp;
    use std::sync::Arc;

    fn issued() -> Issued {
        let names = Names::new(["localhost".to_owned()]);
        Issued::default().renewed(&names, Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn certificate_is_replaced_only_by_a_valid_one() {
        let certificate = ServingCertificate::default();
        let (first, second) = (issued(), issued());
        assert!(certificate.current.load().is_none());
        let (chain, key) = first.serving().unwrap();
        certificate.replace(chain.as_bytes(), key.as_bytes()).unwrap();
        let loaded = certificate.current.load_full().unwrap();
        let is_same = || Arc::ptr_eq(&certificate.current.load_full().unwrap(), &loaded);

        let (other_chain, other_key) = second.serving().unwrap();
        let mixed = certificate.replace(chain.as_bytes(), other_key.as_bytes());
        assert!(matches!(mixed, Err(CertificateError::Key(_))), "{mixed:?}");
        let empty = certificate.replace(b"", key.as_bytes());
        assert!(matches!(empty, Err(CertificateError::Empty)), "{empty:?}");
        let broken = certificate.replace(chain.as_bytes(), b"no key");
        assert!(matches!(broken, Err(CertificateError::Pem { part: "tls.key", .. })), "{broken:?}");
        assert!(is_same());

        certificate.replace(other_chain.as_bytes(), other_key.as_bytes()).unwrap();
        assert!(!is_same());
    }
}
