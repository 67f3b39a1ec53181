//! Reads from an in-memory API server, and their number.

use super::*;
use crate::fixture;
use expectations::{Limits, Predecessor};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::json;
use slurm_fake::FakeSlurm;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use test_support::api_model::{ApiModel, Failure, Fate};

fn sssd(text: &str) -> serde_json::Value {
    json!({ "metadata": { "name": "sssd", "namespace": "ns" },
        "data": { "sssd.conf": ByteString(text.as_bytes().to_vec()) } })
}

#[tokio::test]
async fn sssd_conf_is_read_once_after_each_change() {
    let (api, slurm) = (ApiModel::new(|| Timestamp::UNIX_EPOCH), FakeSlurm::new());
    let reached = fixture::reached(slurm.clone(), slurm.clock(), drop);
    let clock: expectations::Clock = Arc::new(|| Duration::ZERO);
    let service = fixture::embedded("r", Limits::default(), Predecessor::Settled, clock.clone());
    let executor = fixture::executor("r", api.client("operator"), reached.clusters.clone(), service, clock);
    let sources = fixture::sources(&executor, reached.controllers.clone());
    let ssh = json!({ "enabled": true, "sssdConfRef": { "name": "sssd", "key": "sssd.conf" } });
    let nodeset = Arc::new(fixture::nodeset(&json!({ "ssh": ssh })));
    let requests = Arc::new(AtomicUsize::default());
    let serve_requests_with = |fate: Fate| {
        let requests = requests.clone();
        api.on_request(move |_| {
            requests.fetch_add(1, Relaxed);
            fate
        });
    };
    let read = async || observe(&nodeset, &sources).await.sssd_conf.map_err(|error| error.to_string());
    let deliver_watch_event = || {
        let secret: PartialObjectMeta<Secret> = serde_json::from_value(sssd("")).unwrap();
        sources.secret_hashes.observe(&Event::Apply(secret));
    };

    serve_requests_with(Fate::Served);
    api.put::<Secret>(sssd("old"));
    assert_eq!((read().await, read().await), (Ok(hash_bytes(b"old")), Ok(hash_bytes(b"old"))));
    assert_eq!(requests.load(Relaxed), 1);

    serve_requests_with(Fate::Refused(Failure::InternalError));
    assert_eq!(read().await, Ok(hash_bytes(b"old")), "served from the cache");
    api.edit::<Secret>("ns", "sssd", |secret| secret["data"] = sssd("new")["data"].clone());
    deliver_watch_event();
    assert_eq!(read().await, Err("cannot read Secret sssd".to_owned()));

    serve_requests_with(Fate::Served);
    assert_eq!((read().await, read().await), (Ok(hash_bytes(b"new")), Ok(hash_bytes(b"new"))));
    assert_eq!(requests.load(Relaxed), 3);
}
