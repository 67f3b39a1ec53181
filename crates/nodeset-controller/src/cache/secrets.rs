//! Hashes of values in Secrets, cached until the watch delivers a change of the Secret. The values are not cached.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use slinky_api::v1beta1::SecretKeySelector;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Namespace and name.
type Name = (String, String);
/// The hashes of one Secret, by key.
type Hashes = Arc<Mutex<BTreeMap<String, String>>>;

/// A cache of hashes of values in Secrets.
#[derive(Clone, Default)]
pub struct SecretHashes(Arc<Mutex<BTreeMap<Name, Hashes>>>);

impl SecretHashes {
    /// Drops the hashes of a changed Secret. To be called for every event of the watch.
    pub fn observe(&self, event: &Event<PartialObjectMeta<Secret>>) {
        match event {
            Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret) => {
                self.remove(&(secret.namespace().unwrap_or_default(), secret.name_any()));
            }
            Event::Init => {}
            // A relist has no Delete event for Secrets that were deleted before it.
            Event::InitDone => self.0.lock().clear(),
        }
    }

    /// The hash of the value of a key, from the cache or else from `read`. Errors are not cached.
    pub async fn get<E>(
        &self,
        namespace: &str,
        selector: &SecretKeySelector,
        read: impl Future<Output = Result<String, E>>,
    ) -> Result<String, E> {
        let name = (namespace.to_owned(), selector.name.clone());
        // A change during the read removes this map from the cache, so that the outdated result is dropped with it.
        let hashes = self.0.lock().entry(name.clone()).or_default().clone();
        let cached = hashes.lock().get(&selector.key).cloned();
        if let Some(hash) = cached {
            return Ok(hash);
        }
        let hash = read.await.inspect_err(|_| self.remove(&name))?;
        hashes.lock().insert(selector.key.clone(), hash.clone());
        Ok(hash)
    }

    fn remove(&self, name: &Name) {
        self.0.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::channel::oneshot;
    use futures::future::{join, ready};
    use rstest::rstest;
    use serde_json::json;

    fn secret(namespace: &str, name: &str) -> PartialObjectMeta<Secret> {
        serde_json::from_value(json!({ "metadata": { "name": name, "namespace": namespace } })).unwrap()
    }

    fn selector(key: &str) -> SecretKeySelector {
        serde_json::from_value(json!({ "name": "sssd", "key": key })).unwrap()
    }

    /// The hash of a key, where a read of the Secret returns `read`.
    fn get(
        hashes: &SecretHashes,
        key: &str,
        read: Result<&str, &'static str>,
    ) -> Result<String, &'static str> {
        let read = ready(read.map(str::to_owned));
        hashes.get("ns", &selector(key), read).now_or_never().unwrap()
    }

    #[rstest]
    #[case::changed(Event::Apply(secret("ns", "sssd")), "new")]
    #[case::in_a_relist(Event::InitApply(secret("ns", "sssd")), "new")]
    #[case::deleted(Event::Delete(secret("ns", "sssd")), "new")]
    #[case::missing_from_a_relist(Event::InitDone, "new")]
    #[case::another_name(Event::Apply(secret("ns", "other")), "old")]
    #[case::another_namespace(Event::Apply(secret("other", "sssd")), "old")]
    fn hash_is_cached_until_an_event_of_its_secret(
        #[case] event: Event<PartialObjectMeta<Secret>>,
        #[case] then: &str,
    ) {
        let hashes = SecretHashes::default();
        assert_eq!(get(&hashes, "a", Ok("old")).unwrap(), "old");
        assert_eq!(get(&hashes, "a", Err("not to be read")).unwrap(), "old");
        assert_eq!(get(&hashes, "b", Ok("value of another key")).unwrap(), "value of another key");
        hashes.observe(&event);
        assert_eq!(get(&hashes, "a", Ok("new")).unwrap(), then);
    }

    #[test]
    fn read_errors_are_not_cached() {
        let hashes = SecretHashes::default();
        assert_eq!(get(&hashes, "a", Err("not found")), Err("not found"));
        assert!(hashes.0.lock().is_empty());
        assert_eq!(get(&hashes, "a", Ok("found")).unwrap(), "found");
    }

    #[tokio::test]
    async fn read_that_started_before_a_change_is_not_cached() {
        let hashes = SecretHashes::default();
        let (answer, read) = oneshot::channel::<Result<String, &str>>();
        let (selector, read) = (selector("a"), async { read.await.unwrap() });
        let change = async {
            hashes.observe(&Event::Apply(secret("ns", "sssd")));
            answer.send(Ok("old".to_owned())).unwrap();
        };
        let (late, ()) = join(hashes.get("ns", &selector, read), change).await;
        assert_eq!(late.unwrap(), "old");
        assert_eq!(get(&hashes, "a", Ok("new")).unwrap(), "new");
    }
}
