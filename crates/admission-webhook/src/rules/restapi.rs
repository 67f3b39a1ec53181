//! Rules of RestApis.

use super::{Validated, mismatches, read_service, read_template, warn_of_external_ips};
use crate::verdict::Verdict;
use slinky_api::v1beta1::RestApi;

impl Validated for RestApi {
    type References = ();

    fn type_mismatches(&self) -> Vec<String> {
        mismatches([
            ("slurmrestd", self.spec.slurmrestd.read().map(drop)),
            ("template.spec", read_template(self.spec.template.as_ref())),
            ("service.spec", read_service(self.spec.service.as_ref())),
        ])
    }

    fn check(&self, (): &(), verdict: &mut Verdict) {
        warn_of_external_ips(self.spec.service.as_ref(), "restapi", verdict);
    }
}
