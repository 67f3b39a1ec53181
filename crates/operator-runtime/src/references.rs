//! Keys of Secrets and ConfigMaps that an object references in its own namespace. They are read by name on demand and
//! are not cached.

use crate::apply::Object;
use crate::error::{Class, Classify};
use crate::missing_reference::{MissingReference, config_map_value, secret_value};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, Resource};
use slinky_api::names::check_object_name;
use slinky_api::v1beta1::{ConfigMapKeySelector, SecretKeySelector};
use std::sync::Arc;

/// A reference to one key of an object.
pub trait KeySelector {
    /// The kind of the object: Secret or ConfigMap.
    type Holder: Object;

    /// Name of the object.
    fn name(&self) -> &str;

    /// The error if the object does not exist.
    fn missing(&self) -> MissingReference;

    /// The value of the key.
    fn value_in<'a>(&self, holder: &'a Self::Holder) -> Result<&'a [u8], MissingReference>;
}

impl KeySelector for SecretKeySelector {
    type Holder = Secret;

    fn name(&self) -> &str {
        &self.name
    }

    fn missing(&self) -> MissingReference {
        MissingReference::Secret(self.name.clone())
    }

    fn value_in<'a>(&self, secret: &'a Secret) -> Result<&'a [u8], MissingReference> {
        secret_value(Some(secret), &self.name, &self.key)
    }
}

impl KeySelector for ConfigMapKeySelector {
    type Holder = ConfigMap;

    fn name(&self) -> &str {
        &self.name
    }

    fn missing(&self) -> MissingReference {
        MissingReference::ConfigMap(self.name.clone())
    }

    fn value_in<'a>(&self, map: &'a ConfigMap) -> Result<&'a [u8], MissingReference> {
        config_map_value(Some(map), &self.name, &self.key)
    }
}

/// Why a reference cannot be resolved. No message contains a value.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The reference is absent, or its name is empty.
    #[error("{field} names no {kind}")]
    Unnamed {
        /// The field of the reference.
        field: &'static str,
        /// The kind of the referenced object.
        kind: String,
    },
    /// The name is not a valid object name.
    #[error("{field}: {name:?} cannot be the name of a {kind} ({problem})")]
    Misnamed {
        /// The field of the reference.
        field: &'static str,
        /// The kind of the referenced object.
        kind: String,
        /// The name.
        name: String,
        /// The rule that it violates.
        problem: &'static str,
    },
    /// The object or key does not exist.
    #[error(transparent)]
    Missing(#[from] MissingReference),
    /// The API server rejected the request or did not answer.
    #[error("cannot read {kind} {name}")]
    Unread {
        /// The kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// The error of the client.
        #[source]
        source: kube::Error,
    },
}

impl Classify for ReferenceError {
    fn class(&self) -> Class {
        match self {
            Self::Unnamed { .. } | Self::Misnamed { .. } => Class::Invalid,
            Self::Missing(missing) => missing.class(),
            Self::Unread { source, .. } => source.class(),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Unnamed { .. } | Self::Misnamed { .. } => "InvalidSpec",
            Self::Missing(missing) => missing.category(),
            Self::Unread { source, .. } => source.category(),
        }
    }
}

/// A resolved reference.
pub struct ResolvedKey<K> {
    /// The object.
    pub holder: K,
    /// The value of the key.
    pub value: ByteString,
}

/// Reads the key that `field` references.
///
/// An invalid name is never sent: as part of the URL path it could reach other objects with our permissions instead of
/// the user's.
pub async fn resolve_key<S: KeySelector>(
    client: Client,
    namespace: &str,
    field: &'static str,
    selector: Option<&S>,
) -> Result<ResolvedKey<S::Holder>, ReferenceError> {
    let kind = S::Holder::kind(&()).into_owned();
    let Some(selector) = selector.filter(|selector| !selector.name().is_empty()) else {
        return Err(ReferenceError::Unnamed { field, kind });
    };
    let name = selector.name().to_owned();
    if let Err(problem) = check_object_name(&name) {
        return Err(ReferenceError::Misnamed { field, kind, name, problem });
    }
    let holder = get_object(client, namespace, &name).await?.ok_or_else(|| selector.missing())?;
    let value = ByteString(selector.value_in(&holder)?.to_vec());
    Ok(ResolvedKey { holder, value })
}

/// Reads a Secret; `None` if it does not exist.
pub async fn get_secret(
    client: Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Secret>, Arc<ReferenceError>> {
    get_object(client, namespace, name).await.map_err(Arc::new)
}

async fn get_object<K: Object>(
    client: Client,
    namespace: &str,
    name: &str,
) -> Result<Option<K>, ReferenceError> {
    let found = Api::<K>::namespaced(client, namespace).get_opt(name).await;
    found.map_err(|source| {
        let kind = K::kind(&()).into_owned();
        ReferenceError::Unread { kind, name: name.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server;
    use rstest::rstest;
    use serde_json::{Value, json};
    use std::sync::atomic::Ordering;

    fn failure(code: u16, reason: &str) -> Value {
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no" })
    }

    fn selector(name: &str) -> SecretKeySelector {
        SecretKeySelector { name: name.to_owned(), key: "k".to_owned(), optional: None }
    }

    #[tokio::test]
    async fn resolved_key_has_its_value_and_object() {
        let (client, _) =
            server(200, &json!({ "metadata": { "uid": "u" }, "data": { "k": "djE=", "o": "" } }));
        let found = resolve_key(client, "ns", "spec.keyRef", Some(&selector("s")))
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((found.value.0.as_slice(), found.holder.data.unwrap().len()), (b"v1".as_slice(), 2));
    }

    #[rstest]
    #[case::object(404, failure(404, "NotFound"), "SecretMissing", "Secret s does not exist")]
    #[case::key(200, json!({ "data": { "o": "" } }), "SecretKeyMissing", "Secret s has no key \"k\"")]
    #[case::no_data(200, json!({}), "SecretKeyMissing", "Secret s has no key \"k\"")]
    #[case::forbidden(403, failure(403, "Forbidden"), "Forbidden", "cannot read Secret s")]
    #[tokio::test]
    async fn error_names_the_missing_object_or_key(
        #[case] code: u16,
        #[case] answer: Value,
        #[case] category: &str,
        #[case] text: &str,
    ) {
        let (client, _) = server(code, &answer);
        let error = resolve_key(client, "ns", "spec.keyRef", Some(&selector("s"))).await.err().unwrap();
        assert_eq!((error.category(), error.to_string().as_str()), (category, text));
    }

    #[rstest]
    #[case::absent(None, "spec.keyRef names no Secret")]
    #[case::empty(Some(""), "spec.keyRef names no Secret")]
    #[case::path(Some("../../other/secrets/s"), "cannot be the name of a Secret")]
    #[case::query(Some("s?watch=1"), "cannot be the name of a Secret")]
    #[tokio::test]
    async fn request_with_an_invalid_name_is_not_sent(#[case] name: Option<&str>, #[case] text: &str) {
        let (client, requests) = server(200, &json!({ "data": { "k": "" } }));
        let error =
            resolve_key(client, "ns", "spec.keyRef", name.map(selector).as_ref()).await.err().unwrap();
        assert_eq!((error.category(), error.class()), ("InvalidSpec", Class::Invalid));
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(requests.load(Ordering::Relaxed), 0);
    }
}
