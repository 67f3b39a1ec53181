//! Condition messages are for people: rewording them does not change the plan.

use super::properties::{case, fixture};
use crate::plan::fixture::Fixture;
use crate::plan::testing::minute;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use slinky_api::conditions::{DEGRADED, PROGRESSING, RESERVATION_CREATED, SLURM_REACHABLE};
use slinky_api::labels::annotations::RESERVATION;
use slinky_api::labels::{RESERVATION_FINALIZER, WORKERS_FINALIZER};
use slurm_rest::Reservation;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The messages that the operator writes today.
const MESSAGES: [&str; 3] = [
    "SlurmOperatorMaint-gpu starts 2023-03-28T12:40:00Z for 30 min [IGNORE_JOBS, MAINT]",
    "3 of 3 workers",
    "",
];

/// A reservation in Slurm, as `(start, minutes)`.
type Live = Option<(i64, i64)>;

/// A scheduled update with a start, flags, a reservation in Slurm and a record of an earlier start.
fn scheduled(start: i64, flags: &[&str], live: Live, recorded: Option<i64>) -> Fixture {
    let schedule = json!({ "startTime": minute(start), "duration": "30m", "flags": flags });
    let strategy = json!({ "type": "ScheduledUpdate", "scheduledUpdate": schedule });
    let mut fixture =
        Fixture::new(&json!({ "replicas": 2, "updateStrategy": strategy })).workers(2).nodeset(|nodeset| {
            nodeset.metadata.finalizers =
                Some([WORKERS_FINALIZER, RESERVATION_FINALIZER].map(str::to_owned).to_vec());
            let record = recorded.map(|start| {
                let mut all = flags.to_vec();
                all.extend(["IGNORE_JOBS", "MAINT"]);
                json!({ "name": "SlurmOperatorMaint-gpu", "start": minute(start), "minutes": 30, "flags": all })
            });
            let annotations = nodeset.metadata.annotations.get_or_insert_default();
            annotations.extend(record.map(|record| (RESERVATION.to_owned(), record.to_string())));
        });
    let crate::slurm::View::Known(known) = &mut fixture.observed.slurm else {
        panic!("Slurm is unreachable")
    };
    let reservations = live.map(|(start, minutes)| reservation(start, minutes, flags)).into_iter();
    Arc::make_mut(&mut known.snapshot).reservations = Some(
        reservations.map(|reservation| (reservation.name.clone(), reservation)).collect::<BTreeMap<_, _>>(),
    );
    fixture
}

fn reservation(start: i64, minutes: i64, flags: &[&str]) -> Reservation {
    let time = |at: i64| json!({ "set": true, "infinite": false, "number": minute(at).as_second() });
    let flags: Vec<_> = flags.iter().chain(&["MAINT", "IGNORE_JOBS", "SPEC_NODES"]).collect();
    let reservation: Value = json!({ "name": "SlurmOperatorMaint-gpu", "node_list": "gpu-[0-1]", "users": "slurm",
        "flags": flags, "start_time": time(start), "end_time": time(start + minutes) });
    serde_json::from_value(reservation).unwrap()
}

/// The same observation with all these conditions on the NodeSet, each with this message.
fn with_message(fixture: Fixture, message: &str) -> Fixture {
    fixture.nodeset(|nodeset| {
        let types = [DEGRADED, PROGRESSING, RESERVATION_CREATED, SLURM_REACHABLE];
        nodeset.status.get_or_insert_default().conditions = types
            .map(|type_| Condition {
                type_: type_.to_owned(),
                status: "True".to_owned(),
                reason: "Any".to_owned(),
                message: message.to_owned(),
                observed_generation: Some(1),
                last_transition_time: Time(minute(0)),
            })
            .to_vec();
    })
}

fn summary(fixture: &Fixture) -> String {
    let plan = fixture.plan();
    let obstacles: Vec<_> = plan.obstacles.iter().map(ToString::to_string).collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {obstacles:?} {:?} {:?} {:?}",
        plan.effects,
        plan.pod_mirrors,
        plan.node_mirrors,
        plan.waiting,
        plan.reservation,
        plan.metadata,
        plan.deletion,
        plan.requeue_after,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn condition_messages_do_not_change_the_plan_of_a_scheduled_update(
        start in select(vec![40i64, 59, 90, 120]),
        flags in select(vec![&[][..], &["DAILY"], &["DAILY", "FORCE_START"]]),
        live in select(vec![None, Some((40i64, 30i64)), Some((120, 30)), Some((120, 10)), Some((1560, 30))]),
        recorded in select(vec![None, Some(40i64), Some(59), Some(90), Some(120)]),
        before in select(MESSAGES.to_vec()),
        after in prop_oneof![select(MESSAGES.to_vec()).prop_map(str::to_owned), any::<String>()],
    ) {
        let build = || scheduled(start, flags, live, recorded);
        prop_assert_eq!(summary(&with_message(build(), before)), summary(&with_message(build(), &after)));
    }

    #[test]
    fn condition_messages_do_not_change_the_plan(
        replicas in 0usize..6, cases in prop::collection::vec(case(), 0..6),
        before in select(MESSAGES.to_vec()), after in any::<String>(),
    ) {
        let build = || fixture(replicas, 1, &cases);
        prop_assert_eq!(summary(&with_message(build(), before)), summary(&with_message(build(), &after)));
    }
}
