//! slurmdbd.conf.

use crate::SLURMDBD_PORT;
use crate::merged::{auth_options, write_merged};
use crate::value::{ConfName, ConfValue, Secret};
use crate::writer::Writer;

/// All inputs of slurmdbd.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmdbdConf {
    /// Host name of the pod that runs slurmdbd.
    pub host: ConfName,
    /// A JWKS file is mounted beside the JWT key.
    pub jwks: bool,
    /// The database.
    pub storage: Storage,
    /// The user's free text, copied verbatim.
    pub extra_conf: String,
}

/// The database behind slurmdbd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Host of the database.
    pub host: ConfValue,
    /// Port of the database.
    pub port: u16,
    /// User of the database.
    pub user: ConfValue,
    /// Name of the database.
    pub database: ConfValue,
    /// Password of the user.
    pub password: Secret,
}

impl SlurmdbdConf {
    /// Renders the file. It contains the password, so it must be stored in a Secret.
    pub fn render(&self) -> String {
        let required = auth_options(self.jwks);
        let mut file = Writer::new('=');
        file.section("GENERAL");
        file.entry("DbdHost", &self.host);
        file.entry("DbdPort", SLURMDBD_PORT);
        file.entry("SlurmUser", "slurm");
        file.section("PLUGINS & PARAMETERS");
        file.entry("AuthType", "auth/slurm");
        file.entry("AuthAltTypes", "auth/jwt");
        for (key, options) in &required {
            file.entry(key, options.join(","));
        }
        self.storage.write(&mut file);
        file.section("LOGGING");
        file.entry("LogFile", "/dev/null");
        file.extra(&self.extra_conf);
        write_merged(&mut file, &required, &self.extra_conf);
        file.finish()
    }
}

impl Storage {
    fn write(&self, file: &mut Writer) {
        file.section("STORAGE");
        file.entry("StorageType", "accounting_storage/mysql");
        file.entry("StorageHost", &self.host);
        file.entry("StoragePort", self.port);
        file.entry("StorageUser", &self.user);
        file.entry("StorageLoc", &self.database);
        file.entry("StoragePass", self.password.expose());
    }
}
