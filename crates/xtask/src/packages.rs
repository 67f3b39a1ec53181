//! Installs the Debian packages that commands need.

use crate::progress::step;
use anyhow::{Context, Result};
use xshell::{Shell, cmd};

/// Installs missing packages; works offline if none is missing.
pub fn ensure(packages: &[&str]) -> Result<()> {
    let sh = Shell::new()?;
    let missing: Vec<&str> = packages.iter().copied().filter(|package| !is_installed(&sh, package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    step(format!("install Debian packages: {}", missing.join(" ")), || {
        sh.set_var("DEBIAN_FRONTEND", "noninteractive");
        cmd!(sh, "apt-get update -qq")
            .quiet()
            .ignore_stdout()
            .run()
            .context("apt-get update (are you root?)")?;
        cmd!(sh, "apt-get install -qq --yes --no-install-recommends {missing...}")
            .quiet()
            .ignore_stdout()
            .run()
            .context("apt-get install")
    })
}

fn is_installed(sh: &Shell, package: &str) -> bool {
    let format = "${db:Status-Status}";
    cmd!(sh, "dpkg-query --show --showformat={format} {package}")
        .quiet()
        .ignore_stderr()
        .read()
        .is_ok_and(|status| status == "installed")
}
