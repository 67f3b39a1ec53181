//! A world around the machine in which everything goes as wrong as the rules of the replicas allow, and a checker that
//! knows every batch ever granted.
//!
//! A write that was not answered lands at the last possible moment. A live read sees what has landed and nothing more.
//! A cache shows the results of the replica's own batch and nothing more. Requests and ends are repeated at any time.

use super::*;
use crate::messages::Epoch;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Few, so that replicas meet.
const NODESETS: [&str; 2] = ["gpu", "cpu"];

#[derive(Clone, Debug)]
pub enum Action {
    Pass(u64),
    /// A replica plans and asks from what it knows, and asks again at once if it is told to read and is `swift`.
    Begin {
        replica: usize,
        nodeset: usize,
        ops: Ops,
        swift: bool,
    },
    /// A replica lost what it knew.
    Forget {
        replica: usize,
        nodeset: usize,
    },
    /// A holder ends its batch: all of its writes were answered.
    Done {
        replica: usize,
        nodeset: usize,
    },
    /// A copy of an earlier request arrives.
    BeginAgain(prop::sample::Index),
    /// A copy of an earlier end arrives.
    DoneAgain(prop::sample::Index),
    /// The service dies and another one takes over.
    Restart,
}

pub fn actions() -> impl Strategy<Value = Vec<Action>> {
    let seconds = prop::sample::select(vec![1, 5, 10, 15, 20, 25, 30, 35, 60]);
    let ops = prop::sample::select(vec![CREATE, CREATE, DELETE, DRAIN, BOTH]);
    let who = || (0..REPLICAS.len() - 1, prop_oneof![5 => Just(0), 1 => Just(1)]);
    let action = prop_oneof![
        8 => seconds.prop_map(Action::Pass),
        16 => (who(), ops, prop::bool::weighted(0.7)).prop_map(|((replica, nodeset), ops, swift)| {
            Action::Begin { replica, nodeset, ops, swift }
        }),
        1 => who().prop_map(|(replica, nodeset)| Action::Forget { replica, nodeset }),
        10 => who().prop_map(|(replica, nodeset)| Action::Done { replica, nodeset }),
        2 => any::<prop::sample::Index>().prop_map(Action::BeginAgain),
        2 => any::<prop::sample::Index>().prop_map(Action::DoneAgain),
        1 => Just(Action::Restart),
    ];
    prop::collection::vec(action, 1..120)
}

/// The batches whose effects a plan was made with.
type View = BTreeSet<BatchId>;

/// A batch as it was granted.
struct Past {
    id: BatchId,
    nodeset: NodeSetName,
    epoch: Epoch,
    only_creates: bool,
    granted_at: Duration,
    /// When the last of its writes lands.
    lands_at: Duration,
    /// Whether the service knows that they landed.
    closed: bool,
}

/// What a replica knows of a NodeSet.
#[derive(Default)]
struct Knowledge {
    basis: Option<Basis>,
    view: View,
    /// The batch that it holds, or believes to hold.
    held: Option<BatchId>,
}

pub struct World {
    service: Service,
    past: Vec<Past>,
    known: BTreeMap<(usize, usize), Knowledge>,
    /// Everything ever sent, with the time of the first sending and the view of the plan.
    requests: Vec<(Begin, Duration, View)>,
    /// Ends that were sent, with the first answer of the epoch.
    ends: Vec<(BatchId, Option<Basis>)>,
    /// Numbers that records had and lost.
    used: BTreeSet<(Epoch, u64)>,
    current: BTreeMap<NodeSetName, (Epoch, u64)>,
    pub grants: usize,
}

impl World {
    pub fn new(timing: Timing) -> Self {
        let mut service = Service::settled();
        service.machine.timing = timing;
        Self {
            service,
            past: Vec::new(),
            known: BTreeMap::new(),
            requests: Vec::new(),
            ends: Vec::new(),
            used: BTreeSet::new(),
            current: BTreeMap::new(),
            grants: 0,
        }
    }

    pub fn act(&mut self, action: &Action) -> Result<(), TestCaseError> {
        match action {
            Action::Pass(seconds) => self.service.pass(secs(*seconds)),
            Action::Begin { replica, nodeset, ops, swift } => {
                let answer = self.plan_and_begin(*replica, *nodeset, *ops)?;
                if *swift && matches!(answer, Answer::NeedFresh(_)) {
                    self.plan_and_begin(*replica, *nodeset, *ops)?;
                }
            }
            Action::Forget { replica, nodeset } => drop(self.known.remove(&(*replica, *nodeset))),
            Action::Done { replica, nodeset } => self.end(*replica, *nodeset),
            Action::BeginAgain(index) if !self.requests.is_empty() => {
                let (request, sent_at, view) = index.get(&self.requests).clone();
                self.send(&request, sent_at, &view)?;
            }
            Action::DoneAgain(index) if !self.ends.is_empty() => {
                let (batch, first) = index.get(&self.ends).clone();
                let again = self.service.machine.done(&batch, self.service.now);
                prop_assert!(again.is_none() || again == first, "{first:?} became {again:?}");
            }
            Action::BeginAgain(_) | Action::DoneAgain(_) => {}
            Action::Restart => self.restart(),
        }
        self.check_state()
    }

    fn restart(&mut self) {
        let (now, timing) = (self.service.now, self.service.machine.timing);
        let epoch = Epoch::from(format!("e-{}", self.ends.len() + self.requests.len() + self.used.len()));
        let parameters =
            Parameters { epoch, timing, limits: Limits::default(), predecessor: Predecessor::Unknown };
        self.service.machine = Machine::new(parameters, now);
        for replica in REPLICAS {
            let heartbeat = Heartbeat { replica: replica.into(), leaving: false };
            self.service.machine.heartbeat(&heartbeat, now);
        }
    }

    fn plan_and_begin(&mut self, replica: usize, nodeset: usize, ops: Ops) -> Result<Answer, TestCaseError> {
        let known = self.known.entry((replica, nodeset)).or_default();
        // What is still held is a batch that the replica gave up: one at a time.
        known.held = None;
        let (basis, view) = (known.basis.clone(), known.view.clone());
        let request = self.service.request(NODESETS[nodeset], ops);
        let request = Begin {
            batch: BatchId { replica: REPLICAS[replica].into(), ..request.batch },
            cluster_key: KEYS[replica].clone(),
            basis,
            ..request
        };
        let now = self.service.now;
        self.requests.push((request.clone(), now, view.clone()));
        let answer = self.send(&request, now, &view)?;
        match &answer {
            Answer::Granted(_) => {
                let known = self.known.entry((replica, nodeset)).or_default();
                known.held = Some(request.batch);
                known.basis = None;
            }
            Answer::NeedFresh(basis) => {
                let (basis, view) = (Some(basis.clone()), self.landed(&request.nodeset));
                self.known.insert((replica, nodeset), Knowledge { basis, view, held: None });
            }
            Answer::Wait(_) | Answer::NotOwner(_) => {}
        }
        Ok(answer)
    }

    /// What a live read shows.
    fn landed(&self, nodeset: &NodeSetName) -> View {
        let landed = |past: &&Past| past.nodeset == *nodeset && past.lands_at <= self.service.now;
        self.past.iter().filter(landed).map(|past| past.id.clone()).collect()
    }

    fn send(&mut self, request: &Begin, sent_at: Duration, view: &View) -> Result<Answer, TestCaseError> {
        let answer = self.service.begin(request);
        let granted_before = self.past.iter().any(|past| past.id == request.batch);
        if matches!(answer, Answer::Granted(_)) && !granted_before {
            self.check_grant(request, view)?;
            let Timing { lease, write_limit, landing, .. } = self.service.machine.timing;
            self.past.push(Past {
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

    fn end(&mut self, replica: usize, nodeset: usize) {
        let now = self.service.now;
        let Some(known) = self.known.get_mut(&(replica, nodeset)) else { return };
        let Some(batch) = known.held.take() else { return };
        let closed = self.service.machine.done(&batch, now);
        known.basis.clone_from(&closed);
        known.view.insert(batch.clone());
        for past in self.past.iter_mut().filter(|past| past.id == batch) {
            past.closed = closed.is_some();
            past.lands_at = past.lands_at.min(now);
        }
        self.ends.push((batch, closed));
    }

    /// What may be true of an earlier batch of the same name when another is granted.
    fn check_grant(&self, request: &Begin, view: &View) -> Result<(), TestCaseError> {
        let now = self.service.now;
        let timing = self.service.machine.timing;
        let earlier = self.past.iter().filter(|past| past.nodeset == request.nodeset);
        for past in earlier {
            let same_epoch = past.epoch == self.service.machine.epoch;
            let lives = if past.only_creates { timing.lease } else { timing.hold() };
            if same_epoch {
                prop_assert!(past.closed || past.granted_at + lives <= now, "{} is still open", past.id);
            }
            // Half open: the earlier one only created, or belongs to a service that is no more.
            let half_open = request.ops.only_creates() && !past.closed && (past.only_creates || !same_epoch);
            prop_assert!(half_open || past.lands_at <= now, "{} may still land", past.id);
            prop_assert!(half_open || view.contains(&past.id), "the view misses {}", past.id);
        }
        let record = self.service.machine.records.get(&request.nodeset);
        let half_open = record.is_some_and(|record| record.half_open_until.is_some());
        prop_assert!(!half_open || request.ops.only_creates(), "more than creates was granted half open");
        Ok(())
    }

    /// What is true of the machine at any time.
    fn check_state(&mut self) -> Result<(), TestCaseError> {
        let machine = &mut self.service.machine;
        prop_assert_eq!(&machine.records, &machine.records.indexed_anew());
        let open = machine.status(self.service.now).open;
        prop_assert_eq!(machine.creates.used(), used(open.iter().map(|batch| batch.granted.creates)));
        prop_assert_eq!(machine.deletes.used(), used(open.iter().map(|batch| batch.granted.deletes)));
        for (nodeset, record) in machine.records.iter() {
            let number = (machine.epoch.clone(), record.number);
            prop_assert!(!self.used.contains(&number), "{number:?} is used again");
            if let Some(before) = self.current.insert(nodeset.clone(), number.clone())
                && before != number
            {
                self.used.insert(before);
            }
        }
        Ok(())
    }
}

/// How much some batches have in flight, and how many have anything.
pub fn used(granted: impl Iterator<Item = u32>) -> (u32, u32) {
    granted.fold((0, 0), |(sum, holders), granted| (sum + granted, holders + u32::from(granted > 0)))
}
