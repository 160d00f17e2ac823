//! The one queue between owners: a locked vector and one waker.
//!
//! [`Mailbox::push`] never waits and fails only when the owner is gone. The owner takes the whole vector at once, so a
//! wake-up carries all that is ready. There is no bound here: what an item weighs is paid for by a [`Permit`] inside
//! it (DESIGN, budgets), and only the edges of the system wait for permits.
//!
//! An empty mailbox owns no memory but its shared state.
//!
//! [`Permit`]: crate::Permit

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// Makes a mailbox and the inbox its owner reads.
#[must_use]
pub fn mailbox<T>() -> (Mailbox<T>, Inbox<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State { items: Vec::new(), waker: None, closed: false }) });
    (Mailbox(Arc::clone(&shared)), Inbox(shared))
}

struct Shared<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    items: Vec<T>,
    waker: Option<Waker>,
    closed: bool,
}

/// The owner is gone; here is the item back, to be answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Closed<T>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed")
    }
}

/// The sending side, for anyone.
pub struct Mailbox<T>(Arc<Shared<T>>);

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<T> Mailbox<T> {
    /// Adds an item and wakes the owner if it waits.
    ///
    /// # Errors
    /// [`Closed`] with the item, if the owner is gone.
    pub fn push(&self, item: T) -> Result<(), Closed<T>> {
        let waker = {
            let mut state = self.0.state.lock();
            if state.closed {
                return Err(Closed(item));
            }
            state.items.push(item);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Adds all items with one wake-up, leaving `items` empty.
    ///
    /// # Errors
    /// [`Closed`] if the owner is gone; `items` is left as it was.
    pub fn push_all(&self, items: &mut Vec<T>) -> Result<(), Closed<()>> {
        let waker = {
            let mut state = self.0.state.lock();
            if state.closed {
                return Err(Closed(()));
            }
            if items.is_empty() {
                return Ok(());
            }
            state.items.append(items);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Whether the owner is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.state.lock().closed
    }

    /// Whether both send to the same owner.
    #[must_use]
    pub fn same_owner(&self, other: &Mailbox<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The owner's side. Dropping it closes the mailbox and drops what was not taken, which answers the replies in it.
pub struct Inbox<T>(Arc<Shared<T>>);

impl<T> Inbox<T> {
    /// Moves everything that arrived into `batch`, which must be empty; its memory becomes the mailbox's next vector.
    pub fn take(&mut self, batch: &mut Vec<T>) {
        debug_assert!(batch.is_empty(), "a batch is worked off before the next is taken");
        std::mem::swap(&mut self.0.state.lock().items, batch);
    }

    /// Waits until something has arrived. Cancel-safe.
    pub async fn wait(&mut self) {
        poll_fn(|context| self.poll_wait(context)).await;
    }

    /// As [`Inbox::wait`], for a hand-written poll.
    pub fn poll_wait(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.state.lock();
        if !state.items.is_empty() {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Blocks this thread until something has arrived or `deadline` has passed. For lanes that are threads.
    pub fn wait_blocking(&mut self, deadline: Option<std::time::Instant>) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let context = Context::from_waker(&waker);
        while self.poll_wait(&context).is_pending() {
            match deadline {
                None => std::thread::park(),
                Some(deadline) => match deadline.checked_duration_since(std::time::Instant::now()) {
                    Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                    _ => return,
                },
            }
        }
    }

    /// Refuses every later push; what has arrived can still be taken.
    pub fn close(&mut self) {
        self.0.state.lock().closed = true;
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.state.lock();
            state.closed = true;
            std::mem::take(&mut state.items)
        };
        // Outside the lock: dropping a reply may push elsewhere.
        drop(left);
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wake_up_carries_all_that_arrived() {
        let (mailbox, mut inbox) = mailbox();
        for item in 0..3 {
            mailbox.push(item).unwrap();
        }
        mailbox.push_all(&mut vec![3, 4]).unwrap();
        inbox.wait().await;
        let mut batch = Vec::new();
        inbox.take(&mut batch);
        assert_eq!(batch, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn closed_gives_the_item_back() {
        let (mailbox, mut inbox) = mailbox();
        mailbox.push(1).unwrap();
        inbox.close();
        assert_eq!(mailbox.push(2), Err(Closed(2)));
        let mut kept = vec![3];
        assert_eq!(mailbox.push_all(&mut kept), Err(Closed(())));
        assert_eq!(kept, [3]);
        let mut batch = Vec::new();
        inbox.take(&mut batch);
        assert_eq!(batch, [1]);
        drop(inbox);
        assert!(mailbox.is_closed());
    }

    #[test]
    fn a_thread_can_wait() {
        let (mailbox, mut inbox) = mailbox();
        let sender = std::thread::spawn(move || mailbox.push(7));
        inbox.wait_blocking(None);
        let mut batch = Vec::new();
        inbox.take(&mut batch);
        assert_eq!(batch, [7]);
        sender.join().unwrap().unwrap();
        inbox.wait_blocking(Some(std::time::Instant::now()));
        inbox.take(&mut Vec::new());
    }

    #[test]
    fn empty_it_owns_no_vector() {
        let (mailbox, mut inbox) = mailbox::<u64>();
        mailbox.push(1).unwrap();
        let mut batch = Vec::new();
        inbox.take(&mut batch);
        assert_eq!(mailbox.0.state.lock().items.capacity(), 0);
    }
}
