use super::*;
use crate::plan::finalizers::{missing_finalizers, remove_finalizers};
use crate::plan::fixture::{self, Fixture};
use crate::plan::testing::minute;
use crate::slurm::Snapshot;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::conditions::RESERVATION_CREATED;
use slinky_api::labels::annotations::RESERVATION;
use slinky_api::v1beta1::{NodeSetStatus, UpdateStrategyType};
use slurm_rest::ReservationRequest;
use std::collections::BTreeMap;
use std::sync::Arc;

mod input;

const NAME: &str = "SlurmOperatorMaint-gpu";
/// All decisions here are made at `minute(60)`.
const NOW: i64 = 60;
/// Description of the desired reservation of [`Scheduled::plain`].
const DESIRED: &str = "SlurmOperatorMaint-gpu starts 2023-03-28T12:40:00Z for 30 min [IGNORE_JOBS, MAINT]";

/// A NodeSet `gpu` with two workers and a scheduled update, and a Slurm cluster without reservations.
struct Scheduled(Fixture);

impl Scheduled {
    fn new(start: i64, flags: &[&str]) -> Self {
        Self::of(&json!({ "startTime": minute(start), "duration": "30m", "flags": flags }))
    }

    fn plain() -> Self {
        Self::new(120, &[])
    }

    fn of(schedule: &Value) -> Self {
        let strategy = json!({ "type": "ScheduledUpdate", "scheduledUpdate": schedule });
        let fixture = Fixture::new(&json!({ "replicas": 2, "updateStrategy": strategy })).workers(2);
        Self(fixture).known(|known| known.reservations = Some(BTreeMap::new()))
    }

    fn known(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        let View::Known(known) = &mut self.0.observed.slurm else { panic!("Slurm is unreachable") };
        change(Arc::make_mut(&mut known.snapshot));
        self
    }

    fn doubting(mut self, node: &str) -> Self {
        let View::Known(known) = &mut self.0.observed.slurm else { panic!("Slurm is unreachable") };
        known.uncertain.insert(node.to_owned());
        self
    }

    fn spec(self, change: impl FnOnce(&mut slinky_api::v1beta1::NodeSetSpec)) -> Self {
        Self(self.0.nodeset(|nodeset| change(&mut nodeset.spec)))
    }

    fn strategy(self, strategy: UpdateStrategyType) -> Self {
        self.spec(|spec| spec.update_strategy.as_mut().unwrap().type_ = strategy)
    }

    /// With the finalizer.
    fn with_finalizer(self) -> Self {
        let finalizers = ["other", WORKERS_FINALIZER, RESERVATION_FINALIZER].map(str::to_owned).to_vec();
        Self(self.0.nodeset(|nodeset| nodeset.metadata.finalizers = Some(finalizers)))
    }

    /// The NodeSet has the condition, without record: written by an operator that keeps none.
    fn with_condition(self) -> Self {
        let condition = Condition {
            type_: RESERVATION_CREATED.to_owned(),
            status: "True".to_owned(),
            reason: "Created".to_owned(),
            message: "for people".to_owned(),
            observed_generation: Some(1),
            last_transition_time: Time(minute(0)),
        };
        let status = NodeSetStatus { conditions: vec![condition], ..NodeSetStatus::default() };
        Self(self.0.nodeset(|nodeset| nodeset.status = Some(status)))
    }

    /// The NodeSet records that Slurm was last seen with this reservation.
    fn recorded(self, start: i64, minutes: i64, flags: &[&str]) -> Self {
        let record = record(start, minutes, flags);
        Self(self.with_condition().0.nodeset(|nodeset| {
            nodeset.annotations_mut().insert(RESERVATION.to_owned(), json!(record).to_string());
        }))
    }

    /// With this reservation in Slurm.
    fn with(self, name: &str, start: i64, minutes: i64, flags: &[&str], nodes: &str) -> Self {
        let time = |time: Timestamp| json!({ "set": true, "infinite": false, "number": time.as_second() });
        let flags: Vec<_> = flags.iter().chain(&["MAINT", "IGNORE_JOBS", "SPEC_NODES"]).collect();
        let reservation = serde_json::from_value(json!({
            "name": name, "node_list": nodes, "users": "slurm", "flags": flags,
            "start_time": time(minute(start)), "end_time": time(minute(start + minutes)),
        }));
        self.known(|known| {
            known.reservations.get_or_insert_default().insert(name.to_owned(), reservation.unwrap());
        })
    }

    fn reserved(self, start: i64, minutes: i64, flags: &[&str]) -> Self {
        self.with(NAME, start, minutes, flags, "gpu-[0-1]")
    }

    fn decide(&self) -> ReservationPlan {
        let plan = self.0.plan();
        Schedule {
            observed: &self.0.observed,
            workers: &plan.workers,
            desired: plan.desired,
            hash: &plan.revisions.hash,
            now: minute(NOW),
        }
        .decide()
    }

    /// The effects, summarized.
    fn effects(&self) -> Vec<String> {
        let effects = self.decide().effects;
        effects.iter().map(summarize).collect()
    }
}

fn summarize(effect: &Effect) -> String {
    if let Effect::PutReservation(request) = effect {
        let start = request.start.duration_since(minute(0)).as_mins();
        let (minutes, flags, nodes) = (request.minutes, request.flags.join(","), request.nodes.join(","));
        format!("reserve {nodes} at {start} for {minutes}: {flags}")
    } else if let Effect::SetReservationNodes { name, nodes } = effect {
        format!("{name} gets {}", nodes.join(","))
    } else {
        fixture::summarize(effect)
    }
}

/// The record of a reservation of ours.
fn record(start: i64, minutes: i64, flags: &[&str]) -> ReservationRecord {
    let flags = flags.iter().chain(&["IGNORE_JOBS", "MAINT"]).map(|flag| (*flag).to_owned()).collect();
    ReservationRecord { name: NAME.to_owned(), start: Some(minute(start)), minutes, flags }
}

const CREATE: &str = "reserve gpu-0,gpu-1 at 120 for 30: IGNORE_JOBS,MAINT";

#[test]
fn request_follows_the_spec() {
    let scheduled = Scheduled::new(120, &["daily", "MAINT", " force_start "]).with_finalizer();
    let effects = scheduled.decide().effects;
    let [Effect::PutReservation(request)] = effects.as_slice() else { panic!("{effects:?}") };
    let expected = ReservationRequest {
        name: NAME.to_owned(),
        start: minute(120),
        minutes: 30,
        flags: ["DAILY", "FORCE_START", "IGNORE_JOBS", "MAINT"].map(str::to_owned).to_vec(),
        users: vec!["slurm".to_owned()],
        nodes: vec!["gpu-0".to_owned(), "gpu-1".to_owned()],
    };
    assert_eq!(**request, expected);
}

#[rstest]
#[case::finalizer_is_added_first(Scheduled::plain(), true, &[])]
#[case::created_with_finalizer(Scheduled::plain().with_finalizer(), false, &[CREATE])]
#[case::not_while_slurm_is_unreachable(Scheduled(Scheduled::plain().0.unknown()), false, &[])]
#[case::not_before_reservations_are_listed(Scheduled::plain().known(|known| known.reservations = None), false, &[])]
#[case::not_when_slurm_is_not_expected(Scheduled(Scheduled::plain().0.view(View::NoRestApi)), false, &[])]
#[case::not_without_registered_nodes(Scheduled::plain().known(|known| known.nodes.clear()), false, &[])]
#[case::not_while_a_node_is_uncertain(Scheduled::plain().with_finalizer().known(|known| { known.nodes.remove("gpu-1"); })
    .doubting("gpu-1"), false, &[])]
#[case::although_a_present_node_was_written_to(Scheduled::plain().with_finalizer().doubting("gpu-1"), false, &[CREATE])]
#[case::with_registered_nodes_only(Scheduled::plain().with_finalizer().known(|known| { known.nodes.remove("gpu-1"); }), false,
    &["reserve gpu-0 at 120 for 30: IGNORE_JOBS,MAINT"])]
#[case::beside_a_reservation_with_a_longer_name(Scheduled::plain().with_finalizer().with("SlurmOperatorMaint-gpu-custom", 120, 30, &[], "gpu-0"),
    false, &[CREATE])]
#[case::again_if_deleted_before_its_start(Scheduled::plain().with_finalizer().recorded(120, 30, &[]), false, &[CREATE])]
#[case::not_without_replicas(Scheduled::plain().with_finalizer().spec(|spec| spec.replicas = 0), false, &[])]
fn missing_reservation_is_created(
    #[case] scheduled: Scheduled,
    #[case] finalizer_first: bool,
    #[case] effects: &[&str],
) {
    let plan = scheduled.decide();
    assert_eq!(
        (plan.needs_finalizer, plan.effects.iter().map(summarize).collect::<Vec<_>>()),
        (finalizer_first, strings(effects))
    );
    assert!(plan.obstacle.is_none(), "{plan:?}");
}

fn strings(effects: &[&str]) -> Vec<String> {
    effects.iter().map(|effect| (*effect).to_owned()).collect()
}

#[rstest]
#[case::past_start(Scheduled::new(59, &[]).with_finalizer(), &[])]
#[case::ended(Scheduled::new(40, &[]).with_finalizer().recorded(40, 30, &[]), &[])]
#[case::forced_start(Scheduled::new(59, &["FORCE_START", "DAILY"]).with_finalizer(),
    &["reserve gpu-0,gpu-1 at 59 for 30: DAILY,FORCE_START,IGNORE_JOBS,MAINT"])]
#[case::forced_start_recorded(Scheduled::new(59, &["FORCE_START", "DAILY"]).with_finalizer().recorded(59, 30, &["DAILY", "FORCE_START"]), &[])]
#[case::forced_start_with_past_end(Scheduled::new(30, &["FORCE_START", "DAILY"]).with_finalizer(), &[])]
#[case::start_is_now(Scheduled::new(60, &[]).with_finalizer(), &["reserve gpu-0,gpu-1 at 60 for 30: IGNORE_JOBS,MAINT"])]
fn past_start_is_created_only_if_forced_and_once(#[case] scheduled: Scheduled, #[case] effects: &[&str]) {
    assert_eq!(scheduled.effects(), strings(effects));
    assert!(scheduled.decide().obstacle.is_none(), "all workers are up to date");
}

#[rstest]
#[case::never_created(Scheduled::new(59, &[]).with_finalizer())]
#[case::ended(Scheduled::new(40, &[]).with_finalizer().recorded(40, 30, &[]))]
#[case::not_movable_to_a_past_start(Scheduled::new(59, &[]).with_finalizer().recorded(120, 30, &[]).reserved(120, 30, &[]))]
fn past_schedule_with_outdated_workers_is_reported(#[case] scheduled: Scheduled) {
    let old = json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } });
    let plan = Scheduled(scheduled.0.worker("gpu-0", &old)).decide();
    assert!(plan.effects.is_empty(), "{plan:?}");
    assert_eq!(plan.obstacle.unwrap().category(), "SchedulePassed");
}

#[rstest]
#[case::up_to_date(Scheduled::plain().recorded(120, 30, &[]).reserved(120, 30, &[]), &[])]
#[case::recorded_before_the_first_change(Scheduled::plain().reserved(240, 10, &["DAILY"]), &[])]
#[case::another_start(Scheduled::plain().recorded(180, 30, &[]).reserved(180, 30, &[]), &[CREATE])]
#[case::another_duration(Scheduled::plain().recorded(120, 10, &[]).reserved(120, 10, &[]), &[CREATE])]
#[case::additional_flag(Scheduled::new(120, &["FLEX"]).recorded(120, 30, &[]).reserved(120, 30, &[]),
    &["reserve gpu-0,gpu-1 at 120 for 30: FLEX,IGNORE_JOBS,MAINT"])]
#[case::removed_flag(Scheduled::plain().recorded(120, 30, &["DAILY"]).reserved(120, 30, &["DAILY"]),
    &["reserve gpu-0,gpu-1 at 120 for 30: IGNORE_JOBS,MAINT,NO_DAILY"])]
#[case::flag_that_slurm_keeps(Scheduled::plain().recorded(120, 30, &[]).reserved(120, 30, &["OVERLAP"]), &[])]
#[case::unknown_record(Scheduled::plain().with_condition().reserved(120, 10, &[]), &[CREATE])]
#[case::changed_by_a_person(Scheduled::plain().recorded(120, 30, &[]).reserved(180, 60, &["FLEX"]), &[])]
#[case::changed_as_desired(Scheduled::plain().recorded(180, 30, &[]).reserved(120, 30, &[]), &[])]
#[case::name_in_another_case(Scheduled::plain().recorded(120, 30, &[]).with("slurmoperatormaint-GPU", 120, 30, &[], "gpu-0"),
    &["slurmoperatormaint-GPU gets gpu-0,gpu-1"])]
#[case::active(Scheduled::new(50, &[]).recorded(999, 5, &[]).reserved(40, 30, &[]), &[])]
#[case::ended(Scheduled::plain().recorded(999, 5, &[]).with(NAME, 20, 30, &[], "gpu-0"), &[])]
fn existing_reservation_is_changed_when_the_spec_changes(
    #[case] scheduled: Scheduled,
    #[case] effects: &[&str],
) {
    assert_eq!(scheduled.with_finalizer().effects(), strings(effects));
}

#[rstest]
#[case::moved_by_slurm(Scheduled::new(120, &["DAILY"]).recorded(120, 30, &["DAILY"]).reserved(1560, 30, &["DAILY"]), &[])]
#[case::moved_by_slurm_without_record(Scheduled::new(120, &["DAILY"]).with_condition().reserved(1560, 30, &["DAILY"]), &[])]
#[case::earlier_start_in_the_spec(Scheduled::new(90, &["DAILY"]).recorded(120, 30, &["DAILY"]).reserved(1560, 30, &["DAILY"]),
    &["reserve gpu-0,gpu-1 at 90 for 30: DAILY,IGNORE_JOBS,MAINT"])]
#[case::longer(Scheduled::new(-1320, &["DAILY"]).recorded(-1320, 10, &["DAILY"]).reserved(120, 10, &["DAILY"]),
    &["reserve gpu-0,gpu-1 at 120 for 30: DAILY,IGNORE_JOBS,MAINT"])]
fn repeating_reservation_keeps_the_start_that_slurm_moved(
    #[case] scheduled: Scheduled,
    #[case] effects: &[&str],
) {
    let scheduled = scheduled.with_finalizer();
    assert_eq!(scheduled.effects(), strings(effects));
    assert!(scheduled.decide().obstacle.is_none());
}

#[rstest]
#[case::additional_worker(Scheduled::plain().with(NAME, 120, 30, &[], "gpu-0"), &["SlurmOperatorMaint-gpu gets gpu-0,gpu-1"])]
#[case::additional_worker_while_active(Scheduled::plain().with(NAME, 50, 30, &[], "gpu-0"), &["SlurmOperatorMaint-gpu gets gpu-0,gpu-1"])]
#[case::removed_worker(Scheduled::plain().with(NAME, 50, 30, &[], "gpu-[0-2]"), &["SlurmOperatorMaint-gpu gets gpu-0,gpu-1"])]
#[case::same_nodes_in_another_order(Scheduled::plain().with(NAME, 50, 30, &[], "gpu-1,gpu-0"), &[])]
#[case::unreadable_node_list(Scheduled::plain().with(NAME, 50, 30, &[], "gpu-[0-"), &["SlurmOperatorMaint-gpu gets gpu-0,gpu-1"])]
#[case::none_registered(Scheduled::plain().with(NAME, 50, 30, &[], "gpu-0").known(|known| known.nodes.clear()), &[])]
#[case::worker_being_replaced(Scheduled(Scheduled::plain().with(NAME, 50, 30, &[], "gpu-[0-2]").0.slurm("gpu-2", &["DOWN"], ""))
    .spec(|spec| spec.replicas = 3), &[])]
fn reserved_nodes_follow_the_workers(#[case] scheduled: Scheduled, #[case] effects: &[&str]) {
    assert_eq!(scheduled.with_finalizer().recorded(120, 30, &[]).effects(), strings(effects));
}

#[rstest]
#[case::not_ours(Scheduled::plain().reserved(120, 30, &[]), Some("ReservationNameTaken"))]
#[case::ours_by_finalizer(Scheduled::plain().reserved(120, 30, &[]).with_finalizer(), None)]
#[case::ours_by_condition(Scheduled::plain().reserved(120, 30, &[]).with_condition(), None)]
fn foreign_reservation_is_not_changed(#[case] scheduled: Scheduled, #[case] obstacle: Option<&str>) {
    let plan = scheduled.decide();
    assert_eq!(plan.obstacle.as_ref().map(ScheduleError::category), obstacle);
    assert_eq!(plan.effects, []);
    let plan = scheduled.strategy(UpdateStrategyType::OnDelete).decide();
    assert_eq!(plan.effects.is_empty(), obstacle.is_some(), "{plan:?}");
}

#[rstest]
#[case::present(Scheduled::plain().with_finalizer().reserved(120, 30, &[]), &["delete reservation SlurmOperatorMaint-gpu"])]
#[case::absent(Scheduled::plain().with_finalizer(), &[r#"set finalizers ["other", "nodeset.slinky.slurm.net/workers"]"#])]
#[case::slurm_is_unreachable(Scheduled(Scheduled::plain().with_finalizer().0.unknown()), &[])]
#[case::not_listed(Scheduled::plain().with_finalizer().known(|known| known.reservations = None), &[])]
#[case::slurm_is_not_expected(Scheduled(Scheduled::plain().with_finalizer().0.view(View::NoRestApi)), &[r#"set finalizers ["other", "nodeset.slinky.slurm.net/workers"]"#])]
#[case::never_created(Scheduled::plain(), &[])]
fn another_strategy_deletes_the_reservation_then_the_finalizer(
    #[case] scheduled: Scheduled,
    #[case] effects: &[&str],
    #[values(UpdateStrategyType::RollingUpdate, UpdateStrategyType::OnDelete)] strategy: UpdateStrategyType,
) {
    let scheduled = scheduled.strategy(strategy);
    assert_eq!(scheduled.effects(), strings(effects));
    let nodeset = &scheduled.0.observed.nodeset;
    assert_eq!(needs_reservations(nodeset), has_finalizer(nodeset, RESERVATION_FINALIZER));
}

#[rstest]
#[case::present(Scheduled::plain().with_finalizer().reserved(120, 30, &[]), &["delete reservation SlurmOperatorMaint-gpu"])]
#[case::absent(Scheduled::plain().with_finalizer(), &[])]
fn zero_replicas_delete_the_reservation_and_keep_the_finalizer(
    #[case] scheduled: Scheduled,
    #[case] effects: &[&str],
) {
    assert_eq!(scheduled.spec(|spec| spec.replicas = 0).effects(), strings(effects));
}

#[rstest]
#[case::no_controller(false, &[r#"set finalizers ["other"]"#])]
#[case::deleted(true, &["delete reservation SlurmOperatorMaint-gpu", r#"set finalizers ["other"]"#])]
fn deleted_nodeset_deletes_its_reservation(#[case] has_controller: bool, #[case] effects: &[&str]) {
    let mut scheduled = Scheduled::plain().with_finalizer().reserved(120, 30, &[]);
    scheduled =
        Scheduled(scheduled.0.nodeset(|nodeset| nodeset.metadata.deletion_timestamp = Some(Time(minute(0)))));
    assert_eq!(
        scheduled.effects(),
        Vec::<String>::new(),
        "the reservation stays until the finalizers are removed"
    );
    if !has_controller {
        (scheduled.0.observed.controller, scheduled.0.observed.slurm) = (None, View::NoRestApi);
    }
    assert_eq!(
        remove_finalizers(&scheduled.0.observed).iter().map(summarize).collect::<Vec<_>>(),
        strings(effects)
    );
}

#[rstest]
#[case::not_needed(false, None)]
#[case::needed(true, Some(vec![WORKERS_FINALIZER.to_owned(), RESERVATION_FINALIZER.to_owned()]))]
fn finalizer_is_added_to_the_others(#[case] needed: bool, #[case] expected: Option<Vec<String>>) {
    assert_eq!(missing_finalizers(&Scheduled::plain().0.observed.nodeset, needed), expected);
    assert_eq!(missing_finalizers(&Scheduled::plain().with_finalizer().0.observed.nodeset, needed), None);
}

#[rstest]
#[case::no_reservation(Scheduled::plain(), ReservationStatus::Absent)]
#[case::exists(Scheduled::plain().with_finalizer().reserved(120, 30, &[]), ReservationStatus::Exists(DESIRED.to_owned()))]
#[case::exists_without_record(Scheduled::plain().with_condition().reserved(120, 30, &[]), ReservationStatus::Exists(DESIRED.to_owned()))]
#[case::exists_with_other_values(Scheduled::plain().with_finalizer().with(NAME, 180, 10, &[], "gpu-0"),
    ReservationStatus::Exists("SlurmOperatorMaint-gpu starts 2023-03-28T13:40:00Z for 10 min [IGNORE_JOBS, MAINT, SPEC_NODES]".to_owned()))]
#[case::not_changed_yet(Scheduled::plain().with_finalizer().recorded(240, 30, &[]).reserved(180, 30, &[]), ReservationStatus::Exists(DESIRED.replace("12:40", "14:40")))]
#[case::absent(Scheduled::plain().with_finalizer().recorded(120, 30, &[]), ReservationStatus::Ended(DESIRED.to_owned()))]
#[case::unknown(Scheduled(Scheduled::plain().recorded(120, 30, &[]).0.unknown()), ReservationStatus::Unchanged)]
#[case::foreign(Scheduled::plain().reserved(120, 30, &[]), ReservationStatus::Absent)]
#[case::invalid_schedule(Scheduled::of(&json!({ "startTime": minute(120), "duration": "soon" })).recorded(120, 30, &[]), ReservationStatus::Unchanged)]
#[case::another_strategy(Scheduled::plain().with_finalizer().recorded(120, 30, &[]).reserved(120, 30, &[])
    .strategy(UpdateStrategyType::OnDelete), ReservationStatus::Absent)]
#[case::another_strategy_and_no_finalizer(Scheduled::plain().recorded(120, 30, &[]).reserved(120, 30, &[])
    .strategy(UpdateStrategyType::OnDelete), ReservationStatus::Unchanged)]
#[case::no_workers(Scheduled::plain().with_finalizer().recorded(120, 30, &[]).spec(|spec| spec.replicas = 0), ReservationStatus::Absent)]
fn status_reports_the_reservation(#[case] scheduled: Scheduled, #[case] expected: ReservationStatus) {
    assert_eq!(scheduled.decide().status, expected);
}

#[rstest]
#[case::no_reservation(Scheduled::plain(), RecordChange::Keep)]
#[case::exists(Scheduled::plain().with_finalizer().reserved(120, 30, &[]), RecordChange::Set(record(120, 30, &[])))]
#[case::exists_with_other_values(Scheduled::plain().with_finalizer().reserved(180, 10, &[]),
    RecordChange::Set(record(180, 10, &["SPEC_NODES"])))]
#[case::not_changed_yet(Scheduled::plain().with_finalizer().recorded(240, 30, &[]).reserved(180, 30, &[]),
    RecordChange::Set(record(240, 30, &[])))]
#[case::absent(Scheduled::plain().with_finalizer().recorded(120, 30, &[]), RecordChange::Keep)]
#[case::slurm_is_unreachable(Scheduled(Scheduled::plain().recorded(120, 30, &[]).0.unknown()), RecordChange::Keep)]
#[case::another_strategy(Scheduled::plain().with_finalizer().recorded(120, 30, &[]).reserved(120, 30, &[])
    .strategy(UpdateStrategyType::OnDelete), RecordChange::Remove)]
fn record_follows_the_reservation(#[case] scheduled: Scheduled, #[case] expected: RecordChange) {
    assert_eq!(scheduled.decide().record, expected);
}

fn annotated(value: &str) -> Scheduled {
    Scheduled(Scheduled::plain().with_finalizer().0.nodeset(|nodeset| {
        nodeset.annotations_mut().insert(RESERVATION.to_owned(), value.to_owned());
    }))
}

#[rstest]
#[case::unset(Scheduled::plain().with_finalizer(), Some(true))]
#[case::up_to_date(Scheduled::plain().with_finalizer().recorded(120, 30, &[]), None)]
#[case::another_json_form(annotated(
    r#"{"flags":["MAINT","IGNORE_JOBS"],"minutes":30,"start":"2023-03-28T14:40:00+02:00","name":"SlurmOperatorMaint-gpu"}"#), None)]
#[case::another_record(Scheduled::plain().with_finalizer().recorded(180, 30, &[]), Some(true))]
#[case::unreadable(annotated("noon"), Some(true))]
#[case::not_needed(Scheduled::plain().recorded(120, 30, &[]).strategy(UpdateStrategyType::OnDelete)
    .with_finalizer(), Some(false))]
fn annotation_is_patched_only_when_the_record_differs(
    #[case] scheduled: Scheduled,
    #[case] set: Option<bool>,
) {
    let change = scheduled.reserved(120, 30, &[]).0.plan().metadata;
    let expected = set.map(|set| {
        let value = r#"{"name":"SlurmOperatorMaint-gpu","start":"2023-03-28T12:40:00Z","minutes":30,"flags":["IGNORE_JOBS","MAINT"]}"#;
        let annotations = BTreeMap::from([(RESERVATION.to_owned(), set.then(|| value.to_owned()))]);
        crate::plan::MetadataChange { finalizers: None, annotations }
    });
    assert_eq!(change, expected);
}

/// Only the annotation was written before the crash.
#[test]
fn record_without_condition_is_complete() {
    let forced = Scheduled::new(59, &["FORCE_START", "DAILY"]).with_finalizer();
    let crashed = Scheduled(forced.recorded(59, 30, &["DAILY", "FORCE_START"]).0.nodeset(|nodeset| {
        nodeset.status = None;
    }));
    assert_eq!(crashed.effects(), [""; 0]);
    assert!(matches!(crashed.decide().status, ReservationStatus::Ended(_)));
}

#[test]
fn pods_are_created_before_the_record_is_written() {
    let missing = Scheduled::plain().with_finalizer().reserved(120, 30, &[]).spec(|spec| spec.replicas = 3);
    assert!(missing.0.plan().metadata.is_some_and(|change| !change.annotations.is_empty()));
    assert!(missing.0.effects().contains(&"create gpu-2".to_owned()), "{:?}", missing.0.effects());
}

#[rstest]
#[case::in_reservation(&["IDLE", "MAINTENANCE"], NAME, true)]
#[case::before_reservation(&["IDLE"], NAME, false)]
#[case::in_another_reservation(&["IDLE", "MAINTENANCE"], "SlurmOperatorMaint-gpu-custom", false)]
fn workers_are_replaced_in_their_reservation(
    #[case] states: &[&str],
    #[case] reservation: &str,
    #[case] replaced: bool,
) {
    let old = json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } });
    let node = json!({ "name": "gpu-0", "state": states, "reservation": reservation });
    let effects = Scheduled::plain().0.worker("gpu-0", &old).slurm_node(node).effects();
    assert_eq!(effects.iter().any(|effect| effect.starts_with("mark gpu-0")), replaced, "{effects:?}");
}
