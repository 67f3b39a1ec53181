//! Decides whether a Token may write an existing Secret. Pure.

use crate::validate::DesiredToken;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, ResourceExt};
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::Token;
use slurm_jwt::{ISSUER, SigningKey};

/// The type of a Secret whose content only its writer defines.
const OPAQUE: &str = "Opaque";

/// The relation of a Token to an existing Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The Token controls it.
    Ours,
    /// It holds nothing but a token that was signed with our key, and may become ours. It has no controller, or that of
    /// the operator that we may replace: the signing key's Secret, so that a deleted Token left a valid credential behind.
    Adoptable,
    /// It belongs to another owner or holds other data, which would be lost: at once, or with the Token.
    Refused,
}

/// Decides whether `token` may write `secret`, signed with the key in `signing_secret`.
pub fn ownership(
    token: &Token,
    desired: &DesiredToken,
    secret: &Secret,
    signing_key: &SigningKey,
    signing_secret: Option<&Secret>,
) -> Ownership {
    match control_of(secret.meta(), token) {
        Control::Ours => Ownership::Ours,
        Control::Foreign(owner) if signing_secret.and_then(ResourceExt::uid).as_ref() != Some(&owner.uid) => {
            Ownership::Refused
        }
        Control::Foreign(_) | Control::Orphan if holds_only_a_token(secret, &desired.key, signing_key) => {
            Ownership::Adoptable
        }
        Control::Foreign(_) | Control::Orphan => Ownership::Refused,
    }
}

/// Whether a Secret is empty, or has one key with a token that this operator, or the one before it, signed.
fn holds_only_a_token(secret: &Secret, key: &str, signing_key: &SigningKey) -> bool {
    // Secrets of other types are filled by Kubernetes, and are empty before.
    let is_opaque = secret.type_.as_ref().is_none_or(|type_| type_ == OPAQUE);
    let is_token = |value: &ByteString| {
        let jwt = str::from_utf8(&value.0).ok();
        let claims = jwt.and_then(|jwt| slurm_jwt::parse(jwt, signing_key).ok());
        claims.is_some_and(|claims| claims.iss.as_deref() == Some(ISSUER))
    };
    let mut content = secret.data.iter().flatten();
    is_opaque && content.all(|(name, value)| name == key && (value.0.is_empty() || is_token(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fixture::{at, desired, jwt, key, token};
    use rstest::rstest;
    use serde_json::{Value, json};
    use slurm_jwt::Claims;

    const SIGNING: &str = "signing";
    const TOKEN: &str = "token";

    fn secret(owner: Option<&str>, data: &Value) -> Secret {
        let owners: Vec<_> = owner.iter().map(|uid| json!({ "uid": uid, "controller": true })).collect();
        let mut secret: Secret =
            serde_json::from_value(json!({ "metadata": { "uid": "s", "ownerReferences": owners } })).unwrap();
        let bytes = |value: &Value| ByteString(value.as_str().unwrap().into());
        secret.data = data.as_object().map(|data| data.iter().map(|(k, v)| (k.clone(), bytes(v))).collect());
        secret
    }

    fn relation(secret: &Secret) -> Ownership {
        let signing: Secret = serde_json::from_value(json!({ "metadata": { "uid": SIGNING } })).unwrap();
        ownership(&token(), &desired(), secret, &key(b"k"), Some(&signing))
    }

    #[rstest]
    #[case::empty(json!({}), true)]
    #[case::no_data(Value::Null, true)]
    #[case::empty_value(json!({ "SLURM_JWT": "" }), true)]
    #[case::our_token(json!({ "SLURM_JWT": jwt() }), true)]
    #[case::other_value(json!({ "SLURM_JWT": "mine" }), false)]
    #[case::token_of_another_key(
        json!({ "SLURM_JWT": slurm_jwt::mint(&Claims::new("alice", at(0), desired().lifetime), &key(b"other")) }), false)]
    #[case::token_of_another_issuer(
        json!({ "SLURM_JWT": slurm_jwt::mint(&Claims { iss: None, ..Claims::new("alice", at(0), desired().lifetime) }, &key(b"k")) }),
        false)]
    #[case::other_key(json!({ "password": "mine" }), false)]
    #[case::other_key_beside_our_token(json!({ "SLURM_JWT": jwt(), "password": "mine" }), false)]
    fn secret_becomes_ours_only_if_it_holds_nothing_but_our_token(
        #[case] data: Value,
        #[case] is_adoptable: bool,
    ) {
        let expected = if is_adoptable { Ownership::Adoptable } else { Ownership::Refused };
        assert_eq!(relation(&secret(None, &data)), expected);
        assert_eq!(relation(&secret(Some(SIGNING), &data)), expected, "as the operator before us left it");
        assert_eq!(relation(&secret(Some("other"), &data)), Ownership::Refused);
        assert_eq!(relation(&secret(Some(TOKEN), &data)), Ownership::Ours);
        let typed = Secret { type_: Some("kubernetes.io/tls".to_owned()), ..secret(None, &data) };
        assert_eq!(relation(&typed), Ownership::Refused, "a Secret that another component fills");
    }
}
