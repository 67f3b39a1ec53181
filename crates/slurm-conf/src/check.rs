//! Finds mistakes in a rendered configuration before it is rolled out.
//!
//! With a [`Severity::Error`] slurmctld or slurmdbd certainly does not start; anything that Slurm may accept is at most
//! a [`Severity::Warning`]. Messages contain keys and names, never values: they appear in conditions and events, and a
//! file may contain a password.

use crate::hostlist::{self, HostlistError, MAX_HOSTS};
use crate::text::{LogicalLine, Pair, logical_lines, pairs};
use crate::writer::{EXTRA_SECTION, MERGED_SECTION, header};
use std::collections::{BTreeMap, BTreeSet};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Slurm runs with it, but perhaps not as intended.
    Warning,
    /// Slurm does not start with it.
    Error,
}

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The line of the file, from 1.
    pub line: usize,
    /// The message for the user.
    pub message: String,
}

/// Keys that start a record; all other lines hold a single option.
const RECORDS: &[&str] = &["downnodes", "frontendname", "nodename", "nodeset", "partitionname"];
/// Keys that may be repeated.
const REPEATABLE: &[&str] =
    &["slurmctldhost", "prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "taskepilog"];

/// How many names the members of all partitions may stand for; further ones are not compared. A file of a few kilobytes can
/// name billions.
const MAX_MEMBERS: usize = 200_000;

/// Checks a rendered slurm.conf.
pub fn check_slurm_conf(text: &str) -> Vec<Finding> {
    let mut findings = Findings::default();
    let lines = logical_lines(text);
    let lines = findings.check_syntax(&lines);
    findings.check_options(text, &lines);
    findings.check_records(&lines);
    findings.sorted()
}

/// Checks a rendered slurmdbd.conf.
pub fn check_slurmdbd_conf(text: &str) -> Vec<Finding> {
    let mut findings = Findings::default();
    let lines = logical_lines(text);
    let lines = findings.check_syntax(&lines);
    findings.check_options(text, &lines);
    findings.sorted()
}

/// A line that Slurm can read.
struct Line<'a> {
    number: usize,
    pairs: Vec<Pair<'a>>,
}

impl Line<'_> {
    fn first(&self) -> (String, &str) {
        self.pairs.first().map(|pair| (pair.key.to_lowercase(), pair.value)).unwrap_or_default()
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|pair| pair.key.eq_ignore_ascii_case(key)).map(|pair| pair.value)
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn warning(&mut self, line: usize, message: String) {
        self.0.push(Finding { severity: Severity::Warning, line, message });
    }

    fn error(&mut self, line: usize, message: String) {
        self.0.push(Finding { severity: Severity::Error, line, message });
    }

    fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by(|a, b| (a.line, &a.message).cmp(&(b.line, &b.message)));
        self.0
    }

    /// Returns the lines that Slurm can read. `Include` is the only directive without `=`.
    fn check_syntax<'a>(&mut self, lines: &'a [LogicalLine]) -> Vec<Line<'a>> {
        let mut readable = Vec::new();
        for LogicalLine { number, text } in lines {
            let start = text.split(|c: char| c == '=' || c.is_whitespace()).find(|word| !word.is_empty());
            match pairs(text) {
                Some(pairs) => readable.push(Line { number: *number, pairs }),
                None if start.is_some_and(|word| word.eq_ignore_ascii_case("include")) => {}
                None => self.error(
                    *number,
                    format!("{:?}: the line is not of the form Key=Value", start.unwrap_or_default()),
                ),
            }
        }
        readable
    }

    /// Finds options that are set twice or that override the operator's.
    fn check_options(&mut self, text: &str, lines: &[Line<'_>]) {
        let (extra, merged) = header_lines(text);
        let restored: BTreeSet<String> =
            lines.iter().filter(|line| line.number > merged).map(|line| line.first().0).collect();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.number < merged) {
            let (key, _) = line.first();
            if RECORDS.contains(&key.as_str()) || REPEATABLE.contains(&key.as_str()) {
                continue;
            }
            if line.pairs.len() > 1 {
                self.warning(line.number, format!("{key}: Slurm accepts a single option on this line"));
            }
            let Some(before) = seen.insert(key.clone(), line.number) else { continue };
            if before > extra {
                self.warning(
                    line.number,
                    format!("{key} is already set on line {before}; Slurm uses the last value"),
                );
            } else if !restored.contains(&key) {
                self.warning(line.number, format!("{key} overrides the operator's value on line {before}"));
            }
        }
    }

    /// Finds conflicts between the names of nodes, node sets and partitions.
    fn check_records(&mut self, lines: &[Line<'_>]) {
        let of = |key: &'static str| lines.iter().filter(move |line| line.first().0 == key);
        for line in of("nodename").filter(|line| has_unclosed_bracket(line.first().1)) {
            self.error(line.number, "nodename: the hostlist has an unclosed bracket".to_owned());
        }
        let defined = self.defined_nodes(of("nodename"));
        let mut node_sets = BTreeSet::new();
        for line in of("nodeset") {
            let (_, name) = line.first();
            if defined.contains(name) {
                self.error(line.number, format!("node set {name} has the same name as a node"));
            } else if !node_sets.insert(name) {
                self.warning(line.number, format!("node set {name} is defined twice"));
            }
        }
        let mut partitions = BTreeSet::new();
        let mut left = MAX_MEMBERS;
        for line in of("partitionname") {
            let (_, name) = line.first();
            if !partitions.insert(name) && !name.eq_ignore_ascii_case("default") {
                self.error(line.number, format!("partition {name} is defined twice"));
            }
            let known = |name: &String| defined.contains(name) || node_sets.contains(name.as_str());
            self.check_members(line, name, known, &mut left);
        }
    }

    /// The nodes that the file defines, as far as they are not too many.
    fn defined_nodes<'a>(&mut self, lines: impl Iterator<Item = &'a Line<'a>>) -> BTreeSet<String> {
        let mut defined = BTreeSet::new();
        let mut left = MAX_HOSTS;
        for line in lines {
            let Some(names) = names(line.first().1, &mut left) else {
                self.error(line.number, format!("nodename: the file defines more than {MAX_HOSTS} nodes"));
                break;
            };
            defined.extend(names);
        }
        defined
    }

    /// Checks the members of a partition. An unknown member may be a dynamic node, which no file names.
    fn check_members(
        &mut self,
        line: &Line<'_>,
        partition: &str,
        known: impl Fn(&String) -> bool,
        left: &mut usize,
    ) {
        let members =
            line.value("nodes").filter(|members| !members.eq_ignore_ascii_case("all")).unwrap_or_default();
        if has_unclosed_bracket(members) {
            self.error(line.number, format!("partition {partition}: the hostlist has an unclosed bracket"));
        }
        let names = names(members, left).unwrap_or_default();
        if let Some(name) = names.iter().find(|name| !known(name)) {
            self.warning(
                line.number,
                format!("partition {partition}: {name} is not a node set of this file"),
            );
        }
    }
}

/// The names of a hostlist, subtracted from those that are left; `None` if they are too many. An invalid hostlist has none:
/// slurmctld reports it itself.
fn names(hostlist: &str, left: &mut usize) -> Option<Vec<String>> {
    let names = match hostlist::expand_at_most(hostlist, *left) {
        Err(HostlistError::TooMany(_)) => return None,
        names => names.unwrap_or_default(),
    };
    *left = left.saturating_sub(names.len());
    Some(names)
}

/// Whether a hostlist ends inside a bracket. Slurm accepts some hostlists that [`hostlist::expand`] rejects.
fn has_unclosed_bracket(hostlist: &str) -> bool {
    hostlist.rfind('[') > hostlist.rfind(']')
}

/// Line numbers of the headers before and after the user's text.
fn header_lines(text: &str) -> (usize, usize) {
    let (extra, merged) = (header(EXTRA_SECTION), header(MERGED_SECTION));
    let lines: Vec<&str> = text.lines().collect();
    let number = |index: Option<usize>| index.map_or(usize::MAX, |index| index + 1);
    // The user's text may have the header that follows it, too.
    let merged = lines.iter().rposition(|line| *line == merged);
    (number(lines.iter().position(|line| *line == extra)), number(merged))
}
