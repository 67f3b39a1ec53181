//! Keys of Secrets and ConfigMaps that an object refers to in its own namespace. They are read by name when they are
//! needed, and kept nowhere.

use crate::apply::Object;
use crate::error::{Class, Classify};
use crate::missing_reference::{MissingReference, config_map_value, secret_value};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, Resource};
use slinky_api::names::check_object_name;
use slinky_api::v1beta1::{ConfigMapKeySelector, SecretKeySelector};

/// Points at one key of an object.
pub trait KeySelector {
    /// What has the key.
    type Holder: Object;

    /// Name of the object.
    fn name(&self) -> &str;

    /// That the object is not there.
    fn missing(&self) -> MissingReference;

    /// The value under the key.
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

/// Why a reference leads to nothing. No text holds a value.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// It is not made, or names nothing.
    #[error("{field} names no {kind}")]
    Unnamed {
        /// Where the reference is.
        field: &'static str,
        /// What it should name.
        kind: String,
    },
    /// It names what cannot exist.
    #[error("{field}: {name:?} cannot be the name of a {kind} ({problem})")]
    Misnamed {
        /// Where the reference is.
        field: &'static str,
        /// What it should name.
        kind: String,
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// What it names is not there.
    #[error(transparent)]
    Missing(#[from] MissingReference),
    /// The API server refused or did not answer.
    #[error("cannot read {kind} {name}")]
    Unread {
        /// What was to be read.
        kind: String,
        /// Its name.
        name: String,
        /// What the server said.
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

/// What a reference leads to.
pub struct ResolvedKey<K> {
    /// The object.
    pub holder: K,
    /// The value under the key.
    pub value: ByteString,
}

/// Reads what `field` refers to.
///
/// A name that no object can have is never sent: it would be part of a path, with our rights and not the user's.
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
    let objects: Api<S::Holder> = Api::namespaced(client, namespace);
    let found = objects.get_opt(&name).await;
    let found = found.map_err(|source| ReferenceError::Unread { kind, name, source })?;
    let holder = found.ok_or_else(|| selector.missing())?;
    let value = ByteString(selector.value_in(&holder)?.to_vec());
    Ok(ResolvedKey { holder, value })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A client whose server answers everything with this, and how often it was asked.
    pub(crate) fn server(code: u16, answer: &Value) -> (Client, Arc<AtomicUsize>) {
        let (asked, body) = (Arc::new(AtomicUsize::new(0)), answer.to_string());
        let count = asked.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let response = Response::builder().status(code).body(Body::from(body.clone().into_bytes()));
            async move { response }
        });
        (Client::new(service, "default"), asked)
    }

    fn refusal(code: u16, reason: &str) -> Value {
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no" })
    }

    fn selector(name: &str) -> SecretKeySelector {
        SecretKeySelector { name: name.to_owned(), key: "k".to_owned(), optional: None }
    }

    #[tokio::test]
    async fn a_key_is_read_with_the_object_that_has_it() {
        let (client, _) =
            server(200, &json!({ "metadata": { "uid": "u" }, "data": { "k": "djE=", "o": "" } }));
        let found = resolve_key(client, "ns", "spec.keyRef", Some(&selector("s")))
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((found.value.0.as_slice(), found.holder.data.unwrap().len()), (b"v1".as_slice(), 2));
    }

    #[rstest]
    #[case::object(404, refusal(404, "NotFound"), "SecretMissing", "Secret s does not exist")]
    #[case::key(200, json!({ "data": { "o": "" } }), "SecretKeyMissing", "Secret s has no key \"k\"")]
    #[case::no_data(200, json!({}), "SecretKeyMissing", "Secret s has no key \"k\"")]
    #[case::forbidden(403, refusal(403, "Forbidden"), "Forbidden", "cannot read Secret s")]
    #[tokio::test]
    async fn what_is_missing_is_named(
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
    #[case::not_made(None, "spec.keyRef names no Secret")]
    #[case::empty(Some(""), "spec.keyRef names no Secret")]
    #[case::path(Some("../../other/secrets/s"), "cannot be the name of a Secret")]
    #[case::query(Some("s?watch=1"), "cannot be the name of a Secret")]
    #[tokio::test]
    async fn a_name_that_is_none_is_never_sent(#[case] name: Option<&str>, #[case] text: &str) {
        let (client, asked) = server(200, &json!({ "data": { "k": "" } }));
        let error =
            resolve_key(client, "ns", "spec.keyRef", name.map(selector).as_ref()).await.err().unwrap();
        assert_eq!((error.category(), error.class()), ("InvalidSpec", Class::Invalid));
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}
