//! Hostlists: the short form in which Slurm writes many node names, `n[1-3,5]`.
//!
//! [`fold`] writes what `scontrol show hostlist` writes. [`expand`] reads what `scontrol show hostnames` reads; it
//! gives the names of several brackets in the order of reading (Slurm's order differs from three brackets on) and
//! refuses, rather than makes up a reading for, blanks, open ranges and brackets inside brackets.

use std::fmt;

/// As many hosts as Slurm takes in one range; a longer list is not expanded but refused.
pub const MAX_HOSTS: usize = 65_536;

/// Why a text is no hostlist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// A bracket without its counterpart, or inside another one.
    #[error("unbalanced brackets in {0:?}")]
    Brackets(String),
    /// Something between brackets that is neither a number nor an ascending range.
    #[error("invalid range {0:?}")]
    Range(String),
    /// More hosts than anybody means.
    #[error("more than {MAX_HOSTS} hosts")]
    TooMany,
}

/// All names of a hostlist, in its order, repeated ones too.
pub fn expand(hostlist: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for element in elements(hostlist)? {
        let parts = parts(element)?;
        let count = parts.iter().try_fold(1_usize, |product, part| product.checked_mul(part.count()));
        if count.and_then(|count| count.checked_add(names.len())).is_none_or(|total| total > MAX_HOSTS) {
            return Err(HostlistError::TooMany);
        }
        names.extend(parts.iter().fold(vec![String::new()], |prefixes, part| part.append_to(&prefixes)));
    }
    Ok(names)
}

/// The shortest hostlist with exactly these names in this order.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for name in names {
        let host = Host::of(name);
        if !groups.last_mut().is_some_and(|group| group.take(&host)) {
            groups.push(Group::new(&host));
        }
    }
    groups.iter().map(Group::to_string).collect::<Vec<_>>().join(",")
}

/// The hostlist of a set: each name once, numbers in ascending order.
pub fn fold_set<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| {
        let host = Host::of(name);
        (host.prefix, host.number, host.digits.len())
    });
    names.dedup();
    fold(names)
}

/// Splits at commas and blanks outside of brackets; empty elements mean nothing.
fn elements(hostlist: &str) -> Result<Vec<&str>, HostlistError> {
    let mut elements = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, character) in hostlist.char_indices() {
        match character {
            '[' | ']' if inside == (character == '[') => {
                return Err(HostlistError::Brackets(hostlist.to_owned()));
            }
            '[' | ']' => inside = !inside,
            ',' | ' ' | '\t' | '\n' if !inside => {
                elements.push(&hostlist[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(HostlistError::Brackets(hostlist.to_owned()));
    }
    elements.push(&hostlist[start..]);
    elements.retain(|element| !element.is_empty());
    Ok(elements)
}

/// A stretch of an element.
enum Part<'a> {
    Text(&'a str),
    Numbers(Vec<Range>),
}

/// Numbers from `low` to `high`, padded with zeros to `width`.
struct Range {
    low: u64,
    high: u64,
    width: usize,
}

/// Brackets are known to be balanced here.
fn parts(element: &str) -> Result<Vec<Part<'_>>, HostlistError> {
    let mut parts = Vec::new();
    let mut rest = element;
    while let Some((text, bracket)) = rest.split_once('[') {
        let (ranges, remainder) =
            bracket.split_once(']').ok_or_else(|| HostlistError::Brackets(element.to_owned()))?;
        parts.push(Part::Text(text));
        parts.push(Part::Numbers(ranges.split(',').map(Range::parse).collect::<Result<_, _>>()?));
        rest = remainder;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

impl Part<'_> {
    fn count(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Numbers(ranges) => ranges.iter().fold(0, |sum, range| sum.saturating_add(range.count())),
        }
    }

    fn append_to(&self, prefixes: &[String]) -> Vec<String> {
        match self {
            Self::Text(text) => prefixes.iter().map(|prefix| format!("{prefix}{text}")).collect(),
            Self::Numbers(ranges) => prefixes
                .iter()
                .flat_map(|prefix| ranges.iter().flat_map(move |range| range.names(prefix)))
                .collect(),
        }
    }
}

impl Range {
    fn parse(text: &str) -> Result<Self, HostlistError> {
        let invalid = || HostlistError::Range(text.to_owned());
        let (low_text, high_text) = text.split_once('-').unwrap_or((text, text));
        let low = number(low_text).ok_or_else(invalid)?;
        let high = number(high_text).filter(|high| *high >= low).ok_or_else(invalid)?;
        Ok(Self { low, high, width: low_text.len() })
    }

    fn count(&self) -> usize {
        usize::try_from(self.high - self.low).map_or(usize::MAX, |span| span.saturating_add(1))
    }

    fn names(&self, prefix: &str) -> impl Iterator<Item = String> {
        (self.low..=self.high).map(move |number| format!("{prefix}{number:0width$}", width = self.width))
    }
}

/// Digits only: Rust would also take a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A name and the number at its end.
struct Host<'a> {
    prefix: &'a str,
    number: Option<u64>,
    digits: &'a str,
}

impl<'a> Host<'a> {
    fn of(name: &'a str) -> Self {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[prefix.len()..];
        match number(digits) {
            Some(number) => Self { prefix, number: Some(number), digits },
            None => Self { prefix: name, number: None, digits: "" },
        }
    }
}

/// Neighbours that share a prefix, as ranges.
struct Group<'a> {
    prefix: &'a str,
    ranges: Vec<(&'a str, Range)>,
}

impl<'a> Group<'a> {
    fn new(host: &Host<'a>) -> Self {
        Self {
            prefix: host.prefix,
            ranges: host.number.map(|number| Self::range(host, number)).into_iter().collect(),
        }
    }

    fn range(host: &Host<'a>, number: u64) -> (&'a str, Range) {
        (host.digits, Range { low: number, high: number, width: host.digits.len() })
    }

    /// Adds the host if it belongs here; a name without a number stands alone.
    fn take(&mut self, host: &Host<'a>) -> bool {
        let (Some(number), Some((_, last))) = (host.number, self.ranges.last_mut()) else { return false };
        if self.prefix != host.prefix {
            return false;
        }
        let next = last.high.checked_add(1) == Some(number);
        if next && format!("{number:0width$}", width = last.width) == host.digits {
            last.high = number;
        } else {
            self.ranges.push(Self::range(host, number));
        }
        true
    }
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.ranges.iter().map(|(digits, range)| range.shown(digits)).collect();
        match self.ranges.as_slice() {
            [] => write!(f, "{}", self.prefix),
            [(digits, range)] if range.low == range.high => write!(f, "{}{digits}", self.prefix),
            _ => write!(f, "{}[{}]", self.prefix, ranges.join(",")),
        }
    }
}

impl Range {
    fn shown(&self, low_digits: &str) -> String {
        if self.low == self.high {
            low_digits.to_owned()
        } else {
            format!("{low_digits}-{:0width$}", self.high, width = self.width)
        }
    }
}
