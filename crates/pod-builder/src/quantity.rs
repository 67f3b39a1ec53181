//! Kubernetes quantities (`500m`, `1.5Gi`), exact to 1e-9.

use std::str::FromStr;

const NANO: i128 = 1_000_000_000;

/// An amount, independent of the suffix that it was written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nanos: i128,
}

/// A text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity")]
pub struct InvalidQuantity(pub String);

impl Quantity {
    /// The amount in whole units, rounded up.
    pub const fn ceil(self) -> i128 {
        div_ceil(self.nanos, NANO)
    }

    /// The amount in units of 1e-9.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }
}

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        parse(text).map(|nanos| Self { nanos }).ok_or_else(|| InvalidQuantity(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<i128> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let suffix_start = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(suffix_start);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let (scale, exponent) = scale(suffix)?;
    let shift = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scaled = digits.checked_mul(scale)?;
    let power = 10_i128.checked_pow(shift.unsigned_abs());
    let nanos = if shift >= 0 {
        scaled.checked_mul(power?)?
    } else {
        power.map_or(1, |power| div_ceil(scaled, power))
    };
    Some(if text.starts_with('-') { -nanos } else { nanos })
}

/// A suffix as a factor, in units of 1e-9, and a power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    if let Some(power) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|unit| *unit == suffix) {
        return Some((NANO << (10 * (power + 1)), 0));
    }
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    Some((NANO, exponent))
}

/// Rounds up, as Kubernetes does: never less than was requested.
const fn div_ceil(amount: i128, unit: i128) -> i128 {
    let whole = amount.div_euclid(unit);
    if amount.rem_euclid(unit) == 0 { whole } else { whole + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("0", 0)]
    #[case("1", NANO)]
    #[case("500m", NANO / 2)]
    #[case("0.5", NANO / 2)]
    #[case(".5", NANO / 2)]
    #[case("5.", 5 * NANO)]
    #[case("1.5Gi", 1_610_612_736 * NANO)]
    #[case("1e3", 1000 * NANO)]
    #[case("1E3", 1000 * NANO)]
    #[case("1E", 1_000_000_000_000_000_000 * NANO)]
    #[case("12e-3", 12_000_000)]
    #[case("-2k", -2000 * NANO)]
    #[case("+1", NANO)]
    #[case("1n", 1)]
    #[case("0.1n", 1)]
    fn quantity_is_parsed_exactly(#[case] text: &str, #[case] nanos: i128) {
        assert_eq!(text.parse::<Quantity>().unwrap().nanos(), nanos);
    }

    #[rstest]
    #[case("")]
    #[case("x")]
    #[case(".")]
    #[case("1.2.3")]
    #[case("1 Gi")]
    #[case("1gi")]
    #[case("--1")]
    #[case("1e")]
    #[case("1e99999999999")]
    #[case("9999999999999999999999999999999999999999")]
    fn invalid_quantity_is_rejected(#[case] text: &str) {
        assert_eq!(text.parse::<Quantity>(), Err(InvalidQuantity(text.to_owned())));
    }
}
