//! Finds a container of a slurmctld pod that ends again and again, and reads its last words.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::LogParams;
use kube::{Api, Client, ResourceExt};
use std::sync::Arc;
use std::time::Duration;

/// How many lines of the log are read: the entrypoint may write some after the daemon has ended.
const LOG_LINES: i64 = 20;
/// Timeout of the request: the API server waits without limit for the kubelet of a deleted node.
const LOG_TIMEOUT: Duration = Duration::from_secs(3);
/// From this number of restarts on, a container that has not started again is in a crash loop.
const MANY_RESTARTS: i32 = 2;

/// A container that ends again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashLoop {
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// The last line of its log that reports an error, or else the last line; `None` if the log cannot be read.
    pub last_line: Option<String>,
}

/// The first crash loop among these pods.
pub async fn get_crash_loop(client: Client, namespace: &str, pods: &[Arc<Pod>]) -> Option<CrashLoop> {
    let (pod, container) = pods.iter().find_map(|pod| Some((pod.name_any(), crashing_container(pod)?)))?;
    let parameters = LogParams {
        container: Some(container.clone()),
        previous: true,
        tail_lines: Some(LOG_LINES),
        ..LogParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let log = tokio::time::timeout(LOG_TIMEOUT, pods.logs(&pod, &parameters)).await;
    let last_line = log.ok().and_then(Result::ok).and_then(|log| last_line(&log));
    Some(CrashLoop { pod, container, last_line })
}

fn crashing_container(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut containers = lists.into_iter().flatten().flatten();
    containers.find(|container| is_crashing(container)).map(|container| container.name.clone())
}

/// Between two waits the kubelet runs the container for a moment; then it is known by its restarts.
fn is_crashing(container: &ContainerStatus) -> bool {
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    let last_end = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let has_failed = last_end.is_some_and(|end| end.exit_code != 0);
    let is_starting = container.started != Some(true) && !container.ready;
    waiting == Some("CrashLoopBackOff")
        || is_starting && has_failed && container.restart_count >= MANY_RESTARTS
}

fn last_line(log: &str) -> Option<String> {
    let mut lines = log.lines().rev().filter(|line| !line.trim().is_empty());
    let is_error = |line: &str| line.contains("fatal") || line.contains("error");
    let line = lines.clone().find(|line| is_error(line)).or_else(|| lines.next())?;
    // The time differs after each restart.
    let text = line.split_once("] ").filter(|_| line.starts_with('[')).map_or(line, |(_, text)| text);
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn container(restarts: i32, started: bool, state: &Value, exit_code: i32) -> ContainerStatus {
        serde_json::from_value(json!({ "name": "slurmctld", "image": "", "imageID": "", "ready": false,
            "restartCount": restarts, "started": started, "state": state,
            "lastState": { "terminated": { "exitCode": exit_code } } }))
        .unwrap()
    }

    #[rstest]
    #[case::waiting(container(1, false, &json!({ "waiting": { "reason": "CrashLoopBackOff" } }), 1), true)]
    #[case::running_for_a_moment(container(2, false, &json!({ "running": {} }), 1), true)]
    #[case::first_restart(container(1, false, &json!({ "running": {} }), 1), false)]
    #[case::started(container(5, true, &json!({ "running": {} }), 1), false)]
    #[case::ended_without_an_error(container(5, false, &json!({ "running": {} }), 0), false)]
    #[case::no_image(container(0, false, &json!({ "waiting": { "reason": "ErrImagePull" } }), 0), false)]
    fn container_that_ends_again_and_again_is_a_crash_loop(
        #[case] container: ContainerStatus,
        #[case] expected: bool,
    ) {
        assert_eq!(is_crashing(&container), expected);
    }

    #[rstest]
    #[case::empty("", None)]
    #[case::last_error("[t1] error: a\n[t2] fatal: b\nslurmctld has ended\n\n", Some("fatal: b"))]
    #[case::no_error("one\ntwo\n", Some("two"))]
    fn last_error_of_a_log_is_found(#[case] log: &str, #[case] expected: Option<&str>) {
        assert_eq!(last_line(log).as_deref(), expected);
    }
}
