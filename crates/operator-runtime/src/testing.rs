//! Helpers of unit tests.

use crate::args::Args;
use crate::runtime::Runtime;
use crate::scope::Scope;
use clap::{Args as _, Command, FromArgMatches};
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

/// All namespaces of the server behind a client, in a process with default flags.
pub fn scope(client: Client) -> Scope {
    let flags = Args::augment_args(Command::new("test")).get_matches_from(["test"]);
    Scope::of(Runtime::with_client(client, Args::from_arg_matches(&flags).unwrap()), None)
}
