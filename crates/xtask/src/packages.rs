//! Debian packages: installs those whose files are missing, and changes nothing else on the machine.

use crate::cache;
use crate::commands::output;
use crate::progress::step;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Where programs are searched.
pub const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A file that commands need. Another package than the named one may have it, such as that of Docker's containerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// An absolute path, or the name of a program.
    file: &'static str,
    /// The Debian package that has it.
    package: &'static str,
}

impl Requirement {
    /// A file and its package.
    pub const fn new(file: &'static str, package: &'static str) -> Self {
        Self { file, package }
    }

    /// Whether the file exists, in any directory of programs unless its path is absolute.
    fn is_met(self, exists: impl Fn(&Path) -> bool) -> bool {
        std::env::split_paths(PATH).any(|directory| exists(&directory.join(self.file)))
    }
}

/// `apt-get` with the options of an installation. Packages that are installed stay: one that conflicts with a missing
/// one, such as Docker's containerd with Debian's, would else be removed with all that needs it.
const INSTALL: [&str; 5] = ["install", "-qq", "--yes", "--no-install-recommends", "--no-remove"];

/// Arguments: those of `apt-get`. Hides systemd and its links from the scripts of packages, so that no service of theirs
/// is started or enabled. What they record elsewhere has later versions of the packages leave the services disabled.
const WITHOUT_SERVICES: &str = r#"
for directory in /run/systemd /etc/systemd/system; do
    [ ! -d "$directory" ] || mount -t tmpfs none "$directory"
done
exec apt-get "$@"
"#;

/// Installs the packages of missing files; works offline if none is missing.
pub fn ensure(requirements: &[Requirement]) -> Result<()> {
    let missing = || missing_packages(requirements, Path::exists);
    if missing().is_empty() {
        return Ok(());
    }
    // apt-get fails if another one runs.
    let _lock = cache::lock("packages")?;
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    step(format!("install Debian packages: {}", packages.join(" ")), || {
        // A package source of the machine that is out of order matters only if a package comes from it.
        if let Err(error) = output(apt_get().args(["update", "-qq"])) {
            eprintln!("apt-get update: {error:#}");
        }
        // Downloaded before systemd-resolved is hidden.
        output(apt_get().args(INSTALL).arg("--download-only").args(&packages))
            .and_then(|_| output(without_services().args(INSTALL).arg("--no-download").args(&packages)))
            .context(
                "apt-get install (are you root? if packages conflict, install the missing programs yourself)",
            )?;
        let missing = missing();
        ensure!(missing.is_empty(), "installed, but without the expected files: {}", missing.join(" "));
        Ok(())
    })
}

/// The packages of missing files, each once.
fn missing_packages(requirements: &[Requirement], exists: impl Fn(&Path) -> bool) -> Vec<&'static str> {
    let missing = requirements.iter().filter(|requirement| !requirement.is_met(&exists));
    let mut packages: Vec<_> = missing.map(|requirement| requirement.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn apt_get() -> Command {
    quiet(Command::new("apt-get"))
}

fn without_services() -> Command {
    let mut command = quiet(Command::new("unshare"));
    command.args(["--mount", "sh", "-euc", WITHOUT_SERVICES, "apt-get"]);
    command
}

/// No questions, and no restarts of services that use an upgraded library.
fn quiet(mut command: Command) -> Command {
    command.env("DEBIAN_FRONTEND", "noninteractive").env("NEEDRESTART_SUSPEND", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The packages of Docker's own repository, as far as apt-get decides by them.
    const DOCKER: &str = "\
Package: containerd.io
Status: install ok installed
Maintainer: Docker
Architecture: all
Version: 1.7.27-1
Conflicts: containerd, runc
Provides: containerd, runc
Description: containerd and runc

Package: docker-ce
Status: install ok installed
Maintainer: Docker
Architecture: all
Version: 5:28.1.1-1
Depends: containerd.io
Description: Docker
";
    const DEBIAN: &str = "\
Package: containerd
Maintainer: Debian
Architecture: all
Version: 1.6.20-1
Depends: runc
Filename: ./containerd.deb
Size: 1
SHA256: 6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d
Description: containerd

Package: runc
Maintainer: Debian
Architecture: all
Version: 1.1.5-1
Filename: ./runc.deb
Size: 1
SHA256: 6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d
Description: runc
";

    #[test]
    fn docker_is_not_removed() {
        let machine = tempfile::tempdir().unwrap();
        let directory = machine.path().display().to_string();
        fs::create_dir_all(machine.path().join("lists/partial")).unwrap();
        let sources = format!("deb [trusted=yes] file:{directory} ./\n");
        for (file, text) in [("status", DOCKER), ("Packages", DEBIAN), ("sources.list", &sources)] {
            fs::write(machine.path().join(file), text).unwrap();
        }
        let apt_get = |args: &[&str]| {
            let mut command = apt_get();
            for (option, file) in
                [("State::status", "status"), ("State::lists", "lists"), ("Etc::SourceList", "sources.list")]
            {
                command.arg(format!("--option=Dir::{option}={directory}/{file}"));
            }
            output(command.arg("--option=Dir::Etc::SourceParts=/nonexistent").args(args))
        };
        apt_get(&["update"]).unwrap();
        let unguarded = apt_get(&["install", "--simulate", "-qq", "containerd"]).unwrap();
        assert!(unguarded.contains("Remv docker-ce"), "the packages do not conflict: {unguarded}");
        let error = apt_get(&[&INSTALL[..], &["--simulate", "containerd"]].concat()).unwrap_err();
        assert!(error.to_string().contains("remove is disabled"), "{error:#}");
    }

    #[test]
    fn files_of_another_package_are_used() {
        let requirements = [
            Requirement::new("/usr/bin/containerd", "containerd"),
            Requirement::new("ctr", "containerd"),
            Requirement::new("runc", "runc"),
            Requirement::new("/usr/lib/cni/ptp", "containernetworking-plugins"),
        ];
        let missing = |files: &[&str]| {
            missing_packages(&requirements, |path| files.iter().any(|file| path == Path::new(file)))
        };
        let docker = ["/usr/bin/containerd", "/usr/bin/ctr", "/usr/sbin/runc"];
        assert_eq!(missing(&docker), ["containernetworking-plugins"]);
        assert_eq!(missing(&[]), ["containerd", "containernetworking-plugins", "runc"]);
    }

    /// Does what the scripts of packages with services do. The machine has systemd and one enabled service.
    #[test]
    fn services_of_packages_are_neither_started_nor_enabled() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let script = r#"
            mount -t tmpfs none /run
            mount -t tmpfs none /etc
            mkdir -p /run/systemd/system /etc/systemd/system/multi-user.target.wants
            touch /etc/systemd/system/multi-user.target.wants/own.service
            unshare --mount sh -euc "$1" apt-get "$0"
            ls /etc/systemd/system/multi-user.target.wants"#;
        let scripts_of_packages = r"
            [ ! -d /run/systemd/system ] || echo started
            mkdir -p /etc/systemd/system/multi-user.target.wants
            touch /etc/systemd/system/multi-user.target.wants/containerd.service";
        let apt_get = WITHOUT_SERVICES.replace("apt-get", "sh -euc");
        let mut machine = Command::new("unshare");
        let seen = output(machine.args(["--mount", "sh", "-euc", script, scripts_of_packages, &apt_get]));
        assert_eq!(seen.unwrap(), "own.service");
    }
}
