//! A simulation of replicas with the worst faults that the protocol allows, and a checker that knows every batch ever
//! granted.
//!
//! An unanswered write lands at the last possible moment. A live read shows the writes that have landed and nothing more.
//! A cache shows the results of the replica's own batch and nothing more. `Begin` and `Done` are repeated at any time.

use super::*;
use crate::messages::Epoch;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Few, so that replicas compete for them.
const NODESETS: [&str; 2] = ["gpu", "cpu"];

#[derive(Clone, Debug)]
pub enum Action {
    Advance(u64),
    /// A replica plans from its view and sends `Begin`; after `NeedFresh` once more if it `retries_at_once`.
    Begin {
        replica: usize,
        nodeset: usize,
        ops: Ops,
        retries_at_once: bool,
    },
    /// A replica loses its view and basis.
    Forget {
        replica: usize,
        nodeset: usize,
    },
    /// A holder ends its batch: all of its writes were answered.
    Done {
        replica: usize,
        nodeset: usize,
    },
    /// A copy of an earlier `Begin` arrives.
    RepeatBegin(prop::sample::Index),
    /// A copy of an earlier `Done` arrives.
    RepeatDone(prop::sample::Index),
    /// The service crashes and another one takes over.
    Restart,
}

pub fn actions() -> impl Strategy<Value = Vec<Action>> {
    let seconds = prop::sample::select(vec![1, 5, 10, 15, 20, 25, 30, 35, 60]);
    let ops = prop::sample::select(vec![CREATE, CREATE, DELETE, DRAIN, BOTH]);
    let replica_and_nodeset = || (0..REPLICAS.len() - 1, prop_oneof![5 => Just(0), 1 => Just(1)]);
    let action = prop_oneof![
        8 => seconds.prop_map(Action::Advance),
        16 => (replica_and_nodeset(), ops, prop::bool::weighted(0.7)).prop_map(
            |((replica, nodeset), ops, retries_at_once)| Action::Begin { replica, nodeset, ops, retries_at_once }
        ),
        1 => replica_and_nodeset().prop_map(|(replica, nodeset)| Action::Forget { replica, nodeset }),
        10 => replica_and_nodeset().prop_map(|(replica, nodeset)| Action::Done { replica, nodeset }),
        2 => any::<prop::sample::Index>().prop_map(Action::RepeatBegin),
        2 => any::<prop::sample::Index>().prop_map(Action::RepeatDone),
        1 => Just(Action::Restart),
    ];
    prop::collection::vec(action, 1..120)
}

/// The batches whose effects a replica's view contains.
type View = BTreeSet<BatchId>;

/// A batch that was granted at some time.
struct PastBatch {
    id: BatchId,
    nodeset: NodeSetName,
    epoch: Epoch,
    only_creates: bool,
    granted_at: Duration,
    /// When the last of its writes lands.
    lands_at: Duration,
    /// Whether the service acknowledged `Done`.
    closed: bool,
}

/// State of a replica for one NodeSet.
#[derive(Default)]
struct ReplicaState {
    basis: Option<Basis>,
    view: View,
    /// The batch that the replica holds, or believes to hold.
    held: Option<BatchId>,
}

pub struct Simulation {
    service: Service,
    past: Vec<PastBatch>,
    replicas: BTreeMap<(usize, usize), ReplicaState>,
    /// Every `Begin` sent, with the time of the first sending and the view of the plan.
    begins: Vec<(Begin, Duration, View)>,
    /// Every `Done` sent, with its first answer.
    dones: Vec<(BatchId, Option<Basis>)>,
    /// Numbers that were replaced.
    used_numbers: BTreeSet<(Epoch, u64)>,
    current_numbers: BTreeMap<NodeSetName, (Epoch, u64)>,
    pub grants: usize,
}

impl Simulation {
    pub fn new(timing: Timing) -> Self {
        let mut service = Service::settled();
        service.machine.timing = timing;
        Self {
            service,
            past: Vec::new(),
            replicas: BTreeMap::new(),
            begins: Vec::new(),
            dones: Vec::new(),
            used_numbers: BTreeSet::new(),
            current_numbers: BTreeMap::new(),
            grants: 0,
        }
    }

    pub fn act(&mut self, action: &Action) -> Result<(), TestCaseError> {
        match action {
            Action::Advance(seconds) => self.service.advance(secs(*seconds)),
            Action::Begin { replica, nodeset, ops, retries_at_once } => {
                let answer = self.plan_and_begin(*replica, *nodeset, *ops)?;
                if *retries_at_once && matches!(answer, Answer::NeedFresh(_)) {
                    self.plan_and_begin(*replica, *nodeset, *ops)?;
                }
            }
            Action::Forget { replica, nodeset } => drop(self.replicas.remove(&(*replica, *nodeset))),
            Action::Done { replica, nodeset } => self.done(*replica, *nodeset),
            Action::RepeatBegin(index) if !self.begins.is_empty() => {
                let (request, sent_at, view) = index.get(&self.begins).clone();
                self.send_begin(&request, sent_at, &view)?;
            }
            Action::RepeatDone(index) if !self.dones.is_empty() => {
                let (batch, first) = index.get(&self.dones).clone();
                let repeated = self.service.machine.done(&batch, self.service.now);
                prop_assert!(repeated.is_none() || repeated == first, "{first:?} became {repeated:?}");
            }
            Action::RepeatBegin(_) | Action::RepeatDone(_) => {}
            Action::Restart => self.restart(),
        }
        self.check_state()
    }

    fn restart(&mut self) {
        let (now, timing) = (self.service.now, self.service.machine.timing);
        let epoch =
            Epoch::from(format!("e-{}", self.dones.len() + self.begins.len() + self.used_numbers.len()));
        let parameters =
            Parameters { epoch, timing, limits: Limits::default(), predecessor: Predecessor::Unknown };
        self.service.machine = Machine::new(parameters, now);
        for replica in REPLICAS {
            let heartbeat = Heartbeat { replica: replica.into(), leaving: false };
            self.service.machine.heartbeat(&heartbeat, now);
        }
    }

    fn plan_and_begin(&mut self, replica: usize, nodeset: usize, ops: Ops) -> Result<Answer, TestCaseError> {
        let state = self.replicas.entry((replica, nodeset)).or_default();
        // A replica holds one batch per NodeSet: it abandons an earlier one.
        state.held = None;
        let (basis, view) = (state.basis.clone(), state.view.clone());
        let request = self.service.request(NODESETS[nodeset], ops);
        let request = Begin {
            batch: BatchId { replica: REPLICAS[replica].into(), ..request.batch },
            cluster_key: KEYS[replica].clone(),
            basis,
            ..request
        };
        let now = self.service.now;
        self.begins.push((request.clone(), now, view.clone()));
        let answer = self.send_begin(&request, now, &view)?;
        match &answer {
            Answer::Granted(_) => {
                let state = self.replicas.entry((replica, nodeset)).or_default();
                state.held = Some(request.batch);
                state.basis = None;
            }
            Answer::NeedFresh(basis) => {
                let (basis, view) = (Some(basis.clone()), self.live_view(&request.nodeset));
                self.replicas.insert((replica, nodeset), ReplicaState { basis, view, held: None });
            }
            Answer::Wait(_) | Answer::NotOwner(_) => {}
        }
        Ok(answer)
    }

    /// The view of a live read.
    fn live_view(&self, nodeset: &NodeSetName) -> View {
        let landed = |past: &&PastBatch| past.nodeset == *nodeset && past.lands_at <= self.service.now;
        self.past.iter().filter(landed).map(|past| past.id.clone()).collect()
    }

    fn send_begin(
        &mut self,
        request: &Begin,
        sent_at: Duration,
        view: &View,
    ) -> Result<Answer, TestCaseError> {
        let answer = self.service.begin(request);
        let granted_before = self.past.iter().any(|past| past.id == request.batch);
        if matches!(answer, Answer::Granted(_)) && !granted_before {
            self.check_grant(request, view)?;
            let Timing { lease, write_limit, landing, .. } = self.service.machine.timing;
            self.past.push(PastBatch {
                id: request.batch.clone(),
                nodeset: request.nodeset.clone(),
                epoch: self.service.machine.epoch.clone(),
                only_creates: request.ops.only_creates(),
                granted_at: self.service.now,
                lands_at: sent_at + lease.saturating_sub(write_limit) + landing,
                closed: false,
            });
            self.grants += 1;
        }
        Ok(answer)
    }

    fn done(&mut self, replica: usize, nodeset: usize) {
        let now = self.service.now;
        let Some(state) = self.replicas.get_mut(&(replica, nodeset)) else { return };
        let Some(batch) = state.held.take() else { return };
        let closed = self.service.machine.done(&batch, now);
        state.basis.clone_from(&closed);
        state.view.insert(batch.clone());
        for past in self.past.iter_mut().filter(|past| past.id == batch) {
            past.closed = closed.is_some();
            past.lands_at = past.lands_at.min(now);
        }
        self.dones.push((batch, closed));
    }

    /// Checks a new grant against all earlier batches of the NodeSet.
    fn check_grant(&self, request: &Begin, view: &View) -> Result<(), TestCaseError> {
        let now = self.service.now;
        let timing = self.service.machine.timing;
        let earlier = self.past.iter().filter(|past| past.nodeset == request.nodeset);
        for past in earlier {
            let same_epoch = past.epoch == self.service.machine.epoch;
            let runs_out_after = if past.only_creates { timing.lease } else { timing.hold() };
            if same_epoch {
                let ran_out = past.granted_at + runs_out_after <= now;
                prop_assert!(past.closed || ran_out, "{} is still open", past.id);
            }
            // Half open: the earlier batch only created, or belongs to a previous epoch.
            let half_open = request.ops.only_creates() && !past.closed && (past.only_creates || !same_epoch);
            prop_assert!(half_open || past.lands_at <= now, "{} may still land", past.id);
            prop_assert!(half_open || view.contains(&past.id), "the view misses {}", past.id);
        }
        let record = self.service.machine.records.get(&request.nodeset);
        let half_open = record.is_some_and(|record| record.half_open_until.is_some());
        prop_assert!(!half_open || request.ops.only_creates(), "more than creates was granted half open");
        Ok(())
    }

    /// Checks invariants of the machine's state.
    fn check_state(&mut self) -> Result<(), TestCaseError> {
        let machine = &mut self.service.machine;
        prop_assert_eq!(&machine.records, &machine.records.reindexed());
        let open = machine.status(self.service.now).open;
        prop_assert_eq!(machine.creates.usage(), usage_of(open.iter().map(|batch| batch.granted.creates)));
        prop_assert_eq!(machine.deletes.usage(), usage_of(open.iter().map(|batch| batch.granted.deletes)));
        for (nodeset, record) in machine.records.iter() {
            let number = (machine.epoch.clone(), record.number);
            prop_assert!(!self.used_numbers.contains(&number), "{number:?} is used twice");
            if let Some(before) = self.current_numbers.insert(nodeset.clone(), number.clone())
                && before != number
            {
                self.used_numbers.insert(before);
            }
        }
        Ok(())
    }
}

/// Ops in flight, and the number of batches that have any.
pub fn usage_of(granted: impl Iterator<Item = u32>) -> (u32, u32) {
    granted.fold((0, 0), |(sum, holders), granted| (sum + granted, holders + u32::from(granted > 0)))
}
