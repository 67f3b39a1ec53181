//! All batches of all replicas, and the laws about them: an effect is sent by the holder of a batch and in its time, it has
//! landed when the batch ends, and batches of a NodeSet are in force one after the other, each planned from a view of after the
//! one before. Other writes are sent by the owner.

use super::process::{NAMESPACE, REPLICA};
use expectations::{Answer, Basis, BatchId, Begin, Expectations, Ops, Ownership, Timing, Unavailable};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use test_support::api_model::{ApiModel, Change};
use tokio::time::Instant;

/// How long a replica may go on with what it was doing when it lost a NodeSet: the mirrors of a reconcile.
const OWNER_GRACE: Duration = Duration::from_mins(1);

/// All batches that were requested.
pub struct Ledger {
    api: ApiModel,
    timing: Timing,
    batches: Mutex<BTreeMap<BatchId, Batch>>,
    /// When each replica last believed to own each NodeSet.
    owned: Mutex<BTreeMap<(String, &'static str), Instant>>,
    violations: Mutex<Vec<String>>,
}

struct Batch {
    nodeset: String,
    first_sent: Instant,
    ops: Ops,
    basis: Option<Basis>,
    /// The service granted it.
    is_granted: bool,
    /// Its holder knows that it was granted, and has not sent `Done`.
    is_held: bool,
    /// Number of changes at the API server when its holder sent `Done`.
    done_at: Option<usize>,
}

impl Ledger {
    pub fn new(api: ApiModel) -> Self {
        Self {
            api,
            timing: Timing::default(),
            batches: Mutex::default(),
            owned: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    /// The first violation since the last call.
    pub fn violation(&self) -> Option<String> {
        let violations = std::mem::take(&mut *self.violations.lock());
        violations.into_iter().next()
    }

    /// A replica believes to own a NodeSet.
    pub fn owns(&self, replica: &str, nodeset: &'static str) {
        self.owned.lock().insert((replica.to_owned(), nodeset), Instant::now());
    }

    /// The name under which a replica sends a request now: itself, the NodeSets that it works on, and the batches that it may
    /// write in.
    pub fn sender(&self, replica: &str) -> String {
        let batches = self.batches.lock();
        let owned = self.owned.lock();
        let owned = owned.iter().filter(|((owner, _), at)| owner == replica && at.elapsed() < OWNER_GRACE);
        let owned = owned.map(|((_, nodeset), _)| format!("#{nodeset}"));
        let usable =
            batches.iter().filter(|(id, batch)| id.replica.as_str() == replica && self.is_usable(batch));
        let usable = usable.map(|(id, batch)| format!("#{}={}", batch.nodeset, id.counter));
        std::iter::once(replica.to_owned()).chain(owned).chain(usable).collect::<Vec<_>>().concat()
    }

    fn is_usable(&self, batch: &Batch) -> bool {
        batch.is_held && batch.first_sent.elapsed() + self.timing.write_limit <= self.timing.lease
    }

    /// Whether a replica may write in a batch now.
    pub fn is_busy(&self, replica: &str) -> bool {
        let batches = self.batches.lock();
        batches.iter().any(|(id, batch)| id.replica.as_str() == replica && self.is_usable(batch))
    }

    /// Whether a replica may write in a batch of a NodeSet now.
    pub fn is_in_batch(&self, nodeset: &str) -> bool {
        let batches = self.batches.lock();
        batches.values().any(|batch| batch.nodeset == nodeset && self.is_usable(batch))
    }

    /// A replica sends an effect to the Slurm cluster of a NodeSet.
    pub fn slurm_effect_sent(&self, replica: &str, nodeset: &str, effect: &str) {
        if batch_of(&self.sender(replica), nodeset).is_none() {
            let violation = format!("{replica} sent {effect} to the Slurm of {nodeset} outside of a batch");
            self.violations.lock().push(violation);
        }
    }

    /// Checks a change of a NodeSet or one of its pods at the API server. `index` is its number.
    pub fn check(&self, change: &Change, is_effect: bool, nodeset: &str, index: usize) -> Result<(), String> {
        let Some(call) = change.by.as_ref().filter(|call| call.client.starts_with(REPLICA)) else {
            return Ok(());
        };
        if !is_effect {
            let is_owned = call.client.split('#').skip(1).any(|part| part == nodeset);
            let violation = || format!("{call} was sent by {}, which does not own {nodeset}", call.client);
            return if is_owned { Ok(()) } else { Err(violation()) };
        }
        let Some(batch) = batch_of(&call.client, nodeset) else {
            return Err(format!("{} was sent by {} outside of a batch", call, call.client));
        };
        let batches = self.batches.lock();
        match batches.get(&batch).and_then(|batch| batch.done_at) {
            Some(done_at) if done_at <= index => Err(format!("{call} landed after batch {batch} had ended")),
            _ => Ok(()),
        }
    }

    fn requested(&self, request: &Begin) {
        self.batches.lock().entry(request.batch.clone()).or_insert_with(|| Batch {
            nodeset: request.nodeset.name.as_ref().to_owned(),
            first_sent: Instant::now(),
            ops: request.ops,
            basis: request.basis.clone(),
            is_granted: false,
            is_held: false,
            done_at: None,
        });
    }

    /// The service granted a batch: no write of an earlier one may land any more, unless it only creates.
    pub fn granted(&self, request: &Begin) {
        let mut batches = self.batches.lock();
        let in_force = |batch: &Batch| {
            let landed = (self.timing.lease + self.timing.landing).saturating_sub(self.timing.write_limit);
            batch.is_granted && batch.done_at.is_none() && batch.first_sent.elapsed() < landed
        };
        let is_new = batches.get(&request.batch).is_some_and(|batch| !batch.is_granted);
        if is_new {
            let mut of_nodeset = batches.values().filter(|batch| *batch.nodeset == *request.nodeset.name);
            let is_reused = of_nodeset.any(|batch| batch.is_granted && batch.basis == request.basis);
            if request.basis.is_none() || is_reused {
                let violation = format!(
                    "batch {} was granted to a view that may lack an earlier batch: {:?}",
                    request.batch, request.basis
                );
                self.violations.lock().push(violation);
            }
        }
        if is_new && !request.ops.only_creates() {
            let mut others = batches.iter().filter(|(id, batch)| {
                **id != request.batch && *batch.nodeset == *request.nodeset.name && in_force(batch)
            });
            if let Some((other, batch)) = others.next() {
                let Begin { batch: id, ops, .. } = request;
                let violation =
                    format!("batch {id} {ops:?} was granted while {other} {:?} is in force", batch.ops);
                self.violations.lock().push(violation);
            }
        }
        if let Some(batch) = batches.get_mut(&request.batch) {
            batch.is_granted = true;
        }
    }

    fn held(&self, batch: &BatchId) {
        if let Some(batch) = self.batches.lock().get_mut(batch) {
            batch.is_held = batch.done_at.is_none();
        }
    }

    fn done(&self, batch: &BatchId) {
        if let Some(batch) = self.batches.lock().get_mut(batch) {
            batch.is_held = false;
            batch.done_at.get_or_insert(self.api.history_len());
        }
    }
}

/// The batch of a NodeSet in the name of a sender.
fn batch_of(sender: &str, nodeset: &str) -> Option<BatchId> {
    let mut parts = sender.split('#');
    let replica = parts.next()?;
    let counter = parts.find_map(|part| part.strip_prefix(nodeset)?.strip_prefix('='))?;
    Some(BatchId { replica: replica.into(), counter: counter.parse().ok()? })
}

/// The expectations service of one replica, with a record of its batches.
pub struct Recorded {
    pub service: Arc<dyn Expectations>,
    pub ledger: Arc<Ledger>,
}

impl Expectations for Recorded {
    fn begin(&self, request: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>> {
        async move {
            debug_assert_eq!(request.nodeset.namespace.as_ref(), NAMESPACE);
            self.ledger.requested(&request);
            let answer = self.service.begin(request.clone()).await?;
            if matches!(answer, Answer::Granted(_)) {
                self.ledger.granted(&request);
                self.ledger.held(&request.batch);
            }
            Ok(answer)
        }
        .boxed()
    }

    fn done(&self, batch: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>> {
        self.ledger.done(&batch);
        self.service.done(batch)
    }

    fn ownership(&self) -> Ownership {
        self.service.ownership()
    }

    fn ownership_changes(&self) -> BoxStream<'static, ()> {
        self.service.ownership_changes()
    }

    fn report_clusters(&self, cluster_keys: Vec<String>) {
        self.service.report_clusters(cluster_keys);
    }

    fn timing(&self) -> Timing {
        self.service.timing()
    }
}
