//! Which replicas are live, and for how long.

use super::*;
use rstest::rstest;

fn live(service: &Service) -> Vec<String> {
    service.machine.membership().live.iter().map(|replica| replica.as_str().to_owned()).collect()
}

fn heartbeat(service: &mut Service, replica: &str, leaving: bool) {
    service.machine.heartbeat(&Heartbeat { replica: replica.into(), leaving }, service.now);
}

/// Ticks every second, as the service does.
fn tick_for(service: &mut Service, seconds: u64) {
    for _ in 0..seconds {
        service.advance(secs(1));
        service.machine.tick(service.now);
    }
}

#[test]
fn replica_is_live_for_six_seconds_after_its_last_heartbeat() {
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
fn leaving_replica_is_removed_at_once() {
    let mut service = Service::settled();
    heartbeat(&mut service, "r-1", true);
    assert_eq!(live(&service), ["r-0", "r-2"]);
}

#[test]
fn version_is_incremented_only_by_membership_changes() {
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
#[case::slow_tick(2000, true)]
#[case::pause(2001, false)]
#[case::long_pause(3_600_000, false)]
fn pause_of_the_service_extends_membership(#[case] gap: u64, #[case] dead: bool) {
    let mut service = Service::settled();
    tick_for(&mut service, 5);
    service.advance(Duration::from_millis(gap));
    service.machine.tick(service.now);
    assert_eq!(live(&service).is_empty(), dead);
    // The second that was left before the pause is left after it.
    tick_for(&mut service, 1);
    assert_eq!(live(&service), [""; 0]);
}

/// Requests that arrived during a pause are answered before the first tick after it.
#[test]
fn owner_is_still_live_right_after_a_pause() {
    let mut service = Service::settled();
    service.advance(secs(3600));
    let request = service.request("gpu", CREATE);
    need_fresh(&service.begin(&request));
}

#[test]
fn heartbeat_before_the_first_tick_after_a_pause_is_not_extended_by_it() {
    let mut service = Service::settled();
    service.advance(secs(3600));
    heartbeat(&mut service, "r-1", false);
    tick_for(&mut service, 5);
    assert!(live(&service).contains(&"r-1".to_owned()));
    tick_for(&mut service, 2);
    assert_eq!(live(&service), [""; 0]);
}

#[test]
fn pause_does_not_change_when_a_batch_runs_out() {
    let mut service = Service::settled();
    service.open("gpu", DELETE);
    service.advance(secs(60));
    service.machine.tick(service.now);
    assert_eq!(service.machine.status(service.now).open, []);
}
