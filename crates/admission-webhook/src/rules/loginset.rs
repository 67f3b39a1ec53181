//! Rules of LoginSets.

use super::{Validated, mismatches, read_service, read_template, warn_of_external_ips};
use crate::verdict::Verdict;
use slinky_api::v1beta1::LoginSet;

impl Validated for LoginSet {
    type References = ();

    fn type_mismatches(&self) -> Vec<String> {
        let rolling = self.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        mismatches([
            ("login", self.spec.login.read().map(drop)),
            ("initconf", self.spec.initconf.read().map(drop)),
            ("template.spec", read_template(self.spec.template.as_ref())),
            ("service.spec", read_service(self.spec.service.as_ref())),
            (
                "strategy.rollingUpdate.maxSurge",
                rolling.map_or(Ok(()), |rolling| rolling.max_surge.read().map(drop)),
            ),
            (
                "strategy.rollingUpdate.maxUnavailable",
                rolling.map_or(Ok(()), |rolling| rolling.max_unavailable.read().map(drop)),
            ),
        ])
    }

    fn check(&self, (): &(), verdict: &mut Verdict) {
        if self.spec.controller_ref.name.is_empty() {
            verdict.refuse("controllerRef.name must not be empty");
        }
        if self.spec.sssd_conf_ref.name.is_empty() {
            verdict.refuse("sssdConfRef.name must not be empty");
        }
        warn_of_external_ips(self.spec.service.as_ref(), "loginset", verdict);
    }

    fn check_change(&self, old: &Self, verdict: &mut Verdict) {
        verdict.require_unchanged("controllerRef", &old.spec.controller_ref, &self.spec.controller_ref);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_refusal, changed, create, update};
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn minimal() -> Value {
        json!({ "controllerRef": { "name": "slurm" }, "sssdConfRef": { "name": "s", "key": "k" } })
    }

    #[rstest]
    #[case::minimal(json!({}), None)]
    #[case::no_controller(json!({ "controllerRef": {} }), Some("controllerRef.name must not be empty"))]
    #[case::no_sssd(json!({ "sssdConfRef": { "key": "k" } }), Some("sssdConfRef.name must not be empty"))]
    fn references_are_needed(#[case] change: Value, #[case] refusal: Option<&str>) {
        assert_refusal(create::<LoginSet>(&changed(&minimal(), &change)).0.as_deref(), refusal);
    }

    #[rstest]
    #[case::replicas(json!({ "replicas": 5 }), None)]
    #[case::controller(json!({ "controllerRef": { "name": "other" } }), Some("cannot change controllerRef"))]
    fn controller_cannot_change(#[case] change: Value, #[case] refusal: Option<&str>) {
        assert_refusal(update::<LoginSet>(&minimal(), &changed(&minimal(), &change)).as_deref(), refusal);
    }
}
