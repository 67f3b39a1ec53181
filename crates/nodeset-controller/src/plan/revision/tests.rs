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

/// As another operator wrote it.
fn foreign_data(image: &str) -> Value {
    json!({ "spec": {
        "ordinalPadding": 0, "oversubscribeNode": false,
        "slurmd": { "$patch": "replace", "image": image, "name": "", "resources": {} },
        "template": { "$patch": "replace", "metadata": {}, "spec": { "containers": null } },
    } })
}

/// A revision of the NodeSet with all labels, made `number` minutes after the first.
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

    fn going(mut self) -> Self {
        self.0.metadata.deletion_timestamp = self.0.metadata.creation_timestamp.clone();
        self
    }
}

/// What is decided for `data("new")`, whose hash is `new<collisions>`.
fn decided(nodeset: &NodeSet, listed: Vec<Stored>, in_use: &[&str]) -> Revisions {
    let in_use = in_use.iter().map(|hash| (*hash).to_owned()).collect();
    let hash = |collisions| format!("new{collisions}");
    let mut listed: Vec<_> = listed.into_iter().map(|stored| Arc::new(stored.0)).collect();
    let revisions = decide(nodeset, &listed, &data("new"), &in_use, hash);
    listed.reverse();
    assert_eq!(decide(nodeset, &listed, &data("new"), &in_use, hash), revisions, "order of the list");
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
#[case::the_first(vec![], "new0", vec![create("new0", 1)])]
#[case::the_next(vec![stored("a", 1, &data("old"))], "new0", vec![create("new0", 2)])]
#[case::equal_is_kept(vec![stored("a", 4, &data("new"))], "a", vec![])]
#[case::newest_of_equal_ones_is_kept(
    vec![stored("a", 1, &data("new")), stored("b", 2, &data("new")), stored("c", 3, &data("new"))], "c", vec![]
)]
#[case::rollback(vec![stored("a", 1, &data("new")), stored("b", 2, &data("old"))], "a", vec![renumber("foo-a", 3)])]
#[case::rollback_to_the_newest_equal_one(
    vec![stored("a", 1, &data("new")), stored("b", 2, &data("new")), stored("c", 3, &data("old"))],
    "b", vec![renumber("foo-b", 4)]
)]
#[case::without_numbers_age_counts(
    vec![stored("a", 1, &data("new")), stored("b", 2, &data("old")).numbered(1)], "a", vec![renumber("foo-a", 2)]
)]
#[case::of_the_same_number_and_latest(
    vec![stored("a", 1, &data("old")), stored("b", 2, &data("new")).numbered(1)], "b", vec![]
)]
#[case::number_without_successor(vec![stored("a", 1, &data("old")).numbered(i64::MAX)], "new0", vec![create("new0", i64::MAX)])]
#[case::no_data_is_another_revision(vec![stored("a", 1, &Value::Null)], "new0", vec![create("new0", 2)])]
#[case::of_a_nodeset_before_of_that_name(
    vec![stored("a", 7, &data("new")).of_another_owner()], "new0", vec![create("new0", 1)]
)]
#[case::orphan_of_the_very_name_that_says_the_same(
    vec![stored("new0", 1, &data("new")).orphaned().without(&["app.kubernetes.io/instance"])],
    "new0", vec![adopt("foo-new0"), label("foo-new0", "new0")]
)]
#[case::orphan_with_our_labels(vec![stored("a", 1, &data("new")).orphaned()], "a", vec![adopt("foo-a")])]
#[case::orphan_without_our_labels(
    vec![stored("a", 7, &data("new")).orphaned().without(&["app.kubernetes.io/instance"])],
    "new0", vec![create("new0", 1)]
)]
#[case::ours_without_our_labels_is_found(
    vec![stored("a", 1, &data("new")).without(&["app.kubernetes.io/name", "app.kubernetes.io/instance"])],
    "a", vec![label("foo-a", "a")]
)]
#[case::hash_that_was_lost_is_in_the_name(
    vec![stored("a", 1, &data("new")).without(&[REVISION_HASH])], "a", vec![label("foo-a", "a")]
)]
#[case::older_ones_are_found_again_too(
    vec![stored("a", 1, &data("old")).without(&["app.kubernetes.io/name"]), stored("b", 2, &data("new"))],
    "b", vec![label("foo-a", "a")]
)]
#[case::one_that_is_being_deleted_is_left_alone(
    vec![stored("a", 1, &data("new")).without(&["app.kubernetes.io/name"]).going(), stored("b", 2, &data("old"))],
    "a", vec![]
)]
fn workers_are_made_from_the_revision_that_says_what_the_spec_says(
    #[case] listed: Vec<Stored>,
    #[case] hash: &str,
    #[case] steps: Vec<RevisionStep>,
) {
    let expected = Revisions { hash: hash.to_owned(), steps, collision_count: 0 };
    assert_eq!(decided(&nodeset(10, None), listed, &[]), expected);
}

/// Else all its workers would be replaced.
#[rstest]
#[case::one(vec![stored("7f9c", 1, &foreign_data("new"))], vec![])]
#[case::none_was_ever_found_again(
    vec![
        stored("7f9c", 1, &foreign_data("new")).without(&["app.kubernetes.io/name", "app.kubernetes.io/instance"]),
        stored("5d2b", 2, &foreign_data("old")).numbered(1).without(&["app.kubernetes.io/name", "app.kubernetes.io/instance"]),
    ],
    vec![label("foo-7f9c", "7f9c"), label("foo-5d2b", "5d2b"), renumber("foo-7f9c", 2)]
)]
fn a_revision_that_another_operator_wrote_keeps_its_hash(
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
#[case::goes_on_counting(Some(3), vec![stored("a", 1, &data("old"))], 3)]
#[case::taken_by_name(None, vec![stored("x", 1, &data("old")).named("foo-new0")], 1)]
#[case::taken_by_one_that_is_being_deleted(None, vec![stored("new0", 1, &data("old")).going()], 1)]
fn a_hash_means_one_revision(
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
#[case::of_nobody(vec![stored("new0", 1, &data("old")).orphaned().without(&["app.kubernetes.io/name"])], 1)]
#[case::of_several(
    vec![stored("new0", 1, &data("old")).of_another_owner(), stored("new1", 1, &data("old")).of_another_owner()], 2
)]
#[case::under_another_name(vec![stored("new0", 1, &data("old")).of_another_owner().named("bar-new0")], 0)]
fn a_name_that_somebody_else_has_is_not_ours(#[case] listed: Vec<Stored>, #[case] collisions: i32) {
    let revisions = decided(&nodeset(10, None), listed, &[]);
    assert_eq!(revisions.steps, [create(&format!("new{collisions}"), 1)]);
    assert_eq!(revisions.collision_count, collisions);
}

#[test]
fn a_count_that_is_as_high_as_can_be_is_no_problem() {
    let revisions = decided(&nodeset(10, Some(i32::MAX)), vec![stored("a", 1, &data("old"))], &[]);
    assert_eq!(revisions.collision_count, i32::MAX);
    assert_eq!(revisions.hash, format!("new{}", i32::MAX));
}

#[test]
fn a_found_revision_leaves_the_count_as_it_is() {
    let revisions = decided(&nodeset(10, Some(2)), vec![stored("a", 1, &data("new"))], &[]);
    assert_eq!((revisions.hash.as_str(), revisions.collision_count), ("a", 2));
}

/// A pod could not carry it.
#[test]
fn a_name_that_is_too_long_for_a_label_is_no_hash() {
    let listed = stored("a", 1, &data("new")).without(&[REVISION_HASH]).named(&"x".repeat(64));
    let revisions = decided(&nodeset(10, None), vec![listed], &[]);
    assert_eq!(revisions.steps, [create("new0", 2)]);
}

/// Revisions `a`, `b`, ... of which the last one is current.
fn some(count: u8) -> Vec<Stored> {
    let revision = |at: u8| {
        let image = if at + 1 == count { "new".to_owned() } else { format!("old{at}") };
        stored(&char::from(b'a' + at).to_string(), i64::from(at) + 1, &data(&image))
    };
    (0..count).map(revision).collect()
}

#[rstest]
#[case::none_beside_the_current(3, 0, &[], &["foo-a", "foo-b"])]
#[case::that_of_a_pod_stays(3, 0, &["a"], &["foo-b"])]
#[case::as_many_as_there_may_be(3, 2, &[], &[])]
#[case::one_more_than_there_may_be(3, 1, &[], &["foo-a"])]
#[case::the_oldest_go_first(6, 2, &["a", "b"], &["foo-c"])]
#[case::those_of_pods_do_not_count(6, 1, &["b", "d"], &["foo-a", "foo-c"])]
#[case::a_negative_limit_is_none(2, -5, &[], &["foo-a"])]
fn the_oldest_revisions_without_pods_go(
    #[case] count: u8,
    #[case] limit: i32,
    #[case] in_use: &[&str],
    #[case] expected: &[&str],
) {
    let expected: Vec<_> = expected.iter().map(|name| delete(name)).collect();
    assert_eq!(decided(&nodeset(limit, None), some(count), in_use).steps, expected);
}

/// It was the current one until now, and its pods are yet to be replaced.
#[test]
fn the_predecessor_of_a_new_revision_stays_while_pods_have_it() {
    let listed = || vec![stored("a", 1, &data("old"))];
    assert_eq!(decided(&nodeset(0, None), listed(), &["a"]).steps, [create("new0", 2)]);
    assert_eq!(decided(&nodeset(0, None), listed(), &[]).steps, [create("new0", 2), delete("foo-a")]);
}

#[test]
fn what_is_not_ours_yet_is_adopted_and_not_deleted() {
    let listed = vec![stored("a", 1, &data("old")).orphaned(), stored("b", 2, &data("new"))];
    assert_eq!(decided(&nodeset(0, None), listed, &[]).steps, [adopt("foo-a")]);
}

#[test]
fn what_is_about_to_go_is_not_labelled() {
    let listed =
        vec![stored("a", 1, &data("old")).without(&["app.kubernetes.io/name"]), stored("b", 2, &data("new"))];
    assert_eq!(decided(&nodeset(0, None), listed, &[]).steps, [delete("foo-a")]);
}
