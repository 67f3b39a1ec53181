//! The slurmctld daemons: who answers, whether they take our word, and telling them to read their files again.

use crate::client::{Call, SlurmClient};
use crate::error::Error;
use crate::wire::or_default;
use jiff::Timestamp;
use serde::Deserialize;

/// What slurmrestd found when it called on one slurmctld.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ping {
    /// Its host.
    #[serde(default, deserialize_with = "or_default")]
    pub hostname: String,
    /// Whether it answered. A slurmctld that refuses our token counts as silent, a standby one as answering.
    pub responding: bool,
    /// Whether it comes first in slurm.conf. Says nothing about who is in charge.
    pub primary: bool,
}

#[derive(Deserialize)]
struct PingsPayload {
    pings: Vec<Ping>,
}

impl SlurmClient {
    /// Calls on every slurmctld, in the order of slurm.conf.
    ///
    /// Silence proves nothing by itself: see [`Self::confirm_access`].
    pub async fn ping(&self) -> Result<Vec<Ping>, Error> {
        self.read(Call::get("/ping/")).await.map(|payload: PingsPayload| payload.pings)
    }

    /// Succeeds if a slurmctld in charge answers and takes our token. Costs a millisecond, whatever the cluster.
    pub async fn confirm_access(&self) -> Result<(), Error> {
        // Nothing changes after the end of time: slurmctld has nothing to list, but has to be asked.
        let end = Timestamp::MAX.as_second();
        self.read_changed(Call::get(format!("/nodes/?update_time={end}")))
            .await
            .map(|_: Option<serde::de::IgnoredAny>| ())
    }

    /// Makes the daemons read their configuration again; back when the new one is in force.
    ///
    /// A broken configuration is refused without a reason, and the old one stays in force. A missing one hangs
    /// slurmctld.
    pub async fn reconfigure(&self) -> Result<(), Error> {
        self.write(Call::get("/reconfigure/")).await
    }
}
