//! The files and addresses of a cluster. Paths and constants only.

use crate::cache;
use anyhow::{Result, ensure};
use std::fmt;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of the node and of everything that runs on it outside pods.
pub const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 250, 0, 1);
/// The name of the only real node.
pub const NODE_NAME: &str = "node-0";
/// Addresses of Services.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";
/// The address of the Service `kubernetes`: the first one of [`SERVICE_CIDR`].
pub const API_SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Addresses of pods.
pub const POD_CIDR: &str = "10.244.0.0/16";
/// The suffix of every Service name.
pub const DOMAIN: &str = "cluster.local";

/// The name of a cluster: a DNS label, since it becomes part of paths and cgroup names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_label_character = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            !text.is_empty()
                && text.len() <= 40
                && !text.starts_with('-')
                && text.chars().all(is_label_character),
            "a cluster's name has 1 to 40 characters of a-z, 0-9 and '-', and does not start with '-'"
        );
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The files of one cluster, all below one directory.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The name of the cluster.
    pub name: Name,
    /// The directory of all files of the cluster.
    pub dir: PathBuf,
}

impl Layout {
    /// The layout of a cluster, which need not exist.
    pub fn of(name: &Name) -> Result<Self> {
        Ok(Self { name: name.clone(), dir: Self::parent()?.join(&name.0) })
    }

    /// The layouts of all clusters that have a directory.
    pub fn existing() -> Result<Vec<Self>> {
        let Ok(entries) = fs::read_dir(Self::parent()?) else { return Ok(Vec::new()) };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        names.map(|name| Self::of(&name)).collect()
    }

    fn parent() -> Result<PathBuf> {
        Ok(cache::root()?.join("clusters"))
    }

    /// The file with the profile, which exists once the cluster has started completely.
    pub fn completed(&self) -> PathBuf {
        self.dir.join("profile")
    }

    /// The file with the imported image archives, one per line.
    pub fn imported(&self) -> PathBuf {
        self.dir.join("imported")
    }

    /// The kubeconfig of one client of the API server; that of the user is `admin`.
    pub fn kubeconfig(&self, client: &str) -> PathBuf {
        self.dir.join("kubeconfig").join(client)
    }

    /// A certificate or key.
    pub fn pki(&self, file: &str) -> PathBuf {
        self.dir.join("pki").join(file)
    }

    /// A component's configuration file.
    pub fn config(&self, file: &str) -> PathBuf {
        self.dir.join("config").join(file)
    }

    /// A component's log.
    pub fn log(&self, component: &str) -> PathBuf {
        self.dir.join("log").join(component)
    }

    /// The audit log of the API server, one JSON object per line.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// The resolver configuration of processes outside pods.
    pub fn resolv_conf(&self) -> PathBuf {
        self.config("resolv.conf")
    }

    /// The directory that the cluster's processes see as `/var`, `/tmp` and so on.
    pub fn private(&self, directory: &str) -> PathBuf {
        self.dir.join("private").join(directory)
    }

    /// The parent cgroup of all pods, in every hierarchy.
    pub fn cgroup(&self) -> String {
        format!("slurm-operator.{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn names_that_escape_a_path_or_look_like_an_option_are_invalid() {
        for bad in ["", ".", "..", "a/b", "-a", "A", "a b", "ä", &"a".repeat(41)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?} was accepted");
        }
        for good in ["dev", "test-lifecycle", "0", &"a".repeat(40)] {
            assert_eq!(good.parse::<Name>().map(|name| name.to_string()).ok().as_deref(), Some(good));
        }
    }
}
