//! Background tasks. They stop in two steps: controllers when shutdown is requested, services (admin server, Events)
//! when the controllers have ended.

use futures::FutureExt;
use futures::future::BoxFuture;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

/// The time that services have to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns a future that runs the given one.
pub type Wrap = Arc<dyn Fn(BoxFuture<'static, ()>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The tasks of the process.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    /// Wraps the future of each task. Tests pause and kill processes by it.
    wrap: Option<Wrap>,
    shutdown: CancellationToken,
    drained: CancellationToken,
    panicked: Arc<OnceLock<&'static str>>,
}

impl Tasks {
    /// Runs a future in the background. A panic in it stops the process, which would otherwise run incomplete.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.clone();
        let task = async move {
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                error!(task = name, "Background task panicked");
                let _ = tasks.panicked.set(name);
                tasks.shutdown.cancel();
            }
        };
        match &self.wrap {
            Some(wrap) => self.tracker.spawn(wrap(task.boxed())),
            None => self.tracker.spawn(task),
        };
    }

    /// Requests shutdown.
    pub fn shut_down(&self) {
        self.shutdown.cancel();
    }

    /// Resolves when shutdown is requested.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        self.shutdown.clone().cancelled_owned()
    }

    /// Whether shutdown was requested.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.is_cancelled()
    }

    /// Resolves when the controllers have ended and services may stop.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        self.drained.clone().cancelled_owned()
    }

    /// Stops the services and waits for every task; returns the name of the task that panicked, if any.
    pub async fn finish(&self) -> Option<&'static str> {
        self.shutdown.cancel();
        self.drained.cancel();
        self.tracker.close();
        if tokio::time::timeout(STOP_TIMEOUT, self.tracker.wait()).await.is_err() {
            warn!(tasks = self.tracker.len(), "Tasks did not stop in time; exiting without them");
        }
        self.panicked.get().copied()
    }
}

#[cfg(any(test, feature = "testing"))]
impl Tasks {
    /// Tasks whose futures are wrapped.
    pub fn wrapped(wrap: Wrap) -> Self {
        Self { wrap: Some(wrap), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::Tasks;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn services_stop_after_the_controllers() {
        let tasks = Tasks::default();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let drained = tasks.drained();
        tasks.spawn("service", async move {
            drained.await;
            let _ = sender.send("ended");
        });
        tasks.shut_down();
        tasks.shutdown().await;
        tokio::task::yield_now().await;
        assert!(receiver.is_empty(), "the service stopped before the controllers");
        assert_eq!(tasks.finish().await, None);
        assert_eq!(receiver.await, Ok("ended"));
    }

    #[tokio::test(start_paused = true)]
    async fn panic_requests_shutdown_and_finish_names_the_task() {
        let tasks = Tasks::default();
        tasks.spawn("doomed", async { panic!("on purpose") });
        let shutdown = tokio::time::timeout(Duration::from_secs(5), tasks.shutdown()).await;
        assert!(shutdown.is_ok(), "shutdown was not requested");
        assert_eq!(tasks.finish().await, Some("doomed"));
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_does_not_stop_does_not_block_finish() {
        let tasks = Tasks::default();
        tasks.spawn("stuck", std::future::pending());
        assert_eq!(tasks.finish().await, None);
    }
}
