//! Rules of Accountings.

use super::{Validated, check_signing_key, mismatches, read_service, read_template, warn_of_external_ips};
use crate::verdict::Verdict;
use slinky_api::v1beta1::Accounting;

impl Validated for Accounting {
    type References = ();

    fn type_mismatches(&self) -> Vec<String> {
        mismatches([
            ("slurmdbd", self.spec.slurmdbd.read().map(drop)),
            ("template.spec", read_template(self.spec.template.as_ref())),
            ("service.spec", read_service(self.spec.service.as_ref())),
        ])
    }

    fn check(&self, (): &(), verdict: &mut Verdict) {
        warn_of_external_ips(self.spec.service.as_ref(), "accounting", verdict);
    }

    fn check_change(&self, old: &Self, verdict: &mut Verdict) {
        check_signing_key(old.spec.signing_key_ref(), self.spec.signing_key_ref(), verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_refusal, update};
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::slurm_key(json!({ "slurmKeyRef": { "name": "b", "key": "k" }, "jwtKeyRef": { "name": "a", "key": "k" } }), None)]
    #[case::signing_key(json!({ "jwtKeyRef": { "name": "b", "key": "k" } }), Some("cannot change jwtKeyRef"))]
    #[case::no_signing_key(json!({}), Some("cannot change jwtKeyRef"))]
    fn signing_key_cannot_change(#[case] new: Value, #[case] refusal: Option<&str>) {
        let old = json!({ "jwtKeyRef": { "name": "a", "key": "k" } });
        assert_refusal(update::<Accounting>(&old, &new).as_deref(), refusal);
    }
}
