//! Random requests to an API server.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use std::collections::BTreeMap;

/// The maximum number of requests in a sequence.
const MAX_OPERATIONS: usize = 20;

/// The kind of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Has a status and a grace period.
    Pod,
    /// Has neither.
    ConfigMap,
    /// A custom resource with a status.
    NodeSet,
}

/// Requests about objects of one kind.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub kind: Kind,
    pub operations: Vec<Operation>,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Operation {
    pub name: &'static str,
    pub action: Action,
}

impl Operation {
    /// The last operation of every sequence, whose watch event marks the end.
    pub fn last() -> Self {
        let content = Content::default();
        Self { name: "end", action: Action::Create { content, is_scheduled: false, has_version: false } }
    }
}

#[derive(Debug, Clone)]
pub enum Action {
    Create { content: Content, is_scheduled: bool, has_version: bool },
    Write { method: WriteMethod, change: Change, preconditions: Preconditions },
    Delete { preconditions: Preconditions, grace: Option<u32> },
    List { selector: &'static str },
}

/// The method of a write.
#[derive(Debug, Clone, Copy)]
pub enum WriteMethod {
    Replace,
    Merge,
    Strategic,
    Json,
    Apply { manager: &'static str },
}

#[derive(Debug, Clone)]
pub enum Change {
    Main(Content),
    /// Conditions by type; `None` removes one if the method can express that.
    Status(BTreeMap<&'static str, Option<&'static str>>),
}

/// The content of an object or of a change; `None` and `false` remove an item if the method can express that.
#[derive(Debug, Clone, Default)]
pub struct Content {
    pub labels: BTreeMap<&'static str, Option<&'static str>>,
    pub annotations: BTreeMap<&'static str, Option<&'static str>>,
    /// Owners, and whether they control the object.
    pub owners: BTreeMap<&'static str, Option<bool>>,
    pub finalizers: BTreeMap<&'static str, bool>,
    /// Data or spec.
    pub value: Option<&'static str>,
}

/// The preconditions of a request.
#[derive(Debug, Clone, Copy)]
pub struct Preconditions {
    pub version: Precondition,
    pub uid: Precondition,
}

#[derive(Debug, Clone, Copy)]
pub enum Precondition {
    None,
    Matching,
    Wrong,
}

/// Sequences of requests, most of them about one object.
pub fn sequences() -> impl Strategy<Value = Sequence> {
    let kind = prop_oneof![Just(Kind::Pod), Just(Kind::ConfigMap), Just(Kind::NodeSet)];
    (kind, vec(operation(), 1..=MAX_OPERATIONS)).prop_map(|(kind, operations)| Sequence { kind, operations })
}

fn operation() -> impl Strategy<Value = Operation> {
    let name = prop_oneof![3 => Just("a"), 1 => Just("b")];
    let action = prop_oneof![3 => create(), 10 => write(), 3 => delete(), 1 => list()];
    (name, action).prop_map(|(name, action)| Operation { name, action })
}

fn create() -> impl Strategy<Value = Action> {
    (content(), any::<bool>(), rarely()).prop_map(|(content, is_scheduled, has_version)| Action::Create {
        content,
        is_scheduled,
        has_version,
    })
}

fn write() -> impl Strategy<Value = Action> {
    let method = prop_oneof![
        2 => Just(WriteMethod::Replace),
        2 => Just(WriteMethod::Merge),
        2 => Just(WriteMethod::Strategic),
        1 => Just(WriteMethod::Json),
        4 => select(vec!["one", "two"]).prop_map(|manager| WriteMethod::Apply { manager }),
    ];
    let change =
        prop_oneof![2 => content().prop_map(Change::Main), 1 => conditions().prop_map(Change::Status)];
    (method, change, preconditions()).prop_map(|(method, change, preconditions)| Action::Write {
        method,
        change,
        preconditions,
    })
}

fn delete() -> impl Strategy<Value = Action> {
    let grace = option::of(select(vec![0, 5, 60]));
    (preconditions(), grace).prop_map(|(preconditions, grace)| Action::Delete { preconditions, grace })
}

fn list() -> impl Strategy<Value = Action> {
    let selectors =
        ["", "x=1", "x==1", "x!=1", "x in (1,2)", "x notin (1),y", "!x", "x,y=2", "x=1,!y", "x in (1"];
    select(selectors.to_vec()).prop_map(|selector| Action::List { selector })
}

fn content() -> impl Strategy<Value = Content> {
    let owners = btree_map(select(vec!["owner-a", "owner-b"]), option::of(any::<bool>()), 0..=2);
    let finalizers = btree_map(select(vec!["example.com/a", "example.com/b"]), any::<bool>(), 0..=2);
    (keys(), keys(), owners, sometimes(finalizers), option::of(select(vec!["1", "2"]))).prop_map(
        |(labels, annotations, owners, finalizers, value)| Content {
            labels,
            annotations,
            owners,
            finalizers,
            value,
        },
    )
}

/// A value in one of three cases, else the default.
fn sometimes<T: Default + Clone + std::fmt::Debug>(
    some: impl Strategy<Value = T>,
) -> impl Strategy<Value = T> {
    prop_oneof![2 => Just(T::default()), 1 => some]
}

fn rarely() -> impl Strategy<Value = bool> {
    prop_oneof![9 => Just(false), 1 => Just(true)]
}

fn keys() -> impl Strategy<Value = BTreeMap<&'static str, Option<&'static str>>> {
    btree_map(select(vec!["x", "y"]), option::of(select(vec!["1", "2"])), 0..=2)
}

fn conditions() -> impl Strategy<Value = BTreeMap<&'static str, Option<&'static str>>> {
    btree_map(select(vec!["Ready", "Special"]), option::of(select(vec!["True", "False"])), 0..=2)
}

fn preconditions() -> impl Strategy<Value = Preconditions> {
    let precondition = || prop_oneof![8 => Just(Precondition::None), 2 => Just(Precondition::Matching), 1 => Just(Precondition::Wrong)];
    (precondition(), precondition()).prop_map(|(version, uid)| Preconditions { version, uid })
}
