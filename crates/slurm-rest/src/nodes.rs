//! Nodes: list, get, update, delete.

use crate::client::{Call, SlurmClient, escaped};
use crate::error::{Error, errno};
use crate::jobs::Job;
use crate::wire::{or_default, time};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use slurm_conf::hostlist;
use std::collections::BTreeSet;

/// A Slurm node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// One base state and any number of flags.
    pub state: Vec<NodeState>,
    /// Why it is drained, down or failed; else empty.
    #[serde(default, deserialize_with = "or_default")]
    pub reason: String,
    /// The user who set the reason.
    #[serde(default, deserialize_with = "or_default")]
    pub reason_set_by_user: String,
    /// When the reason was set.
    #[serde(default, deserialize_with = "time")]
    pub reason_changed_at: Option<Timestamp>,
    /// Free text of the administrator.
    #[serde(default, deserialize_with = "or_default")]
    pub comment: String,
    /// Its position in the network topology. `None` in the oldest API version, which does not take one either.
    #[serde(default)]
    pub topology: Option<String>,
    /// Available features.
    #[serde(default, deserialize_with = "or_default")]
    pub features: Vec<String>,
    /// Active features.
    #[serde(default, deserialize_with = "or_default")]
    pub active_features: Vec<String>,
    /// The active reservation that includes it; else empty.
    #[serde(default, deserialize_with = "or_default")]
    pub reservation: String,
    /// When its slurmd started, as of its last registration.
    #[serde(default, deserialize_with = "time")]
    pub slurmd_start_time: Option<Timestamp>,
    /// The address that slurmctld reaches its slurmd at.
    #[serde(default, deserialize_with = "or_default")]
    pub address: String,
    /// A job that holds it although its state does not show that: the job is suspended, or stages data out. Only lists
    /// fill it.
    #[serde(skip)]
    pub hidden_job: Option<String>,
}

/// A base state or a flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "Slurm's own names, explained in its documentation")]
pub enum NodeState {
    Allocated,
    Completing,
    Down,
    Drain,
    Error,
    Fail,
    Future,
    Idle,
    Invalid,
    InvalidReg,
    Maintenance,
    Mixed,
    NotResponding,
    Undrain,
    Unknown,
    /// A state or flag that we do not use, for example `DYNAMIC_NORM`.
    #[serde(untagged)]
    Other(String),
}

impl Node {
    /// Whether it is in this state, or has this flag.
    pub fn is(&self, state: &NodeState) -> bool {
        self.state.contains(state)
    }

    /// Whether a job holds it: running, completing, or hidden.
    ///
    /// A node from [`SlurmClient::get_node`] may seem busy long after its last job: slurmctld recounts allocations only
    /// when it lists nodes.
    pub fn is_busy(&self) -> bool {
        let busy = [NodeState::Allocated, NodeState::Mixed, NodeState::Completing];
        self.hidden_job.is_some() || busy.iter().any(|state| self.is(state))
    }

    /// Whether its state lets slurmctld start jobs on it.
    pub fn accepts_jobs(&self) -> bool {
        let out = [
            NodeState::Down,
            NodeState::Error,
            NodeState::Fail,
            NodeState::Future,
            NodeState::Invalid,
            NodeState::InvalidReg,
            NodeState::NotResponding,
            NodeState::Unknown,
        ];
        let is_drained = self.is(&NodeState::Drain) && !self.is(&NodeState::Undrain);
        !is_drained && !out.iter().any(|state| self.is(state))
    }

    /// Whether it is draining and no job is left on it.
    pub fn is_drained(&self) -> bool {
        self.is(&NodeState::Drain) && !self.is(&NodeState::Undrain) && !self.is_busy()
    }
}

/// All nodes at one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NodeList {
    /// In no particular order. Slurm omits nodes in state FUTURE.
    pub nodes: Vec<Node>,
    /// slurmctld's time when it answered.
    #[serde(rename = "last_update", default, deserialize_with = "time")]
    pub as_of: Option<Timestamp>,
}

/// A change of one property of nodes.
///
/// Only one, because Slurm applies the other properties of a request of which it rejects one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeUpdate {
    /// Drains: no new jobs. An empty reason keeps the current one.
    Drain {
        /// Why.
        reason: String,
    },
    /// Clears DRAIN and FAIL, whichever user set them, and the reason.
    Undrain,
    /// Resumes a drained, failed or down node. Slurm rejects it for a node that is in service.
    Resume,
    /// Like [`Self::Resume`], but also accepted for an idle node. Clears the DRAIN of any user. Slurm rejects it while
    /// a job runs.
    Idle,
    /// Takes the node out of service. **Kills the jobs on it.** An empty reason keeps the current one.
    Down {
        /// Why.
        reason: String,
    },
    /// Replaces the comment.
    Comment(String),
    /// Replaces the topology.
    Topology(String),
    /// Replaces the features.
    Features {
        /// Available features.
        available: Vec<String>,
        /// Active features, a subset of the available ones.
        active: Vec<String>,
    },
}

impl NodeUpdate {
    /// The JSON body of this update of the nodes in a hostlist.
    fn message(&self, nodes: &str) -> Value {
        let mut message = match self {
            Self::Drain { reason } => json!({ "state": ["DRAIN"], "reason": reason }),
            Self::Undrain => json!({ "state": ["UNDRAIN"], "reason": "" }),
            Self::Resume => json!({ "state": ["RESUME"] }),
            Self::Idle => json!({ "state": ["IDLE"] }),
            Self::Down { reason } => json!({ "state": ["DOWN"], "reason": reason }),
            Self::Comment(text) => json!({ "comment": text }),
            Self::Topology(text) => json!({ "topology_str": text }),
            Self::Features { available, active } => {
                json!({ "features": feature_list(available), "features_act": feature_list(active) })
            }
        };
        message["name"] = json!([nodes]);
        message
    }
}

/// Slurm reads an empty list as no change and an empty string as an empty list.
fn feature_list(features: &[String]) -> Value {
    if features.is_empty() { json!("") } else { json!(features) }
}

impl SlurmClient {
    /// All nodes, with their hidden jobs.
    pub async fn list_nodes(&self) -> Result<NodeList, Error> {
        // A job that is suspended or resumed during the list is found by one of the two reads.
        let hidden = self.list_hidden_jobs().await?;
        let list = self.read(Call::get("/nodes/")).await?;
        self.with_hidden_jobs(list, hidden).await
    }

    /// All nodes, or `None` if no node changed since `as_of`. With the unmodified [`NodeList::as_of`] of an earlier list
    /// no change is missed.
    pub async fn list_nodes_since(&self, as_of: Timestamp) -> Result<Option<NodeList>, Error> {
        let call = Call::get(format!("/nodes/?update_time={}", as_of.as_second()));
        match self.read_changed(call).await? {
            Some(list) => self.with_hidden_jobs(list, BTreeSet::new()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Adds the hidden jobs to a list that was just read, among them those of `earlier`.
    async fn with_hidden_jobs(
        &self,
        mut list: NodeList,
        earlier: BTreeSet<String>,
    ) -> Result<NodeList, Error> {
        let hidden = self.list_hidden_jobs().await?;
        for id in earlier.union(&hidden) {
            let Some(job) = self.get_job(id).await?.filter(Job::holds_nodes) else { continue };
            // With an unreadable hostlist it may hold any node.
            let names = job.node_names().ok().map(BTreeSet::from_iter);
            let holds =
                |node: &Node| names.as_ref().is_none_or(|names: &BTreeSet<_>| names.contains(&node.name));
            for node in list.nodes.iter_mut().filter(|node| holds(node)) {
                node.hidden_job = Some(id.clone());
            }
        }
        Ok(list)
    }

    /// One node, or `None` if slurmctld returns none with this name.
    ///
    /// `None` does not prove that the node does not exist: Slurm omits FUTURE nodes, and names are case-sensitive. A
    /// list is proof.
    pub async fn get_node(&self, name: &str) -> Result<Option<Node>, Error> {
        let call = Call::get(format!("/node/{}", escaped(single(name)?)));
        match self.read::<NodeList>(call).await {
            Ok(list) => Ok(list.nodes.into_iter().find(|node| node.name == name)),
            // For an unknown node slurmrestd answers 200 with an error entry without a number.
            Err(Error::Rejected { status, errno: 0, .. }) if status.is_success() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies the same update to all these nodes, in one request.
    ///
    /// A rejected update of several nodes may have changed some: Slurm processes them in alphabetical order, skips
    /// those for which it rejects the change, stops at the first unknown name, and reports one number and no name.
    /// [`Error::NotFound`] is returned for a single node only.
    pub async fn update_nodes(&self, names: &[&str], update: &NodeUpdate) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let names = names.iter().map(|name| single(name)).collect::<Result<Vec<_>, _>>()?;
        let call = Call::post("/nodes/", &update.message(&hostlist::fold_set(names.iter().copied())));
        match self.write(call).await {
            Err(Error::Rejected { errno: errno::INVALID_NODE_NAME, description, .. }) if names.len() == 1 => {
                Err(Error::NotFound(description))
            }
            result => result,
        }
    }

    /// Deletes the record of a node; succeeds if there is none. Slurm rejects it while a job or an active reservation
    /// uses the node. A slurmd that still runs does not register again by itself.
    pub async fn delete_node(&self, name: &str) -> Result<(), Error> {
        let call = Call::delete(format!("/node/{}", escaped(single(name)?)));
        match self.write(call).await {
            Err(error) if error.is_rejected_with(errno::INVALID_NODE_NAME) => Ok(()),
            result => result,
        }
    }
}

/// Rejects names that Slurm would expand to several nodes: brackets, commas and `ALL`.
fn single(name: &str) -> Result<&str, Error> {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
    if name.is_empty() || !name.chars().all(plain) || name.eq_ignore_ascii_case("all") {
        return Err(Error::Invalid(format!("{name:?} is not the name of a single node")));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn node(states: &[&str]) -> Node {
        serde_json::from_value(json!({ "name": "n", "state": states })).unwrap()
    }

    #[rstest]
    #[case(&["IDLE", "DRAIN"], true)]
    #[case(&["DOWN", "DRAIN", "NOT_RESPONDING"], true)]
    #[case(&["IDLE"], false)]
    #[case(&["MIXED", "DRAIN"], false)]
    #[case(&["ALLOCATED", "DRAIN"], false)]
    #[case(&["IDLE", "DRAIN", "COMPLETING"], false)]
    #[case(&["IDLE", "DRAIN", "UNDRAIN"], false)]
    #[case(&["DOWN"], false)]
    fn node_is_drained_when_draining_without_jobs(#[case] states: &[&str], #[case] drained: bool) {
        assert_eq!(node(states).is_drained(), drained);
    }

    #[rstest]
    #[case(&["IDLE", "DYNAMIC_NORM"], true)]
    #[case(&["MIXED"], true)]
    #[case(&["ALLOCATED", "COMPLETING"], true)]
    #[case(&["IDLE", "MAINTENANCE", "RESERVED"], true)]
    #[case(&["IDLE", "DRAIN"], false)]
    #[case(&["IDLE", "DRAIN", "UNDRAIN"], true)]
    #[case(&["DOWN"], false)]
    #[case(&["IDLE", "INVALID_REG"], false)]
    #[case(&["IDLE", "NOT_RESPONDING"], false)]
    #[case(&["IDLE", "FAIL"], false)]
    #[case(&["UNKNOWN"], false)]
    fn node_accepts_jobs_unless_it_is_out_of_service(#[case] states: &[&str], #[case] accepts: bool) {
        assert_eq!(node(states).accepts_jobs(), accepts);
    }

    #[test]
    fn unknown_states_are_kept_and_unknown_fields_ignored() {
        let node: Node = serde_json::from_value(json!({
            "name": "n", "state": ["IDLE", "BRAND_NEW"], "reason": null, "surprise": { "a": [1] },
            "reason_changed_at": { "set": true, "infinite": false, "number": 1_800_000_000 },
        }))
        .unwrap();
        assert_eq!(node.state, [NodeState::Idle, NodeState::Other("BRAND_NEW".to_owned())]);
        assert_eq!(node.reason, "");
        assert_eq!(node.reason_changed_at.unwrap().as_second(), 1_800_000_000);
    }

    #[rstest]
    #[case::no_name(json!({ "nodes": [{ "state": ["IDLE"] }] }))]
    #[case::no_state(json!({ "nodes": [{ "name": "n" }] }))]
    #[case::no_nodes(json!({ "last_update": {} }))]
    #[case::null(json!({ "nodes": null }))]
    fn list_without_required_fields_is_rejected(#[case] payload: Value) {
        assert!(serde_json::from_value::<NodeList>(payload).is_err());
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[rstest]
    #[case(NodeUpdate::Drain { reason: "r".into() }, json!({ "state": ["DRAIN"], "reason": "r" }))]
    #[case(NodeUpdate::Undrain, json!({ "state": ["UNDRAIN"], "reason": "" }))]
    #[case(NodeUpdate::Resume, json!({ "state": ["RESUME"] }))]
    #[case(NodeUpdate::Idle, json!({ "state": ["IDLE"] }))]
    #[case(NodeUpdate::Down { reason: "r".into() }, json!({ "state": ["DOWN"], "reason": "r" }))]
    #[case(NodeUpdate::Comment("{}".into()), json!({ "comment": "{}" }))]
    #[case(NodeUpdate::Topology(String::new()), json!({ "topology_str": "" }))]
    #[case(
        NodeUpdate::Features { available: names(&["a", "b"]), active: names(&["a"]) },
        json!({ "features": ["a", "b"], "features_act": ["a"] })
    )]
    #[case(
        NodeUpdate::Features { available: vec![], active: vec![] },
        json!({ "features": "", "features_act": "" })
    )]
    fn update_sends_only_its_own_fields(#[case] update: NodeUpdate, #[case] body: Value) {
        let mut message = update.message("n[1-2]");
        assert_eq!(message.as_object_mut().unwrap().remove("name"), Some(json!(["n[1-2]"])));
        assert_eq!(message, body);
    }

    #[rstest]
    #[case("w-0.example_1", true)]
    #[case("", false)]
    #[case("w[0-9]", false)]
    #[case("a,b", false)]
    #[case("ALL", false)]
    #[case("all", false)]
    #[case("a/../b", false)]
    #[case("a b", false)]
    fn name_that_expands_to_several_nodes_is_rejected(#[case] name: &str, #[case] valid: bool) {
        assert_eq!(single(name).is_ok(), valid);
    }
}
