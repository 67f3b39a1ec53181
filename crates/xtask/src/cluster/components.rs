//! The processes of a cluster: their programs and arguments. Pure.

use super::golang::Program;
use super::layout::{Layout, NODE_ADDRESS, SERVICE_CIDR};
use anyhow::Result;
use std::path::PathBuf;

/// A process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The store.
    Etcd,
    /// The API server.
    Apiserver,
    /// The built-in controllers.
    ControllerManager,
}

impl Component {
    /// The name of the program, which is also that of the log.
    pub fn name(self) -> &'static str {
        self.source().name
    }

    /// The program, built if need be.
    pub fn program(self) -> Result<PathBuf> {
        self.source().file()
    }

    fn source(self) -> Program {
        match self {
            Self::Etcd => Program::ETCD,
            Self::Apiserver => Program::APISERVER,
            Self::ControllerManager => Program::CONTROLLER_MANAGER,
        }
    }

    /// The command line.
    pub fn arguments(self, layout: &Layout) -> Vec<String> {
        match self {
            Self::Etcd => etcd(),
            Self::Apiserver => apiserver(layout),
            Self::ControllerManager => controller_manager(layout),
        }
    }
}

fn etcd() -> Vec<String> {
    flags([
        ("data-dir", "/var/lib/etcd".into()),
        ("listen-client-urls", "http://127.0.0.1:2379".into()),
        ("advertise-client-urls", "http://127.0.0.1:2379".into()),
        ("unsafe-no-fsync", "true".into()),
        ("log-level", "warn".into()),
    ])
}

fn apiserver(layout: &Layout) -> Vec<String> {
    let pki = |file: &str| layout.pki(file).display().to_string();
    flags([
        ("etcd-servers", "http://127.0.0.1:2379".into()),
        ("advertise-address", NODE_ADDRESS.to_string()),
        ("service-cluster-ip-range", SERVICE_CIDR.into()),
        ("allow-privileged", "true".into()),
        ("authorization-mode", "Node,RBAC".into()),
        ("enable-admission-plugins", "NodeRestriction".into()),
        ("client-ca-file", pki("ca.crt")),
        ("tls-cert-file", pki("kube-apiserver.crt")),
        ("tls-private-key-file", pki("kube-apiserver.key")),
        ("kubelet-certificate-authority", pki("ca.crt")),
        ("kubelet-client-certificate", pki("kubelet-client.crt")),
        ("kubelet-client-key", pki("kubelet-client.key")),
        // The node's name is in no DNS.
        ("kubelet-preferred-address-types", "InternalIP".into()),
        ("service-account-issuer", "https://kubernetes.default.svc".into()),
        ("service-account-key-file", pki("service-account.pub")),
        ("service-account-signing-key-file", pki("service-account.key")),
        ("audit-policy-file", layout.config("audit-policy.json").display().to_string()),
        ("audit-log-path", layout.audit_log().display().to_string()),
        // Tests read one file from where they were: it must not be rotated away.
        ("audit-log-maxsize", "1048576".into()),
    ])
}

fn controller_manager(layout: &Layout) -> Vec<String> {
    let pki = |file: &str| layout.pki(file).display().to_string();
    let mut args = own_client(layout, "kube-controller-manager");
    args.extend(flags([
        ("service-cluster-ip-range", SERVICE_CIDR.into()),
        ("root-ca-file", pki("ca.crt")),
        ("service-account-private-key-file", pki("service-account.key")),
        ("use-service-account-credentials", "true".into()),
        // At the default rate it starts its controllers over several seconds.
        ("kube-api-qps", "200".into()),
        ("kube-api-burst", "400".into()),
        ("cluster-signing-cert-file", pki("ca.crt")),
        ("cluster-signing-key-file", pki("ca.key")),
        ("enable-hostpath-provisioner", "true".into()),
    ]));
    args
}

/// What components with one instance and clients of the API server have in common.
fn own_client(layout: &Layout, client: &str) -> Vec<String> {
    let kubeconfig = layout.kubeconfig(client).display().to_string();
    flags([
        ("kubeconfig", kubeconfig.clone()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig),
        ("bind-address", "127.0.0.1".into()),
        ("leader-elect", "false".into()),
    ])
}

fn flags<const N: usize>(flags: [(&str, String); N]) -> Vec<String> {
    flags.map(|(name, value)| format!("--{name}={value}")).into()
}
