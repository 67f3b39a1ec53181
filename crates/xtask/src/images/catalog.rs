//! Which images there are: their names, packages and commands. Data only.

/// The Slurm series the project is written for. A build fails when Debian has moved on to another one.
pub const SLURM_SERIES: &str = "26.05";

/// Where all packages come from: the only Debian suite with this Slurm.
pub const SUITE: &str = "sid";

/// A root file system that several images share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A shell and small tools, nothing else.
    Tools,
    /// All Slurm daemons and commands, with what a login node runs beside them.
    Slurm,
    /// A database for slurmdbd.
    MariaDb,
}

impl Base {
    /// Every base, those that a cluster needs first in front.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Slurm, Self::MariaDb];

    /// Names the directory of the sources and the cache entries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Slurm => "slurm",
            Self::MariaDb => "mariadb",
        }
    }

    /// mmdebstrap's idea of what to install besides the packages.
    pub fn variant(self) -> &'static str {
        match self {
            Self::Tools => "extract",
            Self::Slurm | Self::MariaDb => "essential",
        }
    }

    /// Debian packages to install.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Tools => &["busybox-static", "tini"],
            Self::Slurm => &[
                "curl",
                "libnss-sss",
                "libpam-slurm-adopt",
                "libpam-sss",
                "openssh-client",
                "openssh-server",
                "procps",
                "sackd",
                "slurm-client",
                "slurm-wlm-jwt-plugin",
                "slurmctld",
                "slurmd",
                "slurmdbd",
                "slurmrestd",
                "sssd-common",
                "sssd-ldap",
                "sssd-proxy",
                "systemd-standalone-sysusers",
                "tini",
            ],
            Self::MariaDb => &["mariadb-client-core", "mariadb-server-core", "tini"],
        }
    }

    /// The images made from this base.
    pub fn images(self) -> impl Iterator<Item = &'static Image> {
        ALL.iter().filter(move |image| image.base == self)
    }
}

/// One image.
#[derive(Debug)]
pub struct Image {
    name: &'static str,
    base: Base,
    /// The image's `Entrypoint`.
    pub entrypoint: &'static [&'static str],
    /// The image's `Cmd`: arguments when the pod gives none.
    pub arguments: &'static [&'static str],
}

impl Image {
    /// The full name under which pods ask for it. The host does not exist: nothing can be pulled by mistake.
    pub fn reference(&self) -> String {
        let tag = match self.base {
            Base::Slurm => SLURM_SERIES,
            Base::Tools | Base::MariaDb => SUITE,
        };
        format!("slurm-operator.test/{}:{tag}", self.name)
    }
}

/// Holds the namespaces of a pod sandbox and reaps its orphans.
pub const PAUSE: Image = Image {
    name: "pause",
    base: Base::Tools,
    entrypoint: &["/usr/bin/tini", "--", "/usr/bin/sleep", "infinity"],
    arguments: &[],
};

/// Every image.
pub const ALL: &[Image] = &[
    PAUSE,
    Image { name: "tools", base: Base::Tools, entrypoint: &[], arguments: &["sh"] },
    Image {
        name: "slurmctld",
        base: Base::Slurm,
        entrypoint: &["tini", "--", "run-slurmctld"],
        arguments: &[],
    },
    Image { name: "slurmd", base: Base::Slurm, entrypoint: &["tini", "--", "run-slurmd"], arguments: &[] },
    Image {
        name: "slurmdbd",
        base: Base::Slurm,
        entrypoint: &["tini", "-g", "--", "slurmdbd", "-D"],
        arguments: &[],
    },
    Image {
        name: "slurmrestd",
        base: Base::Slurm,
        // It has no handler for SIGTERM.
        entrypoint: &["tini", "-g", "-e", "143", "--", "slurmrestd"],
        arguments: &["0.0.0.0:6820"],
    },
    Image {
        name: "login",
        base: Base::Slurm,
        entrypoint: &["tini", "-g", "--", "run-login"],
        arguments: &[],
    },
    Image {
        name: "mariadb",
        base: Base::MariaDb,
        entrypoint: &["tini", "--", "run-mariadb"],
        arguments: &[],
    },
];
