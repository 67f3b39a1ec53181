//! Makes pods, each after the claims that it needs. Starts slowly: where the first pods are refused, the rest would be too.

use super::grant::{ApiFault, Batch};
use super::notices::{Subject, Topic};
use super::ownership::claim_pods;
use super::report::{Deed, Report};
use super::writes::post_params;
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

/// How many pods are made at once at most.
const AT_ONCE: usize = 250;

/// A pod that was to be made.
struct Attempt<'a> {
    new: &'a NewPod,
    /// The claims that were made for it.
    claims: Vec<ObjectMeta>,
    outcome: Outcome,
}

/// What became of it.
enum Outcome {
    /// It is there.
    Made(Box<ObjectMeta>),
    /// Something has to go first.
    InTheWay(String),
    /// It is there, and a person took a label from it: nobody sees it, and it is ours no more.
    SetAside { pod: PodRef, label: String },
    /// The namespace is going, and the NodeSet with it.
    NamespaceEnds,
    /// The claim of this name was not made.
    NoClaim(String, ApiFault),
    /// It was not made.
    Failed(ApiFault),
}

/// What became of a claim.
enum Claim {
    Made(Box<ObjectMeta>),
    There,
    InTheWay(String),
}

/// Makes the pods of a plan.
pub(super) async fn create_pods(batch: &Batch<'_>, effects: &[Effect], report: &mut Report) {
    let news: Vec<&NewPod> = effects.iter().filter_map(new_pod).collect();
    let attempts = slow_start(&news, |new| create(batch, new).boxed(), Attempt::has_failed).await;
    if attempts.len() < news.len() {
        let left = news.len() - attempts.len();
        info!(batch = %batch.id, pods = left, "Left pods to a later batch, because of those that failed");
    }
    let set_aside: Vec<Effect> = attempts.iter().filter_map(Attempt::disowns).collect();
    claim_pods(batch, &set_aside, report).await;
    for attempt in attempts {
        attempt.tell(batch, report);
    }
}

fn new_pod(effect: &Effect) -> Option<&NewPod> {
    let Effect::CreatePod(new) = effect else { return None };
    Some(new)
}

/// Does it to 1, 2, 4, ... of the items at once, and stops after a group in which something failed.
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
        (rest, size) = (later, AT_ONCE.min(size * 2));
    }
    outcomes
}

async fn create<'a>(batch: &Batch<'_>, new: &'a NewPod) -> Attempt<'a> {
    let mut claims = vec![];
    let outcome = match ensure_claims(batch, new, &mut claims).await {
        Some(outcome) => outcome,
        None => match batch.create_pod(&new.pod).await {
            Ok(made) => Outcome::Made(Box::new(made)),
            Err(fault) if fault.is_already_there() => read_back(batch, &new.name).await,
            Err(fault) if fault.is_end_of_namespace() => Outcome::NamespaceEnds,
            Err(fault) => Outcome::Failed(fault),
        },
    };
    Attempt { new, claims, outcome }
}

/// What a pod of the wanted name is, that was there before.
async fn read_back(batch: &Batch<'_>, name: &str) -> Outcome {
    // It may have come by an earlier batch, and the stream may have shown it long ago, or not yet.
    batch.results().lose_track();
    match batch.attempt(batch.api::<Pod>().get_metadata_opt(name)).await {
        Ok(None) => Outcome::InTheWay(format!("Pod {name} was there a moment ago")),
        Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_some() => {
            Outcome::InTheWay(format!("Pod {name} is being deleted"))
        }
        Ok(Some(pod)) => met(batch.nodeset, name, pod.metadata),
        Err(fault) => Outcome::Failed(fault),
    }
}

/// Whose a pod of the wanted name is.
fn met(nodeset: &NodeSet, name: &str, pod: ObjectMeta) -> Outcome {
    match (control_of(&pod, nodeset), missing_label(nodeset, &pod)) {
        (Control::Ours, None) => Outcome::Made(Box::new(pod)),
        (Control::Ours, Some(label)) => {
            let (uid, version) = (pod.uid.unwrap_or_default(), pod.resource_version.unwrap_or_default());
            Outcome::SetAside { pod: PodRef { name: name.to_owned(), uid, version }, label }
        }
        (Control::Orphan, Some(label)) => Outcome::InTheWay(lacking(name, &label)),
        (Control::Orphan, None) | (Control::Foreign(_), _) => {
            Outcome::InTheWay(format!("Pod {name} belongs to somebody else"))
        }
    }
}

fn lacking(pod: &str, label: &str) -> String {
    format!("Pod {pod} lacks the label {label}")
}

/// Sees to it that a pod finds its claims; says why it must not be made, if it must not.
async fn ensure_claims(batch: &Batch<'_>, new: &NewPod, made: &mut Vec<ObjectMeta>) -> Option<Outcome> {
    for claim in &new.claims {
        match ensure_claim(batch, claim).await {
            Ok(Claim::Made(claim)) => made.push(*claim),
            Ok(Claim::There) => {}
            Ok(Claim::InTheWay(what)) => return Some(Outcome::InTheWay(what)),
            Err(fault) if fault.is_end_of_namespace() => return Some(Outcome::NamespaceEnds),
            Err(fault) => return Some(Outcome::NoClaim(claim.name_any(), fault)),
        }
    }
    None
}

async fn ensure_claim(batch: &Batch<'_>, claim: &PersistentVolumeClaim) -> Result<Claim, ApiFault> {
    let (claims, name) = (batch.api::<PersistentVolumeClaim>(), claim.name_any());
    match batch.write(claims.create(&post_params(), claim)).await {
        Ok(made) => return Ok(Claim::Made(Box::new(made.metadata))),
        Err(fault) if fault.is_already_there() => {}
        Err(fault) => return Err(fault),
    }
    let Some(there) = batch.attempt(claims.get_metadata_opt(&name)).await? else {
        return Ok(Claim::InTheWay(format!("PersistentVolumeClaim {name} was there a moment ago")));
    };
    if there.metadata.deletion_timestamp.is_some() {
        return Ok(Claim::InTheWay(format!("PersistentVolumeClaim {name} is being deleted")));
    }
    for owner in there.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == Pod::KIND) {
        if !is_alive(batch, owner).await? {
            let pod = &owner.name;
            return Ok(Claim::InTheWay(format!("PersistentVolumeClaim {name} goes with Pod {pod}")));
        }
    }
    Ok(Claim::There)
}

/// Whether this very pod is there, and stays.
async fn is_alive(batch: &Batch<'_>, owner: &OwnerReference) -> Result<bool, ApiFault> {
    let pod = batch.attempt(batch.api::<Pod>().get_metadata_opt(&owner.name)).await?;
    Ok(pod.is_some_and(|pod| {
        pod.uid().as_ref() == Some(&owner.uid) && pod.metadata.deletion_timestamp.is_none()
    }))
}

impl Attempt<'_> {
    /// Whether the next ones are likely to fare as badly.
    fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::NoClaim(..) | Outcome::Failed(_))
    }

    /// Gives up the pod that was met, if a person set it aside.
    fn disowns(&self) -> Option<Effect> {
        let Outcome::SetAside { pod, .. } = &self.outcome else { return None };
        Some(Effect::ReleasePod(pod.clone()))
    }

    fn tell(self, batch: &Batch<'_>, report: &mut Report) {
        let pod = &self.new.name;
        for claim in &self.claims {
            info!(batch = %batch.id, claim = claim.name, pod, "Created a claim");
            report.told.tell(Topic::ClaimCreated, Subject::of::<PersistentVolumeClaim>(claim, pod.clone()));
        }
        match self.outcome {
            Outcome::Made(made) => {
                info!(batch = %batch.id, pod, "Created a pod");
                report.did(Deed::Created);
                report.told.tell(Topic::PodCreated, Subject::of::<Pod>(&made, String::new()));
            }
            Outcome::InTheWay(what) => wait(batch, pod, what, report),
            Outcome::SetAside { label, .. } => wait(batch, pod, lacking(pod, &label), report),
            Outcome::NamespaceEnds => {
                debug!(batch = %batch.id, pod, "Did not create a pod, the namespace is going");
            }
            Outcome::NoClaim(name, fault) => {
                if let Some(error) = report.fail(format!("PersistentVolumeClaim {name}"), &fault) {
                    let detail = format!("for Pod {pod} failed: {error}");
                    report.told.tell(Topic::ClaimNotCreated, Subject { name, detail, reference: None });
                }
            }
            Outcome::Failed(fault) => {
                if let Some(detail) = report.fail(format!("Pod {pod}"), &fault) {
                    report
                        .told
                        .tell(Topic::PodNotCreated, Subject { name: pod.clone(), detail, reference: None });
                }
            }
        }
    }
}

fn wait(batch: &Batch<'_>, pod: &str, what: String, report: &mut Report) {
    info!(batch = %batch.id, pod, what, "Did not create a pod yet");
    report.wait(what);
}
