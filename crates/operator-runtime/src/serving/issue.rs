//! Makes and renews the certificate of a server, signed by authorities of its own. Pure, except for random keys: time
//! comes in, certificates go out.
//!
//! A new authority signs nothing before clients had time to learn of it ([`OVERLAP`]), and clients know an old one until
//! it expires. So no client ever meets a certificate that it cannot verify.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// How long an authority is valid.
const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);
/// How long a server certificate is valid.
const LEAF_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 90);
/// How long a new authority is known to clients before it signs: longer than kubelet takes to update a mounted ConfigMap.
const OVERLAP: SignedDuration = SignedDuration::from_hours(1);
/// Certificates are valid from this long before they are made, for clients whose clocks are behind.
const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// The names and addresses of a server, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names(Vec<String>);

impl Names {
    /// These names and addresses.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort();
        names.dedup();
        Self(names)
    }

    /// The names of a Service, and those of the machine itself. `domain` is the DNS domain of the cluster.
    pub fn of_service(service: &str, namespace: &str, domain: &str) -> Self {
        Self::new([
            service.to_owned(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.{domain}"),
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
        ])
    }
}

/// All certificates and keys of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Oldest first.
    authorities: Vec<Certificate>,
    leaf: Option<Leaf>,
}

/// A certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Certificate {
    common_name: String,
    pem: String,
    key: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// The certificate of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Leaf {
    #[serde(flatten)]
    certificate: Certificate,
    /// Common name of the authority that signed it.
    issuer: String,
    names: Names,
}

impl Certificate {
    /// When it has a third of its life left.
    fn renewal(&self) -> Timestamp {
        self.not_after - self.not_after.duration_since(self.not_before) / 3
    }

    /// When it was made.
    fn made(&self) -> Timestamp {
        self.not_before + BACKDATED
    }
}

impl Issued {
    /// The same certificates, with those replaced that are due.
    pub fn renewed(&self, names: &Names, now: Timestamp) -> Result<Self, rcgen::Error> {
        let mut renewed = self.clone();
        renewed.authorities.retain(|authority| now < authority.not_after);
        if renewed.authorities.last().is_none_or(|newest| newest.renewal() <= now) {
            renewed.authorities.push(make_authority(now)?);
        }
        if let Some(issuer) = renewed.issuer(now) {
            let is_valid = |leaf: &Leaf| {
                leaf.issuer == issuer.common_name && leaf.names == *names && now < leaf.certificate.renewal()
            };
            if !renewed.leaf.as_ref().is_some_and(is_valid) {
                renewed.leaf = Some(make_leaf(issuer, names, now)?);
            }
        }
        Ok(renewed)
    }

    /// The newest authority that clients know by now; the oldest one if that is none.
    fn issuer(&self, now: Timestamp) -> Option<&Certificate> {
        let known = self.authorities.iter().rev().find(|authority| authority.made() + OVERLAP <= now);
        known.or(self.authorities.first())
    }

    /// When [`renewed`](Self::renewed) changes something, if the names stay.
    pub fn due_at(&self, now: Timestamp) -> Option<Timestamp> {
        let newest = self.authorities.last();
        let signs = newest.map(|newest| newest.made() + OVERLAP).filter(|at| now < *at);
        let expires = self.authorities.first().map(|oldest| oldest.not_after);
        let leaf = self.leaf.as_ref().map(|leaf| leaf.certificate.renewal());
        [newest.map(Certificate::renewal), signs, expires, leaf].into_iter().flatten().min()
    }

    /// Certificate and key of the server, as PEM.
    pub fn serving(&self) -> Option<(&str, &str)> {
        let Leaf { certificate, .. } = self.leaf.as_ref()?;
        Some((&certificate.pem, &certificate.key))
    }

    /// The certificates of all authorities, as PEM, for clients.
    pub fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.pem.as_str()).collect()
    }
}

fn make_authority(now: Timestamp) -> Result<Certificate, rcgen::Error> {
    let common_name = format!("slurm-operator {:016x}", rand::random::<u64>());
    let (not_before, not_after) = (now - BACKDATED, now + AUTHORITY_LIFETIME);
    let params = authority_params(&common_name, not_before, not_after)?;
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok(Certificate { common_name, pem, key: key.serialize_pem(), not_before, not_after })
}

fn make_leaf(issuer: &Certificate, names: &Names, now: Timestamp) -> Result<Leaf, rcgen::Error> {
    let common_name = names.0.first().cloned().unwrap_or_default();
    let not_before = now - BACKDATED;
    let not_after = (now + LEAF_LIFETIME).min(issuer.not_after);
    let mut params = params(&common_name, names.0.clone(), not_before, not_after)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let authority = authority_params(&issuer.common_name, issuer.not_before, issuer.not_after)?;
    let authority = Issuer::new(authority, KeyPair::from_pem(&issuer.key)?);
    let pem = params.signed_by(&key, &authority)?.pem();
    let key = key.serialize_pem();
    let certificate = Certificate { common_name, pem, key, not_before, not_after };
    Ok(Leaf { certificate, issuer: issuer.common_name.clone(), names: names.clone() })
}

fn authority_params(
    common_name: &str,
    not_before: Timestamp,
    not_after: Timestamp,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(common_name, Vec::new(), not_before, not_after)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn params(
    common_name: &str,
    names: Vec<String>,
    not_before: Timestamp,
    not_after: Timestamp,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, common_name);
    (params.not_before, params.not_after) = (date(not_before), date(not_after));
    Ok(params)
}

fn date(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::{AUTHORITY_LIFETIME, Issued, LEAF_LIFETIME, Names, OVERLAP};
    use jiff::{SignedDuration, Timestamp};
    use std::collections::BTreeSet;

    const START: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const DAY: SignedDuration = SignedDuration::from_hours(24);

    fn names() -> Names {
        Names::new(["b".to_owned(), "a".to_owned(), "127.0.0.1".to_owned(), "a".to_owned()])
    }

    fn issued() -> Issued {
        Issued::default().renewed(&names(), START).unwrap()
    }

    #[test]
    fn first_certificate_is_made_at_once() {
        let issued = issued();
        let leaf = issued.leaf.as_ref().unwrap();
        assert_eq!(leaf.issuer, issued.authorities[0].common_name);
        assert_eq!(leaf.names.0, ["127.0.0.1", "a", "b"]);
        assert!(issued.bundle().contains("BEGIN CERTIFICATE"));
        assert_eq!(issued.renewed(&names(), START).unwrap(), issued);
    }

    #[test]
    fn changed_names_replace_the_certificate_and_not_the_authority() {
        let (before, other) = (issued(), Names::new(["c".to_owned()]));
        let after = before.renewed(&other, START + DAY).unwrap();
        assert_eq!(after.authorities, before.authorities);
        assert_eq!(after.leaf.unwrap().names, other);
    }

    #[test]
    fn certificate_is_replaced_when_a_third_of_its_life_is_left() {
        let issued = issued();
        let renewal = START + LEAF_LIFETIME * 2 / 3;
        assert_eq!(issued.renewed(&names(), renewal - DAY).unwrap(), issued);
        let after = issued.renewed(&names(), renewal + DAY).unwrap();
        assert_eq!(after.authorities, issued.authorities);
        assert_ne!(after.leaf, issued.leaf);
    }

    #[test]
    fn new_authority_signs_after_clients_had_time_to_learn_of_it() {
        let issued = issued();
        let renewal = START + AUTHORITY_LIFETIME * 2 / 3 + DAY;
        let both = issued.renewed(&names(), renewal).unwrap();
        assert_eq!(both.authorities.len(), 2);
        assert_eq!(both.leaf.as_ref().unwrap().issuer, issued.authorities[0].common_name);
        assert_eq!(both.due_at(renewal), Some(renewal + OVERLAP));
        let after = both.renewed(&names(), renewal + OVERLAP).unwrap();
        assert_eq!(after.leaf.as_ref().unwrap().issuer, both.authorities[1].common_name);
        assert_eq!(after.authorities, both.authorities, "clients may still meet the old certificate");
        let expired = after.renewed(&names(), START + AUTHORITY_LIFETIME).unwrap();
        assert_eq!(expired.authorities.len(), 1);
    }

    /// A client that learns of the authorities up to an hour late verifies the certificate at any time.
    #[test]
    fn certificate_is_always_signed_by_an_authority_that_clients_know() {
        let (mut issued, mut now) = (issued(), START);
        let mut issuers = BTreeSet::new();
        while now < START + DAY * 3_000 {
            let due = issued.due_at(now).unwrap();
            assert!(now < due, "{due} is not after {now}");
            let known: BTreeSet<_> =
                issued.authorities.iter().map(|authority| authority.common_name.clone()).collect();
            now = due;
            issued = issued.renewed(&names(), now).unwrap();
            let leaf = issued.leaf.as_ref().unwrap();
            assert!(known.contains(&leaf.issuer), "{} signs at {now}", leaf.issuer);
            assert!(now < leaf.certificate.not_after);
            issuers.insert(leaf.issuer.clone());
        }
        assert!(issuers.len() > 8, "{} authorities in eight years", issuers.len());
    }

    #[test]
    fn certificates_are_the_same_after_they_were_stored() {
        let issued = issued();
        let stored = serde_json::to_string(&issued).unwrap();
        assert_eq!(serde_json::from_str::<Issued>(&stored).unwrap(), issued);
    }
}
