//! Hostlists: Slurm's short form of many node names, `n[1-3,5]`.
//!
//! [`fold`] writes the output of `scontrol show hostlist`. [`expand`] parses the input of `scontrol show hostnames`; it
//! expands several brackets from left to right (Slurm's order differs from three brackets on) and rejects blanks in
//! brackets, open ranges and nested brackets instead of guessing.

use std::fmt;

/// Slurm's limit of hosts in one range; longer lists are rejected.
pub const MAX_HOSTS: usize = 65_536;
/// The longest name of a host in DNS. With it, [`MAX_HOSTS`] names have a bounded size.
const LONGEST_NAME: usize = 253;

/// Why a text is not a hostlist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// An unmatched or nested bracket.
    #[error("unbalanced brackets in {0:?}")]
    Brackets(String),
    /// Neither a number nor an ascending range in brackets.
    #[error("invalid range {0:?}")]
    Range(String),
    /// More hosts than allowed.
    #[error("more than {0} hosts")]
    TooMany(usize),
    /// A name that no host can have.
    #[error("a name longer than {LONGEST_NAME} characters")]
    TooLong,
}

/// All names of a hostlist in order, duplicates included.
pub fn expand(hostlist: &str) -> Result<Vec<String>, HostlistError> {
    expand_at_most(hostlist, MAX_HOSTS)
}

/// Like [`expand`], with a limit of its own: a short text can stand for many names, so their number and size are computed
/// before memory is used for them.
pub(crate) fn expand_at_most(hostlist: &str, limit: usize) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for element in elements(hostlist)? {
        let parts = parts(element)?;
        if parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.longest())) > LONGEST_NAME {
            return Err(HostlistError::TooLong);
        }
        let count = parts.iter().try_fold(1_usize, |product, part| product.checked_mul(part.count()));
        if count.and_then(|count| count.checked_add(names.len())).is_none_or(|total| total > limit) {
            return Err(HostlistError::TooMany(limit));
        }
        names.extend(parts.iter().fold(vec![String::new()], |prefixes, part| part.append_to(&prefixes)));
    }
    Ok(names)
}

/// The shortest hostlist with exactly these names in this order.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (prefix, number) in names.into_iter().map(split_number) {
        match (groups.last_mut(), number) {
            (Some(group), Some(number)) if group.prefix == prefix && !group.ranges.is_empty() => {
                group.add(number);
            }
            (_, number) => groups.push(Group { prefix, ranges: Vec::from_iter(number) }),
        }
    }
    groups.iter().map(Group::to_string).collect::<Vec<_>>().join(",")
}

/// The hostlist of a set: each name once, numbers in ascending order.
pub fn fold_set<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| split_number(name));
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
#[derive(PartialEq, Eq, PartialOrd, Ord)]
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

    /// The length of its longest text.
    fn longest(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Numbers(ranges) => ranges.iter().map(Range::digits).max().unwrap_or_default(),
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
        // No host has a longer name, and `format!` panics at a width beyond 16 bits.
        if low_text.len() > LONGEST_NAME {
            return Err(HostlistError::TooLong);
        }
        let low = number(low_text).ok_or_else(invalid)?;
        let high = number(high_text).filter(|high| *high >= low).ok_or_else(invalid)?;
        Ok(Self { low, high, width: low_text.len() })
    }

    fn count(&self) -> usize {
        usize::try_from(self.high - self.low).map_or(usize::MAX, |span| span.saturating_add(1))
    }

    /// The length of its highest number.
    fn digits(&self) -> usize {
        self.high.to_string().len().max(self.width)
    }

    /// Whether `number` follows, written as the range would write it.
    fn is_continued_by(&self, number: &Self) -> bool {
        self.high.checked_add(1) == Some(number.low)
            && format!("{:0width$}", number.low, width = self.width) == number.to_string()
    }

    fn names(&self, prefix: &str) -> impl Iterator<Item = String> {
        (self.low..=self.high).map(move |number| format!("{prefix}{number:0width$}", width = self.width))
    }
}

/// Digits only: `str::parse` would also accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Splits a name into its prefix and its trailing number, if it has one.
fn split_number(name: &str) -> (&str, Option<Range>) {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match Range::parse(&name[prefix.len()..]) {
        Ok(number) => (prefix, Some(number)),
        Err(_) => (name, None),
    }
}

/// Consecutive names with the same prefix.
struct Group<'a> {
    prefix: &'a str,
    ranges: Vec<Range>,
}

impl Group<'_> {
    /// Adds a number to the last range if it continues it, else as a range of its own.
    fn add(&mut self, number: Range) {
        match self.ranges.last_mut() {
            Some(last) if last.is_continued_by(&number) => last.high = number.high,
            _ => self.ranges.push(number),
        }
    }
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.ranges.iter().map(Range::to_string).collect();
        match self.ranges.as_slice() {
            [] => write!(f, "{}", self.prefix),
            [range] if range.low == range.high => write!(f, "{}{range}", self.prefix),
            _ => write!(f, "{}[{}]", self.prefix, ranges.join(",")),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, high, width } = self;
        write!(f, "{low:0width$}")?;
        if low == high { Ok(()) } else { write!(f, "-{high:0width$}") }
    }
}
