//! Reads the log of a reconfigure container: which configuration slurmctld runs with.

use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};
use std::time::Duration;

/// How many lines of the log are read: the container writes one for each change and each failure.
const LOG_LINES: i64 = 50;
/// Timeout of the request: the API server waits without limit for the kubelet of a deleted node.
const LOG_TIMEOUT: Duration = Duration::from_secs(3);

/// The latest report of a reconfigure container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// slurmctld runs with the configuration of this hash.
    Applied(String),
    /// slurmctld refused a configuration.
    Refused {
        /// Hash of the configuration.
        config: String,
        /// The output of `scontrol reconfigure`.
        reason: String,
    },
}

/// Reads the latest report of a pod's reconfigure container. A log that cannot be read is no error of the
/// configuration, so it counts as no report.
pub async fn get_report(client: Client, namespace: &str, pod: &str) -> Option<Report> {
    let parameters = LogParams {
        container: Some("reconfigure".to_owned()),
        tail_lines: Some(LOG_LINES),
        ..LogParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let log = tokio::time::timeout(LOG_TIMEOUT, pods.logs(pod, &parameters)).await.ok()?.ok()?;
    parse_report(&log)
}

/// The latest report in a log; its lines are those of the reconfigure script.
fn parse_report(log: &str) -> Option<Report> {
    log.lines().rev().find_map(|line| {
        if let Some((_, config)) = line.split_once(", now ").or_else(|| line.split_once(": Reconfigured to "))
        {
            return Some(Report::Applied(config.trim().to_owned()));
        }
        let (config, reason) = line.split_once(": Reconfigure to ")?.1.split_once(" failed: ")?;
        Some(Report::Refused { config: config.to_owned(), reason: reason.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::empty_log("", None)]
    #[case::other_lines("Mon: Hello\n", None)]
    #[case::started("Mon: Watching /etc/slurm, now a1\n", Some(Report::Applied("a1".to_owned())))]
    #[case::reconfigured(
        "Mon: Watching /etc/slurm, now a1\nMon: Reconfigured to b2\n",
        Some(Report::Applied("b2".to_owned()))
    )]
    #[case::refused(
        "Mon: Reconfigured to b2\nMon: Reconfigure to c3 failed: slurm_reconfigure error: no; way\n",
        Some(Report::Refused { config: "c3".to_owned(), reason: "slurm_reconfigure error: no; way".to_owned() })
    )]
    #[case::applied_on_retry(
        "Mon: Reconfigure to c3 failed: no\nMon: Reconfigured to c3\n",
        Some(Report::Applied("c3".to_owned()))
    )]
    #[case::followed_by_other_lines(
        "Mon: Reconfigured to b2\nslurmctld: hm\n",
        Some(Report::Applied("b2".to_owned()))
    )]
    fn latest_report_of_a_log_counts(#[case] log: &str, #[case] report: Option<Report>) {
        assert_eq!(parse_report(log), report);
    }
}
