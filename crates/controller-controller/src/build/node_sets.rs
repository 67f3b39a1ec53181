//! The NodeSets in slurm.conf. One that Slurm would refuse must not block the others, and must not lose the partition that its
//! jobs run in, so it keeps its lines of the configuration in force.

use super::config::{ConfigError, SLURM_CONF, Sources};
use kube::ResourceExt;
use slinky_api::v1beta1::{NodeSet, RefusedNodeSet};
use slurm_conf::{ConfLine, ConfName, is_equivalent, node_sets_in_file};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The partition name that sets the default options of all partitions.
const DEFAULT_PARTITION: &str = "default";

/// The lines of NodeSets in slurm.conf, by the name of the NodeSet.
type Lines = BTreeMap<String, slurm_conf::NodeSet>;

/// The lines of a NodeSet with which slurmctld refused a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLines {
    /// The lines. After an edit of the NodeSet they differ from the desired ones and do not count any more.
    pub lines: String,
    /// The reason of slurmctld; `None` while another NodeSet or the Controller may be at fault.
    pub reason: Option<String>,
}

/// The NodeSets that slurmctld refused, or may have refused, by name.
pub type RefusedNodeSets = BTreeMap<String, RefusedLines>;

/// The NodeSets in a configuration.
#[derive(Debug, Default)]
pub struct NodeSetPlan {
    /// Their lines.
    pub configured: Lines,
    /// Their lines as they are in force.
    pub unchanged: Lines,
    /// The configured lines that are not in force, as text.
    pub changed: BTreeMap<String, String>,
    /// The NodeSets whose lines are not the desired ones, and why.
    pub refused: Vec<RefusedNodeSet>,
    /// Partitions that stay although no NodeSet wants them any more.
    pub leftovers: Vec<String>,
}

/// A NodeSet with its desired lines and those in force, if it has any.
struct Candidate {
    name: String,
    desired: Option<slurm_conf::NodeSet>,
    in_force: Option<slurm_conf::NodeSet>,
    choice: Choice,
}

/// The lines that a NodeSet gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The desired ones.
    Desired,
    /// The desired ones without the partition, for a NodeSet that has nothing in force.
    WithoutPartition,
    /// Those in force.
    InForce,
}

/// Chooses the lines of each NodeSet: the desired ones, if `check` accepts them. An error of `check` that no NodeSet causes is
/// returned.
pub fn plan_node_sets(
    sources: &Sources<'_>,
    user_partitions: &BTreeSet<String>,
    check: impl Fn(Lines) -> Result<(), ConfigError>,
) -> Result<NodeSetPlan, ConfigError> {
    let mut plan = NodeSetPlan::default();
    let mut candidates = candidates(sources, user_partitions, &mut plan);
    for candidate in &mut candidates {
        let earlier = sources.refusals.get(&candidate.name);
        if let Some(refusal) = earlier.filter(|refusal| refusal.lines == candidate.text()) {
            candidate.choice = Choice::InForce;
            let reasons = refusal.reason.iter();
            plan.refused.extend(reasons.map(|reason| refused(&candidate.name, reason)));
        }
    }
    if let Err(error) = check(chosen(&candidates)) {
        find_faults(&mut candidates, &mut plan.refused, check, error)?;
    }
    let changed = candidates.iter().filter(|candidate| candidate.is_changed());
    plan.changed = changed.map(|candidate| (candidate.name.clone(), candidate.text())).collect();
    plan.configured = chosen(&candidates);
    for candidate in &mut candidates {
        candidate.choice = Choice::InForce;
    }
    plan.unchanged = chosen(&candidates);
    Ok(plan)
}

/// Finds the changed NodeSets that cause an error: all keep their lines in force, and then each gets its desired ones, if
/// that causes no error.
fn find_faults(
    candidates: &mut [Candidate],
    refusals: &mut Vec<RefusedNodeSet>,
    check: impl Fn(Lines) -> Result<(), ConfigError>,
    error: ConfigError,
) -> Result<(), ConfigError> {
    let indices: Vec<usize> = (0..candidates.len()).filter(|index| candidates[*index].is_changed()).collect();
    for index in &indices {
        candidates[*index].choice = Choice::InForce;
    }
    // If this fails, too, no NodeSet is at fault.
    check(chosen(candidates)).map_err(|_| error)?;
    for index in indices {
        candidates[index].choice = Choice::Desired;
        let Err(error) = check(chosen(candidates)) else { continue };
        refusals.push(refused(&candidates[index].name, &error.to_string()));
        candidates[index].choice = Choice::WithoutPartition;
        if candidates[index].in_force.is_some() || check(chosen(candidates)).is_err() {
            candidates[index].choice = Choice::InForce;
        }
    }
    Ok(())
}

/// The chosen lines.
fn chosen(candidates: &[Candidate]) -> Lines {
    let lines = |candidate: &Candidate| match candidate.choice {
        Choice::Desired => candidate.desired.clone(),
        Choice::WithoutPartition => {
            candidate.desired.clone().map(|desired| slurm_conf::NodeSet { partition: None, ..desired })
        }
        Choice::InForce => candidate.in_force.clone(),
    };
    candidates.iter().filter_map(|candidate| Some((candidate.name.clone(), lines(candidate)?))).collect()
}

impl Candidate {
    /// True if its desired lines are chosen and not in force.
    fn is_changed(&self) -> bool {
        let options =
            |set: &slurm_conf::NodeSet| set.partition.as_ref().map(|partition| partition.as_ref().to_owned());
        let differs = match (&self.desired, &self.in_force) {
            (Some(desired), Some(in_force)) => match (options(desired), options(in_force)) {
                (Some(desired), Some(in_force)) => !is_equivalent(&desired, &in_force),
                (desired, in_force) => desired != in_force,
            },
            (desired, in_force) => desired.is_some() || in_force.is_some(),
        };
        self.choice == Choice::Desired && differs
    }

    /// The desired lines as text.
    fn text(&self) -> String {
        self.desired.as_ref().map(|set| format!("{set:?}")).unwrap_or_default()
    }
}

fn refused(name: &str, message: &str) -> RefusedNodeSet {
    RefusedNodeSet { name: name.to_owned(), message: message.to_owned() }
}

/// The NodeSets by age. Those whose spec cannot be written into slurm.conf are refused.
fn candidates(
    sources: &Sources<'_>,
    user_partitions: &BTreeSet<String>,
    plan: &mut NodeSetPlan,
) -> Vec<Candidate> {
    let text = sources.in_force.and_then(|files| files.get(SLURM_CONF));
    let in_force = text.map(|text| node_sets_in_file(text)).unwrap_or_default();
    let (mut candidates, mut taken) = (Vec::new(), BTreeSet::new());
    let mut by_age: Vec<&Arc<NodeSet>> = sources.node_sets.iter().collect();
    by_age.sort_by_key(|set| (set.metadata.creation_timestamp.clone(), set.name_any()));
    for set in by_age {
        let (object, name) = (set.name_any(), set.slurm_name());
        if !taken.insert(name.clone()) {
            let message = format!("another NodeSet already has the name {name:?} in Slurm");
            plan.refused.push(refused(&object, &message));
            continue;
        }
        let in_force = in_force.get(&name).cloned();
        let desired = configure(set, &name).or_else(|problem| {
            plan.refused.push(refused(&object, &problem));
            in_force.clone().ok_or(())
        });
        let mut desired = desired.ok();
        if let Some(lines) = &mut desired {
            let is_unwanted = lines.partition.is_none() || set.metadata.deletion_timestamp.is_some();
            if is_unwanted && !user_partitions.contains(&name) {
                lines.partition = leftover_partition(set, in_force.as_ref());
                if lines.partition.is_some() {
                    plan.leftovers.push(format!(
                        "NodeSet {object}: partition {name} accepts no new jobs and is removed when no job record names it"
                    ));
                }
            }
        }
        candidates.push(Candidate { name: object, desired, in_force, choice: Choice::Desired });
    }
    candidates
}

/// A partition that its NodeSet does not want any more, closed to new jobs; `None` once it may be removed. slurmctld ends
/// jobs whose partition is removed from slurm.conf, so it stays until its NodeSet reports that no job record names it.
fn leftover_partition(set: &NodeSet, in_force: Option<&slurm_conf::NodeSet>) -> Option<ConfLine> {
    let partition = in_force?.partition.clone()?;
    let closed = partition.closed_to_new_jobs();
    let is_closed = is_equivalent(partition.as_ref(), closed.as_ref());
    let is_removable = set.releases_partition() && is_closed;
    (!is_removable).then_some(closed)
}

/// The node set of slurm.conf for a NodeSet, or why there is none.
fn configure(set: &NodeSet, name: &str) -> Result<slurm_conf::NodeSet, String> {
    let partition = set.spec.enabled_partition();
    if partition.is_some() && name.eq_ignore_ascii_case(DEFAULT_PARTITION) {
        return Err(format!(
            "a partition cannot be named {name:?}: slurm.conf uses that name for the defaults of all partitions"
        ));
    }
    let options = partition.map(|partition| partition.config.as_deref().unwrap_or_default());
    let options = options.map(|options| ConfLine::new("partition.config", options)).transpose();
    Ok(slurm_conf::NodeSet {
        name: ConfName::new("template.spec.hostname", name).map_err(|error| error.to_string())?,
        partition: options.map_err(|error| error.to_string())?,
    })
}
