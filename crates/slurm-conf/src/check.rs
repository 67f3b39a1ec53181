//! Finds mistakes in a rendered configuration before it is rolled out.
//!
//! An [`Severity::Error`] is what slurmctld or slurmdbd certainly refuses to start with; anything that Slurm may
//! accept is a [`Severity::Warning`] at most. Messages name keys and names, never values: they end up in conditions
//! and events, and a file may hold a password.

use crate::hostlist;
use crate::text::{LogicalLine, Pair, logical_lines, pairs};
use crate::writer::{EXTRA_SECTION, MERGED_SECTION, header};
use std::collections::{BTreeMap, BTreeSet};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Slurm runs with it, though perhaps not as meant.
    Warning,
    /// Slurm does not start with it.
    Error,
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The line of the file, from 1.
    pub line: usize,
    /// What it is.
    pub message: String,
}

/// Keys that start a record; all other lines hold a single option.
const RECORDS: &[&str] = &["downnodes", "frontendname", "nodename", "nodeset", "partitionname"];
/// Keys of which each occurrence counts.
const REPEATABLE: &[&str] =
    &["slurmctldhost", "prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "taskepilog"];

/// Checks a rendered slurm.conf. `nodes` are all nodes that Slurm knows, `None` if that cannot be said.
pub fn check_slurm_conf(text: &str, nodes: Option<&BTreeSet<String>>) -> Vec<Finding> {
    let mut findings = Findings::default();
    let lines = logical_lines(text);
    let lines = findings.well_formed(&lines);
    findings.options(text, &lines);
    findings.records(&lines, nodes);
    findings.sorted()
}

/// Checks a rendered slurmdbd.conf.
pub fn check_slurmdbd_conf(text: &str) -> Vec<Finding> {
    let mut findings = Findings::default();
    let lines = logical_lines(text);
    let lines = findings.well_formed(&lines);
    findings.options(text, &lines);
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
    fn warn(&mut self, line: usize, message: String) {
        self.0.push(Finding { severity: Severity::Warning, line, message });
    }

    fn refuse(&mut self, line: usize, message: String) {
        self.0.push(Finding { severity: Severity::Error, line, message });
    }

    fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by(|a, b| (a.line, &a.message).cmp(&(b.line, &b.message)));
        self.0
    }

    /// Keeps the lines that Slurm can read. `Include` is the one directive without `=`.
    fn well_formed<'a>(&mut self, lines: &'a [LogicalLine]) -> Vec<Line<'a>> {
        let mut readable = Vec::new();
        for LogicalLine { number, text } in lines {
            let start = text.split(|c: char| c == '=' || c.is_whitespace()).find(|word| !word.is_empty());
            match pairs(text) {
                Ok(pairs) => readable.push(Line { number: *number, pairs }),
                Err(_) if start.is_some_and(|word| word.eq_ignore_ascii_case("include")) => {}
                Err(_) => self.refuse(
                    *number,
                    format!("{:?}: the line is not of the form Key=Value", start.unwrap_or_default()),
                ),
            }
        }
        readable
    }

    /// Options that are set twice, or that take the place of what the operator set.
    fn options(&mut self, text: &str, lines: &[Line<'_>]) {
        let sections = Sections::of(text);
        let restored: BTreeSet<String> =
            lines.iter().filter(|line| line.number > sections.merged).map(|line| line.first().0).collect();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.number < sections.merged) {
            let (key, _) = line.first();
            if RECORDS.contains(&key.as_str()) || REPEATABLE.contains(&key.as_str()) {
                continue;
            }
            if line.pairs.len() > 1 {
                self.warn(line.number, format!("{key}: Slurm takes a single option on such a line"));
            }
            let Some(before) = seen.insert(key.clone(), line.number) else { continue };
            if before > sections.extra {
                self.warn(line.number, format!("{key} is already set on line {before}, the last one counts"));
            } else if !restored.contains(&key) {
                self.warn(line.number, format!("{key} replaces what the operator sets on line {before}"));
            }
        }
    }

    /// Nodes, node sets and partitions, whose names must fit together.
    fn records(&mut self, lines: &[Line<'_>], nodes: Option<&BTreeSet<String>>) {
        let of = |key: &'static str| lines.iter().filter(move |line| line.first().0 == key);
        for line in of("nodename").filter(|line| is_left_open(line.first().1)) {
            self.refuse(line.number, "nodename: a bracket of the hostlist is left open".to_owned());
        }
        let defined: BTreeSet<String> = of("nodename").flat_map(|line| names(line.first().1)).collect();
        let mut node_sets = BTreeSet::new();
        for line in of("nodeset") {
            let (_, name) = line.first();
            if defined.contains(name) {
                self.refuse(line.number, format!("node set {name} has the name of a node"));
            } else if !node_sets.insert(name) {
                self.warn(line.number, format!("node set {name} is defined twice"));
            }
        }
        let mut partitions = BTreeSet::new();
        for line in of("partitionname") {
            let (_, name) = line.first();
            if !partitions.insert(name) && !name.eq_ignore_ascii_case("default") {
                self.refuse(line.number, format!("partition {name} is defined twice"));
            }
            let known = |name: &String| defined.contains(name) || node_sets.contains(name.as_str());
            self.members(line, name, known, nodes);
        }
    }

    /// A dynamic node is known once it has registered, so without a list of nodes a doubt is all there is.
    fn members(
        &mut self,
        line: &Line<'_>,
        partition: &str,
        known: impl Fn(&String) -> bool,
        nodes: Option<&BTreeSet<String>>,
    ) {
        let members =
            line.value("nodes").filter(|members| !members.eq_ignore_ascii_case("all")).unwrap_or_default();
        if is_left_open(members) {
            self.refuse(
                line.number,
                format!("partition {partition}: a bracket of the hostlist is left open"),
            );
        }
        let unknown: Vec<String> = names(members).into_iter().filter(|name| !known(name)).collect();
        let Some(nodes) = nodes else {
            if let Some(name) = unknown.first() {
                self.warn(line.number, format!("partition {partition}: {name} is no node set of this file"));
            }
            return;
        };
        if let Some(name) = unknown.iter().find(|name| !nodes.contains(*name)) {
            self.refuse(
                line.number,
                format!("partition {partition}: {name} is neither a node set nor a node"),
            );
        }
    }
}

/// The names of a hostlist; none if it is none, which Slurm itself will say.
fn names(hostlist: &str) -> Vec<String> {
    hostlist::expand(hostlist).unwrap_or_default()
}

/// Whether a hostlist ends inside a bracket. Slurm finds a reading for some others that [`hostlist::expand`] refuses.
fn is_left_open(hostlist: &str) -> bool {
    hostlist.rfind('[') > hostlist.rfind(']')
}

/// Line numbers of the headers that enclose the user's text.
struct Sections {
    extra: usize,
    merged: usize,
}

impl Sections {
    fn of(text: &str) -> Self {
        let (extra, merged) = (header(EXTRA_SECTION), header(MERGED_SECTION));
        let numbered = || text.lines().enumerate();
        Self {
            extra: numbered().find(|(_, line)| *line == extra).map_or(usize::MAX, |(index, _)| index + 1),
            merged: numbered()
                .filter(|(_, line)| *line == merged)
                .last()
                .map_or(usize::MAX, |(index, _)| index + 1),
        }
    }
}
