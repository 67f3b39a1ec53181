//! The slurmctld daemons: ping, access check, reconfigure.

use crate::client::{Call, SlurmClient};
use crate::error::Error;
use crate::wire::or_default;
use jiff::Timestamp;
use serde::Deserialize;

/// The result of slurmrestd's ping of one slurmctld.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ping {
    /// Its host name.
    #[serde(default, deserialize_with = "or_default")]
    pub hostname: String,
    /// Whether it answered. False for a slurmctld that rejects our token, true for a standby.
    pub responding: bool,
    /// Whether it is the first in slurm.conf; a backup may be the active one nevertheless.
    pub primary: bool,
}

#[derive(Deserialize)]
struct PingsPayload {
    pings: Vec<Ping>,
}

impl SlurmClient {
    /// Pings every slurmctld, in the order of slurm.conf.
    ///
    /// `responding: false` does not prove that slurmctld is down: see [`Self::confirm_access`].
    pub async fn ping(&self) -> Result<Vec<Ping>, Error> {
        self.read(Call::get("/ping/")).await.map(|payload: PingsPayload| payload.pings)
    }

    /// Succeeds if the active slurmctld answers and accepts our token. Takes a millisecond for any size of cluster.
    pub async fn confirm_access(&self) -> Result<(), Error> {
        // No node changes after the end of time, so slurmctld checks the token and answers 304 without a list.
        let end = Timestamp::MAX.as_second();
        self.read_changed(Call::get(format!("/nodes/?update_time={end}")))
            .await
            .map(|_: Option<serde::de::IgnoredAny>| ())
    }

    /// Makes the daemons reread their configuration; returns when the new one is active.
    ///
    /// Slurm rejects a broken configuration without a reason and keeps the old one. A missing file hangs slurmctld.
    pub async fn reconfigure(&self) -> Result<(), Error> {
        self.write(Call::get("/reconfigure/")).await
    }
}
