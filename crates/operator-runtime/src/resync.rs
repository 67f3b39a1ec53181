//! Level-triggered resync: every object is reconciled about once per [`INTERVAL`], whatever the watches deliver. It repairs
//! what a lost event left behind.

use crate::watched::Watched;
use futures::{Stream, stream};
use kube::runtime::reflector::{ObjectRef, Store};
use std::time::Duration;
use tokio::time::sleep;

/// The time in which every object is reconciled once.
pub const INTERVAL: Duration = Duration::from_mins(10);
/// How long an empty cache is left alone: at the start it is not filled yet.
const IDLE: Duration = Duration::from_mins(1);
/// The largest fraction that is randomly subtracted, so that several processes do not stay in step.
const JITTER: f64 = 0.2;

/// The objects of a cache, one after the other, evenly over each interval: a resync of many objects is no burst.
pub fn resync<K: Watched>(cache: Store<K>) -> impl Stream<Item = ObjectRef<K>> + Send + 'static {
    stream::unfold(Round { cache, pause: IDLE, objects: vec![] }, |mut round| async move {
        let next = round.next().await;
        Some((next, round))
    })
}

/// One pass over the cached objects.
struct Round<K: Watched> {
    cache: Store<K>,
    /// Between two objects.
    pause: Duration,
    objects: Vec<ObjectRef<K>>,
}

impl<K: Watched> Round<K> {
    async fn next(&mut self) -> ObjectRef<K> {
        loop {
            if self.objects.is_empty() {
                let cached = self.cache.state();
                self.objects = cached.iter().map(|object| ObjectRef::from_obj(object.as_ref())).collect();
                let count = u32::try_from(self.objects.len()).unwrap_or(u32::MAX);
                self.pause = if count == 0 { IDLE } else { INTERVAL / count };
            }
            sleep(self.pause.mul_f64(1.0 - JITTER * rand::random::<f64>())).await;
            if let Some(object) = self.objects.pop() {
                return object;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::{reflector, watcher};
    use serde_json::json;
    use std::collections::{BTreeMap, BTreeSet};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn every_object_is_emitted_once_per_interval_and_never_all_at_once() {
        let (cache, mut writer) = reflector::store::<ConfigMap>();
        let mut resynced = Box::pin(resync(cache));
        assert!(tokio::time::timeout(3 * INTERVAL, resynced.next()).await.is_err(), "an empty cache");
        for name in ["a", "b", "c"] {
            let object = json!({ "metadata": { "name": name, "namespace": "ns" } });
            writer.apply_watcher_event(&watcher::Event::Apply(serde_json::from_value(object).unwrap()));
        }
        let started = Instant::now();
        let (mut emitted, mut times) = (BTreeMap::<String, u32>::new(), BTreeSet::new());
        while started.elapsed() < 6 * INTERVAL {
            *emitted.entry(resynced.next().await.unwrap().name).or_default() += 1;
            assert!(times.insert(Instant::now()), "two objects at the same time");
        }
        assert_eq!(emitted.len(), 3);
        assert!(emitted.values().all(|count| (5..=8).contains(count)), "in six intervals: {emitted:?}");
    }
}
