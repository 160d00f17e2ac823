//! The answer to a request between owners.
//!
//! A request owns the room for its answer. A [`Reply`] that is dropped unanswered answers [`Unanswered`], so nobody
//! waits for an owner that is gone.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// The other side went away without an answer: it was stopped, or it failed. The request may or may not have had its
/// effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before it answered")]
pub struct Unanswered;

/// The right, and the duty, to answer once.
pub struct Reply<T>(Option<Deliver<T>>);

type Deliver<T> = Box<dyn FnOnce(Result<T, Unanswered>) + Send>;

impl<T> Reply<T> {
    /// A reply that is handed to `deliver` on the answering side. For owners: push an item into their own mailbox.
    pub fn to(deliver: impl FnOnce(Result<T, Unanswered>) + Send + 'static) -> Reply<T> {
        Reply(Some(Box::new(deliver)))
    }

    /// Answers.
    pub fn send(mut self, answer: T) {
        if let Some(deliver) = self.0.take() {
            deliver(Ok(answer));
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(deliver) = self.0.take() {
            deliver(Err(Unanswered));
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// Makes a reply and the side that awaits it.
#[must_use]
pub fn reply<T: Send + 'static>() -> (Reply<T>, Pending<T>) {
    let slot = Arc::new(Mutex::new(Slot { answer: None, waker: None }));
    let filled = Arc::clone(&slot);
    let reply = Reply::to(move |answer| {
        let waker = {
            let mut slot = filled.lock();
            slot.answer = Some(answer);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    (reply, Pending(slot))
}

struct Slot<T> {
    answer: Option<Result<T, Unanswered>>,
    waker: Option<Waker>,
}

/// An answer that is under way.
pub struct Pending<T>(Arc<Mutex<Slot<T>>>);

impl<T> Pending<T> {
    /// Waits for the answer. Cancel-safe: until it returned, the answer stays.
    ///
    /// # Errors
    /// [`Unanswered`] if the other side dropped the reply.
    pub async fn wait(&mut self) -> Result<T, Unanswered> {
        poll_fn(|context| {
            let mut slot = self.0.lock();
            match slot.answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    slot.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_arrives_once() {
        let (to, mut from) = reply();
        to.send(5);
        assert_eq!(from.wait().await, Ok(5));
    }

    #[tokio::test]
    async fn dropped_it_still_answers() {
        let (to, mut from) = reply::<u8>();
        let waiting = tokio::spawn(async move { from.wait().await });
        drop(to);
        assert_eq!(waiting.await.unwrap(), Err(Unanswered));
    }
}
