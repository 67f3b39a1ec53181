//! Renders the cluster state as slurmrestd's JSON.

use crate::model::{Cluster, Job, Node, NodeFlag, Reservation, SlurmError};
use serde_json::{Value, json};
use slurm_conf::hostlist::fold_set;

/// A wrapped number.
pub fn number(value: i64) -> Value {
    json!({ "set": true, "infinite": false, "number": value })
}

/// An entry of `errors` in the envelope.
pub fn error_entry(error: &SlurmError) -> Value {
    json!({
        "description": error.description, "error_number": error.errno,
        "error": error.error, "source": "fake",
    })
}

/// One node. `used`: the CPUs in use at slurmctld's last count.
pub fn node(name: &str, node: &Node, cluster: &Cluster, used: u32, now: i64, topology: bool) -> Value {
    let reservation = cluster
        .reservations
        .iter()
        .find(|known| known.started && known.nodes.iter().any(|member| member == name));
    let mut rendered = json!({
        "name": name,
        "hostname": name,
        "address": node.address,
        "state": states(name, node, cluster, used, reservation),
        "reason": node.reason,
        "reason_set_by_user": node.reason_user,
        "reason_changed_at": number(node.reason_at),
        "comment": node.comment,
        "features": node.features,
        "active_features": node.active_features,
        "reservation": reservation.map_or("", |known| known.name.as_str()),
        "slurmd_start_time": number(node.slurmd_start),
        "cpus": node.cpus,
        "alloc_cpus": used,
        "last_busy": number(now),
        "next_state_after_reboot": ["INVALID"],
    });
    if topology {
        rendered["topology"] = json!(node.topology);
    }
    rendered
}

fn states(
    name: &str,
    node: &Node,
    cluster: &Cluster,
    used: u32,
    reservation: Option<&Reservation>,
) -> Vec<&'static str> {
    let has = |flag| node.flags.contains(&flag);
    let base = match (has(NodeFlag::Down), used, cluster.used_cpus(name)) {
        (true, ..) => "DOWN",
        (false, 0, 0) => "IDLE",
        // Busy, and not counted yet: slurmctld counts only for a list.
        (false, 0, _) => "ALLOCATED",
        (false, used, _) if used < node.cpus => "MIXED",
        (false, ..) => "ALLOCATED",
    };
    let completing = cluster.jobs.values().any(|job| job.completing && job.holds(name));
    let maintenance = reservation.is_some_and(|known| known.flags.iter().any(|flag| flag == "MAINT"));
    let flags = [
        (reservation.is_some(), "RESERVED"),
        (node.cloud, "CLOUD"),
        (has(NodeFlag::Drain), "DRAIN"),
        (completing, "COMPLETING"),
        (node.not_responding || node.unconfirmed_until.is_some(), "NOT_RESPONDING"),
        (node.cloud, "POWERED_DOWN"),
        (has(NodeFlag::Fail), "FAIL"),
        (maintenance, "MAINTENANCE"),
        (true, "DYNAMIC_NORM"),
    ];
    std::iter::once(base).chain(flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag)).collect()
}

/// The states of one job.
pub fn job_states(id: i64, job: &Job) -> Value {
    json!({ "job_id": id.to_string(), "state": states_of(job) })
}

fn states_of(job: &Job) -> Vec<&'static str> {
    std::iter::once(job.state).chain(job.completing.then_some("COMPLETING")).collect()
}

/// One job.
pub fn job(id: i64, job: &Job) -> Value {
    let limit = match job.limit_minutes {
        Some(minutes) => number(minutes),
        None => json!({ "set": false, "infinite": true, "number": 0 }),
    };
    json!({
        "job_id": id,
        "job_state": states_of(job),
        "nodes": fold_set(job.nodes.iter().map(String::as_str)),
        "required_nodes": fold_set(job.required_nodes.iter().map(String::as_str)),
        "partition": job.partition,
        "start_time": number(job.start),
        "time_limit": limit,
    })
}

/// One reservation.
pub fn reservation(reservation: &Reservation) -> Value {
    let spec_nodes = (!reservation.nodes.is_empty()).then_some("SPEC_NODES");
    let flags = reservation.flags.iter().map(String::as_str).chain(spec_nodes).collect::<Vec<_>>();
    json!({
        "name": reservation.name,
        "node_list": fold_set(reservation.nodes.iter().map(String::as_str)),
        "node_count": reservation.nodes.len(),
        "users": reservation.users.join(","),
        "flags": flags,
        "start_time": number(reservation.start),
        "end_time": number(reservation.end),
    })
}
