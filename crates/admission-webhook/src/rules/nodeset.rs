//! Rules of NodeSets.

use super::{Validated, mismatches, read_template};
use crate::verdict::Verdict;
use slinky_api::names::check_object_name;
use slinky_api::v1beta1::{NodeSet, ScheduledUpdate};
use slurm_conf::ExtraItems;
use std::time::Duration;

/// Slurm counts the duration of a reservation in minutes.
const SHORTEST_RESERVATION: Duration = Duration::from_mins(1);

impl Validated for NodeSet {
    type References = ();

    fn type_mismatches(&self) -> Vec<String> {
        let strategy = self.spec.effective_update_strategy();
        let rolling = strategy.rolling_update.as_ref();
        let scheduled = strategy.scheduled_update.as_ref();
        mismatches([
            ("slurmd", self.spec.slurmd.read().map(drop)),
            ("logfile", self.spec.logfile.read().map(drop)),
            ("template.spec", read_template(self.spec.template.as_ref())),
            ("volumeClaimTemplates", self.spec.volume_claim_templates.read().map(drop)),
            (
                "updateStrategy.rollingUpdate.maxUnavailable",
                rolling.map_or(Ok(()), |rolling| rolling.max_unavailable.read().map(drop)),
            ),
            (
                "updateStrategy.scheduledUpdate.startTime",
                scheduled.map_or(Ok(()), |scheduled| scheduled.start_time.read().map(drop)),
            ),
            (
                "updateStrategy.scheduledUpdate.duration",
                scheduled.map_or(Ok(()), |scheduled| scheduled.duration.read().map(drop)),
            ),
        ])
    }

    fn check(&self, (): &(), verdict: &mut Verdict) {
        let spec = &self.spec;
        let strategy = spec.effective_update_strategy();
        if spec.controller_ref.name.is_empty() {
            verdict.refuse("controllerRef.name must not be empty");
        }
        if let Some(rolling) = &strategy.rolling_update {
            match rolling.limit() {
                Err(error) => verdict.refuse(error.to_string()),
                Ok(limit) if limit.is_zero() => verdict.refuse(
                    "updateStrategy.rollingUpdate.maxUnavailable must be greater than 0, or no worker is ever updated",
                ),
                Ok(_) => {}
            }
        }
        if strategy.scheduled_update.as_ref().is_some_and(is_too_short) {
            verdict.refuse("updateStrategy.scheduledUpdate.duration must be at least one minute");
        }
        if spec.enabled_ssh().is_some_and(|ssh| ssh.sssd_conf_ref.name.is_empty()) {
            verdict.refuse("ssh.sssdConfRef.name must not be empty while ssh is enabled");
        }
        check_hostname_prefix(spec.template_hostname().unwrap_or_default(), verdict);
        if let Err(error) = ExtraItems::parse(spec.extra_conf.as_deref().unwrap_or_default()) {
            verdict.refuse(format!("invalid extraConf: {error}"));
        }
    }

    fn check_change(&self, old: &Self, verdict: &mut Verdict) {
        verdict.require_unchanged("controllerRef", &old.spec.controller_ref, &self.spec.controller_ref);
        let claims =
            |nodeset: &Self| nodeset.spec.volume_claim_templates.read().ok().flatten().unwrap_or_default();
        verdict.require_unchanged("volumeClaimTemplates", &claims(old), &claims(self));
    }
}

/// Whether the reservation of a scheduled update is shorter than Slurm can make it. Zero counts as not set.
fn is_too_short(scheduled: &ScheduledUpdate) -> bool {
    let Ok(Some(duration)) = scheduled.duration.read() else { return false };
    duration.length().is_none_or(|length| !length.is_zero() && length < SHORTEST_RESERVATION)
}

/// Checks a prefix of host names, which is followed by the number of the worker.
fn check_hostname_prefix(prefix: &str, verdict: &mut Verdict) {
    if prefix.is_empty() {
        return;
    }
    if let Err(problem) = check_object_name(&format!("{prefix}0")) {
        verdict.refuse(format!("template.spec.hostname: {prefix:?} cannot begin a hostname: {problem}"));
    } else if prefix.contains('.') {
        verdict
            .warn(format!("template.spec.hostname: a hostname has no dots, so {prefix:?} gets no workers"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_refusal, changed, create, object, update};
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn minimal() -> Value {
        json!({ "controllerRef": { "name": "slurm" } })
    }

    fn rolling(limit: impl Into<Value>) -> Value {
        json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": limit.into() } } })
    }

    fn scheduled(duration: &str) -> Value {
        json!({ "updateStrategy": { "scheduledUpdate": { "duration": duration } } })
    }

    fn hostname(prefix: &str) -> Value {
        json!({ "template": { "spec": { "hostname": prefix } } })
    }

    #[rstest]
    #[case::minimal(json!({}), None)]
    #[case::no_controller(json!({ "controllerRef": { "name": "" } }), Some("controllerRef.name must not be empty"))]
    #[case::one_unavailable(rolling(1), None)]
    #[case::none_unavailable(rolling(0), Some("maxUnavailable must be greater than 0"))]
    #[case::negative(rolling(-1), Some("a number or a percentage such as 25%, which -1 is not"))]
    #[case::percentage(rolling("1%"), None)]
    #[case::zero_percent(rolling("00%"), Some("maxUnavailable must be greater than 0"))]
    #[case::word(rolling("some"), Some("which \"some\" is not"))]
    #[case::fraction(rolling("0.5%"), Some("which \"0.5%\" is not"))]
    #[case::minute(scheduled("1m"), None)]
    #[case::seconds(scheduled("59s"), Some("duration must be at least one minute"))]
    #[case::negative_duration(scheduled("-1h"), Some("duration must be at least one minute"))]
    #[case::no_duration(scheduled("0"), None)]
    #[case::ssh_without_sssd(json!({ "ssh": { "enabled": true, "sssdConfRef": { "key": "k" } } }), Some("ssh.sssdConfRef.name"))]
    #[case::sssd_without_ssh(json!({ "ssh": { "enabled": false, "sssdConfRef": { "key": "k" } } }), None)]
    #[case::prefix(hostname("foo-"), None)]
    #[case::two_dashes(hostname("foo--"), None)]
    #[case::line_break(hostname("foo\n"), Some("template.spec.hostname: \"foo\\n\" cannot begin a hostname"))]
    #[case::upper_case(hostname("Foo-"), Some("only lower-case letters"))]
    #[case::only_a_dash(hostname("-"), Some("must start and end with a letter or digit"))]
    #[case::options(json!({ "extraConf": " Weight=5  Feature=a " }), None)]
    #[case::option_without_value(json!({ "extraConf": "Weight=5 nope" }), Some("invalid extraConf: malformed --conf item \"nope\": expected Key=Value"))]
    #[case::shell(json!({ "extraConf": "A=$(b)" }), Some("must not contain '$'"))]
    fn specs_are_checked(#[case] change: Value, #[case] refusal: Option<&str>) {
        assert_refusal(create::<NodeSet>(&changed(&minimal(), &change)).0.as_deref(), refusal);
    }

    #[test]
    fn dots_in_a_hostname_are_a_warning() {
        let (refusal, warnings) = create::<NodeSet>(&changed(&minimal(), &hostname("a.b-")));
        assert_eq!((refusal, warnings.len()), (None, 1), "{warnings:?}");
    }

    #[rstest]
    #[case::replicas(json!({ "replicas": 5 }), None)]
    #[case::controller(json!({ "controllerRef": { "name": "other" } }), Some("cannot change controllerRef after deployment"))]
    #[case::claims(json!({ "volumeClaimTemplates": [{ "metadata": { "name": "a" } }] }), Some("cannot change volumeClaimTemplates"))]
    #[case::no_claims(json!({ "volumeClaimTemplates": [] }), None)]
    fn controller_and_claims_cannot_change(#[case] change: Value, #[case] refusal: Option<&str>) {
        assert_refusal(update::<NodeSet>(&minimal(), &changed(&minimal(), &change)).as_deref(), refusal);
    }

    #[rstest]
    #[case::container(json!({ "slurmd": { "image": 1 } }), "spec.slurmd: not a valid Container")]
    #[case::pod(json!({ "template": { "spec": { "tolerations": "x" } } }), "spec.template.spec: not a valid PodSpec")]
    #[case::claims(json!({ "volumeClaimTemplates": "x" }), "spec.volumeClaimTemplates: not a valid")]
    #[case::start(json!({ "updateStrategy": { "scheduledUpdate": { "startTime": "soon" } } }), "scheduledUpdate.startTime")]
    fn ill_typed_parts_are_named(#[case] change: Value, #[case] expected: &str) {
        let mismatches = object::<NodeSet>(&changed(&minimal(), &change)).type_mismatches();
        assert!(mismatches.len() == 1 && mismatches[0].contains(expected), "{mismatches:?}");
    }
}
