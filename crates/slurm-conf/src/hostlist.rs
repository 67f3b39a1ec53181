//! Hostlists: Slurm's short form of many node names, `n[1-3,5]`.
//!
//! [`fold`] writes the output of `scontrol show hostlist`. [`expand`] parses the input of `scontrol show hostnames`; it
//! expands several brackets from left to right (Slurm's order differs from three brackets on) and rejects blanks in
//! brackets, open ranges and nested brackets instead of guessing.

use std::fmt;

/// Slurm's limit of hosts in one range; longer lists are rejected.
pub const MAX_HOSTS: usize = 65_536;

/// Why a text is not a hostlist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// An unmatched or nested bracket.
    #[error("unbalanced brackets in {0:?}")]
    Brackets(String),
    /// Neither a number nor an ascending range in brackets.
    #[error("invalid range {0:?}")]
    Range(String),
    /// More than [`MAX_HOSTS`] hosts.
    #[error("more than {MAX_HOSTS} hosts")]
    TooMany,
}

/// All names of a hostlist in order, duplicates included.
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
        let host = Host::parse(name);
        if !groups.last_mut().is_some_and(|group| group.add(&host)) {
            groups.push(Group::new(&host));
        }
    }
    groups.iter().map(Group::to_string).collect::<Vec<_>>().join(",")
}

/// The hostlist of a set: each name once, numbers in ascending order.
pub fn fold_set<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| {
        let host = Host::parse(name);
        (host.prefix, host.number, host.digits.len())
    });
    names.dedup();
    fold(names)
}

/// Splits at commas and blanks outside of brackets; empty elements are dropped.
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

/// A part of an element.
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

/// The caller has checked that brackets are balanced.
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

/// Digits only: `str::parse` would also accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A name, split into prefix and trailing number.
struct Host<'a> {
    prefix: &'a str,
    number: Option<u64>,
    digits: &'a str,
}

impl<'a> Host<'a> {
    fn parse(name: &'a str) -> Self {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[prefix.len()..];
        match number(digits) {
            Some(number) => Self { prefix, number: Some(number), digits },
            None => Self { prefix: name, number: None, digits: "" },
        }
    }
}

/// Consecutive names with the same prefix, as ranges.
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

    /// Adds the host if it has the same prefix and a number; returns whether it did.
    fn add(&mut self, host: &Host<'a>) -> bool {
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
        let ranges: Vec<String> = self.ranges.iter().map(|(digits, range)| range.render(digits)).collect();
        match self.ranges.as_slice() {
            [] => write!(f, "{}", self.prefix),
            [(digits, range)] if range.low == range.high => write!(f, "{}{digits}", self.prefix),
            _ => write!(f, "{}[{}]", self.prefix, ranges.join(",")),
        }
    }
}

impl Range {
    fn render(&self, low_digits: &str) -> String {
        if self.low == self.high {
            low_digits.to_owned()
        } else {
            format!("{low_digits}-{:0width$}", self.high, width = self.width)
        }
    }
}
