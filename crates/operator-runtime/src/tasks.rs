//! Background tasks and the two moments at which they end: work stops when shutdown is asked for, services (health,
//! events) stop when the work is done.

use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

/// How long services may take to end.
const GRACE: Duration = Duration::from_secs(3);

/// The tasks of a process.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    drained: CancellationToken,
    panicked: Arc<OnceLock<&'static str>>,
}

impl Tasks {
    /// Runs a future in the background. A panic in it stops the process: half of one is worse than none.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let tasks = self.clone();
        self.tracker.spawn(async move {
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                error!(task = name, "Background task panicked");
                let _ = tasks.panicked.set(name);
                tasks.shutdown.cancel();
            }
        });
    }

    /// Asks all work to stop.
    pub fn shut_down(&self) {
        self.shutdown.cancel();
    }

    /// Resolves when work has to stop.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        self.shutdown.clone().cancelled_owned()
    }

    /// Whether work has to stop.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.is_cancelled()
    }

    /// Resolves when all work has ended and services may end too.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + Sync + 'static + use<> {
        self.drained.clone().cancelled_owned()
    }

    /// Ends the services and waits for every task; names the task that panicked, if one did.
    pub async fn finish(&self) -> Option<&'static str> {
        self.shutdown.cancel();
        self.drained.cancel();
        self.tracker.close();
        if tokio::time::timeout(GRACE, self.tracker.wait()).await.is_err() {
            warn!(tasks = self.tracker.len(), "Tasks are still running, leaving them behind");
        }
        self.panicked.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Tasks;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn services_outlive_work() {
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
        assert!(receiver.is_empty(), "the service ended before the work");
        assert_eq!(tasks.finish().await, None);
        assert_eq!(receiver.await, Ok("ended"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_asks_for_shutdown_and_is_named() {
        let tasks = Tasks::default();
        tasks.spawn("doomed", async { panic!("on purpose") });
        let asked = tokio::time::timeout(Duration::from_secs(5), tasks.shutdown()).await;
        assert!(asked.is_ok(), "nobody asked for shutdown");
        assert_eq!(tasks.finish().await, Some("doomed"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_end_does_not_block_the_exit() {
        let tasks = Tasks::default();
        tasks.spawn("stuck", std::future::pending());
        assert_eq!(tasks.finish().await, None);
    }
}
