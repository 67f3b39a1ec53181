//! The processes of a cluster: their programs and arguments. Pure.

use super::golang::Program;
use super::layout::{Layout, NODE_ADDRESS, NODE_NAME, SERVICE_CIDR};
use super::volumes;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// A process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The database of the API server.
    Etcd,
    /// The API server.
    Apiserver,
    /// The built-in controllers.
    ControllerManager,
    /// The built-in controllers but the garbage collector of pods, which deletes terminating pods without a node: in a cluster
    /// without nodes all are, and tests decide when they end.
    ControllerManagerWithoutPodGc,
    /// Schedules pods.
    Scheduler,
    /// Schedules only pods that name it as their scheduler.
    SchedulerOnRequest,
    /// Runs containers.
    Containerd,
    /// Runs pods.
    Kubelet,
    /// Forwards Service addresses to pods.
    Proxy,
    /// Resolves Service names.
    Dns,
    /// Simulates nodes and their pods.
    Kwok,
    /// Creates and deletes volumes.
    VolumeProvisioner,
}

/// The origin of a component's program.
enum Source {
    Built(Program),
    Installed(&'static str),
}

impl Component {
    /// The name of the component and of its log.
    pub fn name(self) -> &'static str {
        match (self, self.source()) {
            (Self::VolumeProvisioner, _) => "volume-provisioner",
            (_, Source::Built(program)) => program.name,
            (_, Source::Installed(path)) => path.rsplit_once('/').map_or(path, |(_, name)| name),
        }
    }

    /// The program, built if necessary.
    pub fn program(self) -> Result<PathBuf> {
        match self.source() {
            Source::Built(program) => program.file(),
            Source::Installed(path) => Ok(PathBuf::from(path)),
        }
    }

    /// The program, if it is built and not installed.
    pub fn built(self) -> Option<Program> {
        match self.source() {
            Source::Built(program) => Some(program),
            Source::Installed(_) => None,
        }
    }

    fn source(self) -> Source {
        match self {
            Self::Etcd => Source::Built(Program::ETCD),
            Self::Apiserver => Source::Built(Program::APISERVER),
            Self::ControllerManager | Self::ControllerManagerWithoutPodGc => {
                Source::Built(Program::CONTROLLER_MANAGER)
            }
            Self::Scheduler | Self::SchedulerOnRequest => Source::Built(Program::SCHEDULER),
            Self::Containerd => Source::Installed("/usr/bin/containerd"),
            Self::Kubelet => Source::Built(Program::KUBELET),
            Self::Proxy => Source::Built(Program::PROXY),
            Self::Dns => Source::Built(Program::COREDNS),
            Self::Kwok => Source::Built(Program::KWOK),
            Self::VolumeProvisioner => Source::Installed("/usr/bin/dash"),
        }
    }

    /// The command line.
    pub fn arguments(self, layout: &Layout) -> Result<Vec<String>> {
        Ok(match self {
            Self::Etcd => etcd(),
            Self::Apiserver => apiserver(layout),
            Self::ControllerManager => controller_manager(layout, "*"),
            Self::ControllerManagerWithoutPodGc => {
                controller_manager(layout, "*,-pod-garbage-collector-controller")
            }
            Self::Scheduler => controller(layout, "kube-scheduler"),
            Self::SchedulerOnRequest => scheduler_on_request(layout),
            Self::Containerd => flags([("config", text(&layout.config("containerd.toml")))]),
            Self::Kubelet => kubelet(layout),
            Self::Proxy => flags([("config", text(&layout.config("kube-proxy.json")))]),
            Self::Dns => vec!["-conf".into(), text(&layout.config("Corefile"))],
            Self::Kwok => kwok(layout, &Program::KWOK.directory()?),
            Self::VolumeProvisioner => volumes::arguments(layout, &Program::KUBECTL.file()?),
        })
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
    let pki = |file: &str| text(&layout.pki(file));
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
        // The node's name does not resolve.
        ("kubelet-preferred-address-types", "InternalIP".into()),
        ("service-account-issuer", "https://kubernetes.default.svc".into()),
        ("service-account-key-file", pki("service-account.pub")),
        ("service-account-signing-key-file", pki("service-account.key")),
        ("audit-policy-file", text(&layout.config("audit-policy.json"))),
        ("audit-log-path", text(&layout.audit_log())),
        // Tests continue to read one file, which must not be rotated.
        ("audit-log-maxsize", "1048576".into()),
    ])
}

fn controller_manager(layout: &Layout, controllers: &str) -> Vec<String> {
    let pki = |file: &str| text(&layout.pki(file));
    let mut args = controller(layout, "kube-controller-manager");
    args.extend(flags([
        ("controllers", controllers.into()),
        ("service-cluster-ip-range", SERVICE_CIDR.into()),
        ("root-ca-file", pki("ca.crt")),
        ("service-account-private-key-file", pki("service-account.key")),
        ("use-service-account-credentials", "true".into()),
        ("cluster-signing-cert-file", pki("ca.crt")),
        ("cluster-signing-key-file", pki("ca.key")),
        ("flex-volume-plugin-dir", "/var/lib/kubelet/volume-plugins".into()),
    ]));
    args
}

fn scheduler_on_request(layout: &Layout) -> Vec<String> {
    flags([("config", text(&layout.config("kube-scheduler.json"))), ("secure-port", "0".into())])
}

fn kubelet(layout: &Layout) -> Vec<String> {
    flags([
        ("config", text(&layout.config("kubelet.json"))),
        ("kubeconfig", text(&layout.kubeconfig("kubelet"))),
        ("hostname-override", NODE_NAME.into()),
        ("node-ip", NODE_ADDRESS.to_string()),
    ])
}

fn kwok(layout: &Layout, directory: &Path) -> Vec<String> {
    let mut args = flags([
        ("kubeconfig", text(&layout.kubeconfig("kwok"))),
        ("manage-all-nodes", "true".into()),
        ("node-lease-duration-seconds", "40".into()),
    ]);
    let stages = Program::KWOK.data.iter().map(|stage| directory.join(stage));
    let stages = stages.chain([layout.config("pod-delete.json")]);
    args.extend(stages.map(|stage| format!("--config={}", text(&stage))));
    args
}

/// The common flags of controllers and scheduler: no leader election, no server, and high rate limits. With the default
/// limits controllers take seconds to start, and only 50 pods per second are scheduled.
fn controller(layout: &Layout, client: &str) -> Vec<String> {
    flags([
        ("kubeconfig", text(&layout.kubeconfig(client))),
        ("leader-elect", "false".into()),
        ("secure-port", "0".into()),
        ("kube-api-qps", "1000".into()),
        ("kube-api-burst", "2000".into()),
    ])
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn flags<const N: usize>(flags: [(&str, String); N]) -> Vec<String> {
    flags.map(|(name, value)| format!("--{name}={value}")).into()
}

#[cfg(test)]
mod tests {
    use super::{apiserver, controller, controller_manager, etcd, kubelet, kwok, scheduler_on_request};
    use crate::cluster::layout::Layout;
    use crate::cluster::up;
    use std::path::Path;

    #[test]
    fn every_file_in_command_lines_and_configurations_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { name: "test".parse().unwrap(), dir: dir.path().join("test") };
        std::fs::create_dir(&layout.dir).unwrap();
        up::write_files(&layout).unwrap();
        let command_lines = [
            apiserver(&layout),
            controller_manager(&layout, "*"),
            controller(&layout, "kube-scheduler"),
            scheduler_on_request(&layout),
            kubelet(&layout),
            kwok(&layout, Path::new("/kwok")),
        ];
        let root = layout.dir.display().to_string();
        let mut texts = command_lines.concat();
        let written = ["config", "kubeconfig"].map(|part| std::fs::read_dir(layout.dir.join(part)).unwrap());
        let files =
            written.into_iter().flatten().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        texts.extend(files.map(|path| std::fs::read_to_string(path).unwrap()));
        let is_end = |c: char| c == '"' || c.is_whitespace();
        let named: Vec<String> = texts
            .iter()
            .flat_map(|text| {
                text.match_indices(&root).map(|(at, _)| text[at..].split(is_end).next().unwrap())
            })
            .filter(|path| !path.ends_with("audit.log"))
            .map(ToOwned::to_owned)
            .collect();
        assert!(named.len() > 20, "{named:?}");
        let missing: Vec<_> = named.iter().filter(|path| !Path::new(path).exists()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn etcd_listens_on_loopback_only() {
        let urls: Vec<_> = etcd().into_iter().filter(|flag| flag.contains("urls")).collect();
        assert!(urls.iter().all(|flag| flag.ends_with("=http://127.0.0.1:2379")), "{urls:?}");
    }
}
