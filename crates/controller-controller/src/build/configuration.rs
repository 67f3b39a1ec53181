//! The files in slurmctld's /etc/slurm, besides its keys: generated ones, and copies of the user's.
//!
//! One ConfigMap holds all of them, and slurmctld mounts the user's files from no other object. So an edit takes effect
//! only when the copy is written, and all files of a configuration change at once.

use super::config::{CGROUP_CONF, Files, SLURM_CONF};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use pod_builder::hash_files;
use std::collections::BTreeMap;
use std::path::Path;

/// Files by name, which need not be texts.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// What a ConfigMap can hold, in bytes.
pub const LARGEST: usize = 1 << 20;

/// The files of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Generated files that no file of the user replaces.
    pub generated: Files,
    /// Copies of the user's files.
    pub user: Contents,
}

impl Configuration {
    /// A file of the user replaces a generated one of the same name.
    pub fn new(mut generated: Files, user: Contents) -> Self {
        generated.retain(|name, _| !user.contains_key(name));
        Self { generated, user }
    }

    /// Reads the ConfigMap of a configuration. Files have the names of `user` if they are the user's now.
    pub fn of(config_map: &ConfigMap, user: &Contents) -> Self {
        let texts = config_map.data.clone().unwrap_or_default();
        let is_generated = |name: &str| [SLURM_CONF, CGROUP_CONF].contains(&name) && !user.contains_key(name);
        let (generated, copies): (Files, Files) = texts.into_iter().partition(|(name, _)| is_generated(name));
        let binary =
            config_map.binary_data.iter().flatten().map(|(name, bytes)| (name.clone(), bytes.0.clone()));
        let copies = copies.into_iter().map(|(name, text)| (name, text.into_bytes()));
        Self { generated, user: copies.chain(binary).collect() }
    }

    /// The `data` and `binaryData` of the ConfigMap.
    pub fn to_data(&self) -> (Files, Option<BTreeMap<String, ByteString>>) {
        let (mut texts, mut binary) = (self.generated.clone(), BTreeMap::new());
        for (name, bytes) in &self.user {
            match String::from_utf8(bytes.clone()) {
                Ok(text) => drop(texts.insert(name.clone(), text)),
                Err(error) => drop(binary.insert(name.clone(), ByteString(error.into_bytes()))),
            }
        }
        (texts, (!binary.is_empty()).then_some(binary))
    }

    /// All files.
    pub fn contents(&self) -> Contents {
        let generated = self.generated.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
        generated.chain(self.user.clone()).collect()
    }

    /// The hash by which the reconfigure container identifies the configuration.
    pub fn hash(&self) -> String {
        hash_files(&without_keys(self.contents()))
    }

    /// The size of all files in bytes.
    pub fn size(&self) -> usize {
        self.contents().iter().map(|(name, bytes)| name.len() + bytes.len()).sum()
    }
}

/// The files that are no keys: the reconfigure container leaves keys out, because some of them are secret.
pub fn without_keys(mut files: Contents) -> Contents {
    files.retain(|name, _| Path::new(name).extension().is_none_or(|extension| extension != "key"));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{contents, texts};

    #[test]
    fn configuration_is_read_back_from_its_config_map() {
        let mut user = contents(&[("gres.conf", "AutoDetect=off"), (CGROUP_CONF, "theirs")]);
        user.insert("binary".to_owned(), vec![0xff, 0]);
        let configuration =
            Configuration::new(texts(&[(SLURM_CONF, "A=1"), (CGROUP_CONF, "ours")]), user.clone());
        assert_eq!(configuration.generated, texts(&[(SLURM_CONF, "A=1")]), "the user's cgroup.conf wins");
        let (data, binary_data) = configuration.to_data();
        let config_map = ConfigMap { data: Some(data), binary_data, ..ConfigMap::default() };
        assert_eq!(Configuration::of(&config_map, &user), configuration);
    }

    #[test]
    fn hash_equals_that_of_the_reconfigure_container() {
        let files = texts(&[(SLURM_CONF, "A=1\n"), (CGROUP_CONF, "")]);
        let configuration = Configuration::new(files, contents(&[("a.key", "left out")]));
        // printf 'A=1\n' > slurm.conf; : > cgroup.conf; sha256sum cgroup.conf slurm.conf | sha256sum
        let expected = "944488fac3f915fbcb7a540c23d2a790f3e8b6681c54503ec216de6246971b4f";
        assert_eq!(configuration.hash(), expected);
    }
}
