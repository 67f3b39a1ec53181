//! A pod template: the operator's pod, merged with the user's overrides.

use crate::container::extend_list;
use crate::merge::{merge, without_empty};
use crate::schema::POD;
use crate::typed::{self, TypeMismatch, read};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};
use slinky_api::Raw;

/// The path of the required terms of pod anti-affinity in a pod's spec.
pub const REQUIRED_ANTI_AFFINITY: &[&str] =
    &["affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
/// The path of the tolerations in a pod's spec.
pub const TOLERATIONS: &[&str] = &["tolerations"];
/// The path of the DNS search domains in a pod's spec.
pub const DNS_SEARCHES: &[&str] = &["dnsConfig", "searches"];

/// The operator's containers of a pod, as built by [`build_container`](crate::build_container).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Containers {
    /// Init containers; those with the restart policy `Always` are sidecars.
    pub init: Vec<Value>,
    /// Main containers.
    pub main: Vec<Value>,
}

/// A pod template.
///
/// Its spec is JSON, because the user's part may contain fields that this build does not know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Template {
    /// Metadata of the pods.
    pub metadata: ObjectMeta,
    /// Spec of the pods.
    pub spec: Value,
}

impl Template {
    /// Merges the pod spec that the user wrote in `field` over `base` and the operator's containers.
    ///
    /// The user's containers are appended to the operator's; they do not merge by name.
    pub fn build(
        metadata: ObjectMeta,
        base: &PodSpec,
        containers: Containers,
        field: &str,
        user: &Raw<PodSpec>,
    ) -> Result<Self, TypeMismatch> {
        let mut patch = without_empty(user.as_value()).unwrap_or_else(|| json!({}));
        let _: PodSpec = read(field, &patch)?;
        let mut spec = typed::json(base);
        for (key, mut all) in [("initContainers", containers.init), ("containers", containers.main)] {
            if let Some(Value::Array(theirs)) = patch.as_object_mut().and_then(|patch| patch.remove(key)) {
                all.extend(theirs);
            }
            if !all.is_empty() {
                spec[key] = all.into();
            }
        }
        Ok(Self { metadata, spec: merge(spec, &patch, &POD) })
    }

    /// Appends `item` to a list, unless the list contains it: for items that the operator needs even if the user sets
    /// the list.
    pub fn require(&mut self, path: &[&str], item: &impl Serialize) {
        let item = typed::json(item);
        let pointer: String = path.iter().flat_map(|field| ["/", field]).collect();
        let is_listed =
            self.spec.pointer(&pointer).and_then(Value::as_array).is_some_and(|list| list.contains(&item));
        if !is_listed {
            extend_list(&mut self.spec, path, [item]);
        }
    }

    /// The typed spec, without fields that this build does not know.
    pub fn pod_spec(&self) -> Result<PodSpec, TypeMismatch> {
        read("spec", &self.spec)
    }

    /// The template as JSON.
    pub fn to_value(&self) -> Value {
        typed::json(self)
    }
}
