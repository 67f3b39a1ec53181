//! Nodes: what Slurm knows of them, and the few things we tell it about them.

use crate::client::{Call, SlurmClient, escaped};
use crate::error::{Error, errno};
use crate::wire::{or_default, time};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slurm_conf::hostlist;

/// A node as Slurm sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// One base state and any number of flags.
    pub state: Vec<NodeState>,
    /// Why it is drained, down or failed; else empty.
    #[serde(default, deserialize_with = "or_default")]
    pub reason: String,
    /// Who said so.
    #[serde(default, deserialize_with = "or_default")]
    pub reason_set_by_user: String,
    /// When it was said.
    #[serde(default, deserialize_with = "time")]
    pub reason_changed_at: Option<Timestamp>,
    /// Free text of the administrator.
    #[serde(default, deserialize_with = "or_default")]
    pub comment: String,
    /// Its place in the network; unknown to the oldest API version.
    #[serde(default, deserialize_with = "or_default")]
    pub topology: String,
    /// Features that it can have.
    #[serde(default, deserialize_with = "or_default")]
    pub features: Vec<String>,
    /// Features that it has.
    #[serde(default, deserialize_with = "or_default")]
    pub active_features: Vec<String>,
    /// The reservation that holds it now; else empty.
    #[serde(default, deserialize_with = "or_default")]
    pub reservation: String,
    /// When its slurmd started, as told at its last registration.
    #[serde(default, deserialize_with = "time")]
    pub slurmd_start_time: Option<Timestamp>,
}

/// A base state or a flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "Slurm's own words; its documentation explains them")]
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
    /// One that means nothing to us, `DYNAMIC_NORM` for example.
    #[serde(untagged)]
    Other(String),
}

impl Node {
    /// Whether it is in this state, or has this flag.
    pub fn is(&self, state: &NodeState) -> bool {
        self.state.contains(state)
    }

    /// Whether a job runs on it or is still being cleaned up.
    ///
    /// A node read alone may seem busy for long after its last job: only a list makes slurmctld count anew.
    pub fn is_busy(&self) -> bool {
        [NodeState::Allocated, NodeState::Mixed, NodeState::Completing].iter().any(|state| self.is(state))
    }

    /// Whether it gets no jobs, by somebody's will, and has none any more.
    pub fn is_drained(&self) -> bool {
        self.is(&NodeState::Drain) && !self.is(&NodeState::Undrain) && !self.is_busy()
    }
}

/// All nodes, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct NodeList {
    /// In no particular order. Nodes in state FUTURE are not shown.
    pub nodes: Vec<Node>,
    /// slurmctld's clock when it answered.
    #[serde(rename = "last_update", default, deserialize_with = "time")]
    pub as_of: Option<Timestamp>,
}

/// One thing to change about nodes.
///
/// One, because Slurm keeps the rest of a request of which it refuses a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeUpdate {
    /// No more jobs. An empty reason keeps the one that is there.
    Drain {
        /// Why.
        reason: String,
    },
    /// Takes back a drain, and a failure, whoever it was that asked for it; the reason goes with it.
    Undrain,
    /// Puts a drained, failed or down node back to work. Refused on one that is at work.
    Resume,
    /// Like [`Self::Resume`], and silent on a node that waits for jobs. Clears anybody's drain. Refused while a job
    /// runs.
    Idle,
    /// Out of service. **Kills the jobs on it.** An empty reason keeps the one that is there.
    Down {
        /// Why.
        reason: String,
    },
    /// Replaces the comment.
    Comment(String),
    /// Replaces the place in the network.
    Topology(String),
    /// Replaces the features.
    Features {
        /// Those that it can have.
        available: Vec<String>,
        /// Those that it has: a subset.
        active: Vec<String>,
    },
}

/// The update on its way.
#[derive(Default, Serialize)]
struct Message<'a> {
    name: [String; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topology_str: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<Features<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    features_act: Option<Features<'a>>,
}

/// Slurm takes an empty list as no change, and an empty text as an empty list.
#[derive(Serialize)]
#[serde(untagged)]
enum Features<'a> {
    Some(&'a [String]),
    None(&'static str),
}

impl<'a> From<&'a Vec<String>> for Features<'a> {
    fn from(features: &'a Vec<String>) -> Self {
        if features.is_empty() { Self::None("") } else { Self::Some(features) }
    }
}

impl NodeUpdate {
    fn message(&self, nodes: String) -> Message<'_> {
        let name = [nodes];
        let state = |state, reason| Message { state: Some([state]), reason, ..Message::default() };
        let message = match self {
            Self::Drain { reason } => state("DRAIN", Some(reason.as_str())),
            Self::Undrain => state("UNDRAIN", Some("")),
            Self::Resume => state("RESUME", None),
            Self::Idle => state("IDLE", None),
            Self::Down { reason } => state("DOWN", Some(reason.as_str())),
            Self::Comment(text) => Message { comment: Some(text), ..Message::default() },
            Self::Topology(text) => Message { topology_str: Some(text), ..Message::default() },
            Self::Features { available, active } => Message {
                features: Some(available.into()),
                features_act: Some(active.into()),
                ..Message::default()
            },
        };
        Message { name, ..message }
    }
}

#[derive(Deserialize)]
struct NodesPayload {
    nodes: Vec<Node>,
}

impl SlurmClient {
    /// All nodes.
    pub async fn list_nodes(&self) -> Result<NodeList, Error> {
        self.read(Call::get("/nodes/")).await
    }

    /// All nodes, or `None` if nothing about any node changed since. It takes the [`NodeList::as_of`] of the list
    /// before, as it is, and misses nothing then.
    pub async fn list_nodes_since(&self, as_of: Timestamp) -> Result<Option<NodeList>, Error> {
        self.read_changed(Call::get(format!("/nodes/?update_time={}", as_of.as_second()))).await
    }

    /// One node, or `None` if slurmctld shows none of this name.
    ///
    /// `None` does not prove that there is none: FUTURE nodes are not shown, and case matters. A list does.
    pub async fn get_node(&self, name: &str) -> Result<Option<Node>, Error> {
        let call = Call::get(format!("/node/{}", escaped(single(name)?)));
        match self.read::<NodesPayload>(call).await {
            Ok(payload) => Ok(payload.nodes.into_iter().find(|node| node.name == name)),
            // An unknown node is a success with a complaint that has no number.
            Err(Error::Rejected { status, errno: 0, .. }) if status.is_success() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Changes the same thing about all these nodes, in one request.
    ///
    /// Of several nodes a refusal leaves some changed: Slurm takes them in alphabetical order, passes by those that
    /// may not change as wanted, stops at the first name that it does not know, and tells one number and no name.
    /// [`Error::NotFound`] comes for one node alone.
    pub async fn update_nodes(&self, names: &[&str], update: &NodeUpdate) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let names = names.iter().map(|name| single(name)).collect::<Result<Vec<_>, _>>()?;
        let call = Call::post("/nodes/", &update.message(hostlist::fold_set(names.iter().copied())))?;
        match self.write(call).await {
            Err(Error::Rejected { errno: errno::INVALID_NODE_NAME, description, .. }) if names.len() == 1 => {
                Err(Error::NotFound(description))
            }
            result => result,
        }
    }

    /// Deletes the record of a node; done as well if there is none. Refused while a job or an active reservation
    /// holds it. A slurmd that still runs does not come back by itself.
    pub async fn delete_node(&self, name: &str) -> Result<(), Error> {
        let call = Call::delete(format!("/node/{}", escaped(single(name)?)));
        match self.write(call).await {
            Err(error) if error.is_rejected_with(errno::INVALID_NODE_NAME) => Ok(()),
            result => result,
        }
    }
}

/// A name that means one node: Slurm reads brackets and commas as more of them, and `ALL` as all.
fn single(name: &str) -> Result<&str, Error> {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
    if name.is_empty() || !name.chars().all(plain) || name.eq_ignore_ascii_case("all") {
        return Err(Error::Invalid(format!("{name:?} is not the name of one node")));
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
    fn drained_is_drain_without_any_job(#[case] states: &[&str], #[case] drained: bool) {
        assert_eq!(node(states).is_drained(), drained);
    }

    #[test]
    fn unknown_states_and_members_are_kept_or_skipped() {
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
    #[case::nameless(json!({ "nodes": [{ "state": ["IDLE"] }] }))]
    #[case::stateless(json!({ "nodes": [{ "name": "n" }] }))]
    #[case::no_nodes(json!({ "last_update": {} }))]
    #[case::null(json!({ "nodes": null }))]
    fn a_list_that_lacks_what_matters_is_no_list(#[case] payload: serde_json::Value) {
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
    fn an_update_says_one_thing(#[case] update: NodeUpdate, #[case] body: serde_json::Value) {
        let mut message = serde_json::to_value(update.message("n[1-2]".to_owned())).unwrap();
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
    fn one_name_means_one_node(#[case] name: &str, #[case] good: bool) {
        assert_eq!(single(name).is_ok(), good);
    }
}
