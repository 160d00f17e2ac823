//! Where tasks live: the only place that spawns.
//!
//! A [`Scope`] knows its tasks, tells them to stop, waits for them and catches their panics. Stopping is a token and a
//! run to a safe point; nothing is aborted.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a panic in a task means.
pub enum OnPanic {
    /// The task was alone in what it did; it is logged.
    Log,
    /// Others depend on the task: they are told, after the panic was logged.
    Tell(Box<dyn FnOnce() + Send>),
    /// What the task owned can no longer be trusted: the process ends. A crash is always safe.
    ExitProcess,
}

impl fmt::Debug for OnPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnPanic::Log => "Log",
            OnPanic::Tell(_) => "Tell",
            OnPanic::ExitProcess => "ExitProcess",
        })
    }
}

/// The signal to stop, shared by clones.
#[derive(Clone, Debug, Default)]
pub struct Stop(CancellationToken);

impl Stop {
    /// A signal of its own.
    #[must_use]
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Gives the signal, once and for ever.
    pub fn stop(&self) {
        self.0.cancel();
    }

    /// Whether it was given.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits for it. Cancel-safe.
    pub async fn stopped(&self) {
        self.0.cancelled().await;
    }

    /// A signal that is also given when this one is.
    #[must_use]
    pub fn child(&self) -> Stop {
        Stop(self.0.child_token())
    }
}

/// A named set of tasks on one runtime, with one signal to stop.
#[derive(Clone, Debug)]
pub struct Scope {
    name: &'static str,
    runtime: Handle,
    tracker: TaskTracker,
    stop: Stop,
}

impl Scope {
    /// A scope whose tasks run on `runtime`.
    #[must_use]
    pub fn new(name: &'static str, runtime: Handle) -> Scope {
        Scope { name, runtime, tracker: TaskTracker::new(), stop: Stop::new() }
    }

    /// A scope of its own on the same runtime, stopped with this one, or alone.
    #[must_use]
    pub fn child(&self, name: &'static str) -> Scope {
        Scope { name, runtime: self.runtime.clone(), tracker: TaskTracker::new(), stop: self.stop.child() }
    }

    /// The signal that the scope's tasks follow.
    #[must_use]
    pub fn stop_signal(&self) -> &Stop {
        &self.stop
    }

    /// Runs `task` to its end.
    pub fn spawn(&self, task_name: &'static str, on_panic: OnPanic, task: impl Future<Output = ()> + Send + 'static) {
        let scope = self.name;
        let caught = CatchPanic(Box::pin(task));
        let watched = async move {
            let Err(panic) = caught.await else { return };
            tracing::error!(scope, task = task_name, panic = panic_text(panic.as_ref()), "a task panicked");
            match on_panic {
                OnPanic::Log => {}
                OnPanic::Tell(tell) => tell(),
                OnPanic::ExitProcess => std::process::exit(70),
            }
        };
        drop(self.tracker.spawn_on(watched, &self.runtime));
    }

    /// The tasks that have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Gives the signal to stop and waits until every task has ended. Cancel-safe: what is still running goes on.
    pub async fn close(&self) {
        self.stop.stop();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

struct CatchPanic(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Future for CatchPanic {
    type Output = Result<(), Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The future is never polled again after a panic, so nobody sees what it left half done.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ok(())),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply;

    #[tokio::test]
    async fn tasks_stop_on_the_signal_and_are_waited_for() {
        let scope = Scope::new("test", Handle::current());
        let child = scope.child("child");
        let (to, mut from) = reply();
        let stop = child.stop_signal().clone();
        child.spawn("one", OnPanic::Log, async move {
            stop.stopped().await;
            to.send(());
        });
        assert_eq!(child.running(), 1);
        scope.close().await;
        child.close().await;
        assert_eq!((from.wait().await, child.running()), (Ok(()), 0));
    }

    #[tokio::test]
    async fn a_panic_is_told() {
        let scope = Scope::new("test", Handle::current());
        let (to, mut from) = reply();
        scope.spawn("bad", OnPanic::Tell(Box::new(move || to.send("told"))), async { panic!("on purpose") });
        assert_eq!(from.wait().await, Ok("told"));
        scope.close().await;
    }
}
