//! What operators ask of a topic and its subscriptions, and who is answered.

use std::sync::Arc;

use geminga_env::Reply;
use geminga_managed_ledger::Log;
use geminga_model::Position;
use geminga_session::{Answer, Refusal, RequestKey, SeekTarget};

use crate::connection::ConnectionHandle;

/// Whoever asked for something: done or refused.
pub type Done = Reply<Result<(), Refusal>>;

/// Something that an operator asks of a subscription. A subscription that is not there refuses with
/// `SubscriptionNotFound`.
#[derive(Debug)]
pub enum SubscriptionOrder {
    /// Pass over the next so many entries that are not acknowledged.
    Skip(u64, Done),
    /// Pass over everything there is.
    SkipAll(Done),
    /// Go on elsewhere. Consumers are cut off.
    Reset(SeekTarget, Done),
    /// Delete it, with force even if consumers are connected.
    Delete(bool, Done),
    /// Tell the position of the nth entry, from 1, that is not acknowledged; `None` if there are fewer.
    Nth(u64, Reply<Result<Option<Position>, Refusal>>),
}

impl SubscriptionOrder {
    pub(crate) fn refuse(self, why: &Refusal) {
        match self {
            SubscriptionOrder::Skip(_, done)
            | SubscriptionOrder::SkipAll(done)
            | SubscriptionOrder::Reset(_, done)
            | SubscriptionOrder::Delete(_, done) => done.send(Err(why.clone())),
            SubscriptionOrder::Nth(_, to) => to.send(Err(why.clone())),
        }
    }
}

/// Something that an operator asks of a topic.
#[derive(Debug)]
pub enum TopicOrder {
    /// Hand out the read side of the log.
    Log(Reply<Result<Arc<Log>, Refusal>>),
    /// Take no more messages for ever, and tell the last position.
    Terminate(Reply<Result<Position, Refusal>>),
    /// Tell the names of its subscriptions.
    Subscriptions(Reply<Result<Vec<String>, Refusal>>),
    /// Make a durable subscription that begins with the message at this position, or at an end of the topic.
    Subscribe {
        /// Its name.
        name: String,
        /// Where it begins.
        first: Position,
        /// What is said of it.
        properties: Vec<(String, String)>,
        /// Who is told when it is there.
        done: Done,
    },
    /// Something of this subscription.
    Subscription(String, SubscriptionOrder),
}

impl TopicOrder {
    pub(crate) fn refuse(self, why: &Refusal) {
        match self {
            TopicOrder::Log(to) => to.send(Err(why.clone())),
            TopicOrder::Terminate(to) => to.send(Err(why.clone())),
            TopicOrder::Subscriptions(to) => to.send(Err(why.clone())),
            TopicOrder::Subscribe { done, .. } => done.send(Err(why.clone())),
            TopicOrder::Subscription(_, order) => order.refuse(why),
        }
    }
}

/// Why a topic was not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StillUsed {
    /// It is being opened: for somebody.
    Opening,
    /// Clients are connected.
    Clients {
        /// This many producers.
        producers: usize,
        /// This many consumers.
        consumers: usize,
    },
}

/// Who asked for something that takes time.
#[derive(Debug)]
pub(crate) enum Asker {
    Client(RequestKey, ConnectionHandle),
    Operator(Done),
}

impl Asker {
    pub(crate) fn answer(self, result: Result<(), Refusal>) {
        match self {
            Asker::Client(request, connection) => connection.answer(request, result.map(|()| Answer::Done)),
            Asker::Operator(done) => done.send(result),
        }
    }
}
