//! How operators' orders reach topics: the topic is opened if it exists, asked, and waited for with a deadline.

use std::future::Future;
use std::time::Duration;

use geminga_env::{Pending, Reply, reply};
use geminga_model::TopicName;
use geminga_session::Refusal;
use geminga_topic::{SubscriptionOrder, TopicHandle, TopicOrder};
use geminga_wire::ServerError;

use crate::admin_error::AdminError;
use crate::broker::Broker;

/// How long an operator waits for a topic, which may have to be opened first.
const DEADLINE: Duration = Duration::from_secs(60);

impl Broker {
    /// The topic itself, and no partitioned topic.
    pub(crate) async fn check_single(&self, topic: &TopicName, what: &'static str) -> Result<(), AdminError> {
        self.check_topic(topic).await?;
        if topic.partition().is_none() && self.partitioned_topic(topic).await?.is_some() {
            return Err(AdminError::NotOnPartitioned(what));
        }
        Ok(())
    }

    /// The partitions of a partitioned topic; a topic without partitions alone.
    pub(crate) async fn partitions_or_self(&self, topic: &TopicName) -> Result<Vec<TopicName>, AdminError> {
        self.check_topic(topic).await?;
        let whole = if topic.partition().is_none() { self.partitioned_topic(topic).await? } else { None };
        Ok(match whole {
            Some((whole, _)) => (0..whole.partitions).map(|index| topic.with_partition(index)).collect(),
            None => vec![topic.clone()],
        })
    }

    /// The topic, opened if it exists.
    async fn existing(&self, topic: &TopicName) -> Result<TopicHandle, AdminError> {
        if let Some(open) = self.topics().get(topic) {
            return Ok(open);
        }
        if !self.topic_exists(topic).await? {
            return Err(AdminError::TopicNotFound(topic.clone()));
        }
        self.topic(topic, false).map_err(|_| AdminError::BeingDeleted(topic.to_string()))
    }

    /// Has a topic do something, and waits until it is done.
    pub(crate) async fn order<T: Send + 'static>(
        &self,
        topic: &TopicName,
        order: impl FnOnce(Reply<Result<T, Refusal>>) -> TopicOrder + Send,
    ) -> Result<T, AdminError> {
        self.order_of(self.existing(topic).await?, order).await
    }

    pub(crate) async fn order_of<T: Send + 'static>(
        &self,
        topic: TopicHandle,
        order: impl FnOnce(Reply<Result<T, Refusal>>) -> TopicOrder + Send,
    ) -> Result<T, AdminError> {
        let (to, from) = reply();
        topic.order(order(to));
        let answer = self.await_topic(topic.name(), from).await?;
        answer.map_err(|refusal| of_refusal(topic.name(), refusal))
    }

    /// Has a subscription do something, and waits until it is done.
    pub(crate) async fn order_subscription<T: Send + 'static>(
        &self,
        topic: &TopicName,
        subscription: &str,
        order: impl FnOnce(Reply<Result<T, Refusal>>) -> SubscriptionOrder + Send,
    ) -> Result<T, AdminError> {
        let done = self.order(topic, |to| TopicOrder::Subscription(subscription.to_owned(), order(to))).await;
        done.map_err(|error| match error {
            AdminError::Refused(refusal) if refusal.error == ServerError::SubscriptionNotFound => {
                AdminError::SubscriptionNotFound { topic: topic.clone(), subscription: subscription.to_owned() }
            }
            other => other,
        })
    }

    /// The answer of a topic.
    pub(crate) async fn await_topic<T>(&self, topic: &TopicName, mut answer: Pending<T>) -> Result<T, AdminError> {
        let answered = self.before_deadline(topic, answer.wait()).await?;
        answered.map_err(|_| AdminError::NotReady(format!("{topic} is being closed: try again")))
    }

    pub(crate) async fn before_deadline<T>(
        &self,
        topic: &TopicName,
        work: impl Future<Output = T>,
    ) -> Result<T, AdminError> {
        let clock = self.env().clock;
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = clock.sleep_until(clock.now() + DEADLINE) => Err(AdminError::Late(topic.clone(), DEADLINE)),
        }
    }
}

fn of_refusal(topic: &TopicName, refusal: Refusal) -> AdminError {
    match refusal.error {
        ServerError::TopicNotFound => AdminError::TopicNotFound(topic.clone()),
        ServerError::ServiceNotReady => AdminError::NotReady(refusal.message),
        ServerError::ConsumerBusy => AdminError::SubscriptionBusy(refusal.message),
        ServerError::NotAllowedError => AdminError::SubscriptionExists(refusal.message),
        _ => AdminError::Refused(refusal),
    }
}
