//! Writes to single objects of Kubernetes. What was done to pods is recorded here and nowhere else, so that no result can
//! be forgotten.

use super::grant::{ApiFault, Batch, Fault};
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
use std::sync::{MutexGuard, PoisonError};

/// How many objects are written side by side, creates of pods aside.
pub(super) const PARALLEL: usize = 16;

/// Does all of it, so many at a time. Nothing is spawned: what is dropped half-way sends no more.
pub(super) async fn side_by_side<T>(at_a_time: usize, futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(futures).buffer_unordered(at_a_time).collect().await
}

/// How objects are made.
pub(super) fn post_params() -> PostParams {
    PostParams { field_manager: Some(NAME.to_owned()), ..PostParams::default() }
}

/// How patches are sent.
pub(super) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() }
}

/// A patch of metadata that is void for any other object, and for any other version of it.
pub(super) fn exactly(uid: &str, version: &str, mut metadata: Value) -> Value {
    metadata["uid"] = json!(uid);
    metadata["resourceVersion"] = json!(version);
    json!({ "metadata": metadata })
}

/// A patch that may be sent more than once.
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

    /// Objects of a kind in that namespace.
    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.edges.client.clone(), &self.namespace())
    }

    /// Changes an object, under the preconditions in the patch.
    pub async fn patch<K>(&self, name: &str, patch: Patch<Value>) -> Result<ObjectMeta, ApiFault>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let kind = Request::new(K::url_path(&(), Some(&self.namespace())));
        let request = PatchRequest { kind, name: name.to_owned(), patch };
        let result = self.write(self.send_patch(&request)).await;
        if result.as_ref().is_err_and(|fault| !fault.is_final()) {
            self.unsettled().push(request);
        }
        result
    }

    /// Sends the patches again that were not answered: whether they were done decides how long others have to wait.
    pub async fn settle_patches(&self) {
        let requests = std::mem::take(&mut *self.unsettled());
        let copies = requests.iter().map(|request| {
            async move { self.settle(|| self.attempt(self.send_patch(request))).await }.boxed()
        });
        side_by_side(PARALLEL, copies.collect()).await;
    }

    async fn send_patch(
        &self,
        PatchRequest { kind, name, patch }: &PatchRequest,
    ) -> kube::Result<ObjectMeta> {
        let request = kind.patch_metadata(name, &patch_params(), patch).map_err(kube::Error::BuildRequest)?;
        let changed: PartialObjectMeta = self.edges.client.request(request).await?;
        Ok(changed.metadata)
    }

    /// Changes exactly this version of a pod.
    pub async fn patch_pod(&self, pod: &PodRef, patch: Patch<Value>) -> Result<ObjectMeta, ApiFault> {
        let changed = self.patch::<Pod>(&pod.name, patch).await?;
        // A patch that changed nothing is answered with the version that was there.
        if changed.resource_version.as_ref() != Some(&pod.version) {
            self.record(&changed);
        }
        Ok(changed)
    }

    /// Makes a pod of this JSON.
    pub async fn create_pod(&self, pod: &Value) -> Result<ObjectMeta, ApiFault> {
        let request = Request::new(Pod::url_path(&(), Some(&self.namespace())));
        let request = request.create(&post_params(), pod.to_string().into_bytes());
        let request = request.map_err(|error| Fault::Refused(kube::Error::BuildRequest(error)))?;
        let made: PartialObjectMeta = self.write(self.edges.client.request(request)).await?;
        self.record(&made.metadata);
        Ok(made.metadata)
    }

    /// Deletes exactly this version of a pod; done as well if it is gone.
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
            _ => self.results().lose_track(),
        }
    }

    fn unsettled(&self) -> MutexGuard<'_, Vec<PatchRequest>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
