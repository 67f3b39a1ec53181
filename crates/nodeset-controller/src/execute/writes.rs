//! Writes to single Kubernetes objects. Results of writes to pods are recorded here and nowhere else, so that none is
//! missed.

use super::grant::{ApiRequestError, Batch, RequestError};
use crate::NAME;
use crate::worker::PodRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

/// How many objects are written concurrently; pod creates have a limit of their own.
pub(super) const CONCURRENT_WRITES: usize = 16;

/// Awaits all futures, so many at a time. Nothing is spawned: dropping this future stops all writes.
pub(super) fn concurrently<'f, T: Send + 'f>(
    at_a_time: usize,
    futures: impl Iterator<Item = BoxFuture<'f, T>>,
) -> BoxFuture<'f, Vec<T>> {
    let futures: Vec<_> = futures.collect();
    stream::iter(futures).buffer_unordered(at_a_time).collect().boxed()
}

/// Parameters of creates.
pub(super) fn post_params() -> PostParams {
    PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() }
}

/// Parameters of patches.
pub(super) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() }
}

/// A metadata patch that the API server refuses for any other UID or resourceVersion.
pub(super) fn with_preconditions(uid: &str, version: &str, mut metadata: Value) -> Value {
    metadata["uid"] = json!(uid);
    metadata["resourceVersion"] = json!(version);
    json!({ "metadata": metadata })
}

/// A patch that may be repeated.
pub(super) struct PatchRequest {
    kind: Request,
    name: String,
    patch: Patch<Value>,
}

impl Batch<'_> {
    /// The namespace of the NodeSet.
    pub fn namespace(&self) -> String {
        self.nodeset.namespace().unwrap_or_default()
    }

    /// The API of a kind in that namespace.
    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace())
    }

    /// Patches an object; the patch contains its preconditions.
    pub async fn patch<K>(&self, name: &str, patch: Patch<Value>) -> Result<ObjectMeta, ApiRequestError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let kind = Request::new(K::url_path(&(), Some(&self.namespace())));
        let request = PatchRequest { kind, name: name.to_owned(), patch };
        let result = self.write(self.send_patch(&request)).await;
        if result.as_ref().is_err_and(|error| !error.is_final()) {
            self.unsettled.lock().push(request);
        }
        result
    }

    /// Repeats the patches whose effect is unknown: an unknown effect keeps the batch open.
    pub async fn settle_patches(&self) {
        let requests = std::mem::take(&mut *self.unsettled.lock());
        let copies = requests.iter().map(|request| {
            async move { self.settle(|| self.attempt(self.send_patch(request))).await }.boxed()
        });
        concurrently(CONCURRENT_WRITES, copies).await;
    }

    async fn send_patch(
        &self,
        PatchRequest { kind, name, patch }: &PatchRequest,
    ) -> kube::Result<ObjectMeta> {
        let request = kind.patch_metadata(name, &patch_params(), patch).map_err(kube::Error::BuildRequest)?;
        let changed: PartialObjectMeta = self.client.request(request).await?;
        Ok(changed.metadata)
    }

    /// Patches this version of a pod.
    pub async fn patch_pod(&self, pod: &PodRef, patch: Patch<Value>) -> Result<ObjectMeta, ApiRequestError> {
        let changed = self.patch::<Pod>(&pod.name, patch).await?;
        // The answer to a patch without effect has the version from before.
        if changed.resource_version.as_ref() != Some(&pod.version) {
            self.record(&changed);
        }
        Ok(changed)
    }

    /// Creates a pod from JSON.
    pub async fn create_pod(&self, pod: &Value) -> Result<ObjectMeta, ApiRequestError> {
        let request = Request::new(Pod::url_path(&(), Some(&self.namespace())));
        let request = request.create(&post_params(), pod.to_string().into_bytes());
        let request = request.map_err(|error| RequestError::Refused(kube::Error::BuildRequest(error)))?;
        let created: PartialObjectMeta = self.write(self.client.request(request)).await?;
        self.record(&created.metadata);
        Ok(created.metadata)
    }

    /// Deletes this version of a pod; succeeds if the pod does not exist.
    pub async fn delete_pod(&self, pod: &PodRef) -> kube::Result<()> {
        let (uid, resource_version) = (Some(pod.uid.clone()), Some(pod.version.clone()));
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions { uid, resource_version }),
            ..DeleteParams::default()
        };
        match self.api::<Pod>().delete(&pod.name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            result => drop(result?),
        }
        self.results().deleted(&pod.uid);
        Ok(())
    }

    fn record(&self, written: &ObjectMeta) {
        match (&written.uid, &written.resource_version) {
            (Some(uid), Some(version)) => self.results().written(uid, version),
            _ => self.results().mark_incomplete(),
        }
    }
}
