//! Validation of the schedule in the spec.

use super::*;

#[rstest]
#[case::no_schedule(Value::Null, "spec.updateStrategy.scheduledUpdate.startTime is missing")]
#[case::no_start(json!({}), "spec.updateStrategy.scheduledUpdate.startTime is missing")]
#[case::not_a_time(json!({ "startTime": "noon" }), "spec.updateStrategy.scheduledUpdate.startTime: not a valid Time")]
#[case::not_a_duration(json!({ "duration": "soon" }), "spec.updateStrategy.scheduledUpdate.duration: ")]
#[case::no_unit(json!({ "duration": "30" }), "spec.updateStrategy.scheduledUpdate.duration: ")]
#[case::not_a_string(json!({ "duration": 30 }), "spec.updateStrategy.scheduledUpdate.duration is missing")]
#[case::below_one_minute(json!({ "duration": "59s" }), "spec.updateStrategy.scheduledUpdate.duration: 59s is not between")]
#[case::negative(json!({ "duration": "-30m" }), "spec.updateStrategy.scheduledUpdate.duration: -30m is not between")]
#[case::above_one_year(json!({ "duration": "8761h" }), "spec.updateStrategy.scheduledUpdate.duration: 8761h is not between")]
#[case::overflow(json!({ "duration": "999999999999999999999999h" }), "spec.updateStrategy.scheduledUpdate.duration: ")]
#[case::two_signs(json!({ "duration": "1m-1m" }), "spec.updateStrategy.scheduledUpdate.duration: ")]
#[case::empty_flag(json!({ "flags": ["", "FLEX"] }), "spec.updateStrategy.scheduledUpdate.flags: \"\" is not a valid flag")]
#[case::two_flags_in_one(json!({ "flags": ["FLEX,DAILY"] }), "spec.updateStrategy.scheduledUpdate.flags: \"FLEX,DAILY\"")]
#[case::forced_without_repetition(json!({ "flags": ["force_start"] }), "spec.updateStrategy.scheduledUpdate.flags: FORCE_START requires one of DAILY")]
fn invalid_schedule_is_reported_without_effects(#[case] change: Value, #[case] expected: &str) {
    let mut schedule = json!({ "startTime": minute(120), "duration": "30m" });
    match change.as_object() {
        None => schedule = Value::Null,
        Some(fields) if fields.is_empty() => schedule = json!({ "duration": "30m" }),
        Some(fields) => fields.iter().for_each(|(field, value)| schedule[field] = value.clone()),
    }
    for scheduled in [
        Scheduled::of(&schedule).with_finalizer(),
        Scheduled::of(&schedule).with_finalizer().recorded(120, 30, &[]).reserved(120, 30, &[]),
    ] {
        let plan = scheduled.decide();
        let obstacle = plan.obstacle.unwrap();
        let text = operator_runtime::error::chain(&obstacle);
        assert!(text.starts_with(expected), "{text}");
        assert_eq!((obstacle.category(), plan.effects), ("InvalidSpec", vec![]));
    }
}

#[rstest]
#[case::minutes("30m", 30)]
#[case::go_format("1h30m0s", 90)]
#[case::fraction("1.5h", 90)]
#[case::whole_minutes("119s", 1)]
#[case::one_minute("1m", 1)]
#[case::one_year("8760h", 525_600)]
fn duration_is_rounded_down_to_minutes(#[case] written: &str, #[case] minutes: u32) {
    let scheduled = Scheduled::of(&json!({ "startTime": minute(120), "duration": written })).with_finalizer();
    assert_eq!(scheduled.effects(), [format!("reserve gpu-0,gpu-1 at 120 for {minutes}: IGNORE_JOBS,MAINT")]);
}

#[test]
fn fractions_of_seconds_are_dropped() {
    let scheduled =
        Scheduled::of(&json!({ "startTime": "2023-03-28T12:40:00.75Z", "duration": "30m" })).with_finalizer();
    let effects = scheduled.decide().effects;
    let [Effect::PutReservation(request)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(request.start, minute(120));
    assert_eq!(
        scheduled.reserved(120, 30, &[]).decide().status,
        ReservationStatus::Exists(DESIRED.to_owned())
    );
}
