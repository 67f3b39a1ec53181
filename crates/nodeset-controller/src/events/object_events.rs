//! Events about single objects, condensed: many objects of one topic share one Event.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use operator_runtime::events::{EventType, NewEvent};
use std::collections::BTreeMap;

/// An Event that objects share names so many of them.
const NAMED: usize = 10;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    ClaimCreated,
    ClaimNotCreated,
    PodCreated,
    PodNotCreated,
    PodUnregistered,
    PodDeleted,
    PodNotDeleted,
    NodeRecordDeleted,
    NodeCordoned,
    DaemonFailed,
    DaemonSucceeded,
    DaemonRenamed,
}

/// The object of an Event.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Details; their meaning depends on the topic.
    pub detail: String,
    /// Reference to the object, if it is a Kubernetes object that exists.
    pub reference: Option<ObjectReference>,
}

impl Subject {
    /// An existing Kubernetes object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &ObjectMeta, detail: String) -> Self {
        let reference = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: object.name.clone(),
            namespace: object.namespace.clone(),
            uid: object.uid.clone(),
            ..ObjectReference::default()
        };
        Self { name: object.name.clone().unwrap_or_default(), detail, reference: Some(reference) }
    }
}

/// Objects by topic.
#[derive(Debug, Default)]
pub struct ObjectEvents(BTreeMap<Topic, Vec<Subject>>);

impl ObjectEvents {
    /// Adds an object.
    pub fn add(&mut self, topic: Topic, subject: Subject) {
        self.0.entry(topic).or_default().push(subject);
    }

    /// One Event per topic. That of a single object refers to it.
    pub fn condensed(&self) -> Vec<NewEvent> {
        let condensed = |(topic, subjects): (&Topic, &Vec<Subject>)| match subjects.as_slice() {
            [] => None,
            [one] => Some(topic.event(topic.note_for_one(one), one.reference.clone())),
            [first, ..] => Some(topic.event(topic.note_for_all(first, subjects), None)),
        };
        self.0.iter().filter_map(condensed).collect()
    }
}

impl Topic {
    fn note_for_one(self, Subject { name, detail, .. }: &Subject) -> String {
        match self {
            Self::ClaimCreated => format!("create Claim: {name} Pod {detail}"),
            Self::ClaimNotCreated => format!("create Claim: {name} {detail}"),
            Self::PodCreated => format!("Created pod: {name}"),
            Self::PodNotCreated => format!("Error creating: {detail}"),
            Self::PodUnregistered => {
                format!("Deleting Pod {name}: Slurm node is not registered but pod is healthy")
            }
            Self::PodDeleted => format!("Deleted pod: {name}"),
            Self::PodNotDeleted => format!("Error deleting: {detail}"),
            Self::NodeRecordDeleted => format!("Deleted defunct Slurm node {name}: {detail}"),
            Self::NodeCordoned => format!("Cordoning Pod {name}: Kubernetes node {detail} was cordoned"),
            Self::DaemonFailed => {
                format!("Found failed daemon pod {name} on node {detail}, will try to kill it")
            }
            Self::DaemonSucceeded => {
                format!("Found succeeded daemon pod {name} on node {detail}, will try to delete it")
            }
            Self::DaemonRenamed => format!("Recreating daemon pod {name}: {detail}"),
        }
    }

    fn note_for_all(self, first: &Subject, subjects: &[Subject]) -> String {
        let some: Vec<&str> = subjects.iter().take(NAMED).map(|subject| subject.name.as_str()).collect();
        let names = match subjects.len().saturating_sub(NAMED) {
            0 => some.join(", "),
            more => format!("{} and {more} more", some.join(", ")),
        };
        match self {
            Self::ClaimCreated => format!("create Claims: {names}"),
            Self::ClaimNotCreated => format!("create Claims: {names}; the first {}", first.detail),
            Self::PodCreated => format!("Created pods: {names}"),
            Self::PodNotCreated => format!("Error creating {names}: {}", first.detail),
            Self::PodUnregistered => {
                format!("Deleting Pods {names}: Slurm nodes are not registered but pods are healthy")
            }
            Self::PodDeleted => format!("Deleted pods: {names}"),
            Self::PodNotDeleted => format!("Error deleting {names}: {}", first.detail),
            Self::NodeRecordDeleted => format!("Deleted defunct Slurm nodes {names}"),
            Self::NodeCordoned => format!("Cordoning Pods {names}: their Kubernetes nodes were cordoned"),
            Self::DaemonFailed => format!("Found failed daemon pods {names}, will try to kill them"),
            Self::DaemonSucceeded => format!("Found succeeded daemon pods {names}, will try to delete them"),
            Self::DaemonRenamed => format!("Recreating daemon pods {names}: their hostnames changed"),
        }
    }

    fn event(self, note: String, related: Option<ObjectReference>) -> NewEvent {
        let (type_, reason, action) = match self {
            Self::ClaimCreated | Self::PodCreated => (EventType::Normal, "SuccessfulCreate", "Create"),
            Self::ClaimNotCreated | Self::PodNotCreated => (EventType::Warning, "FailedCreate", "Create"),
            Self::PodUnregistered => (EventType::Warning, "SlurmNodeNotRegistered", "Delete"),
            Self::PodDeleted => (EventType::Normal, "SuccessfulDelete", "Delete"),
            Self::PodNotDeleted => (EventType::Warning, "FailedDelete", "Delete"),
            Self::NodeRecordDeleted => (EventType::Normal, "DefunctSlurmNodePruned", "Delete"),
            Self::NodeCordoned => (EventType::Normal, "NodeCordon", "Cordon"),
            Self::DaemonFailed => (EventType::Warning, "FailedDaemonPod", "Info"),
            Self::DaemonSucceeded => (EventType::Normal, "SucceededDaemonPod", "Info"),
            Self::DaemonRenamed => (EventType::Normal, "HostnameMismatch", "Info"),
        };
        NewEvent { type_, reason: reason.to_owned(), action: action.to_owned(), note, related }
    }
}

#[cfg(test)]
mod tests {
    use super::{ObjectEvents, Subject, Topic};
    use k8s_openapi::api::core::v1::ObjectReference;
    use rstest::rstest;

    fn notes(topic: Topic, count: usize) -> Vec<(String, Option<String>)> {
        let mut events = ObjectEvents::default();
        for number in 0..count {
            let name = format!("w-{number}");
            let reference = ObjectReference { name: Some(name.clone()), ..ObjectReference::default() };
            events.add(topic, Subject { name, detail: "quota".to_owned(), reference: Some(reference) });
        }
        let events = events.condensed().into_iter();
        events.map(|event| (event.note, event.related.and_then(|object| object.name))).collect()
    }

    #[test]
    fn event_of_a_single_object_refers_to_it() {
        assert_eq!(notes(Topic::PodCreated, 1), [("Created pod: w-0".to_owned(), Some("w-0".to_owned()))]);
    }

    #[rstest]
    #[case(Topic::PodCreated, 2, "Created pods: w-0, w-1")]
    #[case(Topic::PodDeleted, 10, "Deleted pods: w-0, w-1, w-2, w-3, w-4, w-5, w-6, w-7, w-8, w-9")]
    #[case(
        Topic::PodNotDeleted,
        11,
        "Error deleting w-0, w-1, w-2, w-3, w-4, w-5, w-6, w-7, w-8, w-9 and 1 more: quota"
    )]
    fn several_objects_share_an_event(#[case] topic: Topic, #[case] count: usize, #[case] note: &str) {
        assert_eq!(notes(topic, count), [(note.to_owned(), None)]);
    }
}
