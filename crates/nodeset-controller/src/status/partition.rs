//! What is told of a partition that a NodeSet does not want any more. Whoever writes slurm.conf goes by it.

use super::verdict;
use crate::observe::Observed;
use crate::plan::{PartitionFate, partition_fate};
use jiff::Timestamp;
use slinky_api::conditions::{ConditionStatus, PARTITION_HELD, remove, set};
use slinky_api::labels::{TRUE, annotations::FORCE_PARTITION_REMOVAL};
use slinky_api::v1beta1::NodeSetStatus;

/// Tells whether the partition has to stay. What was said before stays while nobody knows better: it is about another
/// generation then, and worth nothing to who reads it.
pub fn tell_partition(status: &mut NodeSetStatus, observed: &Observed, now: Timestamp) {
    let forced = format!("annotation {FORCE_PARTITION_REMOVAL}={TRUE} removes it without waiting");
    let (held, reason, message) = match partition_fate(observed) {
        PartitionFate::Unknown => return,
        PartitionFate::NotDue => return remove(&mut status.conditions, PARTITION_HELD),
        PartitionFate::Open => {
            let message =
                format!("its partition goes once it takes no new jobs and no job names it; {forced}");
            (true, "TakesJobs", message)
        }
        PartitionFate::Named(1) => {
            (true, "JobRecords", format!("1 job record still names its partition; {forced}"))
        }
        PartitionFate::Named(count) => {
            (true, "JobRecords", format!("{count} job records still name its partition; {forced}"))
        }
        PartitionFate::Unnamed => (false, "NoJobRecords", "no job record names a partition of it".to_owned()),
        PartitionFate::Forced => (false, "Forced", forced),
    };
    let verdict = verdict(PARTITION_HELD, ConditionStatus::from(held), reason, message);
    set(&mut status.conditions, verdict, observed.nodeset.metadata.generation, now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::records_matter;
    use crate::plan::scene::Scene;
    use crate::plan::testing::minute;
    use crate::slurm::View;
    use rstest::rstest;
    use serde_json::{Value, json};
    use slinky_api::conditions::find;
    use slinky_api::v1beta1::{Controller, NodeSet};

    fn scene() -> Scene {
        Scene::new(&json!({ "replicas": 0 }))
    }

    fn told(scene: &Scene) -> NodeSetStatus {
        let mut status = scene.observed.nodeset.status.clone().unwrap_or_default();
        tell_partition(&mut status, &scene.observed, minute(60));
        status
    }

    /// Status, reason and generation of the condition, if there is one.
    fn held(status: &NodeSetStatus) -> Option<(&str, &str, Option<i64>)> {
        let condition = find(&status.conditions, PARTITION_HELD)?;
        Some((&condition.status, &condition.reason, condition.observed_generation))
    }

    fn with_controller(mut scene: Scene, change: impl FnOnce(&mut Controller)) -> Scene {
        let mut controller = (**scene.observed.controller.as_ref().unwrap()).clone();
        change(&mut controller);
        scene.observed.controller = Some(controller.into());
        scene
    }

    fn edited(scene: Scene, status: NodeSetStatus, spec: &Value) -> Scene {
        scene.nodeset(|nodeset| {
            let mut edited = json!(nodeset.spec);
            crate::plan::testing::merge(&mut edited, spec);
            nodeset.spec = serde_json::from_value(edited).unwrap();
            nodeset.metadata.generation = nodeset.metadata.generation.map(|generation| generation + 1);
            nodeset.status = Some(status);
        })
    }

    fn force(nodeset: &mut NodeSet) {
        let annotations = nodeset.metadata.annotations.get_or_insert_default();
        annotations.insert(FORCE_PARTITION_REMOVAL.to_owned(), "true".to_owned());
    }

    #[rstest]
    #[case::nobody_asked(scene(), None)]
    #[case::jobs_alone_prove_nothing(scene().jobs("gpu", 0), None)]
    #[case::it_takes_jobs(scene().jobs("gpu", 0).open(&["gpu"]), Some(("True", "TakesJobs", Some(1))))]
    #[case::jobs_name_it(scene().jobs("gpu", 2).open(&["all"]), Some(("True", "JobRecords", Some(1))))]
    #[case::nobody_names_it(scene().jobs("all", 2).open(&["all"]), Some(("False", "NoJobRecords", Some(1))))]
    #[case::slurm_is_silent(scene().unknown(), None)]
    #[case::no_slurm(scene().view(View::NotExpected), None)]
    #[case::no_slurm_but_force(scene().view(View::NotExpected).nodeset(force), Some(("False", "Forced", Some(1))))]
    #[case::forced(scene().jobs("gpu", 2).open(&["gpu"]).nodeset(force), Some(("False", "Forced", Some(1))))]
    #[case::defined_by_a_person(
        with_controller(scene().jobs("gpu", 2).open(&["gpu"]), |it| it.spec.extra_conf = Some("PartitionName=gpu".into())),
        None
    )]
    #[case::of_a_cluster_elsewhere(
        with_controller(scene().jobs("gpu", 2).open(&["gpu"]), |it| it.spec.external = true),
        None
    )]
    fn a_partition_may_go_on_evidence_only(
        #[case] scene: Scene,
        #[case] expected: Option<(&str, &str, Option<i64>)>,
    ) {
        assert_eq!(held(&told(&scene)), expected);
    }

    #[rstest]
    #[case::unnamed(scene().jobs("gpu", 0).open(&[]))]
    #[case::forced(scene().nodeset(force))]
    #[case::named(scene().jobs("gpu", 1).open(&[]))]
    fn what_is_told_has_words(#[case] scene: Scene) {
        let status = told(&scene);
        assert!(!find(&status.conditions, PARTITION_HELD).unwrap().message.is_empty());
    }

    #[test]
    fn a_release_is_about_one_generation() {
        let scene = scene().jobs("gpu", 0).open(&[]);
        let controller = scene.observed.controller.clone();
        let matter = |scene: &Scene| records_matter(&scene.observed.nodeset, controller.as_deref());
        assert!(matter(&scene));
        let status = told(&scene);
        let released = scene.nodeset(|nodeset| nodeset.status = Some(status.clone()));
        assert!(!matter(&released), "nobody needs to ask again");
        let later = edited(released, status, &json!({ "replicas": 1 })).unknown();
        assert_eq!(held(&told(&later)), Some(("False", "NoJobRecords", Some(1))), "as it was");
        assert!(matter(&later));
        let wanted = json!({ "partition": { "enabled": true } });
        let wanted = edited(later, NodeSetStatus::default(), &wanted);
        assert!(!matter(&wanted) && held(&told(&wanted)).is_none());
    }
}
