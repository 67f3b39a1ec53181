//! Kubernetes Events about our objects. Publishing never waits and never fails: Events are queued, and one task sends
//! them. Events that are dropped because the queue is full, or rejected by the API server, are logged and counted.
//!
//! kube's recorder aggregates repeated Events into one with a count. It treats Events that differ only in their note as
//! repetitions and keeps the first note, so there is one recorder per note.

use crate::error::chain;
use crate::metrics::{METRICS, OutcomeLabel};
use crate::per_object::{ObjectKey, PerObject};
use crate::tasks::Tasks;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, Recorder, Reporter};
use kube::{Client, Resource};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

pub use kube::runtime::events::EventType;

/// The API server rejects notes over 1 KiB.
const NOTE_LIMIT: usize = 1024;
/// The capacity of the queue.
const QUEUE: usize = 512;
/// The timeout of one Event; a slow API server must not fill the queue.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which kube's recorder aggregates repetitions of an Event.
const SERIES: Duration = Duration::from_mins(6);

/// An Event to publish.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Normal, or Warning if a user should act.
    pub type_: EventType,
    /// The reason, in `PascalCase`.
    pub reason: String,
    /// The action that was taken, in `PascalCase`.
    pub action: String,
    /// The message, never empty. Truncated to 1 KiB.
    pub note: String,
    /// A second object that the Event is about.
    pub related: Option<ObjectReference>,
}

/// Publishes Events; one per process.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<(ObjectReference, NewEvent)>,
    /// Reason and note of the last Event of each action.
    latest: Arc<PerObject<BTreeMap<String, (String, String)>>>,
}

impl Events {
    /// Starts the task that sends Events as `controller`, process `instance`.
    pub fn start(client: Client, controller: &str, instance: &str, tasks: &Tasks) -> Self {
        let (queue, queued) = mpsc::channel(QUEUE);
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        let sender = Sender { client, reporter, recorders: BTreeMap::new() };
        tasks.spawn("events", sender.run(queued, tasks.drained()));
        Self { queue, latest: Arc::default() }
    }

    /// Publishes an Event; repetitions increase its count.
    pub fn publish<K: Resource<DynamicType = ()>>(&self, regarding: &K, event: NewEvent) {
        let mut reference = regarding.object_ref(&());
        // The recorder would not aggregate Events of different versions of an object.
        reference.resource_version = None;
        if self.queue.try_send((reference, event)).is_err() {
            count("dropped");
            warn!("Event queue is full; dropped an Event");
        }
    }

    /// Publishes an Event if the last one of this object and action had another reason or note.
    pub fn publish_change<K: Resource<DynamicType = ()>>(&self, regarding: &K, event: NewEvent) {
        let is_changed = self.latest.with(regarding, |latest| {
            let content = (event.reason.clone(), event.note.clone());
            latest.insert(event.action.clone(), content.clone()) != Some(content)
        });
        if is_changed {
            self.publish(regarding, event);
        }
    }

    /// Makes [`Events::publish_change`] publish the next Event of this object and action in any case.
    pub fn forget_action<K: Resource<DynamicType = ()>>(&self, regarding: &K, action: &str) {
        self.latest.with(regarding, |latest| latest.remove(action));
    }

    /// Drops the state of a deleted object.
    pub fn forget(&self, object: &ObjectKey) {
        self.latest.forget(object);
    }
}

/// Sends the queued Events.
struct Sender {
    client: Client,
    reporter: Reporter,
    recorders: BTreeMap<String, (Recorder, Instant)>,
}

impl Sender {
    async fn run(
        mut self,
        mut queued: mpsc::Receiver<(ObjectReference, NewEvent)>,
        drained: impl Future<Output = ()>,
    ) {
        let mut drained = std::pin::pin!(drained);
        loop {
            let next = tokio::select! {
                biased;
                next = queued.recv() => next,
                () = &mut drained => None,
            };
            let Some((regarding, event)) = next else { return };
            self.send(&regarding, event).await;
        }
    }

    async fn send(&mut self, regarding: &ObjectReference, event: NewEvent) {
        let note = truncate(event.note);
        let event = Event {
            type_: event.type_,
            reason: event.reason,
            action: event.action,
            note: Some(note.clone()),
            secondary: event.related,
        };
        let now = Instant::now();
        self.recorders.retain(|_, (_, used)| now - *used < SERIES);
        let (recorder, used) = self
            .recorders
            .entry(note.clone())
            .or_insert_with(|| (Recorder::new(self.client.clone(), self.reporter.clone()), now));
        *used = now;
        let outcome = match timeout(SEND_TIMEOUT, recorder.publish(&event, regarding)).await {
            Ok(Ok(())) => "published",
            Ok(Err(error)) => {
                // The recorder cannot increase the count of an Event that was deleted; a new recorder creates another.
                self.recorders.remove(&note);
                warn!(reason = event.reason, error = chain(&error), "Publishing an Event failed");
                "failed"
            }
            Err(_) => {
                debug!(reason = event.reason, "Publishing an Event timed out");
                "failed"
            }
        };
        count(outcome);
    }
}

fn count(outcome: &'static str) {
    METRICS.events.get_or_create(&OutcomeLabel { outcome }).inc();
}

fn truncate(mut note: String) -> String {
    const ELLIPSIS: &str = "...";
    if note.len() > NOTE_LIMIT {
        note.truncate(note.floor_char_boundary(NOTE_LIMIT - ELLIPSIS.len()));
        note.push_str(ELLIPSIS);
    }
    note
}

#[cfg(any(test, feature = "testing"))]
impl Events {
    /// Events that are not sent, and the receiver of their queue.
    pub(crate) fn unsent(capacity: usize) -> (Self, mpsc::Receiver<(ObjectReference, NewEvent)>) {
        let (queue, published) = mpsc::channel(capacity);
        (Self { queue, latest: Arc::default() }, published)
    }
}

#[cfg(test)]
mod tests {
    use super::{EventType, Events, NOTE_LIMIT, NewEvent, truncate};
    use k8s_openapi::api::core::v1::ConfigMap;
    use rstest::rstest;

    #[rstest]
    #[case::fits("a".repeat(NOTE_LIMIT), NOTE_LIMIT)]
    #[case::too_long("a".repeat(NOTE_LIMIT + 1), NOTE_LIMIT)]
    #[case::multibyte_character("a".repeat(NOTE_LIMIT - 4) + &"ü".repeat(9), NOTE_LIMIT - 1)]
    fn note_is_truncated_at_a_character_boundary(#[case] note: String, #[case] length: usize) {
        let truncated = truncate(note.clone());
        assert_eq!(truncated.len(), length);
        assert_eq!(truncated.ends_with("..."), note.len() > NOTE_LIMIT);
    }

    fn event(reason: &str, note: &str) -> NewEvent {
        NewEvent {
            type_: EventType::Warning,
            reason: reason.into(),
            action: "Test".into(),
            note: note.into(),
            related: None,
        }
    }

    fn object(uid: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.uid = Some(uid.into());
        object
    }

    #[tokio::test]
    async fn publish_change_skips_an_event_with_the_same_reason_and_note() {
        let (events, mut published) = Events::unsent(9);
        let mut is_published = |object: &ConfigMap, reason: &str, note: &str| {
            events.publish_change(object, event(reason, note));
            published.try_recv().is_ok()
        };
        assert!(is_published(&object("1"), "A", "x"));
        assert!(!is_published(&object("1"), "A", "x"));
        assert!(is_published(&object("1"), "A", "y"));
        assert!(is_published(&object("1"), "B", "y"));
        assert!(is_published(&object("1"), "A", "x"));
        assert!(is_published(&object("2"), "A", "x"));
        events.forget_action(&object("2"), "Test");
        assert!(is_published(&object("2"), "A", "x"));
    }

    #[tokio::test]
    async fn event_is_dropped_if_the_queue_is_full() {
        let (events, mut published) = Events::unsent(1);
        events.publish(&object("1"), event("First", "x"));
        events.publish(&object("1"), event("Second", "x"));
        assert_eq!(published.try_recv().map(|(_, event)| event.reason), Ok("First".into()));
        assert!(published.try_recv().is_err());
    }
}
