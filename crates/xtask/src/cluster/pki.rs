//! The certificates of a cluster: one authority, server certificates and client identities.

use super::layout::{API_SERVICE_ADDRESS, DOMAIN, Layout, NODE_ADDRESS, NODE_NAME};
use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use xshell::Shell;

/// A client of the API server: the file name of its credentials and its identity in RBAC.
struct Client {
    file: &'static str,
    user: &'static str,
    group: Option<&'static str>,
}

/// Kubernetes has built-in roles for these identities, except for those of CoreDNS and of our provisioner.
const CLIENTS: &[Client] = &[
    Client { file: "admin", user: "admin", group: Some("system:masters") },
    Client { file: "kubelet-client", user: "kube-apiserver-kubelet-client", group: Some("system:masters") },
    Client { file: "kube-controller-manager", user: "system:kube-controller-manager", group: None },
    Client { file: "kube-scheduler", user: "system:kube-scheduler", group: None },
    Client { file: "kube-proxy", user: "system:kube-proxy", group: None },
    Client { file: "kubelet", user: "system:node:node-0", group: Some("system:nodes") },
    Client { file: "coredns", user: "system:coredns", group: None },
    Client { file: "volume-provisioner", user: "system:volume-provisioner", group: None },
    Client { file: "kwok", user: "system:kwok", group: Some("system:masters") },
];

/// Writes all keys, certificates and kubeconfigs.
pub fn write(layout: &Layout) -> Result<()> {
    let authority = Authority::new()?;
    let sh = Shell::new()?;
    let write_pair = |name: &str, pair: &Pair| {
        sh.write_file(layout.pki(&format!("{name}.crt")), &pair.certificate)?;
        sh.write_file(layout.pki(&format!("{name}.key")), &pair.key)
    };
    write_pair("ca", &authority.pair)?;
    write_pair("kube-apiserver", &authority.server("kube-apiserver", apiserver_names())?)?;
    write_pair(
        "kubelet-server",
        &authority.server(NODE_NAME, vec![NODE_NAME.into(), NODE_ADDRESS.to_string()])?,
    )?;
    let service_accounts = KeyPair::generate()?;
    sh.write_file(layout.pki("service-account.key"), service_accounts.serialize_pem())?;
    sh.write_file(layout.pki("service-account.pub"), service_accounts.public_key_pem())?;
    for client in CLIENTS {
        write_pair(client.file, &authority.client(client)?)?;
        sh.write_file(layout.kubeconfig(client.file), format!("{:#}", kubeconfig(layout, client.file)))?;
    }
    Ok(())
}

/// All names and addresses of the API server.
fn apiserver_names() -> Vec<String> {
    let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1"];
    let mut names: Vec<String> = names.map(String::from).into();
    names.push(format!("kubernetes.default.svc.{DOMAIN}"));
    names.extend([API_SERVICE_ADDRESS, NODE_ADDRESS].map(|address| address.to_string()));
    names
}

fn kubeconfig(layout: &Layout, client: &str) -> Value {
    let name = layout.name.to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": client}}],
        "clusters": [{"name": name, "cluster": {
            "server": format!("https://{NODE_ADDRESS}:6443"),
            "certificate-authority": layout.pki("ca.crt"),
        }}],
        "users": [{"name": client, "user": {
            "client-certificate": layout.pki(&format!("{client}.crt")),
            "client-key": layout.pki(&format!("{client}.key")),
        }}],
    })
}

/// A certificate and its key, as PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// Signs the certificates of one cluster.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pair: Pair,
}

impl Authority {
    fn new() -> Result<Self> {
        let mut params = params("kubernetes", Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let pair = Pair { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() };
        Ok(Self { issuer: Issuer::new(params, key), pair })
    }

    fn server(&self, common_name: &str, names: Vec<String>) -> Result<Pair> {
        self.issue(params(common_name, names)?, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn client(&self, client: &Client) -> Result<Pair> {
        let mut params = params(client.user, Vec::new())?;
        if let Some(group) = client.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn params(common_name: &str, names: Vec<String>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::{Authority, CLIENTS, Pair, apiserver_names};
    use x509_parser::pem::Pem;
    use x509_parser::prelude::X509Certificate;

    fn with_certificate<T>(pair: &Pair, read: impl FnOnce(&X509Certificate) -> T) -> T {
        let (pem, _) = Pem::read(std::io::Cursor::new(&pair.certificate)).unwrap();
        read(&pem.parse_x509().unwrap())
    }

    #[test]
    fn client_certificates_have_the_identities_of_rbac() {
        let authority = Authority::new().unwrap();
        for client in CLIENTS {
            let pair = authority.client(client).unwrap();
            with_certificate(&pair, |certificate| {
                let subject = certificate.subject();
                let user: Vec<_> = subject.iter_common_name().map(|name| name.as_str().unwrap()).collect();
                let groups = subject.iter_organization().map(|name| name.as_str().unwrap());
                assert_eq!(user, [client.user]);
                assert_eq!(groups.collect::<Vec<_>>(), client.group.into_iter().collect::<Vec<_>>());
                let usage = certificate.extended_key_usage().unwrap().unwrap().value;
                assert!(usage.client_auth && !usage.server_auth, "{}", client.file);
            });
        }
    }

    #[test]
    fn certificates_are_signed_by_their_authority_only() {
        let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
        let pair = authority.client(&CLIENTS[0]).unwrap();
        with_certificate(&pair, |certificate| {
            let is_signed_by = |authority: &Authority| {
                with_certificate(&authority.pair, |issuer| {
                    certificate.verify_signature(Some(issuer.public_key())).is_ok() && issuer.is_ca()
                })
            };
            assert!(is_signed_by(&authority) && !is_signed_by(&other));
        });
    }

    #[test]
    fn certificate_of_the_api_server_has_all_its_names() {
        let pair = Authority::new().unwrap().server("kube-apiserver", apiserver_names()).unwrap();
        let names: Vec<String> = with_certificate(&pair, |certificate| {
            let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
            names.iter().map(ToString::to_string).collect()
        });
        let expected = [
            "DNSName(kubernetes.default.svc)",
            "DNSName(kubernetes.default.svc.cluster.local)",
            "IPAddress(0a:60:00:01)",
            "IPAddress(0a:fa:00:01)",
        ];
        for name in expected {
            assert!(names.iter().any(|n| n == name), "{name} is not in {names:?}");
        }
    }
}
