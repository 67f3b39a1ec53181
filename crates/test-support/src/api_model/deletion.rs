//! How objects go: at once, after their finalizers, after a grace period, with their owners.

use super::refusal::Refusal;
use super::store::{Outcome, Store, Target, bump_generation, check_identity};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a pod may take to end unless it says so itself.
const DEFAULT_GRACE: i64 = 30;

/// Under which circumstances, and how, an object is to be deleted.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    preconditions: Preconditions,
}

impl DeleteOptions {
    /// Without any grace.
    pub fn at_once() -> Self {
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
    /// Deletes, or begins to; the object, and whether it is gone.
    pub fn delete(&mut self, target: &Target, options: &DeleteOptions) -> Outcome<(Arc<Value>, bool)> {
        if options.propagation_policy.as_ref().is_some_and(|policy| policy != "Background") {
            return Err(Refusal::bad_request("only deletion in the background is modelled"));
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
        // A pod that goes at once is seen to be on its way first.
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

    /// Deletes what has owners that are all gone, and what that leaves without owners.
    pub fn collect_garbage(&mut self) {
        loop {
            let orphans = self.orphans();
            if orphans.is_empty() {
                return;
            }
            for orphan in orphans {
                // It was found just now, and nothing is asked of it.
                let _ = self.delete(&orphan, &DeleteOptions::default());
            }
        }
    }

    fn orphans(&self) -> Vec<Target> {
        let uids: BTreeSet<&str> =
            self.all().filter_map(|(_, object)| object["metadata"]["uid"].as_str()).collect();
        let is_gone = |owner: &Value| owner["uid"].as_str().is_none_or(|uid| !uids.contains(uid));
        let is_orphan = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            object["metadata"]["deletionTimestamp"].is_null()
                && owners.is_some_and(|owners| owners.iter().all(is_gone))
        };
        self.all().filter(|(_, object)| is_orphan(object)).map(|(target, _)| target).collect()
    }
}

/// How many seconds a pod gets to end.
fn grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let is_over = ["Failed", "Succeeded"].iter().any(|phase| pod["status"]["phase"] == **phase);
    let is_scheduled = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let pending = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    match (options.grace_period_seconds, pending) {
        (None, Some(pending)) => pending,
        (Some(wanted), Some(_)) => wanted,
        _ if is_over || !is_scheduled => 0,
        (Some(wanted), None) => wanted,
        (None, None) => pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(DEFAULT_GRACE),
    }
}
