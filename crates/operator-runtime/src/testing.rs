//! Helpers of unit tests.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A client whose server answers every request with `answer`, and the number of requests.
pub fn server(code: u16, answer: &Value) -> (Client, Arc<AtomicUsize>) {
    let (requests, body) = (Arc::new(AtomicUsize::new(0)), answer.to_string());
    let count = requests.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let response = Response::builder().status(code).body(Body::from(body.clone().into_bytes()));
        async move { response }
    });
    (Client::new(service, "default"), requests)
}
