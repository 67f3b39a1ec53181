//! Go durations. kube's type for them panics on numbers that are out of range.

use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::str::FromStr;
use std::time;

/// Units in seconds.
const UNITS: [(&str, f64); 8] = [
    ("h", 3600.0),
    ("m", 60.0),
    ("s", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
    ("\u{b5}s", 1e-6),
    ("\u{3bc}s", 1e-6),
    ("ns", 1e-9),
];

/// A duration such as `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration {
    length: time::Duration,
    is_negative: bool,
}

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number without a valid unit.
    #[error("each number needs one of the units h, m, s, ms, us and ns")]
    Unit,
    /// Not a number, or one that is too large.
    #[error("a number is missing, or too large")]
    Number,
}

impl Duration {
    /// Its length; `None` if it is negative.
    pub fn length(self) -> Option<time::Duration> {
        (!self.is_negative).then_some(self.length)
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let is_negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
        let mut length = time::Duration::ZERO;
        while !rest.is_empty() && rest != "0" {
            let (number, after) = split(rest, |character| !is_numeric(character));
            let (unit, after) = split(after, is_numeric);
            let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationError::Unit)?;
            let number: f64 = number.parse().map_err(|_| DurationError::Number)?;
            let part = time::Duration::try_from_secs_f64(number * seconds).ok();
            length = part.and_then(|part| length.checked_add(part)).ok_or(DurationError::Number)?;
            rest = after;
        }
        Ok(Self { length, is_negative })
    }
}

fn is_numeric(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

/// Splits a text before the first such character.
fn split(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("0", 0)]
    #[case("", 0)]
    #[case("+90s", 90_000)]
    #[case("1h30m", 5_400_000)]
    #[case("1.5h", 5_400_000)]
    #[case(".5s250ms", 750)]
    #[case("1000\u{b5}s", 1)]
    #[case("9999999h", 9_999_999 * 3_600_000)]
    fn go_durations_are_parsed(#[case] text: &str, #[case] millis: u64) {
        let parsed: Duration = text.parse().unwrap();
        assert_eq!(parsed.length(), Some(time::Duration::from_millis(millis)));
    }

    #[test]
    fn negative_duration_has_no_length() {
        assert_eq!("-1h".parse::<Duration>().unwrap().length(), None);
    }

    #[rstest]
    #[case::no_unit("15", DurationError::Unit)]
    #[case::unknown_unit("1d", DurationError::Unit)]
    #[case::words("for ever", DurationError::Unit)]
    #[case::only_a_unit("h", DurationError::Number)]
    #[case::two_points("1.2.3s", DurationError::Number)]
    #[case::negative_later("1h-1h", DurationError::Unit)]
    #[case::too_large("99999999999999999999h", DurationError::Number)]
    #[case::too_large_together("5000000000000000h5000000000000000h", DurationError::Number)]
    fn invalid_duration_is_rejected(#[case] text: &str, #[case] error: DurationError) {
        assert_eq!(text.parse::<Duration>(), Err(error));
    }
}
