//! Kubernetes Events about our objects. Publishing never waits and never fails: notices go into a queue, and one task
//! sends them. What does not fit, or is refused, is counted and logged.
//!
//! kube's recorder makes repetitions one Event with a count. It takes Events that differ in their note only for the same
//! and shows the first note for ever, so there is a recorder per note here.

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

/// The API refuses longer notes.
const NOTE_LIMIT: usize = 1024;
/// Notices that wait to be sent.
const QUEUE: usize = 512;
/// How long one Event may take; a slow API server must not fill the queue.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// How long kube's recorder takes an Event for a repetition of an earlier one.
const SERIES: Duration = Duration::from_mins(6);

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Whether somebody should look.
    pub type_: EventType,
    /// Why, in `PascalCase`.
    pub reason: String,
    /// What was done, in `PascalCase`.
    pub action: String,
    /// The details, for people. Cut to what the API takes.
    pub note: String,
    /// Another object that it is about.
    pub related: Option<ObjectReference>,
}

/// Publishes Events; one per process.
#[derive(Clone, Debug)]
pub struct Events {
    queue: mpsc::Sender<(ObjectReference, NewEvent)>,
    latest: Arc<PerObject<BTreeMap<String, (String, String)>>>,
}

impl Events {
    /// Starts to publish in the name of `controller`, process `instance`.
    pub fn start(client: Client, controller: &str, instance: &str, tasks: &Tasks) -> Self {
        let (queue, notices) = mpsc::channel(QUEUE);
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        let sender = Sender { client, reporter, recorders: BTreeMap::new() };
        tasks.spawn("events", sender.run(notices, tasks.drained()));
        Self { queue, latest: Arc::default() }
    }

    /// Tells it, as often as it is called; repetitions become one Event with a count.
    pub fn publish<K: Resource<DynamicType = ()>>(&self, regarding: &K, notice: NewEvent) {
        let mut reference = regarding.object_ref(&());
        // The recorder would take each version for another object.
        reference.resource_version = None;
        if self.queue.try_send((reference, notice)).is_err() {
            count("dropped");
            warn!("Too many Events are waiting, one was dropped");
        }
    }

    /// Tells it if it is news: the last notice about this object and action had another reason or note.
    pub fn publish_change<K: Resource<DynamicType = ()>>(&self, regarding: &K, notice: NewEvent) {
        let is_news = self.latest.with(regarding, |latest| {
            let told = (notice.reason.clone(), notice.note.clone());
            latest.insert(notice.action.clone(), told.clone()) != Some(told)
        });
        if is_news {
            self.publish(regarding, notice);
        }
    }

    /// The next notice about this object and action is news again.
    pub fn forget_action<K: Resource<DynamicType = ()>>(&self, regarding: &K, action: &str) {
        self.latest.with(regarding, |latest| latest.remove(action));
    }

    /// The object is gone.
    pub fn forget(&self, object: &ObjectKey) {
        self.latest.forget(object);
    }
}

#[cfg(test)]
impl Events {
    /// Events that nobody sends, and where they end up.
    pub(crate) fn unsent(capacity: usize) -> (Self, mpsc::Receiver<(ObjectReference, NewEvent)>) {
        let (queue, told) = mpsc::channel(capacity);
        (Self { queue, latest: Arc::default() }, told)
    }
}

/// Sends what is in the queue.
struct Sender {
    client: Client,
    reporter: Reporter,
    recorders: BTreeMap<String, (Recorder, Instant)>,
}

impl Sender {
    async fn run(
        mut self,
        mut notices: mpsc::Receiver<(ObjectReference, NewEvent)>,
        drained: impl Future<Output = ()>,
    ) {
        let mut drained = std::pin::pin!(drained);
        loop {
            let next = tokio::select! {
                biased;
                next = notices.recv() => next,
                () = &mut drained => None,
            };
            let Some((regarding, notice)) = next else { return };
            self.send(&regarding, notice).await;
        }
    }

    async fn send(&mut self, regarding: &ObjectReference, notice: NewEvent) {
        let note = cut(notice.note);
        let event = Event {
            type_: notice.type_,
            reason: notice.reason,
            action: notice.action,
            note: Some(note.clone()),
            secondary: notice.related,
        };
        let now = Instant::now();
        self.recorders.retain(|_, (_, used)| now - *used < SERIES);
        let (recorder, used) = self
            .recorders
            .entry(note.clone())
            .or_insert_with(|| (Recorder::new(self.client.clone(), self.reporter.clone()), now));
        *used = now;
        let outcome = match timeout(SEND_LIMIT, recorder.publish(&event, regarding)).await {
            Ok(Ok(())) => "published",
            Ok(Err(error)) => {
                // An Event that was deleted cannot be counted up: the next notice makes a new one.
                self.recorders.remove(&note);
                warn!(reason = event.reason, error = chain(&error), "Event was refused");
                "failed"
            }
            Err(_) => {
                debug!(reason = event.reason, "Event was not answered");
                "failed"
            }
        };
        count(outcome);
    }
}

fn count(outcome: &'static str) {
    METRICS.events.get_or_create(&OutcomeLabel { outcome }).inc();
}

fn cut(mut note: String) -> String {
    const ELLIPSIS: &str = "...";
    if note.len() > NOTE_LIMIT {
        note.truncate(note.floor_char_boundary(NOTE_LIMIT - ELLIPSIS.len()));
        note.push_str(ELLIPSIS);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::{EventType, Events, NOTE_LIMIT, NewEvent, cut};
    use k8s_openapi::api::core::v1::ConfigMap;
    use rstest::rstest;

    #[rstest]
    #[case::fits("a".repeat(NOTE_LIMIT), NOTE_LIMIT)]
    #[case::too_long("a".repeat(NOTE_LIMIT + 1), NOTE_LIMIT)]
    #[case::never_inside_a_character("a".repeat(NOTE_LIMIT - 4) + &"ü".repeat(9), NOTE_LIMIT - 1)]
    fn notes_are_cut(#[case] note: String, #[case] length: usize) {
        let cut = cut(note.clone());
        assert_eq!(cut.len(), length);
        assert_eq!(cut.ends_with("..."), note.len() > NOTE_LIMIT);
    }

    fn notice(reason: &str, note: &str) -> NewEvent {
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
    async fn only_news_is_told() {
        let (events, mut told) = Events::unsent(9);
        let mut news = |object: &ConfigMap, reason: &str, note: &str| {
            events.publish_change(object, notice(reason, note));
            told.try_recv().is_ok()
        };
        assert!(news(&object("1"), "A", "x"));
        assert!(!news(&object("1"), "A", "x"));
        assert!(news(&object("1"), "A", "y"));
        assert!(news(&object("1"), "B", "y"));
        assert!(news(&object("1"), "A", "x"));
        assert!(news(&object("2"), "A", "x"));
        events.forget_action(&object("2"), "Test");
        assert!(news(&object("2"), "A", "x"));
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_never_waits() {
        let (events, mut told) = Events::unsent(1);
        events.publish(&object("1"), notice("First", ""));
        events.publish(&object("1"), notice("Second", ""));
        assert_eq!(told.try_recv().map(|(_, notice)| notice.reason), Ok("First".into()));
        assert!(told.try_recv().is_err());
    }
}
