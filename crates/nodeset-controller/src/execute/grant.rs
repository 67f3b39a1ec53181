//! A granted batch: requests it, sends writes only within its time, and tracks whether each write was answered.

use super::Executor;
use super::basis::Results;
use super::writes::PatchRequest;
use crate::slurm::{Cluster, ClusterKey, HeldCluster};
use crate::timing::{FIRST_RETRY_PAUSE, LONGEST_RETRY_PAUSE};
use expectations::{Answer, Basis, BatchClock, BatchId, Begin, Timing, Unavailable};
use futures::future::BoxFuture;
use kube::Client;
use kube::core::Status;
use operator_runtime::Classify;
use operator_runtime::client::with_audit_id;
use operator_runtime::error::chain;
use parking_lot::{Mutex, MutexGuard};
use slinky_api::v1beta1::NodeSet;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Cause in the API server's answer to a create in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The permission to write for a limited time.
pub(super) struct Batch<'a> {
    /// Its id, which the logs of client and service carry.
    pub id: BatchId,
    /// The NodeSet that it is for.
    pub nodeset: &'a NodeSet,
    /// What its writes go through.
    pub executor: &'a Executor,
    /// Sends every request once, with the batch id in the API server's audit log.
    pub client: Client,
    /// The Slurm cluster of its workers; `None` without a Controller.
    pub cluster: Option<HeldCluster>,
    clock: BatchClock,
    timing: Timing,
    /// Number of writes whose effect is unknown: they may have been applied, or may be applied later.
    unanswered: AtomicUsize,
    results: Mutex<Results>,
    /// Patches whose effect is unknown.
    pub(super) unsettled: Mutex<Vec<PatchRequest>>,
}

/// Why a request has no result. [`Self::is_final`] tells whether it may still take effect.
#[derive(Debug)]
pub(super) enum RequestError<E> {
    /// It was not sent: the batch had no time left for an answer.
    OutOfTime,
    /// It was not answered in time: it may have been applied, or may be applied later.
    TimedOut(Duration),
    /// The answer does not tell whether it was applied, or will be.
    Ambiguous(E),
    /// It was refused: it was not applied, and never will be.
    Refused(E),
}

/// Why a request to the API server has no result.
pub(super) type ApiRequestError = RequestError<kube::Error>;

/// Why a request to Slurm has no result.
pub(super) type SlurmRequestError = RequestError<slurm_rest::Error>;

/// An error that tells whether the request may still take effect.
pub(super) trait MaybeFinal: Error + 'static {
    /// Whether the request has no effect, now or later.
    fn is_final(&self) -> bool;

    /// Whether the server will refuse the same request again, unless something changes that has to do with neither object nor
    /// plan: a quota, a webhook, a configuration.
    fn is_refusal(&self) -> bool;

    /// The `reason` label of metrics.
    fn category(&self) -> &'static str;
}

impl MaybeFinal for kube::Error {
    fn is_refusal(&self) -> bool {
        // Neither a conflict, nor an object that is gone, nor an API server under load.
        matches!(self, Self::Api(status) if matches!(status.code, 400..=403 | 405 | 413 | 422))
    }

    fn is_final(&self) -> bool {
        matches!(self, Self::Api(status) if (400..500).contains(&status.code))
    }

    fn category(&self) -> &'static str {
        Classify::category(self)
    }
}

impl MaybeFinal for slurm_rest::Error {
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::Unsupported(_)) && !self.maybe_applied()
    }

    fn is_final(&self) -> bool {
        !self.maybe_applied()
    }

    fn category(&self) -> &'static str {
        self.category()
    }
}

impl<E: MaybeFinal> RequestError<E> {
    /// The `reason` label of metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::OutOfTime => "Late",
            Self::TimedOut(_) => "Timeout",
            Self::Ambiguous(error) | Self::Refused(error) => error.category(),
        }
    }

    /// The message of conditions and events.
    pub fn message(&self) -> String {
        match self {
            Self::OutOfTime => "not sent: the time of the batch was over".to_owned(),
            Self::TimedOut(limit) => format!("no answer within {limit:?}"),
            Self::Ambiguous(error) | Self::Refused(error) => chain(error),
        }
    }

    /// Whether the request has no effect, now or later.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::OutOfTime | Self::Refused(_))
    }

    /// Whether the server will refuse the same request again.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(error) if error.is_refusal())
    }
}

impl ApiRequestError {
    /// Whether the API server answered with a conflict: the object changed since the write was planned.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// Whether the API server answered that the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// Whether the API server answered that an object of this name exists.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// Whether the create was refused because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        let causes = self.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
        causes.into_iter().flatten().any(|cause| cause.reason == NAMESPACE_TERMINATING)
    }

    fn status(&self) -> Option<&Status> {
        let Self::Refused(kube::Error::Api(status)) = self else { return None };
        Some(status)
    }
}

impl<'a> Batch<'a> {
    /// Requests a batch until the service answers, or until no time to use it would be left. Its time starts with the first
    /// request, before which the service cannot have granted it.
    pub async fn begin(
        executor: &'a Executor,
        nodeset: &'a NodeSet,
        request: Begin,
    ) -> Result<(Self, Answer), Unavailable> {
        let timing = executor.coordination.expectations.timing();
        let batch = Self {
            id: request.batch.clone(),
            nodeset,
            executor,
            client: with_audit_id(&executor.client, &request.batch.to_string()),
            cluster: executor.clusters.hold(&ClusterKey::of(nodeset)),
            clock: BatchClock::start((executor.clock)(), &timing),
            timing,
            unanswered: AtomicUsize::default(),
            results: Mutex::default(),
            unsettled: Mutex::default(),
        };
        let mut pauses = pauses();
        loop {
            match batch.call(executor.coordination.expectations.begin(request.clone())).await {
                Ok(answer) => return Ok((batch, answer)),
                Err(error) if !batch.may_send() => return Err(error),
                Err(error) => {
                    debug!(batch = %batch.id, error = chain(&error), "Expectations service did not answer Begin");
                    sleep(pauses.next().unwrap_or_default()).await;
                }
            }
        }
    }

    /// Whether the effect of every write is known.
    pub fn is_certain(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) == 0
    }

    /// Reports to the service that every write was answered, until it acknowledges or the batch has expired. Returns the
    /// basis of a view that contains all results, if the service still knew the batch.
    pub async fn done(&self) -> Option<Basis> {
        let over = self.clock.deadline().saturating_add(self.timing.grace);
        let mut pauses = pauses();
        loop {
            match self.call(self.executor.coordination.expectations.done(self.id.clone())).await {
                Ok(basis) => return basis,
                Err(_) if (self.executor.clock)() >= over => return None,
                Err(error) => {
                    warn!(batch = %self.id, error = chain(&error), "Expectations service did not acknowledge Done");
                    sleep(pauses.next().unwrap_or_default()).await;
                }
            }
        }
    }

    /// Sends a write. One whose effect is unknown keeps the batch open, unless it is [settled](Self::settle).
    pub async fn write<T, E: MaybeFinal>(
        &self,
        write: impl Future<Output = Result<T, E>>,
    ) -> Result<T, RequestError<E>> {
        let result = self.attempt(write).await;
        if result.as_ref().is_err_and(|error| !error.is_final()) {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Repeats a conditional write whose effect is unknown until no copy can be applied any more: one was applied, or the
    /// object has another version, or does not exist. Returns the answer that proves it.
    pub async fn settle<T, F: Future<Output = Result<T, ApiRequestError>>>(
        &self,
        copy: impl Fn() -> F,
    ) -> Option<Result<T, ApiRequestError>> {
        // If an earlier copy was applied, its resulting version is not known.
        self.results().mark_incomplete();
        for pause in pauses() {
            sleep(pause).await;
            match copy().await {
                Err(RequestError::OutOfTime) => break,
                Err(error) if !error.is_conflict() && !error.is_not_found() => {}
                answer => {
                    self.unanswered.fetch_sub(1, Ordering::Relaxed);
                    return Some(answer);
                }
            }
        }
        None
    }

    /// Sends a write to the Slurm cluster.
    pub async fn slurm<'b, F>(&'b self, write: impl FnOnce(&'b Cluster) -> F) -> Result<(), SlurmRequestError>
    where
        F: Future<Output = Result<(), slurm_rest::Error>>,
    {
        match &self.cluster {
            Some(cluster) => self.write(write(cluster)).await,
            None => Err(RequestError::Refused(slurm_rest::Error::Invalid(
                "the Controller does not exist".to_owned(),
            ))),
        }
    }

    /// Sends a request while there is time for its answer. Reads go through this directly.
    pub async fn attempt<T, E: MaybeFinal>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, RequestError<E>> {
        if !self.may_send() {
            return Err(RequestError::OutOfTime);
        }
        let limit = self.timing.write_limit;
        match timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is_final() => Err(RequestError::Refused(error)),
            Ok(Err(error)) => Err(RequestError::Ambiguous(error)),
            Err(_) => Err(RequestError::TimedOut(limit)),
        }
    }

    /// The known results of writes to pods.
    pub fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock()
    }

    /// The results of writes to pods, after the last write.
    pub fn into_results(self) -> Results {
        self.results.into_inner()
    }

    fn may_send(&self) -> bool {
        self.clock.may_send((self.executor.clock)()) && !(self.executor.is_stopping)()
    }

    async fn call<T>(&self, call: BoxFuture<'_, Result<T, Unavailable>>) -> Result<T, Unavailable> {
        let limit = self.timing.rpc_limit;
        let silence = || Unavailable(format!("no answer within {limit:?}").into());
        timeout(limit, call).await.unwrap_or_else(|_| Err(silence()))
    }
}

/// Growing pauses between the retries of a request.
fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_RETRY_PAUSE), |pause| Some(LONGEST_RETRY_PAUSE.min(*pause * 2)))
}
