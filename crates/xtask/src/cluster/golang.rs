//! Go programs, built from released modules with the installed Go toolchain and cached.

use crate::cache;
use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use std::iter;
use std::path::{Path, PathBuf};
use xshell::{Shell, cmd};

/// The major and minor version of Go that the modules need.
pub const NEEDED_GO: (u32, u32) = (1, 26);

/// The disk space of a build: modules, Go's build cache and the results.
const NEEDED_SPACE: u64 = 6 << 30;

const KUBERNETES_VERSION: &str = "v1.36.2";
/// The libraries in the source tree of Kubernetes, which a build outside of it has to replace by their releases.
const KUBERNETES_LIBRARIES: &[&str] = &[
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "cri-client",
    "cri-streaming",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "externaljwt",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
    "sample-cli-plugin",
    "sample-controller",
    "streaming",
];

/// A program and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of the file.
    pub name: &'static str,
    module: &'static str,
    version: &'static str,
    /// The main package, relative to the module.
    package: &'static str,
    /// Files of the module that the program needs at run time, relative to it.
    pub data: &'static [&'static str],
    /// Replacements in the module's own go.mod, which Go ignores in that of a dependency.
    replaced: &'static [&'static str],
}

impl Program {
    /// The database of the API server.
    pub const ETCD: Self = Self::of("etcd", "go.etcd.io/etcd/server/v3", "v3.7.3", "");
    /// The API server.
    pub const APISERVER: Self = Self::kubernetes("kube-apiserver", "cmd/kube-apiserver");
    /// The built-in controllers.
    pub const CONTROLLER_MANAGER: Self =
        Self::kubernetes("kube-controller-manager", "cmd/kube-controller-manager");
    /// Schedules pods.
    pub const SCHEDULER: Self = Self::kubernetes("kube-scheduler", "cmd/kube-scheduler");
    /// Runs pods.
    pub const KUBELET: Self = Self::kubernetes("kubelet", "cmd/kubelet");
    /// Forwards Service addresses to pods.
    pub const PROXY: Self = Self::kubernetes("kube-proxy", "cmd/kube-proxy");
    /// The command-line client.
    pub const KUBECTL: Self = Self::kubernetes("kubectl", "cmd/kubectl");
    /// Resolves Service names.
    pub const COREDNS: Self = Self::of("coredns", "github.com/coredns/coredns", "v1.15.0", "");
    /// Simulates nodes and pods by rules of its source tree.
    pub const KWOK: Self = Self {
        data: &[
            "kustomize/stage/node/fast/node-initialize.yaml",
            "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            "kustomize/stage/pod/fast/pod-ready.yaml",
            "kustomize/stage/pod/fast/pod-complete.yaml",
        ],
        ..Self::of("kwok", "sigs.k8s.io/kwok", "v0.8.0", "cmd/kwok")
    };
    /// Installs charts.
    pub const HELM: Self = Self::of("helm", "helm.sh/helm/v4", "v4.3.1", "cmd/helm");
    /// Runs the unit tests of charts.
    pub const HELM_UNITTEST: Self = Self {
        replaced: &[
            "github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0",
        ],
        ..Self::of("helm-unittest", "github.com/helm-unittest/helm-unittest", "v1.1.2", "cmd/helm-unittest")
    };
    /// Writes the READMEs of charts.
    pub const HELM_DOCS: Self =
        Self::of("helm-docs", "github.com/norwoodj/helm-docs", "v1.14.2", "cmd/helm-docs");

    const fn of(
        name: &'static str,
        module: &'static str,
        version: &'static str,
        package: &'static str,
    ) -> Self {
        Self { name, module, version, package, data: &[], replaced: &[] }
    }

    const fn kubernetes(name: &'static str, package: &'static str) -> Self {
        Self::of(name, "k8s.io/kubernetes", KUBERNETES_VERSION, package)
    }

    /// Whether the program is in the cache.
    pub fn is_built(&self) -> Result<bool> {
        cache::contains(self.name, &self.key())
    }

    /// The directory of the program, built if necessary.
    pub fn directory(&self) -> Result<PathBuf> {
        cache::entry(self.name, &self.key(), |dir| self.build(dir))
    }

    /// The program's file, built if necessary.
    pub fn file(&self) -> Result<PathBuf> {
        Ok(self.directory()?.join(self.name))
    }

    /// The cache key, a digest of all inputs of the build.
    fn key(&self) -> String {
        let inputs =
            format!("{}\n{}\n{}\n{:?}", self.go_mod(), self.package(), self.linker_flags(), self.data);
        let digest = format!("{:x}", Sha256::digest(inputs));
        format!("{}-{}", self.version, &digest[..8])
    }

    fn build(&self, dir: &Path) -> Result<()> {
        let sh = Shell::new()?;
        let free = fs4::available_space(dir).context("asking for free disk space")?;
        ensure!(
            free >= NEEDED_SPACE,
            "building needs 6 GiB of free disk space at {}, there are {} MiB",
            dir.display(),
            free >> 20
        );
        let source = dir.join("source");
        sh.write_file(source.join("go.mod"), self.go_mod())?;
        sh.change_dir(&source);
        sh.set_var("CGO_ENABLED", "0");
        sh.set_var("GOFLAGS", "-mod=mod -buildvcs=false");
        let (file, flags, package) = (dir.join(self.name), self.linker_flags(), self.package());
        let build = cmd!(sh, "go build -trimpath -ldflags {flags} -o {file} {package}").quiet();
        let output = build.ignore_status().output()?;
        ensure!(
            output.status.success(),
            "go build {package}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        for data in self.data {
            sh.write_file(dir.join(data), sh.read_file(self.module_directory(&sh)?.join(data))?)?;
        }
        Ok(sh.remove_path(&source)?)
    }

    /// The directory of the module's source.
    fn module_directory(&self, sh: &Shell) -> Result<PathBuf> {
        let (format, module) = ("{{.Dir}}", self.module);
        Ok(PathBuf::from(cmd!(sh, "go list -m -f {format} {module}").quiet().read()?))
    }

    fn package(&self) -> String {
        if self.package.is_empty() {
            self.module.to_owned()
        } else {
            format!("{}/{}", self.module, self.package)
        }
    }

    fn go_mod(&self) -> String {
        let (major, minor) = NEEDED_GO;
        let (module, version) = (self.module, self.version);
        let mut text = format!("module build\n\ngo {major}.{minor}.0\n\nrequire {module} {version}\n");
        if self.is_kubernetes() {
            // Kubernetes releases its libraries with the same minor and patch version and major version 0.
            let version = self.version.replacen("v1.", "v0.", 1);
            let replace = |library| format!("replace k8s.io/{library} => k8s.io/{library} {version}\n");
            text.extend(KUBERNETES_LIBRARIES.iter().map(replace));
        }
        text.extend(self.replaced.iter().map(|replaced| format!("replace {replaced}\n")));
        text
    }

    /// Omits debug information; Kubernetes gets its version from linker flags.
    fn linker_flags(&self) -> String {
        let mut flags = "-s -w".to_owned();
        if self.is_kubernetes() {
            let numbers = self.version.trim_start_matches('v').split('.');
            let values = iter::once(self.version).chain(numbers);
            for (name, value) in ["gitVersion", "gitMajor", "gitMinor"].into_iter().zip(values) {
                flags.extend([" -X k8s.io/component-base/version.", name, "=", value]);
            }
        }
        flags
    }

    fn is_kubernetes(&self) -> bool {
        self.module == "k8s.io/kubernetes"
    }
}

/// Fails if Go is missing or too old to build the programs.
pub fn ensure_go() -> Result<()> {
    let sh = Shell::new()?;
    check_go(cmd!(sh, "go version").quiet().ignore_stderr().read().ok().as_deref())
}

/// Fails unless the output of `go version` is of a version that can build the programs; `None` if there is no Go.
fn check_go(output: Option<&str>) -> Result<()> {
    let (major, minor) = NEEDED_GO;
    let advice = format!("install Go {major}.{minor} or newer and put `go` in PATH");
    let Some(output) = output else { bail!("Go is not installed: {advice}") };
    // "go version go1.26.8 linux/amd64", "go version go1.27rc1 ...", "go version devel go1.28-0123abc ..."
    let version =
        output.split_whitespace().find_map(|word| word.strip_prefix("go").filter(|v| !v.is_empty()));
    let version = version.with_context(|| format!("`go version` printed {output:?}: {advice}"))?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    ensure!(found >= NEEDED_GO, "Go {version} is too old: {advice}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Program, check_go};

    #[test]
    fn old_or_missing_go_is_reported_in_one_sentence() {
        let error = |output: Option<&str>| check_go(output).unwrap_err().to_string();
        let advice = "install Go 1.26 or newer and put `go` in PATH";
        assert_eq!(error(None), format!("Go is not installed: {advice}"));
        for old in ["1.19.8", "1.25.9", "1.9"] {
            let output = format!("go version go{old} linux/amd64");
            assert_eq!(error(Some(&output)), format!("Go {old} is too old: {advice}"));
        }
        assert_eq!(error(Some("gcc")), format!("`go version` printed \"gcc\": {advice}"));
        for new in
            ["go1.26.0 linux/amd64", "go1.27rc1 linux/arm64", "devel go1.28-0123abc linux/amd64", "go2.0 x"]
        {
            let output = format!("go version {new}");
            assert!(check_go(Some(&output)).is_ok(), "{output}");
        }
    }

    #[test]
    fn key_depends_on_all_inputs_of_the_build() {
        let program = Program::KWOK;
        let changed = [
            Program { version: "v0.9.0", ..program },
            Program { package: "cmd/kwokctl", ..program },
            Program { data: &[], ..program },
        ];
        for other in changed {
            assert_ne!(other.key(), program.key(), "{other:?}");
        }
        assert!(program.key().starts_with("v0.8.0-"));
    }

    #[test]
    fn kubernetes_gets_its_version_and_replaced_libraries() {
        assert_eq!(
            Program::KUBECTL.linker_flags(),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.2 -X k8s.io/component-base/version.gitMajor=1 \
             -X k8s.io/component-base/version.gitMinor=36"
        );
        assert!(Program::KUBECTL.go_mod().contains("replace k8s.io/api => k8s.io/api v0.36.2\n"));
        assert!(!Program::ETCD.go_mod().contains("replace"));
        assert_eq!(Program::ETCD.package(), "go.etcd.io/etcd/server/v3");
        assert_eq!(Program::HELM.package(), "helm.sh/helm/v4/cmd/helm");
    }
}
