//! What may be asked of an API server, at random.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use std::collections::BTreeMap;

/// How long a sequence may be.
const LONGEST: usize = 20;

/// What is asked for.
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
    /// The end of every sequence.
    pub fn last() -> Self {
        let content = Content::default();
        Self { name: "end", action: Action::Create { content, is_scheduled: false, has_version: false } }
    }
}

#[derive(Debug, Clone)]
pub enum Action {
    Create { content: Content, is_scheduled: bool, has_version: bool },
    Write { how: How, change: Change, claims: Claims },
    Delete { claims: Claims, grace: Option<u32> },
    List { selector: &'static str },
}

/// The ways to change an object.
#[derive(Debug, Clone, Copy)]
pub enum How {
    Replace,
    Merge,
    Strategic,
    Json,
    Apply { manager: &'static str },
}

#[derive(Debug, Clone)]
pub enum Change {
    Main(Content),
    /// Conditions by type; `None` removes one where that can be said.
    Status(BTreeMap<&'static str, Option<&'static str>>),
}

/// What an object has, or is to have; `None` and `false` remove something where that can be said.
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

/// What a request says about the object that it is meant for.
#[derive(Debug, Clone, Copy)]
pub struct Claims {
    pub version: Claim,
    pub uid: Claim,
}

#[derive(Debug, Clone, Copy)]
pub enum Claim {
    None,
    Right,
    Wrong,
}

/// Sequences of requests, most of them about one object.
pub fn sequences() -> impl Strategy<Value = Sequence> {
    let kind = prop_oneof![Just(Kind::Pod), Just(Kind::ConfigMap), Just(Kind::NodeSet)];
    (kind, vec(operation(), 1..=LONGEST)).prop_map(|(kind, operations)| Sequence { kind, operations })
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
    let how = prop_oneof![
        2 => Just(How::Replace),
        2 => Just(How::Merge),
        2 => Just(How::Strategic),
        1 => Just(How::Json),
        4 => select(vec!["one", "two"]).prop_map(|manager| How::Apply { manager }),
    ];
    let change =
        prop_oneof![2 => content().prop_map(Change::Main), 1 => conditions().prop_map(Change::Status)];
    (how, change, claims()).prop_map(|(how, change, claims)| Action::Write { how, change, claims })
}

fn delete() -> impl Strategy<Value = Action> {
    let grace = option::of(select(vec![0, 5, 60]));
    (claims(), grace).prop_map(|(claims, grace)| Action::Delete { claims, grace })
}

fn list() -> impl Strategy<Value = Action> {
    let selectors =
        ["", "x=1", "x==1", "x!=1", "x in (1,2)", "x notin (1),y", "!x", "x,y=2", "x=1,!y", "x in (1"];
    select(selectors.to_vec()).prop_map(|selector| Action::List { selector })
}

fn content() -> impl Strategy<Value = Content> {
    let owners = btree_map(select(vec!["owner-a", "owner-b"]), option::of(any::<bool>()), 0..=2);
    let finalizers = btree_map(select(vec!["example.com/a", "example.com/b"]), any::<bool>(), 0..=2);
    (keys(), keys(), owners, seldom(finalizers), option::of(select(vec!["1", "2"]))).prop_map(
        |(labels, annotations, owners, finalizers, value)| Content {
            labels,
            annotations,
            owners,
            finalizers,
            value,
        },
    )
}

/// Something in one case of three.
fn seldom<T: Default + Clone + std::fmt::Debug>(some: impl Strategy<Value = T>) -> impl Strategy<Value = T> {
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

fn claims() -> impl Strategy<Value = Claims> {
    let claim = || prop_oneof![8 => Just(Claim::None), 2 => Just(Claim::Right), 1 => Just(Claim::Wrong)];
    (claim(), claim()).prop_map(|(version, uid)| Claims { version, uid })
}
