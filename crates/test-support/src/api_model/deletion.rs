//! Deletion: immediate, after finalizers, after a grace period, and by the garbage collector.

use super::refusal::Refusal;
use super::store::{Outcome, Store, Target, bump_generation, check_identity};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Grace period in seconds of a pod that sets none.
const DEFAULT_GRACE: i64 = 30;

/// Body of a delete request.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    preconditions: Preconditions,
}

impl DeleteOptions {
    /// Without a grace period.
    pub fn immediate() -> Self {
        Self { grace_period_seconds: Some(0), ..Self::default() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Store {
    /// Deletes an object or makes it terminating. Returns the object and whether it was removed.
    pub fn delete(&mut self, target: &Target, options: &DeleteOptions) -> Outcome<(Arc<Value>, bool)> {
        if options.propagation_policy.as_ref().is_some_and(|policy| policy != "Background") {
            return Err(Refusal::bad_request("only background deletion is modelled"));
        }
        let entry = self.entry(target)?;
        let (before, owners) = (entry.object.clone(), entry.owners.clone());
        let metadata = &before["metadata"];
        let Preconditions { uid, resource_version } = &options.preconditions;
        check_identity(target, &before, uid.as_deref(), resource_version.as_deref())?;
        let has_finalizers = !metadata["finalizers"].is_null();
        let grace = if target.is_pod() { grace(&before, options) } else { 0 };
        let pending = metadata["deletionGracePeriodSeconds"].as_i64();
        if pending.is_some_and(|pending| pending <= grace) && (target.is_pod() || has_finalizers) {
            return Ok((before, false));
        }
        // A pod without a grace period is terminating for one version before it is removed.
        if target.is_pod() || has_finalizers {
            let mut after = Value::clone(&before);
            if pending.is_none() && !metadata["generation"].is_null() {
                bump_generation(&mut after);
            }
            let end = self.now() + SignedDuration::from_secs(grace);
            after["metadata"]["deletionTimestamp"] = json!(Time(end));
            after["metadata"]["deletionGracePeriodSeconds"] = grace.into();
            let after = self.save(target, after, owners);
            if has_finalizers || grace > 0 {
                return Ok((after, false));
            }
        }
        Ok((self.remove(target).unwrap_or(before), true))
    }

    /// Deletes objects whose owners are all deleted, and then their dependents.
    pub fn collect_garbage(&mut self) {
        loop {
            let orphans = self.orphans();
            if orphans.is_empty() {
                return;
            }
            for orphan in orphans {
                // Cannot fail: the object exists and there are no preconditions.
                let _ = self.delete(&orphan, &DeleteOptions::default());
            }
        }
    }

    fn orphans(&self) -> Vec<Target> {
        let uids: BTreeSet<&str> =
            self.all().filter_map(|(_, object)| object["metadata"]["uid"].as_str()).collect();
        let is_deleted = |owner: &Value| owner["uid"].as_str().is_none_or(|uid| !uids.contains(uid));
        let is_orphan = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            object["metadata"]["deletionTimestamp"].is_null()
                && owners.is_some_and(|owners| owners.iter().all(is_deleted))
        };
        self.all().filter(|(_, object)| is_orphan(object)).map(|(target, _)| target).collect()
    }
}

/// Seconds until the pod is removed.
fn grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let is_finished = ["Failed", "Succeeded"].iter().any(|phase| pod["status"]["phase"] == **phase);
    let is_scheduled = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let pending = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    match (options.grace_period_seconds, pending) {
        (None, Some(pending)) => pending,
        (Some(requested), Some(_)) => requested,
        _ if is_finished || !is_scheduled => 0,
        (Some(requested), None) => requested,
        (None, None) => pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(DEFAULT_GRACE),
    }
}
