use super::*;
use crate::plan::finalizers::{missing_finalizers, remove_finalizers};
use crate::plan::fixture::{self, Fixture};
use crate::plan::testing::minute;
use crate::slurm::Snapshot;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::v1beta1::{NodeSetStatus, UpdateStrategyType};
use slurm_rest::ReservationRequest;
use std::collections::BTreeMap;
use std::sync::Arc;

mod input;

const NAME: &str = "SlurmOperatorMaint-gpu";
/// All decisions here are made at `minute(60)`.
const NOW: i64 = 60;
/// What the status remembers of the usual desired.
const WISH: &str = "SlurmOperatorMaint-gpu starts 2023-03-28T12:40:00Z for 30 min [IGNORE_JOBS, MAINT]";
/// What the status remembers of the same every day.
const DAILY: &str =
    "SlurmOperatorMaint-gpu starts 2023-03-28T12:40:00Z for 30 min [DAILY, IGNORE_JOBS, MAINT]";

/// A NodeSet called `gpu` with two workers that wishes to be updated then, and a Slurm without reservations.
struct World(Fixture);

impl World {
    fn new(start: i64, flags: &[&str]) -> Self {
        Self::of(&json!({ "startTime": minute(start), "duration": "30m", "flags": flags }))
    }

    fn usual() -> Self {
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
        known.doubtful.insert(node.to_owned());
        self
    }

    fn spec(self, change: impl FnOnce(&mut slinky_api::v1beta1::NodeSetSpec)) -> Self {
        Self(self.0.nodeset(|nodeset| change(&mut nodeset.spec)))
    }

    fn strategy(self, strategy: UpdateStrategyType) -> Self {
        self.spec(|spec| spec.update_strategy.as_mut().unwrap().type_ = strategy)
    }

    /// The finalizer is there.
    fn held(self) -> Self {
        let finalizers = ["other", WORKERS_FINALIZER, RESERVATION_FINALIZER].map(str::to_owned).to_vec();
        Self(self.0.nodeset(|nodeset| nodeset.metadata.finalizers = Some(finalizers)))
    }

    /// The status says that this desired was fulfilled.
    fn remembering(self, desired: &str) -> Self {
        let condition = Condition {
            type_: RESERVATION_CREATED.to_owned(),
            status: "True".to_owned(),
            reason: "Created".to_owned(),
            message: desired.to_owned(),
            observed_generation: Some(1),
            last_transition_time: Time(minute(0)),
        };
        let status = NodeSetStatus { conditions: vec![condition], ..NodeSetStatus::default() };
        Self(self.0.nodeset(|nodeset| nodeset.status = Some(status)))
    }

    /// Slurm has this reservation.
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

    /// The effects in a few words.
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

const MAKE: &str = "reserve gpu-0,gpu-1 at 120 for 30: IGNORE_JOBS,MAINT";

#[test]
fn what_is_wished_for_is_asked_for() {
    let world = World::new(120, &["daily", "MAINT", " force_start "]).held();
    let effects = world.decide().effects;
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
#[case::finalizer_first(World::usual(), true, &[])]
#[case::then_the_reservation(World::usual().held(), false, &[MAKE])]
#[case::not_while_slurm_is_unknown(World(World::usual().0.unknown()), false, &[])]
#[case::not_before_reservations_were_asked_for(World::usual().known(|known| known.reservations = None), false, &[])]
#[case::not_without_slurm(World(World::usual().0.view(View::NotExpected)), false, &[])]
#[case::not_without_nodes(World::usual().known(|known| known.nodes.clear()), false, &[])]
#[case::not_while_a_node_may_be_gone(World::usual().held().known(|known| { known.nodes.remove("gpu-1"); })
    .doubting("gpu-1"), false, &[])]
#[case::although_a_node_was_written_to(World::usual().held().doubting("gpu-1"), false, &[MAKE])]
#[case::with_the_nodes_that_are_there(World::usual().held().known(|known| { known.nodes.remove("gpu-1"); }), false,
    &["reserve gpu-0 at 120 for 30: IGNORE_JOBS,MAINT"])]
#[case::a_longer_name_is_another_one(World::usual().held().with("SlurmOperatorMaint-gpu-custom", 120, 30, &[], "gpu-0"),
    false, &[MAKE])]
#[case::anew_if_it_vanished_before_it_began(World::usual().held().remembering(WISH), false, &[MAKE])]
#[case::for_nobody(World::usual().held().spec(|spec| spec.replicas = 0), false, &[])]
fn one_is_made(#[case] world: World, #[case] held_first: bool, #[case] effects: &[&str]) {
    let plan = world.decide();
    assert_eq!(
        (plan.needs_finalizer, plan.effects.iter().map(summarize).collect::<Vec<_>>()),
        (held_first, told(effects))
    );
    assert!(plan.obstacle.is_none(), "{plan:?}");
}

fn told(effects: &[&str]) -> Vec<String> {
    effects.iter().map(|effect| (*effect).to_owned()).collect()
}

#[rstest]
#[case::never(World::new(59, &[]).held(), &[])]
#[case::not_when_it_ended(World::new(40, &[]).held().remembering(
    "SlurmOperatorMaint-gpu starts 2023-03-28T11:20:00Z for 30 min [IGNORE_JOBS, MAINT]"), &[])]
#[case::if_forced(World::new(59, &["FORCE_START", "DAILY"]).held(),
    &["reserve gpu-0,gpu-1 at 59 for 30: DAILY,FORCE_START,IGNORE_JOBS,MAINT"])]
#[case::once_if_forced(World::new(59, &["FORCE_START", "DAILY"]).held().remembering(
    "SlurmOperatorMaint-gpu starts 2023-03-28T11:39:00Z for 30 min [DAILY, FORCE_START, IGNORE_JOBS, MAINT]"), &[])]
#[case::not_even_if_forced_when_its_end_has_passed(World::new(30, &["FORCE_START", "DAILY"]).held(), &[])]
#[case::at_its_last_moment(World::new(60, &[]).held(), &["reserve gpu-0,gpu-1 at 60 for 30: IGNORE_JOBS,MAINT"])]
fn one_whose_start_has_passed_is_made(#[case] world: World, #[case] effects: &[&str]) {
    assert_eq!(world.effects(), told(effects));
    assert!(world.decide().obstacle.is_none(), "all workers are up to date, so nobody misses it");
}

#[rstest]
#[case::never_made(World::new(59, &[]).held())]
#[case::over(World::new(40, &[]).held().remembering(
    "SlurmOperatorMaint-gpu starts 2023-03-28T11:20:00Z for 30 min [IGNORE_JOBS, MAINT]"))]
#[case::not_movable_to_the_past(World::new(59, &[]).held().remembering(WISH).reserved(120, 30, &[]))]
fn who_misses_an_update_is_told(#[case] world: World) {
    let old = json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } });
    let plan = World(world.0.worker("gpu-0", &old)).decide();
    assert!(plan.effects.is_empty(), "{plan:?}");
    assert_eq!(plan.obstacle.unwrap().category(), "SchedulePassed");
}

#[rstest]
#[case::as_it_is(World::usual().remembering(WISH).reserved(120, 30, &[]), &[])]
#[case::catches_up_first(World::usual().reserved(240, 10, &["DAILY"]), &[])]
#[case::another_start(World::usual().remembering(&WISH.replace("12:40", "13:40")).reserved(180, 30, &[]), &[MAKE])]
#[case::another_duration(World::usual().remembering(&WISH.replace("30 min", "10 min")).reserved(120, 10, &[]), &[MAKE])]
#[case::a_flag_more(World::new(120, &["FLEX"]).remembering(WISH).reserved(120, 30, &[]),
    &["reserve gpu-0,gpu-1 at 120 for 30: FLEX,IGNORE_JOBS,MAINT"])]
#[case::a_flag_less(World::usual().remembering(DAILY).reserved(120, 30, &["DAILY"]),
    &["reserve gpu-0,gpu-1 at 120 for 30: IGNORE_JOBS,MAINT,NO_DAILY"])]
#[case::a_flag_that_slurm_keeps(World::usual().remembering(WISH).reserved(120, 30, &["OVERLAP"]), &[])]
#[case::of_an_operator_that_wrote_nothing_down(World::usual().remembering("").reserved(120, 10, &[]), &[MAKE])]
#[case::as_a_person_made_it_since(World::usual().remembering(WISH).reserved(180, 60, &["FLEX"]), &[])]
#[case::sent_and_seen(World::usual().remembering(&WISH.replace("12:40", "13:40")).reserved(120, 30, &[]), &[])]
#[case::slurm_ignores_case(World::usual().remembering(WISH).with("slurmoperatormaint-GPU", 120, 30, &[], "gpu-0"),
    &["slurmoperatormaint-GPU gets gpu-0,gpu-1"])]
#[case::active(World::new(50, &[]).remembering("another").reserved(40, 30, &[]), &[])]
#[case::over(World::usual().remembering("another").with(NAME, 20, 30, &[], "gpu-0"), &[])]
fn one_that_is_there_is_changed_if_the_wish_was(#[case] world: World, #[case] effects: &[&str]) {
    assert_eq!(world.held().effects(), told(effects));
}

#[rstest]
#[case::moved_by_slurm(World::new(120, &["DAILY"]).remembering(DAILY).reserved(1560, 30, &["DAILY"]), &[])]
#[case::moved_by_slurm_unknown_to_us(World::new(120, &["DAILY"]).remembering("").reserved(1560, 30, &["DAILY"]), &[])]
#[case::earlier_by_the_user(World::new(90, &["DAILY"]).remembering(DAILY).reserved(1560, 30, &["DAILY"]),
    &["reserve gpu-0,gpu-1 at 90 for 30: DAILY,IGNORE_JOBS,MAINT"])]
#[case::longer(World::new(-1320, &["DAILY"]).remembering(
        "SlurmOperatorMaint-gpu starts 2023-03-27T12:40:00Z for 10 min [DAILY, IGNORE_JOBS, MAINT]").reserved(120, 10, &["DAILY"]),
    &["reserve gpu-0,gpu-1 at 120 for 30: DAILY,IGNORE_JOBS,MAINT"])]
fn one_that_repeats_moves_by_itself(#[case] world: World, #[case] effects: &[&str]) {
    let world = world.held();
    assert_eq!(world.effects(), told(effects));
    assert!(world.decide().obstacle.is_none());
}

#[rstest]
#[case::one_more(World::usual().with(NAME, 120, 30, &[], "gpu-0"), &["SlurmOperatorMaint-gpu gets gpu-0,gpu-1"])]
#[case::one_more_while_active(World::usual().with(NAME, 50, 30, &[], "gpu-0"), &["SlurmOperatorMaint-gpu gets gpu-0,gpu-1"])]
#[case::one_less(World::usual().with(NAME, 50, 30, &[], "gpu-[0-2]"), &["SlurmOperatorMaint-gpu gets gpu-0,gpu-1"])]
#[case::in_another_order(World::usual().with(NAME, 50, 30, &[], "gpu-1,gpu-0"), &[])]
#[case::unreadable(World::usual().with(NAME, 50, 30, &[], "gpu-[0-"), &["SlurmOperatorMaint-gpu gets gpu-0,gpu-1"])]
#[case::none_registered(World::usual().with(NAME, 50, 30, &[], "gpu-0").known(|known| known.nodes.clear()), &[])]
#[case::one_is_being_replaced(World(World::usual().with(NAME, 50, 30, &[], "gpu-[0-2]").0.slurm("gpu-2", &["DOWN"], ""))
    .spec(|spec| spec.replicas = 3), &[])]
fn its_nodes_follow_the_workers(#[case] world: World, #[case] effects: &[&str]) {
    assert_eq!(world.held().remembering(WISH).effects(), told(effects));
}

#[rstest]
#[case::unheld(World::usual().reserved(120, 30, &[]), Some("ReservationNameTaken"))]
#[case::held(World::usual().reserved(120, 30, &[]).held(), None)]
#[case::remembered(World::usual().reserved(120, 30, &[]).remembering(""), None)]
fn what_somebody_else_made_is_left_alone(#[case] world: World, #[case] obstacle: Option<&str>) {
    let plan = world.decide();
    assert_eq!(plan.obstacle.as_ref().map(ScheduleError::category), obstacle);
    assert_eq!(plan.effects, []);
    let plan = world.strategy(UpdateStrategyType::OnDelete).decide();
    assert_eq!(plan.effects.is_empty(), obstacle.is_some(), "{plan:?}");
}

#[rstest]
#[case::there(World::usual().held().reserved(120, 30, &[]), &["delete reservation SlurmOperatorMaint-gpu"])]
#[case::gone(World::usual().held(), &[r#"set finalizers ["other", "nodeset.slinky.slurm.net/workers"]"#])]
#[case::slurm_is_unknown(World(World::usual().held().0.unknown()), &[])]
#[case::not_asked(World::usual().held().known(|known| known.reservations = None), &[])]
#[case::no_slurm(World(World::usual().held().0.view(View::NotExpected)), &[r#"set finalizers ["other", "nodeset.slinky.slurm.net/workers"]"#])]
#[case::never_there(World::usual(), &[])]
fn with_another_strategy_it_goes_and_then_its_finalizer(
    #[case] world: World,
    #[case] effects: &[&str],
    #[values(UpdateStrategyType::RollingUpdate, UpdateStrategyType::OnDelete)] strategy: UpdateStrategyType,
) {
    let world = world.strategy(strategy);
    assert_eq!(world.effects(), told(effects));
    let nodeset = &world.0.observed.nodeset;
    assert_eq!(needs_reservations(nodeset), holds(nodeset, RESERVATION_FINALIZER));
}

#[rstest]
#[case::there(World::usual().held().reserved(120, 30, &[]), &["delete reservation SlurmOperatorMaint-gpu"])]
#[case::gone(World::usual().held(), &[])]
fn without_workers_it_goes_and_its_finalizer_stays(#[case] world: World, #[case] effects: &[&str]) {
    assert_eq!(world.spec(|spec| spec.replicas = 0).effects(), told(effects));
}

#[rstest]
#[case::no_controller(false, &[r#"set finalizers ["other"]"#])]
#[case::deleted(true, &["delete reservation SlurmOperatorMaint-gpu", r#"set finalizers ["other"]"#])]
fn a_nodeset_that_goes_takes_it_along(#[case] has_controller: bool, #[case] effects: &[&str]) {
    let mut world = World::usual().held().reserved(120, 30, &[]);
    world = World(world.0.nodeset(|nodeset| nodeset.metadata.deletion_timestamp = Some(Time(minute(0)))));
    assert_eq!(world.effects(), Vec::<String>::new(), "not before its end");
    if !has_controller {
        (world.0.observed.controller, world.0.observed.slurm) = (None, View::NotExpected);
    }
    assert_eq!(remove_finalizers(&world.0.observed).iter().map(summarize).collect::<Vec<_>>(), told(effects));
}

#[rstest]
#[case::not_wanted(false, None)]
#[case::wanted(true, Some(vec![WORKERS_FINALIZER.to_owned(), RESERVATION_FINALIZER.to_owned()]))]
fn the_finalizer_is_taken_beside_the_others(#[case] wanted: bool, #[case] expected: Option<Vec<String>>) {
    assert_eq!(missing_finalizers(&World::usual().0.observed, wanted), expected);
    assert_eq!(missing_finalizers(&World::usual().held().0.observed, wanted), None);
}

#[rstest]
#[case::nothing_to_tell(World::usual(), ReservationStatus::Absent)]
#[case::seen(World::usual().held().reserved(120, 30, &[]), ReservationStatus::Exists(WISH.to_owned()))]
#[case::seen_of_another_operator(World::usual().remembering("").reserved(120, 30, &[]), ReservationStatus::Exists(WISH.to_owned()))]
#[case::seen_otherwise(World::usual().held().with(NAME, 180, 10, &[], "gpu-0"),
    ReservationStatus::Exists("SlurmOperatorMaint-gpu starts 2023-03-28T13:40:00Z for 10 min [IGNORE_JOBS, MAINT, SPEC_NODES]".to_owned()))]
#[case::not_changed_yet(World::usual().held().remembering("before").reserved(180, 30, &[]), ReservationStatus::Exists("before".to_owned()))]
#[case::gone(World::usual().held().remembering(WISH), ReservationStatus::Ended(WISH.to_owned()))]
#[case::unknown(World(World::usual().remembering(WISH).0.unknown()), ReservationStatus::Unchanged)]
#[case::of_somebody_else(World::usual().reserved(120, 30, &[]), ReservationStatus::Absent)]
#[case::bad_wish(World::of(&json!({ "startTime": minute(120), "duration": "soon" })).remembering(WISH), ReservationStatus::Unchanged)]
#[case::another_strategy(World::usual().held().remembering(WISH).reserved(120, 30, &[])
    .strategy(UpdateStrategyType::OnDelete), ReservationStatus::Absent)]
#[case::another_strategy_and_no_finalizer(World::usual().remembering(WISH).reserved(120, 30, &[])
    .strategy(UpdateStrategyType::OnDelete), ReservationStatus::Unchanged)]
#[case::no_workers(World::usual().held().remembering(WISH).spec(|spec| spec.replicas = 0), ReservationStatus::Absent)]
fn what_is_told(#[case] world: World, #[case] expected: ReservationStatus) {
    assert_eq!(world.decide().status, expected);
}

#[rstest]
#[case::under_it(&["IDLE", "MAINTENANCE"], NAME, true)]
#[case::before_it(&["IDLE"], NAME, false)]
#[case::under_another_one(&["IDLE", "MAINTENANCE"], "SlurmOperatorMaint-gpu-custom", false)]
fn workers_are_replaced_under_it(#[case] states: &[&str], #[case] reservation: &str, #[case] replaced: bool) {
    let old = json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } });
    let node = json!({ "name": "gpu-0", "state": states, "reservation": reservation });
    let effects = World::usual().0.worker("gpu-0", &old).slurm_node(node).effects();
    assert_eq!(effects.iter().any(|effect| effect.starts_with("mark gpu-0")), replaced, "{effects:?}");
}
