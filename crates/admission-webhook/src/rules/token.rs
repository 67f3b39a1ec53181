//! Rules of Tokens.

use super::{Validated, check_signing_key, mismatches};
use crate::verdict::Verdict;
use slinky_api::v1beta1::Token;

impl Validated for Token {
    type References = ();

    fn type_mismatches(&self) -> Vec<String> {
        mismatches([("lifetime", self.spec.lifetime.read().map(drop))])
    }

    fn check(&self, (): &(), _: &mut Verdict) {}

    fn check_change(&self, old: &Self, verdict: &mut Verdict) {
        check_signing_key(old.spec.signing_key_ref(), self.spec.signing_key_ref(), verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_refusal, object, update};
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::same_key_in_the_deprecated_field(json!({ "username": "u", "jwtHs256KeyRef": { "name": "a", "key": "k" } }), None)]
    #[case::user(json!({ "username": "other", "jwtKeyRef": { "name": "a", "key": "k" } }), None)]
    #[case::signing_key(json!({ "username": "u", "jwtKeyRef": { "name": "b", "key": "k" } }), Some("cannot change jwtKeyRef"))]
    fn signing_key_cannot_change(#[case] new: Value, #[case] refusal: Option<&str>) {
        let old = json!({ "username": "u", "jwtKeyRef": { "name": "a", "key": "k" } });
        assert_refusal(update::<Token>(&old, &new).as_deref(), refusal);
    }

    #[test]
    fn lifetime_is_a_duration() {
        let token: Token = object(&json!({ "username": "u", "lifetime": "forever" }));
        assert_eq!(token.type_mismatches().len(), 1);
    }
}
