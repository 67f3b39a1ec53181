//! Validates the spec of a Token. Pure.

use jiff::SignedDuration;
use slinky_api::v1beta1::{SecretKeySelector, Token};
use slinky_api::{TypeMismatch, names};
use slurm_jwt::MAX_LIFETIME;

/// The shortest lifetime of a token: it is renewed every eight seconds.
const MIN_LIFETIME: SignedDuration = SignedDuration::from_secs(10);

/// The validated spec of a Token, with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredToken {
    /// The Slurm user in the token.
    pub user: String,
    /// How long a token is valid.
    pub lifetime: SignedDuration,
    /// Whether it is renewed before it expires.
    pub refresh: bool,
    /// The Secret and key of the signing key.
    pub signing_key: SecretKeySelector,
    /// The Secret that holds the token.
    pub secret: String,
    /// The key in that Secret.
    pub key: String,
}

/// Why a spec is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidToken {
    /// The spec names no signing key.
    #[error("spec.jwtKeyRef names no Secret")]
    NoSigningKey,
    /// The name of the signing key's Secret breaks a rule of Kubernetes.
    #[error("spec.jwtKeyRef: {name:?} cannot be the name of a Secret ({problem})")]
    SigningKeyName {
        /// The name.
        name: String,
        /// The rule that the name breaks.
        problem: &'static str,
    },
    /// The lifetime is not a duration.
    #[error("spec.lifetime cannot be read")]
    Lifetime(#[source] TypeMismatch),
    /// The token would have to be renewed all the time.
    #[error("spec.lifetime must be at least {} s", MIN_LIFETIME.as_secs())]
    LifetimeTooShort,
    /// The name of the Secret breaks a rule of Kubernetes. Without `secretRef` it contains the user's name.
    #[error("{name:?} cannot be the name of a Secret ({problem}): set spec.secretRef")]
    SecretName {
        /// The name.
        name: String,
        /// The rule that the name breaks.
        problem: &'static str,
    },
    /// A Secret cannot have this key.
    #[error("spec.secretRef.key: {key:?} cannot be a key of a Secret")]
    SecretKey {
        /// The key.
        key: String,
    },
    /// The token would overwrite the key that signs it.
    #[error("spec.secretRef names the Secret of the signing key")]
    OverwritesSigningKey,
}

/// Validates the spec of a Token.
pub fn validate(token: &Token) -> Result<DesiredToken, InvalidToken> {
    let spec = &token.spec;
    let signing_key =
        spec.signing_key_ref().filter(|key| !key.name.is_empty()).ok_or(InvalidToken::NoSigningKey)?.clone();
    if let Err(problem) = names::check_object_name(&signing_key.name) {
        return Err(InvalidToken::SigningKeyName { name: signing_key.name, problem });
    }
    let lifetime = spec.effective_lifetime().map_err(InvalidToken::Lifetime)?;
    let lifetime = SignedDuration::try_from(lifetime).unwrap_or(MAX_LIFETIME).min(MAX_LIFETIME);
    if lifetime < MIN_LIFETIME {
        return Err(InvalidToken::LifetimeTooShort);
    }
    let secret = token.secret_name();
    if let Err(problem) = names::check_object_name(&secret) {
        return Err(InvalidToken::SecretName { name: secret, problem });
    }
    if secret == signing_key.name {
        return Err(InvalidToken::OverwritesSigningKey);
    }
    let key = spec.secret_key().to_owned();
    if !names::is_data_key(&key) {
        return Err(InvalidToken::SecretKey { key });
    }
    Ok(DesiredToken {
        user: spec.effective_username().to_owned(),
        lifetime,
        refresh: spec.refresh,
        signing_key,
        secret,
        key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn token(change: &Value) -> Token {
        let mut spec = json!({ "jwtKeyRef": { "name": "auth", "key": "jwt.key" }, "username": "alice" });
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
        serde_json::from_value(json!({ "metadata": { "name": "t" }, "spec": spec })).unwrap()
    }

    #[test]
    fn minimal_spec_gets_the_defaults() {
        let desired = validate(&token(&json!({}))).unwrap();
        assert_eq!((desired.secret.as_str(), desired.key.as_str()), ("t-jwt-alice", "SLURM_JWT"));
        assert_eq!((desired.lifetime, desired.refresh), (SignedDuration::from_mins(15), true));
    }

    #[rstest]
    #[case::longest_that_slurm_accepts("9999999h", MAX_LIFETIME)]
    #[case::shortest("10s", MIN_LIFETIME)]
    fn lifetime_is_within_its_limits(#[case] lifetime: &str, #[case] expected: SignedDuration) {
        assert_eq!(validate(&token(&json!({ "lifetime": lifetime }))).unwrap().lifetime, expected);
    }

    #[rstest]
    #[case::no_signing_secret(json!({ "jwtKeyRef": { "key": "k" } }), "spec.jwtKeyRef names no Secret")]
    #[case::signing_secret_is_a_path(json!({ "jwtKeyRef": { "name": "../auth", "key": "k" } }), "\"../auth\" cannot be the name of a Secret")]
    #[case::lifetime_is_not_a_duration(json!({ "lifetime": "for ever" }), "spec.lifetime cannot be read")]
    #[case::lifetime_overflows(json!({ "lifetime": "99999999999999999999h" }), "spec.lifetime cannot be read")]
    #[case::endless_renewal(json!({ "lifetime": "100ms" }), "spec.lifetime must be at least 10 s")]
    #[case::lifetime_is_too_short(json!({ "lifetime": "9.9s" }), "spec.lifetime must be at least 10 s")]
    #[case::negative_lifetime(json!({ "lifetime": "1h-2h" }), "spec.lifetime cannot be read")]
    #[case::user_with_capital_letter(json!({ "username": "Alice" }), "\"t-jwt-Alice\" cannot be the name of a Secret")]
    #[case::user_with_underscore(json!({ "username": "a_b" }), "set spec.secretRef")]
    #[case::empty_user(json!({ "username": "" }), "\"t-jwt-\" cannot be the name of a Secret")]
    #[case::invalid_key(json!({ "secretRef": { "name": "s", "key": "a/b" } }), "\"a/b\" cannot be a key of a Secret")]
    #[case::secret_of_the_signing_key(json!({ "secretRef": { "name": "auth", "key": "k" } }), "the Secret of the signing key")]
    fn invalid_spec_is_refused_with_the_field_and_the_rule(#[case] change: Value, #[case] message: &str) {
        let refusal = validate(&token(&change)).unwrap_err().to_string();
        assert!(refusal.contains(message), "{refusal}");
    }

    #[rstest]
    #[case::user_that_no_secret_name_can_contain(json!({ "username": "A_b", "secretRef": { "name": "s", "key": "k" } }), "A_b")]
    #[case::empty_user_becomes_nobody(json!({ "username": "", "secretRef": { "name": "s", "key": "k" } }), "nobody")]
    fn any_user_is_accepted_with_an_explicit_secret_name(#[case] change: Value, #[case] user: &str) {
        assert_eq!(validate(&token(&change)).unwrap().user, user);
    }
}
