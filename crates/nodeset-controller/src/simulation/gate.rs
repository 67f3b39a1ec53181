//! Stops and kills all tasks of a process at once, wherever they are.

use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn};
use operator_runtime::testing::Wrap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Whether the tasks of a process run.
#[derive(Default)]
pub struct Gate(Mutex<State>);

#[derive(Default)]
struct State {
    mode: Mode,
    /// Until when it is stopped.
    stopped_until: Option<Instant>,
    /// Tasks that were woken while they were stopped.
    woken: Vec<Waker>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Running,
    /// As by SIGSTOP: no task goes on, and timers that expire meanwhile have expired when it does.
    Stopped,
    /// As by SIGKILL: every task ends where it is.
    Killed,
}

impl Gate {
    /// A function that puts tasks behind this gate.
    pub fn wrap(self: &Arc<Self>) -> Wrap {
        let gate = self.clone();
        Arc::new(move |task| gate.clone().behind(task))
    }

    fn behind(self: Arc<Self>, mut task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        poll_fn(move |context| {
            let mut state = self.0.lock();
            match state.mode {
                Mode::Running => drop(state),
                Mode::Stopped => {
                    state.woken.push(context.waker().clone());
                    return Poll::Pending;
                }
                Mode::Killed => return Poll::Ready(()),
            }
            task.poll_unpin(context)
        })
        .boxed()
    }

    /// Runs a task behind this gate.
    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        tokio::spawn(self.clone().behind(task.boxed()));
    }

    pub fn is_running(&self) -> bool {
        self.0.lock().mode == Mode::Running
    }

    /// Stops the process for this time at least.
    pub fn stop_for(self: &Arc<Self>, time: Duration) {
        let until = Instant::now() + time;
        self.0.lock().stopped_until.replace(until);
        self.set(Mode::Stopped);
        let gate = self.clone();
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        tokio::spawn(async move {
            sleep(time).await;
            if gate.stopped_until() == Some(until) {
                gate.go_on();
            }
        });
    }

    /// Until when the process is stopped.
    pub fn stopped_until(&self) -> Option<Instant> {
        self.0.lock().stopped_until
    }

    pub fn go_on(&self) {
        self.set(Mode::Running);
    }

    pub fn kill(&self) {
        self.set(Mode::Killed);
    }

    fn set(&self, mode: Mode) {
        let mut state = self.0.lock();
        if state.mode != Mode::Killed {
            state.mode = mode;
        }
        if state.mode != Mode::Stopped {
            state.stopped_until = None;
        }
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}
