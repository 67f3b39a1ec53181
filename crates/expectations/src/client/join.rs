//! Keeps the replica in the membership: finds the process of the service that leads, sends heartbeats, receives
//! memberships, and starts again when the stream ends.

use super::connect::Channels;
use super::{Client, authorized, unavailable, unusable};
use crate::Unavailable;
use crate::messages::Membership;
use crate::proto::expectations_client::ExpectationsClient;
use crate::proto::{self, Clusters, Heartbeat};
use futures::channel::mpsc::{Sender, channel};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use std::error::Error;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tonic::Streaming;
use tonic::transport::Channel;
use tracing::{info, warn};

/// Pause between two attempts to join one process of the service.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long the known processes are asked before their hosts are resolved again.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(3);
/// How long a replica waits for the end of its Join stream after it said that it leaves.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Heartbeats that may wait for a connection to take them; more mean that it is dead.
const WAITING_HEARTBEATS: usize = 3;

/// A Join stream of which the first membership has arrived.
struct Joined {
    leader: ExpectationsClient<Channel>,
    heartbeats: Sender<Heartbeat>,
    memberships: Streaming<proto::Membership>,
    first: Membership,
}

/// How a Join stream ended.
enum End {
    Left,
    Lost(Unavailable),
}

impl Client {
    /// Keeps the replica in the membership until `leaving` resolves, then leaves it.
    pub async fn run(&self, leaving: impl Future<Output = ()>) {
        let mut leaving = std::pin::pin!(leaving.fuse());
        let mut channels = Channels::new();
        loop {
            let joined = tokio::select! {
                joined = self.find_leader(&mut channels) => joined,
                () = &mut leaving => return,
            };
            let end = self.stay(joined, &mut leaving).await;
            self.leader.send_replace(None);
            self.publish_ownership();
            match end {
                End::Left => return,
                End::Lost(error) => warn!(error = text(&error), "Lost the expectations service"),
            }
        }
    }

    /// Asks all processes of the service until one accepts this replica.
    async fn find_leader(&self, channels: &mut Channels) -> Joined {
        let mut logged = String::new();
        loop {
            let joined = async {
                self.targets.refresh(channels).await?;
                self.state.lock().errors.retain(|address, _| channels.contains_key(address));
                // One after the other would be too slow: a process that is stopped answers nothing.
                let attempts =
                    channels.iter().map(|(address, channel)| self.join_repeatedly(*address, channel));
                let mut attempts: FuturesUnordered<_> = attempts.collect();
                let joined = timeout(RESOLVE_INTERVAL, attempts.next()).await.ok().flatten();
                joined.ok_or_else(|| self.not_joined())
            };
            let error = match joined.await {
                Ok(joined) => return joined,
                Err(error) => text(&error),
            };
            if error != logged {
                warn!(error, "Replica has not joined the expectations service");
                logged = error;
            }
            sleep(FIRST_PAUSE).await;
        }
    }

    /// Asks one process of the service until it accepts this replica.
    async fn join_repeatedly(&self, address: SocketAddr, channel: &Channel) -> Joined {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.join(channel.clone()).await {
                Ok(joined) => return joined,
                Err(error) => drop(self.state.lock().errors.insert(address, text(&error))),
            }
            // Not all replicas at the same moment.
            sleep(pause.mul_f64(0.75 + rand::random::<f64>() / 2.0)).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Opens the Join stream with one process of the service.
    async fn join(&self, channel_to: Channel) -> Result<Joined, Unavailable> {
        let (mut heartbeats, receiver) = channel(WAITING_HEARTBEATS);
        let mut leader = ExpectationsClient::new(channel_to);
        let attempt = async {
            let _ = heartbeats.try_send(self.heartbeat(false, None));
            let request = authorized(&self.token_file, receiver)?;
            let mut memberships = leader.join(request).await.map_err(unavailable)?.into_inner();
            let first = memberships.message().await.map_err(unavailable)?.ok_or_else(ended)?;
            let first = Membership::try_from(first).map_err(unusable)?;
            self.check_timing(&first)?;
            Ok((memberships, first))
        };
        let silence = |_| Unavailable("no answer to Join".into());
        let (memberships, first) = timeout(self.timing.rpc_limit, attempt).await.map_err(silence)??;
        Ok(Joined { leader, heartbeats, memberships, first })
    }

    /// Refuses a service whose lease and grace do not fit the time limits of this replica.
    fn check_timing(&self, membership: &Membership) -> Result<(), Unavailable> {
        let Membership { lease, grace, .. } = *membership;
        let timing = crate::Timing { lease, grace, ..self.timing };
        timing.check().map_err(|error| Unavailable(Box::new(error)))
    }

    /// Sends heartbeats and takes memberships until the stream ends or the replica leaves.
    async fn stay(&self, joined: Joined, leaving: &mut (impl Future<Output = ()> + Unpin)) -> End {
        let Joined { leader, mut heartbeats, mut memberships, first } = joined;
        info!(epoch = first.epoch.as_str(), "Joined the expectations service");
        self.state.lock().errors.clear();
        self.leader.send_replace(Some(leader));
        self.update_members(first);
        let mut reported = Vec::new();
        let mut ticks = interval(self.timing.heartbeat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Whatever woke this task: members of the epoch before may have ceased to count.
            self.publish_ownership();
            let members_change = self.members_change();
            tokio::select! {
                message = memberships.message() => match self.take(message) {
                    Ok(()) => {}
                    Err(error) => return End::Lost(error),
                },
                _ = ticks.tick() => {
                    let clusters = self.changed_clusters(&mut reported);
                    if heartbeats.try_send(self.heartbeat(false, clusters)).is_err() {
                        return End::Lost(Unavailable("the service does not take heartbeats".into()));
                    }
                }
                () = members_change => {}
                () = &mut *leaving => {
                    let _ = heartbeats.try_send(self.heartbeat(true, None));
                    heartbeats.close_channel();
                    let ended = async { while let Ok(Some(_)) = memberships.message().await {} };
                    let _ = timeout(LEAVE_LIMIT, ended).await;
                    return End::Left;
                }
            }
        }
    }

    fn take(&self, message: Result<Option<proto::Membership>, tonic::Status>) -> Result<(), Unavailable> {
        let membership = message.map_err(unavailable)?.ok_or_else(ended)?;
        let membership = Membership::try_from(membership).map_err(unusable)?;
        self.check_timing(&membership)?;
        self.update_members(membership);
        Ok(())
    }

    /// Resolves when members of the epoch before no longer count.
    fn members_change(&self) -> impl Future<Output = ()> + use<> {
        let now = (self.clock)();
        let left = self.state.lock().members.changes_at(now).map(|at| at.saturating_sub(now));
        async move {
            match left {
                Some(left) => sleep(left).await,
                None => pending().await,
            }
        }
    }

    /// The clusters of this replica, if they are not those that were `reported` on this stream.
    fn changed_clusters(&self, reported: &mut Vec<String>) -> Option<Clusters> {
        let state = self.state.lock();
        (state.cluster_keys != *reported).then(|| {
            reported.clone_from(&state.cluster_keys);
            Clusters { keys: reported.clone() }
        })
    }

    fn heartbeat(&self, leaving: bool, clusters: Option<Clusters>) -> Heartbeat {
        Heartbeat { replica_id: self.replica.as_str().to_owned(), leaving, clusters }
    }
}

/// The cause of an error.
fn text(error: &Unavailable) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

fn ended() -> Unavailable {
    Unavailable("the service ended the Join stream".into())
}
