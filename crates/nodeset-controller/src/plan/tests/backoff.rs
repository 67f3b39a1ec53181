//! How long those that fail again and again wait for the next one.

use crate::plan::testing::minute;
use crate::world::Memory;
use jiff::SignedDuration;

#[test]
fn pauses_double_from_a_second_to_a_quarter_of_an_hour() {
    let (mut memory, mut now, mut pauses) = (Memory::default(), minute(0), vec![]);
    for _ in 0..13 {
        memory.failed("gpu-0", now);
        let until = memory.backoff()["gpu-0"];
        pauses.push(until.duration_since(now).as_secs());
        now = until;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]);
}

#[test]
fn each_place_has_its_own_and_long_ago_is_forgotten() {
    let mut memory = Memory::default();
    memory.failed("gpu-0", minute(0));
    memory.failed("gpu-0", minute(1));
    memory.failed("gpu-1", minute(2));
    let second = SignedDuration::from_secs(1);
    assert_eq!(memory.backoff()["gpu-0"], minute(1) + second * 2);
    assert_eq!(memory.backoff()["gpu-1"], minute(2) + second);
    memory.failed("gpu-1", minute(31));
    assert_eq!(memory.backoff().keys().collect::<Vec<_>>(), ["gpu-1"], "half an hour after its last failure");
    assert_eq!(memory.backoff()["gpu-1"], minute(31) + second * 2);
}
