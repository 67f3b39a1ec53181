//! Rollout progress of workloads.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};

/// The rollout progress of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// All pods are updated and ready; the text states their number.
    Complete(String),
    /// The rollout is not complete; the text states the progress.
    Underway(String),
}

/// The rollout of a Deployment.
pub fn deployment_rollout(deployment: &Deployment) -> Rollout {
    let status = deployment.status.clone().unwrap_or_default();
    rollout(&Counts {
        is_observed: status.observed_generation >= deployment.metadata.generation,
        desired: deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
        updated: status.updated_replicas.unwrap_or_default(),
        ready: status.ready_replicas.unwrap_or_default(),
        all: status.replicas.unwrap_or_default(),
    })
}

/// The rollout of a StatefulSet.
pub fn stateful_set_rollout(set: &StatefulSet) -> Rollout {
    let status = set.status.clone().unwrap_or_default();
    // Without a rollout in progress the StatefulSet controller omits updatedReplicas.
    let is_updated = status.current_revision.is_some() && status.current_revision == status.update_revision;
    let updated = status.updated_replicas.unwrap_or_default();
    rollout(&Counts {
        is_observed: status.observed_generation >= set.metadata.generation,
        desired: set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
        updated: if is_updated { status.replicas } else { updated },
        ready: status.ready_replicas.unwrap_or_default(),
        all: status.replicas,
    })
}

struct Counts {
    is_observed: bool,
    desired: i32,
    updated: i32,
    ready: i32,
    all: i32,
}

fn rollout(counts: &Counts) -> Rollout {
    let Counts { desired, updated, ready, all, .. } = counts;
    if !counts.is_observed {
        return Rollout::Underway("Kubernetes has not observed the latest change yet".to_owned());
    }
    if updated < desired {
        return Rollout::Underway(format!("{updated} of {desired} pods are up to date"));
    }
    if all > desired {
        return Rollout::Underway(format!("{} old pods are not deleted yet", all - desired));
    }
    if ready < desired {
        return Rollout::Underway(format!("{ready} of {desired} pods are ready"));
    }
    Rollout::Complete(format!("{ready} of {desired} pods ready"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn complete(text: &str) -> Rollout {
        Rollout::Complete(text.to_owned())
    }

    fn underway(text: &str) -> Rollout {
        Rollout::Underway(text.to_owned())
    }

    #[rstest]
    #[case::new(json!({}), underway("Kubernetes has not observed the latest change yet"))]
    #[case::stale(json!({ "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2 }),
        underway("Kubernetes has not observed the latest change yet"))]
    #[case::creating(json!({ "observedGeneration": 2, "replicas": 2, "updatedReplicas": 1 }),
        underway("1 of 2 pods are up to date"))]
    #[case::old_pods_left(json!({ "observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "readyReplicas": 3 }),
        underway("1 old pods are not deleted yet"))]
    #[case::starting(json!({ "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1 }),
        underway("1 of 2 pods are ready"))]
    #[case::done(json!({ "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2 }),
        complete("2 of 2 pods ready"))]
    fn deployment_is_complete_when_all_pods_are_updated_and_ready(
        #[case] status: Value,
        #[case] expected: Rollout,
    ) {
        let deployment = json!({
            "metadata": { "generation": 2 },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": status,
        });
        assert_eq!(deployment_rollout(&serde_json::from_value(deployment).unwrap()), expected);
    }

    #[test]
    fn deployment_scaled_to_zero_is_complete() {
        let deployment = json!({
            "metadata": { "generation": 1 },
            "spec": { "replicas": 0, "selector": {}, "template": {} },
            "status": { "observedGeneration": 1 },
        });
        let rollout = deployment_rollout(&serde_json::from_value(deployment).unwrap());
        assert_eq!(rollout, complete("0 of 0 pods ready"));
    }

    #[rstest]
    #[case::no_rollout(json!({ "currentRevision": "a", "updateRevision": "a", "readyReplicas": 1 }),
        complete("1 of 1 pods ready"))]
    #[case::rolling(json!({ "currentRevision": "a", "updateRevision": "b", "readyReplicas": 1 }),
        underway("0 of 1 pods are up to date"))]
    #[case::restarting(json!({ "currentRevision": "a", "updateRevision": "a" }), underway("0 of 1 pods are ready"))]
    fn stateful_set_without_a_rollout_is_up_to_date(#[case] status: Value, #[case] expected: Rollout) {
        let mut set = json!({
            "metadata": { "generation": 1 },
            "spec": { "replicas": 1, "selector": {}, "serviceName": "s", "template": {} },
            "status": { "observedGeneration": 1, "replicas": 1 },
        });
        set["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
        assert_eq!(stateful_set_rollout(&serde_json::from_value(set).unwrap()), expected);
    }
}
