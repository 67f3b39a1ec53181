//! The ssh host keys of login pods and their generation, the only source of randomness in this crate.

use k8s_openapi::ByteString;
use operator_runtime::{Class, Classify};
use ssh_key::rand_core::OsRng;
use ssh_key::{Algorithm, EcdsaCurve, LineEnding, PrivateKey};
use std::collections::BTreeMap;
use std::error::Error;
use tokio::task::spawn_blocking;

/// A key by which ssh clients recognise a login pod.
pub struct HostKey {
    /// The file of the private key, as sshd names it.
    pub private: &'static str,
    /// The file of the public key.
    pub public: &'static str,
    algorithm: Algorithm,
}

/// The host keys of a login pod.
pub static HOST_KEYS: [HostKey; 3] = [
    // 4096 bits.
    HostKey::new("ssh_host_rsa_key", "ssh_host_rsa_key.pub", Algorithm::Rsa { hash: None }),
    HostKey::new("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", Algorithm::Ed25519),
    HostKey::new(
        "ssh_host_ecdsa_key",
        "ssh_host_ecdsa_key.pub",
        Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    ),
];

impl HostKey {
    const fn new(private: &'static str, public: &'static str, algorithm: Algorithm) -> Self {
        Self { private, public, algorithm }
    }

    /// Both files.
    pub fn files(&self) -> [&'static str; 2] {
        [self.private, self.public]
    }

    fn generate(&self) -> Result<[(String, ByteString); 2], ssh_key::Error> {
        let key = PrivateKey::random(&mut OsRng, self.algorithm.clone())?;
        let private = key.to_openssh(LineEnding::LF)?;
        let public = key.public_key().to_openssh()? + "\n";
        Ok([
            (self.private.to_owned(), ByteString(private.as_bytes().to_vec())),
            (self.public.to_owned(), ByteString(public.into_bytes())),
        ])
    }
}

/// Generating ssh host keys failed.
#[derive(Debug, thiserror::Error)]
#[error("generating ssh host keys failed")]
pub struct GenerateError(#[source] Box<dyn Error + Send + Sync>);

impl Classify for GenerateError {
    fn class(&self) -> Class {
        Class::Transient
    }

    fn category(&self) -> &'static str {
        "HostKeysNotMade"
    }
}

/// Generates the files of all host keys. It takes seconds of CPU time, on a thread that blocks no other reconcile.
pub async fn generate() -> Result<BTreeMap<String, ByteString>, GenerateError> {
    let generated = spawn_blocking(|| HOST_KEYS.iter().map(HostKey::generate).collect::<Result<Vec<_>, _>>());
    let keys = generated.await.map_err(|error| GenerateError(error.into()))?;
    let keys = keys.map_err(|error| GenerateError(error.into()))?;
    Ok(keys.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ssh_key::public::KeyData;

    #[tokio::test]
    async fn generated_keys_are_unencrypted_openssh_files() {
        let files = generate().await.unwrap();
        assert_eq!(files.len(), 6);
        for key in &HOST_KEYS {
            let text = |file| std::str::from_utf8(&files[file].0).unwrap();
            let private = PrivateKey::from_openssh(text(key.private)).unwrap();
            assert!(!private.is_encrypted());
            assert_eq!((private.algorithm(), private.comment()), (key.algorithm.clone(), ""));
            assert_eq!(text(key.public), private.public_key().to_openssh().unwrap() + "\n");
            assert_eq!(text(key.public).split(' ').count(), 2, "the key has no comment");
            if let KeyData::Rsa(rsa) = private.public_key().key_data() {
                assert_eq!(rsa.n.as_positive_bytes().unwrap().len() * 8, 4096);
            }
        }
    }
}
