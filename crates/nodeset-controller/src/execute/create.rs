//! Creates pods, each after its PersistentVolumeClaims. Slow start: where the first creates are refused, the rest would be
//! refused too.

use super::grant::{ApiRequestError, Batch};
use super::ownership::set_pod_controllers;
use super::report::{Report, WriteKind};
use super::writes::post_params;
use crate::events::{Subject, Topic};
use crate::plan::{Effect, NewPod, missing_label};
use crate::worker::PodRef;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::NodeSet;
use tracing::{debug, info};

/// The name under which the creation of all pods is refused.
pub const CREATION_OF_PODS: &str = "creation of pods";
/// Largest group of concurrent pod creates.
const LARGEST_GROUP: usize = 250;

/// The create of one pod.
struct Attempt<'a> {
    new: &'a NewPod,
    /// The claims that were created for it.
    claims: Vec<ObjectMeta>,
    outcome: CreateOutcome,
}

/// What a create came to.
enum CreateOutcome {
    /// The pod exists.
    Created(Box<ObjectMeta>),
    /// Another object has to be deleted first.
    Obstructed(String),
    /// The pod exists and lacks a label of the selector, which a user removed to take it out of the NodeSet: it is released.
    Unlabelled { pod: PodRef, label: String },
    /// The namespace is being deleted, and the NodeSet with it.
    NamespaceTerminating,
    /// The create of this claim failed.
    ClaimFailed(String, ApiRequestError),
    /// The create failed.
    Failed(ApiRequestError),
}

/// What ensuring a claim came to.
enum Claim {
    Created(Box<ObjectMeta>),
    Exists,
    Obstructed(String),
}

/// Creates the pods of a plan.
pub(super) async fn create_pods(batch: &Batch<'_>, effects: &[Effect], report: &mut Report) {
    let pods: Vec<&NewPod> = effects.iter().filter_map(new_pod).collect();
    let attempts = slow_start(&pods, |new| create(batch, new).boxed(), Attempt::has_failed).await;
    if attempts.len() < pods.len() {
        let left = pods.len() - attempts.len();
        info!(batch = %batch.id, pods = left, "Slow start stopped after a failed create; the remaining pods are left to a later batch");
    }
    let releases: Vec<Effect> = attempts.iter().filter_map(Attempt::release).collect();
    set_pod_controllers(batch, &releases, report).await;
    for attempt in attempts {
        attempt.report(batch, report);
    }
    // What refused the first create would refuse the others, which were not tried.
    if !report.done.contains_key(&WriteKind::PodCreated) {
        let mut refusals = pods.iter().filter_map(|new| report.refused.get(&format!("Pod {}", new.name)));
        if let Some((category, message)) = refusals.next().cloned() {
            report.refuse(CREATION_OF_PODS.to_owned(), category, message);
        }
    }
}

fn new_pod(effect: &Effect) -> Option<&NewPod> {
    let Effect::CreatePod(new) = effect else { return None };
    Some(new)
}

/// Acts on groups of 1, 2, 4, ... items concurrently, and stops after a group with a failure.
async fn slow_start<'a, I, T>(
    items: &'a [I],
    act: impl Fn(&'a I) -> BoxFuture<'a, T>,
    has_failed: impl Fn(&T) -> bool,
) -> Vec<T> {
    let (mut outcomes, mut rest, mut size) = (vec![], items, 1);
    while !rest.is_empty() {
        let (group, later) = rest.split_at(size.min(rest.len()));
        let begun = outcomes.len();
        outcomes.extend(join_all(group.iter().map(&act)).await);
        if outcomes.iter().skip(begun).any(&has_failed) {
            break;
        }
        (rest, size) = (later, LARGEST_GROUP.min(size * 2));
    }
    outcomes
}

async fn create<'a>(batch: &Batch<'_>, new: &'a NewPod) -> Attempt<'a> {
    let mut claims = vec![];
    let outcome = match ensure_claims(batch, new, &mut claims).await {
        Some(outcome) => outcome,
        None => match batch.create_pod(&new.pod).await {
            Ok(created) => CreateOutcome::Created(Box::new(created)),
            Err(error) if error.is_already_exists() => read_back(batch, &new.name).await,
            Err(error) if error.is_namespace_terminating() => CreateOutcome::NamespaceTerminating,
            Err(error) => CreateOutcome::Failed(error),
        },
    };
    Attempt { new, claims, outcome }
}

/// What an existing pod of the same name is.
async fn read_back(batch: &Batch<'_>, name: &str) -> CreateOutcome {
    // An earlier batch may have created it, and the watch may or may not have delivered it.
    batch.results().mark_incomplete();
    match batch.attempt(batch.api::<Pod>().get_metadata_opt(name)).await {
        Ok(None) => CreateOutcome::Obstructed(format!("Pod {name} existed a moment ago")),
        Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_some() => {
            CreateOutcome::Obstructed(format!("Pod {name} is being deleted"))
        }
        Ok(Some(pod)) => classify_existing(batch.nodeset, name, pod.metadata),
        Err(error) => CreateOutcome::Failed(error),
    }
}

/// Whose an existing pod of the same name is.
fn classify_existing(nodeset: &NodeSet, name: &str, pod: ObjectMeta) -> CreateOutcome {
    match (control_of(&pod, nodeset), missing_label(nodeset, &pod)) {
        (Control::Ours, None) => CreateOutcome::Created(Box::new(pod)),
        (Control::Ours, Some(label)) => {
            let (uid, version) = (pod.uid.unwrap_or_default(), pod.resource_version.unwrap_or_default());
            CreateOutcome::Unlabelled { pod: PodRef { name: name.to_owned(), uid, version }, label }
        }
        (Control::Orphan, Some(label)) => CreateOutcome::Obstructed(lacking(name, &label)),
        (Control::Orphan, None) | (Control::Foreign(_), _) => {
            CreateOutcome::Obstructed(format!("Pod {name} is controlled by another owner"))
        }
    }
}

fn lacking(pod: &str, label: &str) -> String {
    format!("Pod {pod} lacks the label {label}")
}

/// Creates the missing claims of a pod. Returns an outcome if the pod must not be created.
async fn ensure_claims(
    batch: &Batch<'_>,
    new: &NewPod,
    created: &mut Vec<ObjectMeta>,
) -> Option<CreateOutcome> {
    for claim in &new.claims {
        match ensure_claim(batch, claim).await {
            Ok(Claim::Created(claim)) => created.push(*claim),
            Ok(Claim::Exists) => {}
            Ok(Claim::Obstructed(what)) => return Some(CreateOutcome::Obstructed(what)),
            Err(error) if error.is_namespace_terminating() => {
                return Some(CreateOutcome::NamespaceTerminating);
            }
            Err(error) => return Some(CreateOutcome::ClaimFailed(claim.name_any(), error)),
        }
    }
    None
}

async fn ensure_claim(batch: &Batch<'_>, claim: &PersistentVolumeClaim) -> Result<Claim, ApiRequestError> {
    let (claims, name) = (batch.api::<PersistentVolumeClaim>(), claim.name_any());
    match batch.write(claims.create(&post_params(), claim)).await {
        Ok(created) => return Ok(Claim::Created(Box::new(created.metadata))),
        Err(error) if error.is_already_exists() => {}
        Err(error) => return Err(error),
    }
    let Some(existing) = batch.attempt(claims.get_metadata_opt(&name)).await? else {
        return Ok(Claim::Obstructed(format!("PersistentVolumeClaim {name} existed a moment ago")));
    };
    if existing.metadata.deletion_timestamp.is_some() {
        return Ok(Claim::Obstructed(format!("PersistentVolumeClaim {name} is being deleted")));
    }
    for owner in existing.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == Pod::KIND) {
        if !exists(batch, owner).await? {
            let pod = &owner.name;
            return Ok(Claim::Obstructed(format!(
                "PersistentVolumeClaim {name} will be deleted with Pod {pod}"
            )));
        }
    }
    Ok(Claim::Exists)
}

/// Whether the pod with this UID exists and is not being deleted.
async fn exists(batch: &Batch<'_>, owner: &OwnerReference) -> Result<bool, ApiRequestError> {
    let pod = batch.attempt(batch.api::<Pod>().get_metadata_opt(&owner.name)).await?;
    Ok(pod.is_some_and(|pod| {
        pod.uid().as_ref() == Some(&owner.uid) && pod.metadata.deletion_timestamp.is_none()
    }))
}

impl Attempt<'_> {
    /// Whether further creates are likely to fail too.
    fn has_failed(&self) -> bool {
        matches!(self.outcome, CreateOutcome::ClaimFailed(..) | CreateOutcome::Failed(_))
    }

    /// The release of an existing pod that a user took out of the NodeSet.
    fn release(&self) -> Option<Effect> {
        let CreateOutcome::Unlabelled { pod, .. } = &self.outcome else { return None };
        Some(Effect::ReleasePod(pod.clone()))
    }

    fn report(self, batch: &Batch<'_>, report: &mut Report) {
        let pod = &self.new.name;
        for claim in &self.claims {
            info!(batch = %batch.id, claim = claim.name, pod, "PersistentVolumeClaim created");
            report.events.add(Topic::ClaimCreated, Subject::of::<PersistentVolumeClaim>(claim, pod.clone()));
        }
        match self.outcome {
            CreateOutcome::Created(created) => {
                info!(batch = %batch.id, pod, "Pod created");
                report.record(WriteKind::PodCreated);
                report.events.add(Topic::PodCreated, Subject::of::<Pod>(&created, String::new()));
            }
            CreateOutcome::Obstructed(what) => wait(batch, pod, what, report),
            CreateOutcome::Unlabelled { label, .. } => wait(batch, pod, lacking(pod, &label), report),
            CreateOutcome::NamespaceTerminating => {
                debug!(batch = %batch.id, pod, "Pod not created: the namespace is being deleted");
            }
            CreateOutcome::ClaimFailed(name, error) => {
                if let Some(error) = report.record_failure(format!("PersistentVolumeClaim {name}"), &error) {
                    let detail = format!("for Pod {pod} failed: {error}");
                    report.events.add(Topic::ClaimNotCreated, Subject { name, detail, reference: None });
                }
            }
            CreateOutcome::Failed(error) => {
                if let Some(detail) = report.record_failure(format!("Pod {pod}"), &error) {
                    report
                        .events
                        .add(Topic::PodNotCreated, Subject { name: pod.clone(), detail, reference: None });
                }
            }
        }
    }
}

fn wait(batch: &Batch<'_>, pod: &str, what: String, report: &mut Report) {
    info!(batch = %batch.id, pod, what, "Pod not created yet");
    report.wait_for(what);
}
