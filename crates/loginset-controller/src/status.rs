//! What a LoginSet's status says.

use crate::observe::Children;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use operator_runtime::{Classify, RawObject, StepErrors};
use pod_builder::{Rollout, deployment_rollout};
use slinky_api::conditions::{Summary, summarise};
use slinky_api::labels::{selector_labels, to_selector};
use slinky_api::ownership::is_controlled_by;
use slinky_api::v1beta1::{LoginSet, LoginSetStatus};

/// What a pass came to: the Deployment, if it is there to stay.
type Outcome = Result<Option<RawObject<Deployment>>, StepErrors>;

/// The status after a pass. The pods of a Deployment that the pass left alone count as well.
pub fn status(loginset: &LoginSet, children: &Children, outcome: &Outcome, now: Timestamp) -> LoginSetStatus {
    let mut status = loginset.status.clone().unwrap_or_default();
    let made = outcome.as_ref().ok().and_then(Option::as_ref);
    let found = children.deployment.as_deref().filter(|found| is_controlled_by(&found.metadata, loginset));
    status.replicas = made.or(found).map_or(0, replicas);
    status.selector = to_selector(&selector_labels(loginset));
    summarise(&mut status.conditions, &summary(outcome), loginset.metadata.generation, now);
    status
}

fn replicas(deployment: &RawObject<Deployment>) -> i32 {
    deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default()
}

fn summary(outcome: &Outcome) -> Summary {
    match outcome {
        Err(error) => Summary::Degraded(error.category(), error.to_string()),
        Ok(None) => {
            Summary::Progressing("Replacing", "an old child of the same name is being deleted".to_owned())
        }
        Ok(Some(deployment)) => match deployment_rollout(deployment) {
            Rollout::Complete => Summary::Ready,
            Rollout::Underway(progress) => Summary::Progressing("RollingOut", progress),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::loginset;
    use rstest::rstest;
    use serde_json::json;
    use slinky_api::conditions::{PROGRESSING, find};
    use std::sync::Arc;

    fn deployment(owner: &str, ready: i32) -> RawObject<Deployment> {
        let owner = json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": true });
        RawObject::new(json!({
            "metadata": { "generation": 1, "ownerReferences": [owner] },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": { "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready },
        }))
        .unwrap()
    }

    fn told(children: &Children, outcome: Option<RawObject<Deployment>>) -> LoginSetStatus {
        status(&loginset(&json!({})), children, &Ok(outcome), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_scale_subresource_finds_the_pods() {
        let status = told(&Children::default(), Some(deployment("u", 1)));
        assert_eq!(status.selector, "app.kubernetes.io/instance=front,app.kubernetes.io/name=login");
        assert_eq!(status.replicas, 2);
        let progressing = find(&status.conditions, PROGRESSING).unwrap();
        assert_eq!(
            (progressing.status.as_str(), progressing.message.as_str()),
            ("True", "1 of 2 pods are ready")
        );
    }

    #[rstest]
    #[case::of_ours("u", 2)]
    #[case::of_somebody_else("other", 0)]
    fn pods_count_that_the_pass_left_alone(#[case] owner: &str, #[case] replicas: i32) {
        let children = Children { deployment: Some(Arc::new(deployment(owner, 2))), ..Children::default() };
        assert_eq!(told(&children, None).replicas, replicas);
        assert_eq!(told(&Children::default(), None).replicas, 0);
    }
}
