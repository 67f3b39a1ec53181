//! Decodes Slurm's JSON forms of numbers, times and absent values.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// A number that may be infinite or unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Wrapped")]
pub enum Number {
    /// Not set.
    #[default]
    Unset,
    /// No limit.
    Infinite,
    /// A finite number.
    Value(i64),
}

/// The JSON object in which Slurm encodes such a number.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wrapped {
    set: bool,
    infinite: bool,
    number: i64,
}

impl From<Wrapped> for Number {
    fn from(wrapped: Wrapped) -> Self {
        match wrapped {
            Wrapped { infinite: true, .. } => Self::Infinite,
            Wrapped { set: true, number, .. } => Self::Value(number),
            Wrapped { .. } => Self::Unset,
        }
    }
}

impl Wrapped {
    /// A number to send.
    pub fn value(number: i64) -> Self {
        Self { set: true, infinite: false, number }
    }
}

/// Reads a wrapped UNIX time. Slurm writes 0 for "never".
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(match or_default(deserializer)? {
        Number::Value(seconds) if seconds != 0 => Timestamp::from_second(seconds).ok(),
        Number::Value(_) | Number::Infinite | Number::Unset => None,
    })
}

/// Reads `null` as the default.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[derive(Deserialize)]
    struct Holder {
        #[serde(default, deserialize_with = "or_default")]
        limit: Number,
        #[serde(default, deserialize_with = "time")]
        at: Option<Timestamp>,
    }

    #[rstest]
    #[case::value(r#"{"limit":{"set":true,"infinite":false,"number":5}}"#, Number::Value(5))]
    #[case::zero(r#"{"limit":{"set":true,"infinite":false,"number":0}}"#, Number::Value(0))]
    #[case::infinite(r#"{"limit":{"set":false,"infinite":true,"number":0}}"#, Number::Infinite)]
    #[case::unset(r#"{"limit":{"set":false,"infinite":false,"number":7}}"#, Number::Unset)]
    #[case::wider_than_the_schema(
        r#"{"limit":{"set":true,"number":5000000000}}"#,
        Number::Value(5_000_000_000)
    )]
    #[case::null(r#"{"limit":null}"#, Number::Unset)]
    #[case::absent("{}", Number::Unset)]
    fn number_is_finite_infinite_or_unset(#[case] json: &str, #[case] expected: Number) {
        assert_eq!(serde_json::from_str::<Holder>(json).unwrap().limit, expected);
    }

    #[rstest]
    #[case::time(r#"{"at":{"set":true,"number":1800000000}}"#, Some(1_800_000_000))]
    #[case::never(r#"{"at":{"set":true,"number":0}}"#, None)]
    #[case::infinite(r#"{"at":{"set":true,"infinite":true,"number":9}}"#, None)]
    #[case::out_of_range(r#"{"at":{"set":true,"number":9223372036854775807}}"#, None)]
    fn zero_and_infinite_times_are_absent(#[case] json: &str, #[case] expected: Option<i64>) {
        assert_eq!(serde_json::from_str::<Holder>(json).unwrap().at.map(Timestamp::as_second), expected);
    }
}
