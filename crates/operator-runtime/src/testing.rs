//! Helpers of unit tests, and a process in the memory of a test.

use crate::args::Args;
pub use crate::jitter::seed as seed_jitter;
use crate::runtime::Runtime;
use crate::scope::Scope;
use crate::tasks::Tasks;
pub use crate::tasks::Wrap;
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
    scope_with(client, Tasks::default())
}

/// A process in the memory of a test.
pub struct TestProcess {
    /// All namespaces.
    pub scope: Scope,
    tasks: Tasks,
}

impl TestProcess {
    /// A process with default flags that sends its requests by this client. The futures of its background tasks are wrapped,
    /// so that the test can stop them.
    pub fn start(client: Client, wrap: Wrap) -> Self {
        let tasks = Tasks::wrapped(wrap);
        Self { scope: scope_with(client, tasks.clone()), tasks }
    }

    /// Requests shutdown, as a signal does.
    pub fn shut_down(&self) {
        self.tasks.shut_down();
    }
}

fn scope_with(client: Client, tasks: Tasks) -> Scope {
    let flags = Args::augment_args(Command::new("test")).get_matches_from(["test"]);
    #[expect(clippy::expect_used, reason = "all flags have defaults")]
    let args = Args::from_arg_matches(&flags).expect("default flags");
    Scope::of(Runtime::with_client(client, args, tasks), None)
}
