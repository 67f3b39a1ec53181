//! Tests of the machine's answers and their timing.

mod answers;
mod budgets;
mod hard_cases;
mod members;
mod properties;
mod simulation;
mod times;

use super::{Limits, Machine, Parameters, Predecessor};
use crate::messages::{
    Answer, Basis, BatchId, Begin, Granted, Heartbeat, NodeSetName, Ops, ReplicaId, Wait, WaitReason,
};
use crate::ownership::owner_of;
use crate::timing::Timing;
use std::sync::LazyLock;
use std::time::Duration;

const REPLICAS: [&str; 3] = ["r-0", "r-1", "r-2"];
const EPOCH: &str = "e-0";

const CREATE: Ops = Ops { creates: 1, deletes: 0, others: 0 };
const DELETE: Ops = Ops { creates: 0, deletes: 1, others: 0 };
const DRAIN: Ops = Ops { creates: 0, deletes: 0, others: 1 };
const BOTH: Ops = Ops { creates: 1, deletes: 1, others: 0 };

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn nodeset(name: &str) -> NodeSetName {
    NodeSetName { namespace: "slurm".into(), name: name.into() }
}

/// For each replica a cluster key that it owns while all of them are live.
static KEYS: LazyLock<[String; 3]> = LazyLock::new(|| {
    let replicas = REPLICAS.map(ReplicaId::from);
    REPLICAS.map(|replica| {
        let mut keys = (0..100).map(|number| format!("slurm/cluster-{number}"));
        keys.find(|key| owner_of(key, &replicas).unwrap().as_str() == replica).unwrap()
    })
});

/// A machine with a clock and a counter for batch ids.
struct Service {
    machine: Machine,
    now: Duration,
    counter: u64,
}

impl Service {
    /// A service at time zero with all replicas live.
    fn new(predecessor: Predecessor, limits: Limits) -> Self {
        let parameters = Parameters { epoch: EPOCH.into(), timing: Timing::default(), limits, predecessor };
        let mut machine = Machine::new(parameters, Duration::ZERO);
        for replica in REPLICAS {
            machine.heartbeat(&Heartbeat { replica: replica.into(), leaving: false }, Duration::ZERO);
        }
        Self { machine, now: Duration::ZERO, counter: 0 }
    }

    /// A service whose predecessor was settled.
    fn settled() -> Self {
        Self::new(Predecessor::Settled, Limits::default())
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
    }

    /// The first request for a new batch of the first replica, without a basis.
    fn request(&mut self, name: &str, ops: Ops) -> Begin {
        self.counter += 1;
        Begin {
            batch: BatchId { replica: REPLICAS[0].into(), counter: self.counter },
            cluster_key: KEYS[0].clone(),
            nodeset: nodeset(name),
            uid: format!("uid of {name}").into(),
            generation: 1,
            basis: None,
            ops,
        }
    }

    fn begin(&mut self, request: &Begin) -> Answer {
        self.machine.begin(request, self.now)
    }

    fn done(&mut self, request: &Begin) -> Option<Basis> {
        self.machine.done(&request.batch, self.now)
    }

    /// A request with the basis of a `NeedFresh` answer.
    fn fresh_request(&mut self, name: &str, ops: Ops) -> Begin {
        let request = self.request(name, ops);
        let basis = need_fresh(&self.begin(&request));
        Begin { basis: Some(basis), ..request }
    }

    /// A batch that was granted in full.
    fn open(&mut self, name: &str, ops: Ops) -> Begin {
        let request = self.fresh_request(name, ops);
        assert_eq!(self.begin(&request), granted(ops.creates, ops.deletes));
        request
    }
}

fn granted(creates: u32, deletes: u32) -> Answer {
    Answer::Granted(Granted { creates, deletes })
}

fn need_fresh(answer: &Answer) -> Basis {
    let Answer::NeedFresh(basis) = answer else { panic!("not NeedFresh: {answer:?}") };
    basis.clone()
}

fn wait(answer: &Answer, reason: WaitReason) -> Duration {
    let Answer::Wait(Wait { after, reason: given }) = answer else { panic!("not Wait: {answer:?}") };
    assert_eq!(*given, reason);
    *after
}
