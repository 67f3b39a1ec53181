//! Which workers a person has cordoned. The record on the NodeSet outlives the pods, so that a pod that replaces a
//! cordoned one is cordoned too, until the person lifts the cordon.

use super::effect::Effect;
use super::replicas::{Disposition, Replicas};
use crate::worker::{Cause, Worker};
use kube::ResourceExt;
use serde_json::json;
use slinky_api::labels::TRUE;
use slinky_api::labels::annotations::{CORDONED_PODS, POD_CORDON};
use slinky_api::v1beta1::NodeSet;
use slurm_conf::hostlist::{expand, fold_set};
use std::collections::BTreeSet;

/// The recorded names of cordoned pods. An unreadable record counts as empty.
pub fn recorded(nodeset: &NodeSet) -> BTreeSet<String> {
    let record = nodeset.annotations().get(CORDONED_PODS).map(String::as_str).unwrap_or_default();
    expand(record).unwrap_or_default().into_iter().collect()
}

/// The annotation with the record if it has to change; without a value it is removed.
pub fn record_change(
    nodeset: &NodeSet,
    workers: &[Worker],
    replicas: &Replicas,
) -> Option<(String, Option<String>)> {
    let before = recorded(nodeset);
    let after = desired(&before, workers, replicas);
    let value = (!after.is_empty()).then(|| fold_set(after.iter().map(String::as_str)));
    (before != after).then(|| (CORDONED_PODS.to_owned(), value))
}

/// Has the pods cordoned that replace recorded ones.
pub fn keep_cordoned(creates: &mut [Effect], recorded: &BTreeSet<String>) {
    for effect in creates {
        let Effect::CreatePod(new) = effect else { continue };
        if recorded.contains(&new.name) {
            new.pod["metadata"]["annotations"][POD_CORDON] = json!(TRUE);
        }
    }
}

fn desired(before: &BTreeSet<String>, workers: &[Worker], replicas: &Replicas) -> BTreeSet<String> {
    let leaves =
        |worker: &Worker| matches!(replicas.disposition(worker), Disposition::Remove(Cause::ScaleIn, _));
    let is_cordoned = |worker: &&Worker| worker.cordoned_by_person && !leaves(worker);
    let cordoned = workers.iter().filter(is_cordoned).map(Worker::name);
    // While workers are missing, those that were recorded may be among them.
    let present: BTreeSet<_> = workers.iter().map(Worker::name).collect();
    let staying = workers.iter().filter(|worker| !worker.terminating && !leaves(worker)).count();
    let missing = before.difference(&present).filter(|_| staying < replicas.desired);
    cordoned.chain(missing.cloned()).collect()
}
