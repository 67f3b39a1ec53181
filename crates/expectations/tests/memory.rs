//! Memory use of the service's state.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use expectations::{
    Answer, BatchId, Begin, Heartbeat, Limits, Machine, NodeSetName, Ops, Parameters, Predecessor, Timing,
};
use std::time::Duration;

const NODESETS: u64 = 10_000;
const REPLICA: &str = "6f1f4a52-4c4a-4b0e-9f6e-2d3f0c8a7b11";

/// Resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A request as it is decoded from a message: it shares no strings with other requests.
fn request(nodeset: u64, counter: u64) -> Begin {
    Begin {
        batch: BatchId { replica: REPLICA.into(), counter },
        cluster_key: "slurm/cluster".into(),
        nodeset: NodeSetName {
            namespace: "slurm-production".into(),
            name: format!("worker-nodeset-{nodeset}").into(),
        },
        uid: format!("{nodeset:08}-4c4a-4b0e-9f6e-2d3f0c8a7b11").into(),
        generation: 1,
        basis: None,
        ops: Ops { others: 1, ..Ops::default() },
    }
}

/// Has a batch granted and returns its request.
fn open_batch(machine: &mut Machine, nodeset: u64, counter: u64) -> Begin {
    let now = Duration::ZERO;
    let Answer::NeedFresh(basis) = machine.begin(&request(nodeset, counter), now) else {
        panic!("not NeedFresh")
    };
    let request = Begin { basis: Some(basis), ..request(nodeset, counter) };
    assert!(matches!(machine.begin(&request, now), Answer::Granted(_)));
    request
}

#[test]
fn ten_thousand_nodesets_fit_in_ten_mebibytes() {
    let parameters = Parameters {
        epoch: "e".into(),
        timing: Timing::default(),
        limits: Limits::default(),
        predecessor: Predecessor::Settled,
    };
    let mut machine = Machine::new(parameters, Duration::ZERO);
    machine.heartbeat(&Heartbeat { replica: REPLICA.into(), leaving: false }, Duration::ZERO);
    let before = resident_kib();
    for nodeset in 0..NODESETS {
        let ended = open_batch(&mut machine, nodeset, nodeset);
        machine.done(&ended.batch, Duration::ZERO);
        open_batch(&mut machine, nodeset, NODESETS + nodeset);
    }
    let grown = resident_kib() - before;
    println!("{grown} KiB");
    assert!(grown < 10 * 1024, "{grown} KiB for {NODESETS} NodeSets");
    assert_eq!(machine.status(Duration::ZERO).open.len(), usize::try_from(NODESETS).unwrap());
}
