//! Hashes of what Secrets hold, each kept until the watch of Secrets tells of a change. What they hold is kept nowhere.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use slinky_api::v1beta1::SecretKeySelector;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Namespace and name.
type Name = (String, String);
/// The hashes of one Secret, by key.
type Hashes = Arc<Mutex<BTreeMap<String, String>>>;

/// A cache of hashes of what Secrets hold.
#[derive(Clone, Default)]
pub struct SecretHashes(Arc<Mutex<BTreeMap<Name, Hashes>>>);

impl SecretHashes {
    /// Something happened to a Secret.
    pub fn observe(&self, event: &Event<PartialObjectMeta<Secret>>) {
        match event {
            Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret) => {
                self.forget(&(secret.namespace().unwrap_or_default(), secret.name_any()));
            }
            Event::Init => {}
            // Nobody tells of the end of what a new list leaves out.
            Event::InitDone => lock(&self.0).clear(),
        }
    }

    /// The hash of what a key holds: as it is kept, or else as `read` tells. That nothing could be read is not kept.
    pub async fn get<E>(
        &self,
        namespace: &str,
        selector: &SecretKeySelector,
        read: impl Future<Output = Result<String, E>>,
    ) -> Result<String, E> {
        let name = (namespace.to_owned(), selector.name.clone());
        // What is forgotten during the read is forgotten with this: the result goes to where nobody looks any more.
        let hashes = lock(&self.0).entry(name.clone()).or_default().clone();
        let kept = lock(&hashes).get(&selector.key).cloned();
        if let Some(hash) = kept {
            return Ok(hash);
        }
        let hash = read.await.inspect_err(|_| self.forget(&name))?;
        lock(&hashes).insert(selector.key.clone(), hash.clone());
        Ok(hash)
    }

    fn forget(&self, name: &Name) {
        lock(&self.0).remove(name);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// What it says of a key of a Secret that can be read by now as this.
    fn told(
        hashes: &SecretHashes,
        key: &str,
        now: Result<&str, &'static str>,
    ) -> Result<String, &'static str> {
        let read = ready(now.map(str::to_owned));
        hashes.get("ns", &selector(key), read).now_or_never().unwrap()
    }

    #[rstest]
    #[case::changed(Event::Apply(secret("ns", "sssd")), "new")]
    #[case::found_by_a_new_list(Event::InitApply(secret("ns", "sssd")), "new")]
    #[case::gone(Event::Delete(secret("ns", "sssd")), "new")]
    #[case::left_out_by_a_new_list(Event::InitDone, "new")]
    #[case::of_another_name(Event::Apply(secret("ns", "other")), "old")]
    #[case::of_another_namespace(Event::Apply(secret("other", "sssd")), "old")]
    fn a_hash_is_kept_until_its_secret_is_told_of(
        #[case] event: Event<PartialObjectMeta<Secret>>,
        #[case] then: &str,
    ) {
        let hashes = SecretHashes::default();
        assert_eq!(told(&hashes, "a", Ok("old")).unwrap(), "old");
        assert_eq!(told(&hashes, "a", Err("not to be read")).unwrap(), "old");
        assert_eq!(told(&hashes, "b", Ok("another key's")).unwrap(), "another key's");
        hashes.observe(&event);
        assert_eq!(told(&hashes, "a", Ok("new")).unwrap(), then);
    }

    #[test]
    fn that_a_secret_could_not_be_read_is_not_kept() {
        let hashes = SecretHashes::default();
        assert_eq!(told(&hashes, "a", Err("not there")), Err("not there"));
        assert!(lock(&hashes.0).is_empty());
        assert_eq!(told(&hashes, "a", Ok("there")).unwrap(), "there");
    }

    #[tokio::test]
    async fn what_was_read_before_a_change_is_not_kept_after_it() {
        let hashes = SecretHashes::default();
        let (answer, read) = oneshot::channel::<Result<String, &str>>();
        let (selector, read) = (selector("a"), async { read.await.unwrap() });
        let change = async {
            hashes.observe(&Event::Apply(secret("ns", "sssd")));
            answer.send(Ok("old".to_owned())).unwrap();
        };
        let (late, ()) = join(hashes.get("ns", &selector, read), change).await;
        assert_eq!(late.unwrap(), "old");
        assert_eq!(told(&hashes, "a", Ok("new")).unwrap(), "new");
    }
}
