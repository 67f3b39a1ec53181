//! The rules of each kind. Pure: what they need to know of other objects is read before.

mod accounting;
mod controller;
mod loginset;
mod nodeset;
mod restapi;
mod token;

use crate::verdict::Verdict;
use kube::core::object::HasSpec;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use slinky_api::TypeMismatch;
use slinky_api::v1beta1::{PodTemplate, SecretKeySelector, ServiceTemplate};

/// A kind that the webhook validates.
pub trait Validated:
    Resource<DynamicType = ()> + HasSpec<Spec: PartialEq> + DeserializeOwned + Send + Sync + 'static
{
    /// What the rules need to know of other objects.
    type References: Default + Send + Sync;

    /// Reads other objects.
    fn read_references(
        &self,
        _client: &Client,
        _namespace: &str,
    ) -> impl Future<Output = Self::References> + Send {
        std::future::ready(Self::References::default())
    }

    /// The parts of the spec that do not have the type that they should have.
    fn type_mismatches(&self) -> Vec<String>;

    /// Rules for creates and updates.
    fn check(&self, references: &Self::References, verdict: &mut Verdict);

    /// Rules for creates alone.
    fn check_new(&self, _verdict: &mut Verdict) {}

    /// Fields that cannot change.
    fn check_change(&self, _old: &Self, _verdict: &mut Verdict) {}
}

/// The mismatches of several fields.
fn mismatches<const N: usize>(fields: [(&str, Result<(), TypeMismatch>); N]) -> Vec<String> {
    let failed = fields.into_iter().filter_map(|(field, read)| Some((field, read.err()?)));
    failed.map(|(field, error)| format!("spec.{field}: {error}")).collect()
}

/// Whether a pod template can be read.
fn read_template(template: Option<&PodTemplate>) -> Result<(), TypeMismatch> {
    template.map_or(Ok(()), |template| template.spec.read().map(drop))
}

/// Whether the template of a Service can be read.
fn read_service(service: Option<&ServiceTemplate>) -> Result<(), TypeMismatch> {
    service.map_or(Ok(()), |service| service.spec.read().map(drop))
}

/// External addresses let a Service take traffic that is meant for others. The operator leaves them out.
fn warn_of_external_ips(service: Option<&ServiceTemplate>, of: &str, verdict: &mut Verdict) {
    let addresses = service.and_then(|service| service.spec.as_value().get("externalIPs"));
    if addresses.is_some_and(|addresses| !addresses.is_null()) {
        verdict.warn(format!(
            "spec.service.spec.externalIPs: the {of} Service gets no external IPs; they are ignored"
        ));
    }
}

/// The key that signs tokens is fixed: tokens of another one would be refused.
fn check_signing_key(
    old: Option<&SecretKeySelector>,
    new: Option<&SecretKeySelector>,
    verdict: &mut Verdict,
) {
    let is_same = old.cloned().unwrap_or_default() == new.cloned().unwrap_or_default();
    if !is_same {
        verdict.refuse("cannot change jwtKeyRef (formerly jwtHs256KeyRef) after deployment");
    }
}

#[cfg(test)]
mod testing {
    use super::Validated;
    use crate::validation::verdict;
    use serde_json::{Value, json};

    /// An object of a kind with this spec.
    pub fn object<K: Validated>(spec: &Value) -> K {
        serde_json::from_value(json!({ "metadata": { "name": "x", "namespace": "ns" }, "spec": spec }))
            .unwrap()
    }

    /// The minimal spec with the fields of a change.
    pub fn changed(minimal: &Value, change: &Value) -> Value {
        let mut spec = minimal.clone();
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
        spec
    }

    /// Refusal and warnings of a create.
    pub fn create<K: Validated>(spec: &Value) -> (Option<String>, Vec<String>) {
        let verdict = verdict(&object::<K>(spec), None, &K::References::default());
        (verdict.refusal(), verdict.into_warnings())
    }

    /// The refusal of an update.
    pub fn update<K: Validated>(old: &Value, new: &Value) -> Option<String> {
        verdict(&object::<K>(new), Some(&object::<K>(old)), &K::References::default()).refusal()
    }

    /// Fails unless the refusal contains the text, or if `None` there is none.
    pub fn assert_refusal(refusal: Option<&str>, expected: Option<&str>) {
        match expected {
            None => assert_eq!(refusal, None),
            Some(text) => assert!(refusal.is_some_and(|refusal| refusal.contains(text)), "{refusal:?}"),
        }
    }
}
