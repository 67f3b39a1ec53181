//! The images: their names, packages and commands. Data only.

/// The supported Slurm series. A build fails if the packages are of another one.
pub const SLURM_SERIES: &str = "26.05";

/// The Debian suite of all packages, the only one with this Slurm series.
pub const SUITE: &str = "sid";

/// The registry of all image references. The host does not exist, so nothing can be pulled by mistake.
pub const REGISTRY: &str = "slurm-operator.test";

/// A root file system that several images share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A shell and small tools.
    Tools,
    /// All Slurm daemons and commands, and the daemons of a login node.
    Slurm,
    /// A database for slurmdbd.
    MariaDb,
    /// What rustc needs to link programs, for the first stage of the operator's Dockerfiles.
    Linker,
}

impl Base {
    /// Every base.
    #[cfg(test)]
    pub const ALL: [Self; 4] = [Self::Tools, Self::Slurm, Self::MariaDb, Self::Linker];
    /// Those of the images for nodes, in the order in which a cluster needs them.
    pub const FOR_NODES: [Self; 3] = [Self::Tools, Self::Slurm, Self::MariaDb];

    /// The name of the source directory and of the cache entries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Slurm => "slurm",
            Self::MariaDb => "mariadb",
            Self::Linker => "linker",
        }
    }

    /// The variant of mmdebstrap, which decides what is installed besides the packages.
    pub fn variant(self) -> &'static str {
        match self {
            Self::Tools => "extract",
            Self::Slurm | Self::MariaDb | Self::Linker => "essential",
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
            Self::Linker => &["gcc", "libc6-dev"],
        }
    }

    /// The images with this base.
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
    const fn new(name: &'static str, base: Base, entrypoint: &'static [&'static str]) -> Self {
        Self { name, base, entrypoint, arguments: &[] }
    }

    /// The image reference in pods.
    pub fn reference(&self) -> String {
        let tag = match self.base {
            Base::Slurm => SLURM_SERIES,
            Base::Tools | Base::MariaDb | Base::Linker => SUITE,
        };
        format!("{REGISTRY}/{}:{tag}", self.name)
    }
}

/// Holds the namespaces of a pod sandbox and reaps its orphans.
pub const PAUSE: Image =
    Image::new("pause", Base::Tools, &["/usr/bin/tini", "--", "/usr/bin/sleep", "infinity"]);

/// The `BUILDER` of the operator's Dockerfiles, but for Rust, which is mounted.
pub const BUILDER: Image = Image::new("builder", Base::Linker, &[]);

/// Every image.
pub const ALL: &[Image] = &[
    PAUSE,
    Image { arguments: &["sh"], ..Image::new("tools", Base::Tools, &[]) },
    Image::new("slurmctld", Base::Slurm, &["tini", "--", "run-slurmctld"]),
    Image::new("slurmd", Base::Slurm, &["tini", "--", "run-slurmd"]),
    Image::new("slurmdbd", Base::Slurm, &["tini", "-g", "--", "slurmdbd", "-D"]),
    Image {
        arguments: &["0.0.0.0:6820"],
        // It has no handler for SIGTERM.
        ..Image::new("slurmrestd", Base::Slurm, &["tini", "-g", "-e", "143", "--", "slurmrestd"])
    },
    Image::new("login", Base::Slurm, &["tini", "-g", "--", "run-login"]),
    Image::new("mariadb", Base::MariaDb, &["tini", "--", "run-mariadb"]),
    BUILDER,
];
