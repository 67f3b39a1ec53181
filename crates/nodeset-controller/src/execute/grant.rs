//! A batch under way: asks for it, keeps its writes within its time, and remembers whether each was answered.

use super::Edges;
use super::basis::Results;
use super::writes::PatchRequest;
use crate::slurm::{Cluster, ClusterKey};
use expectations::{Answer, Basis, BatchClock, BatchId, Begin, Timing, Unavailable};
use futures::future::BoxFuture;
use kube::core::Status;
use operator_runtime::Classify;
use operator_runtime::error::chain;
use slinky_api::v1beta1::NodeSet;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// How long to wait before the second copy of a request, and between later ones at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How the API server names the cause of a refusal to make something in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The right to write, for a while.
pub(super) struct Batch<'a> {
    /// Its name in the logs of all who have to do with it.
    pub id: BatchId,
    /// Whose.
    pub nodeset: &'a NodeSet,
    /// Where it writes.
    pub edges: &'a Edges,
    /// The Slurm cluster of its workers, if there is one.
    pub cluster: Option<Arc<Cluster>>,
    clock: BatchClock,
    timing: Timing,
    /// How many writes may have been done, or may yet be, without anybody knowing.
    unanswered: AtomicUsize,
    results: Mutex<Results>,
    /// Patches that were not answered.
    pub(super) unsettled: Mutex<Vec<PatchRequest>>,
}

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum Fault<E> {
    /// It was not sent: there was no time left for an answer.
    Late,
    /// There was no answer in time, so nobody knows whether it was done, or will be.
    Silence(Duration),
    /// The answer leaves open whether it was done, or will be.
    Unanswered(E),
    /// It was not done, and never will be.
    Refused(E),
}

/// Why a request to the API server has no result.
pub(super) type ApiFault = Fault<kube::Error>;

/// Why a request to Slurm has no result.
pub(super) type SlurmFault = Fault<slurm_rest::Error>;

/// An error that tells whether what was asked for can still happen.
pub(super) trait Final: Error + 'static {
    /// Whether nothing happens after this answer.
    fn is_final(&self) -> bool;

    /// A fixed name, for metrics.
    fn category(&self) -> &'static str;
}

impl Final for kube::Error {
    fn is_final(&self) -> bool {
        matches!(self, Self::Api(status) if (400..500).contains(&status.code))
    }

    fn category(&self) -> &'static str {
        Classify::category(self)
    }
}

impl Final for slurm_rest::Error {
    fn is_final(&self) -> bool {
        !self.maybe_applied()
    }

    fn category(&self) -> &'static str {
        self.category()
    }
}

impl<E: Final> Fault<E> {
    /// A fixed name, for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Late => "Late",
            Self::Silence(_) => "Timeout",
            Self::Unanswered(error) | Self::Refused(error) => error.category(),
        }
    }

    /// The details, for people.
    pub fn message(&self) -> String {
        match self {
            Self::Late => "not sent, the time for it was over".to_owned(),
            Self::Silence(limit) => format!("no answer within {limit:?}"),
            Self::Unanswered(error) | Self::Refused(error) => chain(error),
        }
    }

    /// Whether it is over: not sent, or not done and never to be.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Late | Self::Refused(_))
    }
}

impl ApiFault {
    /// Whether the object has changed since the write was decided.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// Whether the object is gone.
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// Whether an object of this name is there.
    pub fn is_already_there(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// Whether nothing can be made in the namespace, because it is being deleted.
    pub fn is_end_of_namespace(&self) -> bool {
        let causes = self.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
        causes.into_iter().flatten().any(|cause| cause.reason == NAMESPACE_TERMINATING)
    }

    fn status(&self) -> Option<&Status> {
        let Self::Refused(kube::Error::Api(status)) = self else { return None };
        Some(status)
    }
}

impl<'a> Batch<'a> {
    /// Asks for a batch until there is an answer, or it would be too late to use it. Its time starts with the first copy
    /// of the request, before which the service cannot have granted it.
    pub async fn ask(
        edges: &'a Edges,
        nodeset: &'a NodeSet,
        request: Begin,
    ) -> Result<(Self, Answer), Unavailable> {
        let timing = edges.expectations.timing();
        let batch = Self {
            id: request.batch.clone(),
            nodeset,
            edges,
            cluster: edges.clusters.cluster(&ClusterKey::of(nodeset)),
            clock: BatchClock::start((edges.clock)(), &timing),
            timing,
            unanswered: AtomicUsize::default(),
            results: Mutex::default(),
            unsettled: Mutex::default(),
        };
        let mut pauses = pauses();
        loop {
            match batch.call(edges.expectations.begin(request.clone())).await {
                Ok(answer) => return Ok((batch, answer)),
                Err(error) if !batch.may_send() => return Err(error),
                Err(error) => {
                    warn!(batch = %batch.id, error = chain(&error), "Nobody says whether the batch may begin");
                    sleep(pauses.next().unwrap_or_default()).await;
                }
            }
        }
    }

    /// Whether every write was answered.
    pub fn is_certain(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) == 0
    }

    /// Says that every write was answered, until that is heard or nobody cares any more. Gives the basis of a view that
    /// has seen all results, if the service still knew the batch.
    pub async fn done(&self) -> Option<Basis> {
        let over = self.clock.deadline().saturating_add(self.timing.grace);
        let mut pauses = pauses();
        loop {
            match self.call(self.edges.expectations.done(self.id.clone())).await {
                Ok(basis) => return basis,
                Err(_) if (self.edges.clock)() >= over => return None,
                Err(error) => {
                    warn!(batch = %self.id, error = chain(&error), "Nobody hears that the batch is done");
                    sleep(pauses.next().unwrap_or_default()).await;
                }
            }
        }
    }

    /// Sends a write. Without an answer it keeps the batch from its end, unless it is [settled](Self::settle).
    pub async fn write<T, E: Final>(&self, write: impl Future<Output = Result<T, E>>) -> Result<T, Fault<E>> {
        let result = self.attempt(write).await;
        if result.as_ref().is_err_and(|fault| !fault.is_final()) {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Sends copies of a conditional write that was not answered, until it is certain that no copy can be done any more:
    /// one was done, or the object has another version, or is gone. Gives the answer that says so.
    pub async fn settle<T, F: Future<Output = Result<T, ApiFault>>>(
        &self,
        copy: impl Fn() -> F,
    ) -> Option<Result<T, ApiFault>> {
        // If it was an earlier copy that was done, nobody told its result.
        self.results().lose_track();
        for pause in pauses() {
            sleep(pause).await;
            match copy().await {
                Err(Fault::Late) => break,
                Err(fault) if !fault.is_conflict() && !fault.is_gone() => {}
                answer => {
                    self.unanswered.fetch_sub(1, Ordering::Relaxed);
                    return Some(answer);
                }
            }
        }
        None
    }

    /// Sends a write to the Slurm cluster.
    pub async fn slurm<'b, F>(&'b self, write: impl FnOnce(&'b Cluster) -> F) -> Result<(), SlurmFault>
    where
        F: Future<Output = Result<(), slurm_rest::Error>>,
    {
        match &self.cluster {
            Some(cluster) => self.write(write(cluster)).await,
            None => Err(Fault::Refused(slurm_rest::Error::Invalid("the Controller is not there".to_owned()))),
        }
    }

    /// Makes a request while there is time for its answer. Reads need no more than that.
    pub async fn attempt<T, E: Final>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Fault<E>> {
        if !self.may_send() {
            return Err(Fault::Late);
        }
        let limit = self.timing.write_limit;
        match timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is_final() => Err(Fault::Refused(error)),
            Ok(Err(error)) => Err(Fault::Unanswered(error)),
            Err(_) => Err(Fault::Silence(limit)),
        }
    }

    /// What was done to pods, as far as it is known.
    pub fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, when there is nothing more to come.
    pub fn into_results(self) -> Results {
        self.results.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_send(&self) -> bool {
        self.clock.may_send((self.edges.clock)()) && !(self.edges.is_stopping)()
    }

    async fn call<T>(&self, call: BoxFuture<'_, Result<T, Unavailable>>) -> Result<T, Unavailable> {
        let limit = self.timing.rpc_limit;
        let silence = || Unavailable(format!("no answer within {limit:?}").into());
        timeout(limit, call).await.unwrap_or_else(|_| Err(silence()))
    }
}

/// Growing pauses between the copies of a request.
fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(PAUSES.0), |pause| Some(PAUSES.1.min(*pause * 2)))
}
