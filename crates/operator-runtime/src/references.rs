//! Keys of Secrets and ConfigMaps that an object refers to in its own namespace. They are read by name when they are
//! needed, and kept nowhere.

use crate::apply::Object;
use crate::error::{Class, Classify};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use slinky_api::names::check_object_name;
use slinky_api::v1beta1::{ConfigMapKeySelector, SecretKeySelector};
use std::fmt;
use std::time::Duration;

/// How long to wait for what is missing; whoever watches for it notices at once.
const MISSING: Duration = Duration::from_mins(5);

/// Points at one key of an object.
pub trait KeySelector {
    /// What has the key.
    type Holder: Object;
    /// Its kind.
    const HOLDER: Holder;

    /// Name of the object, and the key in it.
    fn name_and_key(&self) -> (&str, &str);

    /// The value under the key.
    fn value_in(&self, holder: &Self::Holder) -> Option<ByteString>;
}

impl KeySelector for SecretKeySelector {
    type Holder = Secret;
    const HOLDER: Holder = Holder::Secret;

    fn name_and_key(&self) -> (&str, &str) {
        (&self.name, &self.key)
    }

    fn value_in(&self, secret: &Secret) -> Option<ByteString> {
        secret.data.as_ref()?.get(&self.key).cloned()
    }
}

impl KeySelector for ConfigMapKeySelector {
    type Holder = ConfigMap;
    const HOLDER: Holder = Holder::ConfigMap;

    fn name_and_key(&self) -> (&str, &str) {
        (&self.name, &self.key)
    }

    fn value_in(&self, map: &ConfigMap) -> Option<ByteString> {
        let text = map.data.as_ref().and_then(|data| data.get(&self.key));
        let bytes = || map.binary_data.as_ref().and_then(|data| data.get(&self.key)).cloned();
        text.map(|text| ByteString(text.clone().into_bytes())).or_else(bytes)
    }
}

/// What has keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        })
    }
}

/// Why a reference leads to nothing. No text holds a value.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// It is not made, or names nothing.
    #[error("{field} names no {holder}")]
    Unnamed {
        /// Where the reference is.
        field: &'static str,
        /// What it should name.
        holder: Holder,
    },
    /// It names what cannot exist.
    #[error("{field}: {name:?} cannot be the name of a {holder} ({problem})")]
    Misnamed {
        /// Where the reference is.
        field: &'static str,
        /// What it should name.
        holder: Holder,
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The object is not there.
    #[error("{holder} {name} does not exist")]
    Missing {
        /// Its kind.
        holder: Holder,
        /// Its name.
        name: String,
    },
    /// The object is there, without the key.
    #[error("{holder} {name} has no key {key:?}")]
    KeyMissing {
        /// Its kind.
        holder: Holder,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// The API server refused or did not answer.
    #[error("cannot read {holder} {name}")]
    Unread {
        /// Its kind.
        holder: Holder,
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
            Self::Missing { .. } | Self::KeyMissing { .. } => Class::Waiting(MISSING),
            Self::Unread { source, .. } => source.class(),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Unnamed { .. } | Self::Misnamed { .. } => "InvalidSpec",
            Self::Missing { holder: Holder::Secret, .. } => "SecretMissing",
            Self::Missing { holder: Holder::ConfigMap, .. } => "ConfigMapMissing",
            Self::KeyMissing { holder: Holder::Secret, .. } => "SecretKeyMissing",
            Self::KeyMissing { holder: Holder::ConfigMap, .. } => "ConfigMapKeyMissing",
            Self::Unread { source, .. } => source.category(),
        }
    }
}

/// What a reference leads to.
pub struct Referenced<K> {
    /// The object.
    pub holder: K,
    /// The value under the key.
    pub value: ByteString,
}

/// Reads what `field` refers to.
///
/// A name that no object can have is never sent: it would be part of a path, with our rights and not the user's.
pub async fn follow<S: KeySelector>(
    client: Client,
    namespace: &str,
    field: &'static str,
    selector: Option<&S>,
) -> Result<Referenced<S::Holder>, ReferenceError> {
    let holder = S::HOLDER;
    let named = selector.map(|selector| (selector, selector.name_and_key()));
    let Some((selector, (name, key))) = named.filter(|(_, (name, _))| !name.is_empty()) else {
        return Err(ReferenceError::Unnamed { field, holder });
    };
    let name = name.to_owned();
    if let Err(problem) = check_object_name(&name) {
        return Err(ReferenceError::Misnamed { field, holder, name, problem });
    }
    let objects: Api<S::Holder> = Api::namespaced(client, namespace);
    match objects.get_opt(&name).await {
        Ok(Some(object)) => match selector.value_in(&object) {
            Some(value) => Ok(Referenced { holder: object, value }),
            None => Err(ReferenceError::KeyMissing { holder, name, key: key.to_owned() }),
        },
        Ok(None) => Err(ReferenceError::Missing { holder, name }),
        Err(source) => Err(ReferenceError::Unread { holder, name, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A client whose server answers everything with this, and how often it was asked.
    fn server(code: u16, answer: &Value) -> (Client, Arc<AtomicUsize>) {
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
        let found =
            follow(client, "ns", "spec.keyRef", Some(&selector("s"))).await.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((found.value.0.as_slice(), found.holder.data.unwrap().len()), (b"v1".as_slice(), 2));
    }

    #[rstest]
    #[case::text(json!({ "data": { "k": "text" } }), Some("text"))]
    #[case::binary(json!({ "binaryData": { "k": "dGV4dA==" } }), Some("text"))]
    #[case::neither(json!({ "data": { "o": "text" } }), None)]
    fn a_config_map_has_two_kinds_of_keys(#[case] map: Value, #[case] expected: Option<&str>) {
        let selector = ConfigMapKeySelector { name: "m".to_owned(), key: "k".to_owned(), optional: None };
        let value = selector.value_in(&serde_json::from_value(map).unwrap());
        assert_eq!(value.map(|value| value.0), expected.map(Into::into));
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
        let error = follow(client, "ns", "spec.keyRef", Some(&selector("s"))).await.err().unwrap();
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
        let error = follow(client, "ns", "spec.keyRef", name.map(selector).as_ref()).await.err().unwrap();
        assert_eq!((error.category(), error.class()), ("InvalidSpec", Class::Invalid));
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}
