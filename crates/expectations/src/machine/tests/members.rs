//! Who is live, and for how long.

use super::*;
use rstest::rstest;

fn live(service: &Service) -> Vec<String> {
    service.machine.membership().live.iter().map(ToString::to_string).collect()
}

fn heartbeat(service: &mut Service, replica: &str, leaving: bool) {
    service.machine.heartbeat(&Heartbeat { replica: replica.into(), leaving }, service.now);
}

/// Ticks every second, as a service does.
fn tick_for(service: &mut Service, seconds: u64) {
    for _ in 0..seconds {
        service.pass(secs(1));
        service.machine.tick(service.now);
    }
}

#[test]
fn a_replica_lives_for_six_seconds_after_its_last_heartbeat() {
    let mut service = Service::settled();
    tick_for(&mut service, 3);
    heartbeat(&mut service, "r-1", false);
    tick_for(&mut service, 2);
    assert_eq!(live(&service), REPLICAS);
    tick_for(&mut service, 1);
    assert_eq!(live(&service), ["r-1"]);
    tick_for(&mut service, 3);
    assert_eq!(live(&service), [""; 0]);
}

#[test]
fn a_replica_that_leaves_is_gone_at_once() {
    let mut service = Service::settled();
    heartbeat(&mut service, "r-1", true);
    assert_eq!(live(&service), ["r-0", "r-2"]);
}

#[test]
fn the_version_grows_with_every_change_and_with_nothing_else() {
    let mut service = Service::settled();
    let version = |service: &Service| service.machine.membership().version;
    assert_eq!(version(&service), 3);
    heartbeat(&mut service, "r-1", false);
    assert_eq!(version(&service), 3);
    heartbeat(&mut service, "r-1", true);
    assert_eq!(version(&service), 4);
    heartbeat(&mut service, "r-1", true);
    assert_eq!(version(&service), 4);
    heartbeat(&mut service, "r-3", false);
    assert_eq!(version(&service), 5);
    tick_for(&mut service, 5);
    assert_eq!(version(&service), 5);
    tick_for(&mut service, 1);
    assert_eq!((version(&service), live(&service)), (6, vec![]));
}

#[rstest]
#[case::a_slow_tick_is_no_pause(2000, true)]
#[case::a_pause(2001, false)]
#[case::a_long_pause(3_600_000, false)]
fn a_pause_of_the_service_kills_nobody(#[case] gap: u64, #[case] dead: bool) {
    let mut service = Service::settled();
    tick_for(&mut service, 5);
    service.pass(Duration::from_millis(gap));
    service.machine.tick(service.now);
    assert_eq!(live(&service).is_empty(), dead);
    // One second was left before the pause, and is left after it.
    tick_for(&mut service, 1);
    assert_eq!(live(&service), [""; 0]);
}

/// Requests that were waiting are answered before the first tick after a pause.
#[test]
fn a_request_right_after_a_pause_still_meets_its_owner() {
    let mut service = Service::settled();
    service.pass(secs(3600));
    let request = service.request("gpu", CREATE);
    need_fresh(&service.begin(&request));
}

#[test]
fn a_heartbeat_heard_before_the_first_tick_after_a_pause_counts_once() {
    let mut service = Service::settled();
    service.pass(secs(3600));
    heartbeat(&mut service, "r-1", false);
    tick_for(&mut service, 5);
    assert!(live(&service).contains(&"r-1".to_owned()));
    tick_for(&mut service, 2);
    assert_eq!(live(&service), [""; 0]);
}

#[test]
fn a_pause_neither_shortens_nor_prolongs_a_batch() {
    let mut service = Service::settled();
    service.open("gpu", DELETE);
    service.pass(secs(60));
    service.machine.tick(service.now);
    assert_eq!(service.machine.status(service.now).open, []);
}
