use super::*;
use crate::plan::testing::minute;
use rstest::rstest;
use serde_json::json;

const SELECTOR: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "slurmd"), ("app.kubernetes.io/instance", "foo")];

fn nodeset(limit: i32, collisions: Option<i32>) -> NodeSet {
    serde_json::from_value(json!({
        "metadata": { "name": "foo", "namespace": "ns", "uid": "u-foo" },
        "spec": { "controllerRef": { "name": "slurm" }, "revisionHistoryLimit": limit },
        "status": { "nodeSetHash": "", "selector": "", "collisionCount": collisions },
    }))
    .unwrap()
}

fn data(image: &str) -> Value {
    json!({ "spec": { "slurmd": { "$patch": "replace", "image": image } } })
}

/// As another operator writes it.
fn foreign_data(image: &str) -> Value {
    json!({ "spec": {
        "ordinalPadding": 0, "oversubscribeNode": false,
        "slurmd": { "$patch": "replace", "image": image, "name": "", "resources": {} },
        "template": { "$patch": "replace", "metadata": {}, "spec": { "containers": null } },
    } })
}

/// A revision of the NodeSet with all labels, created at minute `number`.
struct Stored(ControllerRevision);

fn stored(hash: &str, number: i64, data: &Value) -> Stored {
    let mut labels: Labels =
        SELECTOR.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    labels.insert(REVISION_HASH.to_owned(), hash.to_owned());
    let revision = json!({
        "metadata": {
            "name": format!("foo-{hash}"),
            "labels": labels,
            "creationTimestamp": minute(number),
            "ownerReferences": [{
                "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "foo", "uid": "u-foo",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "revision": number,
        "data": data,
    });
    Stored(serde_json::from_value(revision).unwrap())
}

impl Stored {
    fn orphaned(mut self) -> Self {
        self.0.metadata.owner_references = None;
        self
    }

    fn of_another_owner(mut self) -> Self {
        self.0.metadata.owner_references.as_mut().unwrap()[0].uid = "u-before".to_owned();
        self
    }

    fn without(mut self, keys: &[&str]) -> Self {
        self.0.labels_mut().retain(|key, _| !keys.contains(&key.as_str()));
        self
    }

    fn numbered(mut self, number: i64) -> Self {
        self.0.revision = number;
        self
    }

    fn named(mut self, name: &str) -> Self {
        self.0.metadata.name = Some(name.to_owned());
        self
    }

    fn terminating(mut self) -> Self {
        self.0.metadata.deletion_timestamp = self.0.metadata.creation_timestamp.clone();
        self
    }
}

/// The decision for `data("new")`, whose hash is `new<collisions>`.
fn decided(nodeset: &NodeSet, listed: Vec<Stored>, in_use: &[&str]) -> Revisions {
    let in_use = in_use.iter().map(|hash| (*hash).to_owned()).collect();
    let hash = |collisions| format!("new{collisions}");
    let mut listed: Vec<_> = listed.into_iter().map(|stored| Arc::new(stored.0)).collect();
    let revisions = decide(nodeset, &listed, &data("new"), &in_use, hash);
    listed.reverse();
    assert_eq!(
        decide(nodeset, &listed, &data("new"), &in_use, hash),
        revisions,
        "independent of the list order"
    );
    revisions
}

fn adopt(name: &str) -> RevisionStep {
    RevisionStep::Adopt(name.to_owned())
}

fn label(name: &str, hash: &str) -> RevisionStep {
    RevisionStep::Label { name: name.to_owned(), hash: hash.to_owned() }
}

fn renumber(name: &str, number: i64) -> RevisionStep {
    RevisionStep::Renumber { name: name.to_owned(), number }
}

fn create(hash: &str, number: i64) -> RevisionStep {
    RevisionStep::Create { hash: hash.to_owned(), number }
}

fn delete(name: &str) -> RevisionStep {
    RevisionStep::Delete(name.to_owned())
}

#[rstest]
#[case::first_revision(vec![], "new0", vec![create("new0", 1)])]
#[case::next_revision(vec![stored("a", 1, &data("old"))], "new0", vec![create("new0", 2)])]
#[case::equal_revision_is_current(vec![stored("a", 4, &data("new"))], "a", vec![])]
#[case::newest_equal_revision_is_current(
    vec![stored("a", 1, &data("new")), stored("b", 2, &data("new")), stored("c", 3, &data("new"))], "c", vec![]
)]
#[case::rollback(vec![stored("a", 1, &data("new")), stored("b", 2, &data("old"))], "a", vec![renumber("foo-a", 3)])]
#[case::rollback_to_newest_equal_revision(
    vec![stored("a", 1, &data("new")), stored("b", 2, &data("new")), stored("c", 3, &data("old"))],
    "b", vec![renumber("foo-b", 4)]
)]
#[case::same_number_older_wins_rollback(
    vec![stored("a", 1, &data("new")), stored("b", 2, &data("old")).numbered(1)], "a", vec![renumber("foo-a", 2)]
)]
#[case::same_number_and_latest(
    vec![stored("a", 1, &data("old")), stored("b", 2, &data("new")).numbered(1)], "b", vec![]
)]
#[case::maximum_number(vec![stored("a", 1, &data("old")).numbered(i64::MAX)], "new0", vec![create("new0", i64::MAX)])]
#[case::revision_without_data(vec![stored("a", 1, &Value::Null)], "new0", vec![create("new0", 2)])]
#[case::revision_of_a_predecessor(
    vec![stored("a", 7, &data("new")).of_another_owner()], "new0", vec![create("new0", 1)]
)]
#[case::equivalent_orphan_with_our_name(
    vec![stored("new0", 1, &data("new")).orphaned().without(&["app.kubernetes.io/instance"])],
    "new0", vec![adopt("foo-new0"), label("foo-new0", "new0")]
)]
#[case::orphan_with_our_labels(vec![stored("a", 1, &data("new")).orphaned()], "a", vec![adopt("foo-a")])]
#[case::orphan_without_our_labels(
    vec![stored("a", 7, &data("new")).orphaned().without(&["app.kubernetes.io/instance"])],
    "new0", vec![create("new0", 1)]
)]
#[case::ours_without_our_labels(
    vec![stored("a", 1, &data("new")).without(&["app.kubernetes.io/name", "app.kubernetes.io/instance"])],
    "a", vec![label("foo-a", "a")]
)]
#[case::hash_label_missing(
    vec![stored("a", 1, &data("new")).without(&[REVISION_HASH])], "a", vec![label("foo-a", "a")]
)]
#[case::older_revision_is_labelled_too(
    vec![stored("a", 1, &data("old")).without(&["app.kubernetes.io/name"]), stored("b", 2, &data("new"))],
    "b", vec![label("foo-a", "a")]
)]
#[case::terminating_revision_is_not_changed(
    vec![stored("a", 1, &data("new")).without(&["app.kubernetes.io/name"]).terminating(), stored("b", 2, &data("old"))],
    "a", vec![]
)]
fn current_revision_is_equivalent_to_the_spec(
    #[case] listed: Vec<Stored>,
    #[case] hash: &str,
    #[case] steps: Vec<RevisionStep>,
) {
    let expected = Revisions { hash: hash.to_owned(), steps, collision_count: 0 };
    assert_eq!(decided(&nodeset(10, None), listed, &[]), expected);
}

/// Otherwise all its workers would be replaced.
#[rstest]
#[case::single(vec![stored("7f9c", 1, &foreign_data("new"))], vec![])]
#[case::all_without_labels(
    vec![
        stored("7f9c", 1, &foreign_data("new")).without(&["app.kubernetes.io/name", "app.kubernetes.io/instance"]),
        stored("5d2b", 2, &foreign_data("old")).numbered(1).without(&["app.kubernetes.io/name", "app.kubernetes.io/instance"]),
    ],
    vec![label("foo-7f9c", "7f9c"), label("foo-5d2b", "5d2b"), renumber("foo-7f9c", 2)]
)]
fn revision_of_another_operator_keeps_its_hash(
    #[case] listed: Vec<Stored>,
    #[case] steps: Vec<RevisionStep>,
) {
    let expected = Revisions { hash: "7f9c".to_owned(), steps, collision_count: 0 };
    assert_eq!(decided(&nodeset(10, None), listed, &["7f9c"]), expected);
}

#[rstest]
#[case::free(None, vec![stored("a", 1, &data("old"))], 0)]
#[case::taken(None, vec![stored("new0", 1, &data("old"))], 1)]
#[case::taken_twice(Some(0), vec![stored("new0", 1, &data("old")), stored("new1", 2, &data("older"))], 2)]
#[case::continues_from_the_status(Some(3), vec![stored("a", 1, &data("old"))], 3)]
#[case::taken_by_name(None, vec![stored("x", 1, &data("old")).named("foo-new0")], 1)]
#[case::taken_by_terminating_revision(None, vec![stored("new0", 1, &data("old")).terminating()], 1)]
fn hash_collision_increments_the_count(
    #[case] before: Option<i32>,
    #[case] listed: Vec<Stored>,
    #[case] collisions: i32,
) {
    let number = i64::try_from(listed.len()).unwrap() + 1;
    let revisions = decided(&nodeset(10, before), listed, &[]);
    let hash = format!("new{collisions}");
    assert_eq!(revisions.steps, [create(&hash, number)]);
    assert_eq!((revisions.hash, revisions.collision_count), (hash, collisions));
}

#[rstest]
#[case::of_another_owner(vec![stored("new0", 1, &data("old")).of_another_owner()], 1)]
#[case::of_another_owner_with_the_same_data(vec![stored("new0", 1, &data("new")).of_another_owner()], 1)]
#[case::orphan(vec![stored("new0", 1, &data("old")).orphaned().without(&["app.kubernetes.io/name"])], 1)]
#[case::several_owners(
    vec![stored("new0", 1, &data("old")).of_another_owner(), stored("new1", 1, &data("old")).of_another_owner()], 2
)]
#[case::with_another_name(vec![stored("new0", 1, &data("old")).of_another_owner().named("bar-new0")], 0)]
fn taken_name_counts_as_collision(#[case] listed: Vec<Stored>, #[case] collisions: i32) {
    let revisions = decided(&nodeset(10, None), listed, &[]);
    assert_eq!(revisions.steps, [create(&format!("new{collisions}"), 1)]);
    assert_eq!(revisions.collision_count, collisions);
}

#[test]
fn maximum_collision_count_does_not_overflow() {
    let revisions = decided(&nodeset(10, Some(i32::MAX)), vec![stored("a", 1, &data("old"))], &[]);
    assert_eq!(revisions.collision_count, i32::MAX);
    assert_eq!(revisions.hash, format!("new{}", i32::MAX));
}

#[test]
fn equal_revision_keeps_the_collision_count() {
    let revisions = decided(&nodeset(10, Some(2)), vec![stored("a", 1, &data("new"))], &[]);
    assert_eq!((revisions.hash.as_str(), revisions.collision_count), ("a", 2));
}

/// It would not fit into the label of a pod.
#[test]
fn name_too_long_for_a_label_is_not_a_hash() {
    let listed = stored("a", 1, &data("new")).without(&[REVISION_HASH]).named(&"x".repeat(64));
    let revisions = decided(&nodeset(10, None), vec![listed], &[]);
    assert_eq!(revisions.steps, [create("new0", 2)]);
}

/// Revisions `a`, `b`, ... of which the last one is current.
fn revisions_with_last_current(count: u8) -> Vec<Stored> {
    let revision = |at: u8| {
        let image = if at + 1 == count { "new".to_owned() } else { format!("old{at}") };
        stored(&char::from(b'a' + at).to_string(), i64::from(at) + 1, &data(&image))
    };
    (0..count).map(revision).collect()
}

#[rstest]
#[case::no_history(3, 0, &[], &["foo-a", "foo-b"])]
#[case::used_revision_stays(3, 0, &["a"], &["foo-b"])]
#[case::within_limit(3, 2, &[], &[])]
#[case::one_above_limit(3, 1, &[], &["foo-a"])]
#[case::oldest_unused_first(6, 2, &["a", "b"], &["foo-c"])]
#[case::used_revisions_do_not_count(6, 1, &["b", "d"], &["foo-a", "foo-c"])]
#[case::negative_limit_is_zero(2, -5, &[], &["foo-a"])]
fn oldest_unused_revisions_are_deleted(
    #[case] count: u8,
    #[case] limit: i32,
    #[case] in_use: &[&str],
    #[case] expected: &[&str],
) {
    let expected: Vec<_> = expected.iter().map(|name| delete(name)).collect();
    assert_eq!(decided(&nodeset(limit, None), revisions_with_last_current(count), in_use).steps, expected);
}

/// Its pods have not been replaced yet.
#[test]
fn previous_revision_stays_while_pods_use_it() {
    let listed = || vec![stored("a", 1, &data("old"))];
    assert_eq!(decided(&nodeset(0, None), listed(), &["a"]).steps, [create("new0", 2)]);
    assert_eq!(decided(&nodeset(0, None), listed(), &[]).steps, [create("new0", 2), delete("foo-a")]);
}

#[test]
fn orphan_is_adopted_before_it_can_be_deleted() {
    let listed = vec![stored("a", 1, &data("old")).orphaned(), stored("b", 2, &data("new"))];
    assert_eq!(decided(&nodeset(0, None), listed, &[]).steps, [adopt("foo-a")]);
}

#[test]
fn deleted_revision_is_not_labelled() {
    let listed =
        vec![stored("a", 1, &data("old")).without(&["app.kubernetes.io/name"]), stored("b", 2, &data("new"))];
    assert_eq!(decided(&nodeset(0, None), listed, &[]).steps, [delete("foo-a")]);
}
