//! The `PartitionHeld` condition of a NodeSet whose partition is to be removed. The controller-controller removes the partition
//! from slurm.conf when the condition is False.

use super::update;
use crate::observe::Observed;
use crate::plan::{PartitionState, partition_state};
use jiff::Timestamp;
use slinky_api::conditions::{ConditionStatus, PARTITION_HELD, remove, set};
use slinky_api::labels::{TRUE, annotations::FORCE_PARTITION_REMOVAL};
use slinky_api::v1beta1::NodeSetStatus;

/// Sets or removes the condition. While the state of the partition is unknown, the condition stays as it was: its
/// observedGeneration is then older than the NodeSet's, and its readers ignore it.
pub fn set_partition_held(status: &mut NodeSetStatus, observed: &Observed, now: Timestamp) {
    let forced = format!("annotation {FORCE_PARTITION_REMOVAL}={TRUE} removes it without waiting");
    let (held, reason, message) = match partition_state(observed) {
        PartitionState::Unknown => return,
        PartitionState::NotDue => return remove(&mut status.conditions, PARTITION_HELD),
        PartitionState::Open => {
            let message =
                format!("its partition goes once it takes no new jobs and no job names it; {forced}");
            (true, "TakesJobs", message)
        }
        PartitionState::Named(1) => {
            (true, "JobRecords", format!("1 job record still names its partition; {forced}"))
        }
        PartitionState::Named(count) => {
            (true, "JobRecords", format!("{count} job records still name its partition; {forced}"))
        }
        PartitionState::Unnamed => {
            (false, "NoJobRecords", "no job record names a partition of it".to_owned())
        }
        PartitionState::Forced => (false, "Forced", forced),
    };
    let update = update(PARTITION_HELD, ConditionStatus::from(held), reason, message);
    set(&mut status.conditions, update, observed.nodeset.metadata.generation, now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::needs_job_records;
    use crate::plan::fixture::Fixture;
    use crate::plan::testing::minute;
    use crate::slurm::View;
    use rstest::rstest;
    use serde_json::{Value, json};
    use slinky_api::conditions::find;
    use slinky_api::v1beta1::{Controller, NodeSet};

    fn fixture() -> Fixture {
        Fixture::new(&json!({ "replicas": 0 }))
    }

    fn status_of(fixture: &Fixture) -> NodeSetStatus {
        let mut status = fixture.observed.nodeset.status.clone().unwrap_or_default();
        set_partition_held(&mut status, &fixture.observed, minute(60));
        status
    }

    /// Status, reason and generation of the condition, if there is one.
    fn held(status: &NodeSetStatus) -> Option<(&str, &str, Option<i64>)> {
        let condition = find(&status.conditions, PARTITION_HELD)?;
        Some((&condition.status, &condition.reason, condition.observed_generation))
    }

    fn with_controller(mut fixture: Fixture, change: impl FnOnce(&mut Controller)) -> Fixture {
        let mut controller = (**fixture.observed.controller.as_ref().unwrap()).clone();
        change(&mut controller);
        fixture.observed.controller = Some(controller.into());
        fixture
    }

    /// The fixture with this status, and an edit of the spec in a new generation.
    fn with_spec(fixture: Fixture, status: NodeSetStatus, spec: &Value) -> Fixture {
        fixture.nodeset(|nodeset| {
            let mut edited_spec = json!(nodeset.spec);
            crate::plan::testing::merge(&mut edited_spec, spec);
            nodeset.spec = serde_json::from_value(edited_spec).unwrap();
            nodeset.metadata.generation = nodeset.metadata.generation.map(|generation| generation + 1);
            nodeset.status = Some(status);
        })
    }

    fn set_force_annotation(nodeset: &mut NodeSet) {
        let annotations = nodeset.metadata.annotations.get_or_insert_default();
        annotations.insert(FORCE_PARTITION_REMOVAL.to_owned(), "true".to_owned());
    }

    #[rstest]
    #[case::jobs_not_listed(fixture(), None)]
    #[case::partitions_not_listed(fixture().jobs("gpu", 0), None)]
    #[case::partition_open(fixture().jobs("gpu", 0).open(&["gpu"]), Some(("True", "TakesJobs", Some(1))))]
    #[case::job_records_name_it(fixture().jobs("gpu", 2).open(&["all"]), Some(("True", "JobRecords", Some(1))))]
    #[case::no_job_record_names_it(fixture().jobs("all", 2).open(&["all"]), Some(("False", "NoJobRecords", Some(1))))]
    #[case::slurm_unreachable(fixture().unknown(), None)]
    #[case::without_restapi(fixture().view(View::NoRestApi), None)]
    #[case::forced_without_restapi(
        fixture().view(View::NoRestApi).nodeset(set_force_annotation), Some(("False", "Forced", Some(1))))]
    #[case::forced(
        fixture().jobs("gpu", 2).open(&["gpu"]).nodeset(set_force_annotation), Some(("False", "Forced", Some(1))))]
    #[case::defined_in_extra_conf(
        with_controller(fixture().jobs("gpu", 2).open(&["gpu"]), |controller| {
            controller.spec.extra_conf = Some("PartitionName=gpu".into());
        }),
        None
    )]
    #[case::external_controller(
        with_controller(fixture().jobs("gpu", 2).open(&["gpu"]), |controller| controller.spec.external = true),
        None
    )]
    fn partition_is_released_only_if_closed_and_unnamed_or_forced(
        #[case] fixture: Fixture,
        #[case] expected: Option<(&str, &str, Option<i64>)>,
    ) {
        assert_eq!(held(&status_of(&fixture)), expected);
    }

    #[rstest]
    #[case::no_job_record(fixture().jobs("gpu", 0).open(&[]))]
    #[case::forced(fixture().nodeset(set_force_annotation))]
    #[case::job_record(fixture().jobs("gpu", 1).open(&[]))]
    fn condition_has_a_message(#[case] fixture: Fixture) {
        let status = status_of(&fixture);
        assert!(!find(&status.conditions, PARTITION_HELD).unwrap().message.is_empty());
    }

    #[test]
    fn release_holds_for_one_generation() {
        let fixture = fixture().jobs("gpu", 0).open(&[]);
        let controller = fixture.observed.controller.clone();
        let needs_records =
            |fixture: &Fixture| needs_job_records(&fixture.observed.nodeset, controller.as_deref());
        assert!(needs_records(&fixture));
        let status = status_of(&fixture);
        let released = fixture.nodeset(|nodeset| nodeset.status = Some(status.clone()));
        assert!(!needs_records(&released), "released: the job records need not be listed");
        let later = with_spec(released, status, &json!({ "replicas": 1 })).unknown();
        assert_eq!(
            held(&status_of(&later)),
            Some(("False", "NoJobRecords", Some(1))),
            "kept while Slurm is unreachable"
        );
        assert!(needs_records(&later));
        let spec = json!({ "partition": { "enabled": true } });
        let enabled = with_spec(later, NodeSetStatus::default(), &spec);
        assert!(!needs_records(&enabled) && held(&status_of(&enabled)).is_none());
    }
}
