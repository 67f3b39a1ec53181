//! Reads a Token's spec into what can be acted on, or says what is wrong with it.

use jiff::SignedDuration;
use slinky_api::v1beta1::{SecretKeySelector, Token};
use slinky_api::{TypeMismatch, names};
use slurm_jwt::MAX_LIFETIME;

/// A Token that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The Slurm user in the token.
    pub user: String,
    /// How long a token is good for.
    pub lifetime: SignedDuration,
    /// Whether it is renewed.
    pub refresh: bool,
    /// Where the signing key is.
    pub signing_key: SecretKeySelector,
    /// The Secret that holds the token.
    pub secret: String,
    /// The key in that Secret.
    pub key: String,
}

/// What is wrong with a Token.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// No key to sign with.
    #[error("spec.jwtKeyRef names no Secret")]
    NoSigningKey,
    /// A key in what cannot be a Secret.
    #[error("spec.jwtKeyRef: {name:?} cannot be the name of a Secret ({problem})")]
    SigningKeyName {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A duration that is none.
    #[error("spec.lifetime cannot be read")]
    Lifetime(#[source] TypeMismatch),
    /// Without `secretRef` the name of the Secret contains the user's.
    #[error("{name:?} cannot be the name of a Secret ({problem}): set spec.secretRef")]
    SecretName {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A key that a Secret cannot have.
    #[error("spec.secretRef.key: {key:?} cannot be a key of a Secret")]
    SecretKey {
        /// The key.
        key: String,
    },
    /// The token would overwrite the key it is signed with.
    #[error("spec.secretRef names the Secret of the signing key")]
    OverwritesSigningKey,
}

/// Checks a Token.
pub fn validate(token: &Token) -> Result<Wish, Invalid> {
    let spec = &token.spec;
    let signing_key =
        spec.signing_key_ref().filter(|key| !key.name.is_empty()).ok_or(Invalid::NoSigningKey)?.clone();
    if let Err(problem) = names::check_object_name(&signing_key.name) {
        return Err(Invalid::SigningKeyName { name: signing_key.name, problem });
    }
    let lifetime = spec.effective_lifetime().map_err(Invalid::Lifetime)?;
    let secret = token.secret_name();
    if let Err(problem) = names::check_object_name(&secret) {
        return Err(Invalid::SecretName { name: secret, problem });
    }
    if secret == signing_key.name {
        return Err(Invalid::OverwritesSigningKey);
    }
    let key = spec.secret_key().to_owned();
    if !names::is_data_key(&key) {
        return Err(Invalid::SecretKey { key });
    }
    Ok(Wish {
        user: spec.effective_username().to_owned(),
        lifetime: SignedDuration::try_from(lifetime).unwrap_or(MAX_LIFETIME).min(MAX_LIFETIME),
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
    fn a_plain_token_gets_the_defaults() {
        let wish = validate(&token(&json!({}))).unwrap();
        assert_eq!((wish.secret.as_str(), wish.key.as_str()), ("t-jwt-alice", "SLURM_JWT"));
        assert_eq!((wish.lifetime, wish.refresh), (SignedDuration::from_mins(15), true));
    }

    #[test]
    fn a_lifetime_beyond_what_slurm_takes_is_cut_as_the_token_will_be() {
        let wish = validate(&token(&json!({ "lifetime": "9999999h" }))).unwrap();
        assert_eq!(wish.lifetime, MAX_LIFETIME);
    }

    #[rstest]
    #[case::empty_reference(json!({ "jwtKeyRef": { "key": "k" } }), "spec.jwtKeyRef names no Secret")]
    #[case::path(json!({ "jwtKeyRef": { "name": "../auth", "key": "k" } }), "\"../auth\" cannot be the name of a Secret")]
    #[case::no_duration(json!({ "lifetime": "for ever" }), "spec.lifetime cannot be read")]
    #[case::longer_than_anything(json!({ "lifetime": "99999999999999999999h" }), "spec.lifetime cannot be read")]
    #[case::shorter_than_nothing(json!({ "lifetime": "1h-2h" }), "spec.lifetime cannot be read")]
    #[case::capital_user(json!({ "username": "Alice" }), "\"t-jwt-Alice\" cannot be the name of a Secret")]
    #[case::underscore(json!({ "username": "a_b" }), "set spec.secretRef")]
    #[case::empty_user(json!({ "username": "" }), "\"t-jwt-\" cannot be the name of a Secret")]
    #[case::key(json!({ "secretRef": { "name": "s", "key": "a/b" } }), "\"a/b\" cannot be a key of a Secret")]
    #[case::itself(json!({ "secretRef": { "name": "auth", "key": "k" } }), "the Secret of the signing key")]
    fn what_cannot_work_is_refused_in_words(#[case] change: Value, #[case] message: &str) {
        let refusal = validate(&token(&change)).unwrap_err().to_string();
        assert!(refusal.contains(message), "{refusal}");
    }

    #[rstest]
    #[case::unusual_user(json!({ "username": "A_b", "secretRef": { "name": "s", "key": "k" } }), "A_b")]
    #[case::nobody(json!({ "username": "", "secretRef": { "name": "s", "key": "k" } }), "nobody")]
    fn any_user_is_fine_with_a_secret_of_ones_own(#[case] change: Value, #[case] user: &str) {
        assert_eq!(validate(&token(&change)).unwrap().user, user);
    }
}
