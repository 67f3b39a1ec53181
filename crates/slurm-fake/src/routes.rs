//! Answers one request at a given time, as slurmrestd does.

use crate::model::{Cluster, Node, NodeChange, ReservationChange, SlurmError};
use crate::render;
use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use slurm_conf::hostlist::expand;
use slurm_rest::errno;

/// A request that slurmrestd passes on to slurmctld.
pub struct ApiRequest<'a> {
    pub method: &'a Method,
    /// The API version in its path.
    pub version: &'a str,
    /// The path after the version.
    pub path: &'a str,
    pub query: &'a str,
    pub body: &'a Value,
    /// The user of its token; `None` if slurmctld refuses the token.
    pub user: Option<&'a str>,
    pub release: &'a str,
    pub now: i64,
}

/// The only partition; it contains all nodes.
const PARTITION: &str = "all";

/// The payload of an answer, or its error.
type Reply = Result<Value, SlurmError>;

/// An answer with a body in plain text.
pub fn text(status: StatusCode, body: &str) -> Response<Bytes> {
    respond(status, "text/plain", body.as_bytes())
}

/// An answer with a given body.
pub fn respond(status: StatusCode, kind: &'static str, body: &[u8]) -> Response<Bytes> {
    let mut response = Response::new(Bytes::copy_from_slice(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// An envelope with a payload or an error.
pub fn json(reply: Reply, release: &str) -> Response<Bytes> {
    let (status, payload, errors) = match reply {
        Ok(payload) => (StatusCode::OK, payload, vec![]),
        Err(error) => (status_of(error.errno), json!({}), vec![render::error_entry(&error)]),
    };
    let mut envelope =
        json!({ "errors": errors, "warnings": [], "meta": { "slurm": { "release": release } } });
    if let (Value::Object(envelope), Value::Object(payload)) = (&mut envelope, payload) {
        envelope.extend(payload);
    }
    respond(status, "application/json", envelope.to_string().as_bytes())
}

fn status_of(number: i32) -> StatusCode {
    match number {
        0 => StatusCode::OK,
        -1 | 9202 | 9207 => StatusCode::INTERNAL_SERVER_ERROR,
        1007 => StatusCode::NETWORK_AUTHENTICATION_REQUIRED,
        errno::CONNECTION => StatusCode::BAD_GATEWAY,
        errno::SOCKET_TIMEOUT => StatusCode::GATEWAY_TIMEOUT,
        errno::INVALID_JOB_ID => StatusCode::NOT_FOUND,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// The answer to ping, which never fails.
pub fn ping(request: &ApiRequest<'_>, responding: bool) -> Response<Bytes> {
    json(
        Ok(json!({ "pings": [{ "hostname": "ctl", "responding": responding, "primary": true }] })),
        request.release,
    )
}

/// The answer of a working slurmctld.
pub fn answer(request: &ApiRequest<'_>, cluster: &mut Cluster) -> Response<Bytes> {
    let mut segments = request.path.trim_matches('/').splitn(2, '/');
    let kind = segments.next().unwrap_or_default();
    let name = percent_decode_str(segments.next().unwrap_or_default()).decode_utf8_lossy();
    let known = match (request.method.as_str(), kind) {
        (
            "GET",
            "ping" | "nodes" | "node" | "jobs" | "job" | "partitions" | "reservations" | "reconfigure",
        )
        | ("POST", "nodes" | "node" | "new" | "job")
        | ("DELETE", "node" | "reservation" | "job") => true,
        ("POST", "reservation") => request.version != "v0.0.42",
        _ => false,
    };
    if !known {
        return text(StatusCode::NOT_FOUND, "Unable to find requested URL endpoint.");
    }
    if kind == "ping" {
        return ping(request, request.user.is_some());
    }
    let Some(user) = request.user else {
        return json(
            Err(SlurmError::new(errno::PROTOCOL_AUTHENTICATION, "Failure to query")),
            request.release,
        );
    };
    if *request.method == Method::GET && kind != "reconfigure" {
        return read(request, kind, &name, cluster);
    }
    let reply = match user {
        "slurm" | "root" => write(request, kind, &name, user, cluster),
        _ => Err(SlurmError::new(errno::NO_PRIVILEGE, "Failure to update")),
    };
    json(reply, request.release)
}

fn read(request: &ApiRequest<'_>, kind: &str, name: &str, cluster: &mut Cluster) -> Response<Bytes> {
    let since = request.query.strip_prefix("update_time=").and_then(|seconds| seconds.parse::<i64>().ok());
    let unchanged = |changed: i64| since.is_some_and(|since| changed < since);
    let last_update = render::number(request.now);
    let payload = match kind {
        "nodes" if unchanged(cluster.nodes_changed) => return not_modified(),
        "nodes" => json!({ "nodes": count_nodes(request, cluster), "last_update": last_update }),
        "reservations" if unchanged(cluster.reservations_changed) => return not_modified(),
        "reservations" => {
            let list: Vec<_> = cluster.reservations.iter().map(render::reservation).collect();
            json!({ "reservations": list, "last_update": last_update })
        }
        "jobs" if name == "state" => {
            let list: Vec<_> = cluster.jobs.iter().map(|(id, job)| render::job_states(*id, job)).collect();
            json!({ "jobs": list })
        }
        // Not a 304: slurmrestd sends an empty list when nothing changed.
        "jobs" if unchanged(cluster.jobs_changed) => json!({ "jobs": [], "last_update": render::number(0) }),
        "jobs" => {
            let list: Vec<_> = cluster.jobs.iter().map(|(id, job)| render::job(*id, job)).collect();
            json!({ "jobs": list, "last_update": last_update })
        }
        "job" => {
            let Some((id, job)) = name.parse().ok().and_then(|id| cluster.jobs.get_key_value(&id)) else {
                let error = SlurmError::new(errno::INVALID_JOB_ID, format!("Unable to query JobId={name}"));
                return json(Err(error), request.release);
            };
            json!({ "jobs": [render::job(*id, job)], "last_update": last_update })
        }
        "partitions" => {
            let all = json!({ "name": PARTITION, "partition": { "state": ["UP"] } });
            json!({ "partitions": [all], "last_update": last_update })
        }
        _ => match cluster.nodes.get(name) {
            Some(node) => {
                let rendered = render_node(request, name, node, cluster);
                json!({ "nodes": [rendered], "last_update": last_update })
            }
            None => {
                return json(
                    Err(SlurmError::new(0, format!("Failure to query node {name}"))),
                    request.release,
                );
            }
        },
    };
    json(Ok(payload), request.release)
}

fn not_modified() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

/// slurmctld counts the CPUs in use when it lists nodes; a single node shows the last count.
fn count_nodes(request: &ApiRequest<'_>, cluster: &mut Cluster) -> Vec<Value> {
    let names: Vec<String> = cluster.nodes.keys().cloned().collect();
    for name in &names {
        let used = cluster.used_cpus(name);
        if let Some(node) = cluster.nodes.get_mut(name) {
            node.counted_cpus = used;
        }
    }
    cluster.nodes.iter().map(|(name, node)| render_node(request, name, node, cluster)).collect()
}

fn render_node(request: &ApiRequest<'_>, name: &str, node: &Node, cluster: &Cluster) -> Value {
    render::node(name, node, cluster, node.counted_cpus, request.now, request.version != "v0.0.42")
}

fn write(request: &ApiRequest<'_>, kind: &str, name: &str, user: &str, cluster: &mut Cluster) -> Reply {
    let (body, now) = (request.body, request.now);
    match (kind, request.method == Method::DELETE) {
        ("nodes", _) => cluster.update_nodes(&strings(&body["name"]), &node_change(request)?, user, now)?,
        ("node", false) => cluster.update_nodes(&[name.to_owned()], &node_change(request)?, user, now)?,
        ("node", true) => cluster.delete_nodes(name, now)?,
        ("reservation", false) => {
            cluster.put_reservation(
                body["name"].as_str().unwrap_or_default(),
                reservation_change(body),
                now,
            )?;
        }
        ("reservation", true) => cluster.delete_reservation(name, now)?,
        ("job", false) => return Ok(json!({ "job_id": submit(body, cluster, now) })),
        ("job", true) => {
            let id = name.parse().unwrap_or_default();
            if !cluster.end_job(id, "CANCELLED", false, now) {
                return Err(SlurmError::new(errno::INVALID_JOB_ID, format!("Unable to signal JobId={name}")));
            }
        }
        ("new", _) => create_node(body, cluster, now)?,
        // reconfigure: the fake's configuration never changes.
        _ => {}
    }
    Ok(json!({}))
}

/// A list of strings, or one string.
fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn optional(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn wrapped(value: &Value) -> Option<i64> {
    value["number"].as_i64().filter(|_| value["infinite"] != json!(true))
}

fn node_change(request: &ApiRequest<'_>) -> Result<NodeChange, SlurmError> {
    let body = request.body;
    let state = strings(&body["state"]);
    if state.iter().any(|state| !STATES.contains(&state.as_str())) {
        return Err(SlurmError::new(9207, "Unable to find flag"));
    }
    // An empty list changes nothing; an empty string removes all.
    let features = |value: &Value| {
        let named = strings(value).into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
        (value == "" || !named.is_empty()).then_some(named)
    };
    Ok(NodeChange {
        state,
        reason: optional(&body["reason"]),
        comment: optional(&body["comment"]),
        topology: optional(&body["topology_str"]).filter(|_| request.version != "v0.0.42"),
        features: features(&body["features"]),
        active_features: features(&body["features_act"]),
    })
}

/// States that slurmrestd parses in an update; slurmctld rejects some of them.
const STATES: [&str; 10] =
    ["ALLOCATED", "DOWN", "DRAIN", "FAIL", "IDLE", "MAINTENANCE", "MIXED", "RESUME", "UNDRAIN", "UNKNOWN"];

fn reservation_change(body: &Value) -> ReservationChange {
    let list = |value: &Value| value.is_array().then(|| strings(value));
    let hosts = |names: Vec<String>| names.iter().flat_map(|name| expand(name).unwrap_or_default()).collect();
    ReservationChange {
        start: wrapped(&body["start_time"]),
        minutes: wrapped(&body["duration"]),
        flags: list(&body["flags"]),
        users: list(&body["users"]),
        nodes: list(&body["node_list"]).map(hosts),
    }
}

fn submit(body: &Value, cluster: &mut Cluster, now: i64) -> i64 {
    let job = &body["job"];
    let cpus = job["tasks"].as_u64().and_then(|tasks| u32::try_from(tasks).ok()).unwrap_or(1);
    cluster.submit(strings(&job["required_nodes"]), cpus, wrapped(&job["time_limit"]), now)
}

fn create_node(body: &Value, cluster: &mut Cluster, now: i64) -> Result<(), SlurmError> {
    let items: Map<String, Value> = body["node_conf"]
        .as_str()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|item| item.split_once('='))
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    let item = |key: &str| items.get(key).and_then(Value::as_str).unwrap_or_default();
    if item("State") != "CLOUD" {
        return Err(SlurmError::new(2028, "Failure to create node"));
    }
    for name in expand(item("NodeName")).unwrap_or_default() {
        cluster.nodes.insert(name, Node { cloud: true, slurmd_start: 0, ..Node::registered(now) });
    }
    cluster.nodes_changed = now;
    Ok(())
}
