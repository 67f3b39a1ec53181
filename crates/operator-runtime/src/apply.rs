//! Writes objects by server-side apply, and sends nothing if nothing changed.
//!
//! Whether an apply is needed is decided from the live object alone ([`decide`]): it is not if the object has every
//! desired value and `managedFields` shows that our manager owns exactly these fields. So fields that are no longer
//! desired are removed, fields of other managers stay, defaults set by the API server cause no write, and neither does
//! a restart. Caches used here keep `managedFields`; without them each object is applied once per process, without
//! effect. [`history`] prevents repeated applies where the API server normalises a value.
//!
//! Objects that another object controls, objects without a controller that do not have the labels of the desired one,
//! terminating objects and immutable objects are never written. Every write may be repeated, or sent by two processes
//! at once.

mod decide;
mod fields;
mod history;
mod outcome;

pub use outcome::{Applied, Created, Deleted, Error, StatusWrite};

use crate::metrics::METRICS;
use crate::retry::{DEFAULT_RETRY, retry_on_conflict};
use decide::{Decision, Part};
use history::{ApplyHistory, LastApply};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slinky_api::ownership::{controller_of, is_controlled_by};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{debug, info};

/// A kind that can be written: namespaced and known at compile time.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

/// Part of the API server's message when it rejects the apply of a list with two items of the same key.
const DUPLICATE_ITEM: &str = "duplicate entries for key";

/// Writes objects under one field manager.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    manager: Arc<str>,
    history: Arc<ApplyHistory>,
}

impl Applier {
    /// An applier that uses this client and this field manager.
    pub fn new(client: Client, manager: &str) -> Self {
        Self { client, manager: manager.into(), history: Arc::default() }
    }

    /// Applies `desired`, if it differs from the live object. Fields that `desired` omits are not managed.
    ///
    /// `live` is the cached object; with `None` the object is read. A stale cache costs one read.
    pub async fn apply<K: Object>(&self, desired: &K, live: Option<&K>) -> Result<Applied<K>, Error> {
        let applied = async {
            let mut outcome = self.try_apply(desired, live).await;
            for _ in 1..DEFAULT_RETRY.steps {
                if !outcome.as_ref().is_err_and(Error::is_conflict) {
                    break;
                }
                outcome = self.try_apply(desired, None).await;
            }
            outcome
        };
        // Boxed: objects are large, and the futures of all callers would be too.
        Box::pin(applied).await
    }

    async fn try_apply<K: Object>(&self, desired: &K, live: Option<&K>) -> Result<Applied<K>, Error> {
        let api = self.api(desired);
        let name = desired.name_any();
        let read = match live {
            Some(_) => None,
            None => api.get_opt(&name).await.map_err(failed("read", desired))?,
        };
        let mut body = to_json(desired)?;
        let Some(live) = live.or(read.as_ref()) else {
            // If the object is created concurrently, the API server rejects the second controller reference.
            let object = self.write(&api, desired, &body, None).await.map_err(failed("create", desired))?;
            self.record(Part::Main, &body, None, &to_json(&object)?);
            return Ok(counted("created", Applied::Created(object), desired));
        };
        let live_json = to_json(live)?;
        match decide::decide(&body, &live_json, &self.manager) {
            Decision::Foreign(owner) => return Err(foreign(desired, Some(owner))),
            Decision::Unmarked(mark) => return Err(name_conflict(desired, mark)),
            Decision::Terminating => return Ok(Applied::Terminating),
            Decision::Immutable => return Ok(Applied::Immutable),
            Decision::Apply if !self.already_applied(&body, live, &live_json, Part::Main) => {}
            Decision::Apply | Decision::Keep => return Ok(counted("unchanged", Applied::Unchanged, desired)),
        }
        if !self.may_own(desired, live).await.map_err(failed("read the owner of", desired))? {
            return Ok(Applied::Terminating);
        }
        let taken_over = self.take_over(&api, &body, live, &live_json).await;
        let version = taken_over.map_err(failed("take over", desired))?;
        // The decision holds for this version alone: a later one may have lost its owner, and with it restored, the
        // garbage collector would delete the object. The UID keeps the API server from creating a deleted object again.
        body["metadata"]["uid"] = live.uid().into();
        body["metadata"]["resourceVersion"] = version.into();
        let object = self.write(&api, desired, &body, Some(live)).await.map_err(failed("apply", desired))?;
        self.record(Part::Main, &body, live.resource_version(), &to_json(&object)?);
        Ok(counted("applied", Applied::Changed(object), desired))
    }

    /// Writes the status that was computed from `object`, if it differs.
    ///
    /// The write carries the resourceVersion. On conflict the object is read again, and the status is written if the
    /// spec is still the one that it was computed from.
    pub async fn apply_status<K: Object, S: Serialize>(
        &self,
        object: &K,
        status: &S,
    ) -> Result<StatusWrite, Error> {
        self.apply_status_if(object, status, |_| true).await
    }

    /// As [`Self::apply_status`], for a status that was computed from the status before: on conflict it is written only if
    /// that one is still there, and not over what another process wrote.
    pub async fn apply_next_status<K: Object, S: Serialize>(
        &self,
        object: &K,
        status: &S,
    ) -> Result<StatusWrite, Error> {
        let status_of =
            |object: &K| to_json(object).ok().and_then(|mut json| json.get_mut("status").map(Value::take));
        self.apply_status_if(object, status, |latest| status_of(latest) == status_of(object)).await
    }

    /// Writes a status; after a conflict, only if `is_current` holds for the latest version.
    async fn apply_status_if<K: Object, S: Serialize>(
        &self,
        object: &K,
        status: &S,
        is_current: impl Fn(&K) -> bool,
    ) -> Result<StatusWrite, Error> {
        let serialise = |source| Error::Serialise { object: describe(object), source };
        let mut body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "status": serde_json::to_value(status).map_err(serialise)?,
        });
        fields::drop_nulls(&mut body);
        let (api, body, is_first) = (&self.api(object), &body, &AtomicBool::new(true));
        let is_current = &is_current;
        let write = retry_on_conflict(DEFAULT_RETRY, || async move {
            if is_first.swap(false, Ordering::Relaxed) {
                return self.try_status(api, object, body.clone()).await;
            }
            let latest = api.get(&object.name_any()).await?;
            let is_outdated = latest.uid() != object.uid()
                || latest.meta().generation != object.meta().generation
                || !is_current(&latest);
            if is_outdated {
                Ok(StatusWrite::Outdated)
            } else {
                self.try_status(api, &latest, body.clone()).await
            }
        });
        Ok(Box::pin(write)
            .await
            .map_err(failed("write the status of", object))?
            .unwrap_or(StatusWrite::Outdated))
    }

    async fn try_status<K: Object>(
        &self,
        api: &Api<K>,
        live: &K,
        mut body: Value,
    ) -> Result<StatusWrite, kube::Error> {
        let live_json = serde_json::to_value(live).map_err(kube::Error::SerdeError)?;
        if !decide::needs_apply(&body, &live_json, &self.manager, Part::Status)
            || self.already_applied(&body, live, &live_json, Part::Status)
        {
            return Ok(counted("unchanged", StatusWrite::Unchanged, live));
        }
        body["metadata"] = json!({ "uid": live.uid(), "resourceVersion": live.resource_version() });
        let params = PatchParams::apply(&self.manager).force();
        let object = api.patch_status(&live.name_any(), &params, &Patch::Apply(&body)).await?;
        let object_json = serde_json::to_value(&object).map_err(kube::Error::SerdeError)?;
        self.record(Part::Status, &body, live.resource_version(), &object_json);
        Ok(counted("status", StatusWrite::Written, live))
    }

    /// Creates an object that is never updated. An existing object that an apply would write is accepted as it is.
    pub async fn create<K: Object>(&self, desired: &K) -> Result<Created<K>, Error> {
        let api = self.api(desired);
        let params = PostParams { field_manager: Some(self.manager.to_string()), ..PostParams::default() };
        match api.create(&params, desired).await {
            Ok(object) => return Ok(counted("created", Created::New(object), desired)),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(failed("create", desired)(error)),
        }
        let existing = api.get(&desired.name_any()).await.map_err(failed("read", desired))?;
        match decide::decide(&to_json(desired)?, &to_json(&existing)?, &self.manager) {
            Decision::Foreign(owner) => Err(foreign(desired, Some(owner))),
            Decision::Unmarked(mark) => Err(name_conflict(desired, mark)),
            Decision::Terminating => Ok(Created::Terminating),
            Decision::Keep | Decision::Apply | Decision::Immutable => Ok(Created::Existing(existing)),
        }
    }

    /// Deletes exactly this version of an object. It is an error if `owner` does not control it.
    pub async fn delete_if_owned<K: Object, O: Resource>(
        &self,
        live: &K,
        owner: &O,
    ) -> Result<Deleted, Error> {
        if !is_controlled_by(live.meta(), owner) {
            return Err(foreign(live, controller_of(live.meta()).cloned().map(Box::new)));
        }
        if live.meta().deletion_timestamp.is_some() {
            return Ok(Deleted::Requested);
        }
        let preconditions = Preconditions { uid: live.uid(), resource_version: live.resource_version() };
        let params = DeleteParams::background().preconditions(preconditions);
        match self.api(live).delete(&live.name_any(), &params).await {
            Ok(_) => Ok(counted("deleted", Deleted::Requested, live)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Deleted::Gone),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Deleted::Changed),
            Err(error) => Err(failed("delete", live)(error)),
        }
    }

    fn api<K: Object>(&self, object: &K) -> Api<K> {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }

    /// Applies, and falls back to create or merge patch for lists with two items of the same key: pods may have them,
    /// but the API server does not apply them.
    async fn write<K: Object>(
        &self,
        api: &Api<K>,
        desired: &K,
        body: &Value,
        live: Option<&K>,
    ) -> Result<K, kube::Error> {
        let name = desired.name_any();
        debug!(kind = %K::kind(&()), name, "Applying object");
        match api.patch(&name, &PatchParams::apply(&self.manager).force(), &Patch::Apply(body)).await {
            Err(kube::Error::Api(status)) if status.message.contains(DUPLICATE_ITEM) => {}
            outcome => return outcome,
        }
        let field_manager = Some(self.manager.to_string());
        if live.is_none() {
            return api.create(&PostParams { field_manager, ..PostParams::default() }, desired).await;
        }
        let parameters = PatchParams { field_manager, ..PatchParams::default() };
        api.patch(&name, &parameters, &Patch::Merge(body)).await
    }

    /// Whether `live` is controlled by the controller of `desired`, or that one exists and is not being deleted. The caller's
    /// cache may not have the deletion yet of which `live` was left without an owner: with its reference restored, the
    /// garbage collector would delete it after all.
    async fn may_own<K: Object>(&self, desired: &K, live: &K) -> Result<bool, kube::Error> {
        let Some(owner) = controller_of(desired.meta()) else { return Ok(true) };
        if live.owner_references().iter().any(|reference| reference.uid == owner.uid) {
            return Ok(true);
        }
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &owner.kind));
        let namespace = desired.namespace().unwrap_or_default();
        let owners: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &kind);
        let found = owners.get_metadata_opt(&owner.name).await?;
        Ok(found.is_some_and(|found| {
            found.metadata.uid.as_ref() == Some(&owner.uid) && found.metadata.deletion_timestamp.is_none()
        }))
    }

    /// Moves the predecessor's fields to our manager, if it owns any, and returns the resourceVersion after that.
    async fn take_over<K: Object>(
        &self,
        api: &Api<K>,
        desired: &Value,
        live: &K,
        live_json: &Value,
    ) -> Result<Option<String>, kube::Error> {
        let Some(entries) = decide::take_over(desired, live_json, &self.manager) else {
            return Ok(live.resource_version());
        };
        let name = live.name_any();
        info!(kind = %K::kind(&()), name, "Taking over fields of another field manager");
        let body = json!({
            "metadata": { "resourceVersion": live.resource_version(), "managedFields": entries },
        });
        let taken_over = api.patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        counted("taken_over", Ok(taken_over.resource_version()), live)
    }

    fn already_applied<K: Object>(&self, desired: &Value, live: &K, live_json: &Value, part: Part) -> bool {
        self.history.already_applied(
            &live.uid().unwrap_or_default(),
            part,
            decide::fingerprint(desired, &self.manager, part),
            decide::fingerprint(live_json, &self.manager, part),
            live.meta().resource_version.as_ref(),
        )
    }

    fn record(&self, part: Part, desired: &Value, before: Option<String>, after: &Value) {
        let uid = after["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let last = LastApply {
            before,
            desired: decide::fingerprint(desired, &self.manager, part),
            after: decide::fingerprint(after, &self.manager, part),
        };
        self.history.record(uid, part, last);
    }
}

fn to_json<K: Object>(object: &K) -> Result<Value, Error> {
    let failed = |source| Error::Serialise { object: describe(object), source };
    let mut json = serde_json::to_value(object).map_err(failed)?;
    fields::drop_nulls(&mut json);
    Ok(json)
}

fn describe<K: Object>(object: &K) -> String {
    format!("{} {}/{}", K::kind(&()), object.namespace().unwrap_or_default(), object.name_any())
}

fn failed<K: Object>(verb: &'static str, object: &K) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Api { verb, object: describe(object), source }
}

fn foreign<K: Object>(object: &K, owner: Option<Box<OwnerReference>>) -> Error {
    Error::Foreign { object: describe(object), owner }
}

fn name_conflict<K: Object>(object: &K, mark: String) -> Error {
    Error::NameConflict { object: describe(object), mark }
}

/// Counts a write and returns its outcome.
fn counted<K: Object, T>(verb: &'static str, outcome: T, _: &K) -> T {
    METRICS.count_write(&K::kind(&()), verb);
    outcome
}
