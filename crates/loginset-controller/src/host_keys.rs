//! The ssh host keys: which there are, and how they are made. Nowhere else is anything random.

use k8s_openapi::ByteString;
use ssh_key::rand_core::OsRng;
use ssh_key::{Algorithm, EcdsaCurve, LineEnding, PrivateKey};
use std::collections::BTreeMap;
use std::error::Error;
use tokio::task::spawn_blocking;

/// One of the keys by which a login pod is known to ssh clients.
pub struct HostKey {
    /// The file of the private key, as sshd names it.
    pub private: &'static str,
    /// The file of the public key.
    pub public: &'static str,
    algorithm: Algorithm,
}

/// All of them.
pub const HOST_KEYS: [HostKey; 3] = [
    // Of 4096 bits.
    HostKey {
        private: "ssh_host_rsa_key",
        public: "ssh_host_rsa_key.pub",
        algorithm: Algorithm::Rsa { hash: None },
    },
    HostKey {
        private: "ssh_host_ed25519_key",
        public: "ssh_host_ed25519_key.pub",
        algorithm: Algorithm::Ed25519,
    },
    HostKey {
        private: "ssh_host_ecdsa_key",
        public: "ssh_host_ecdsa_key.pub",
        algorithm: Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    },
];

impl HostKey {
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

/// Makes keys, as the content of their files. It takes seconds of work, which other reconciles need not wait for.
pub async fn generate() -> Result<BTreeMap<String, ByteString>, Box<dyn Error + Send + Sync>> {
    let generated = spawn_blocking(|| HOST_KEYS.iter().map(HostKey::generate).collect::<Result<Vec<_>, _>>());
    Ok(generated.await??.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ssh_key::public::KeyData;

    #[tokio::test]
    async fn keys_are_what_sshd_reads_and_are_not_encrypted() {
        let files = generate().await.unwrap();
        assert_eq!(files.len(), 6);
        for key in &HOST_KEYS {
            let text = |file| std::str::from_utf8(&files[file].0).unwrap();
            let private = PrivateKey::from_openssh(text(key.private)).unwrap();
            assert!(!private.is_encrypted());
            assert_eq!((private.algorithm(), private.comment()), (key.algorithm.clone(), ""));
            assert_eq!(text(key.public), private.public_key().to_openssh().unwrap() + "\n");
            assert_eq!(text(key.public).split(' ').count(), 2, "a comment");
            if let KeyData::Rsa(rsa) = private.public_key().key_data() {
                assert_eq!(rsa.n.as_positive_bytes().unwrap().len() * 8, 4096);
            }
        }
    }
}
