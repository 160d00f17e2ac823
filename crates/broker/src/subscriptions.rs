//! Subscriptions, as operators handle them. Of a partitioned topic what can be done is done on every partition.

use std::collections::BTreeSet;

use geminga_managed_ledger::list_cursors;
use geminga_model::{Position, TopicName, UnixMillis};
use geminga_session::SeekTarget;
use geminga_topic::{SubscriptionOrder, TopicOrder};
use geminga_wire::MessageId;

use crate::admin_error::AdminError;
use crate::broker::Broker;
use crate::topics::is_system_cursor;

impl Broker {
    /// The names of a topic's subscriptions, sorted. A topic that is not open stays so.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`], or metadata cannot be reached.
    pub async fn subscriptions(&self, topic: &TopicName) -> Result<Vec<String>, AdminError> {
        let mut names = BTreeSet::new();
        for topic in self.partitions_or_self(topic).await? {
            if let Some(open) = self.topics().get(&topic) {
                names.extend(self.order_of(open, TopicOrder::Subscriptions).await?);
            } else if self.topic_exists(&topic).await? {
                names.extend(list_cursors(self.ledgers(), &topic).await?);
            } else {
                return Err(AdminError::TopicNotFound(topic));
            }
        }
        Ok(names.into_iter().filter(|name| !is_system_cursor(name)).collect())
    }

    /// Makes a durable subscription that begins at `first`, which may be [`Position::EARLIEST`] or
    /// [`Position::LATEST`]. A topic that does not exist is made, as for a consumer.
    ///
    /// # Errors
    /// [`AdminError::SubscriptionExists`], of a partitioned topic if it is on every partition.
    pub async fn create_subscription(
        &self,
        topic: &TopicName,
        name: &str,
        first: Position,
        properties: Vec<(String, String)>,
    ) -> Result<(), AdminError> {
        if name.is_empty() {
            return Err(AdminError::SubscriptionName);
        }
        let partitions = self.partitions_or_self(topic).await?;
        let is_end = first == Position::EARLIEST || first == Position::LATEST;
        if !is_end && partitions.first() != Some(topic) {
            return Err(AdminError::NotOnPartitioned("Creating a subscription at a message"));
        }
        let mut exists = None;
        let mut made = 0;
        for partition in &partitions {
            let open = if partition.partition().is_some() && !self.topic_exists(partition).await? {
                return Err(AdminError::TopicNotFound(partition.clone()));
            } else {
                self.topic(partition, true).map_err(|_| AdminError::BeingDeleted(partition.to_string()))?
            };
            let (name, properties) = (name.to_owned(), properties.clone());
            let order = |done| TopicOrder::Subscribe { name, first, properties, done };
            match self.order_of(open, order).await {
                Ok(()) => made += 1,
                Err(AdminError::SubscriptionExists(text)) => exists = Some(AdminError::SubscriptionExists(text)),
                Err(error) => return Err(error),
            }
        }
        exists.filter(|_| made == 0).map_or(Ok(()), Err)
    }

    /// Deletes a subscription; with `force` also if consumers are connected, which are cut off.
    ///
    /// # Errors
    /// [`AdminError::SubscriptionNotFound`], [`AdminError::SubscriptionBusy`].
    pub async fn delete_subscription(&self, topic: &TopicName, name: &str, force: bool) -> Result<(), AdminError> {
        self.on_each(topic, name, |done| SubscriptionOrder::Delete(force, done)).await
    }

    /// Acknowledges everything there is.
    ///
    /// # Errors
    /// [`AdminError::SubscriptionNotFound`], [`AdminError::SubscriptionBusy`].
    pub async fn skip_all(&self, topic: &TopicName, name: &str) -> Result<(), AdminError> {
        self.on_each(topic, name, SubscriptionOrder::SkipAll).await
    }

    /// Has a subscription go on with the first message published at `time` or later. Consumers are cut off.
    ///
    /// # Errors
    /// [`AdminError::SubscriptionNotFound`], [`AdminError::SubscriptionBusy`].
    pub async fn reset_to_time(&self, topic: &TopicName, name: &str, time: UnixMillis) -> Result<(), AdminError> {
        self.on_each(topic, name, |done| SubscriptionOrder::Reset(SeekTarget::Time(time), done)).await
    }

    /// Has a subscription go on with the message at `position`, or after it if it is `excluded`. Consumers are cut off.
    ///
    /// # Errors
    /// [`AdminError::SubscriptionNotFound`], [`AdminError::SubscriptionBusy`]; [`AdminError::NotOnPartitioned`] for
    /// anything but the ends of a partitioned topic.
    pub async fn reset_to_message(
        &self,
        topic: &TopicName,
        name: &str,
        position: Position,
        excluded: bool,
    ) -> Result<(), AdminError> {
        let is_end = position == Position::EARLIEST || position == Position::LATEST;
        if !is_end {
            self.check_single(topic, "Reset-cursor at position").await?;
        }
        let first = if excluded && !is_end { position.next() } else { position };
        let target = || SeekTarget::Message(MessageId::of_entry(first));
        self.on_each(topic, name, |done| SubscriptionOrder::Reset(target(), done)).await
    }

    /// Passes over the next `count` entries that are not acknowledged.
    ///
    /// # Errors
    /// [`AdminError::SubscriptionNotFound`], [`AdminError::NotOnPartitioned`].
    pub async fn skip(&self, topic: &TopicName, name: &str, count: u64) -> Result<(), AdminError> {
        self.check_single(topic, "Skip messages").await?;
        self.order_subscription(topic, name, |done| SubscriptionOrder::Skip(count, done)).await
    }

    /// The position of the `n`th entry, from 1, that a subscription has not acknowledged.
    ///
    /// # Errors
    /// [`AdminError::SubscriptionNotFound`], [`AdminError::NotOnPartitioned`], [`AdminError::MessageNotFound`].
    pub async fn nth_unacked(&self, topic: &TopicName, name: &str, n: u64) -> Result<Position, AdminError> {
        self.check_single(topic, "Peek messages").await?;
        let nth = self.order_subscription(topic, name, |to| SubscriptionOrder::Nth(n, to)).await?;
        nth.ok_or(AdminError::MessageNotFound)
    }

    /// On every partition that has the subscription; at least one must have it.
    async fn on_each(
        &self,
        topic: &TopicName,
        name: &str,
        order: impl Fn(geminga_topic::Done) -> SubscriptionOrder + Send + Sync,
    ) -> Result<(), AdminError> {
        let (mut done, mut missing) = (0, None);
        for partition in self.partitions_or_self(topic).await? {
            match self.order_subscription(&partition, name, &order).await {
                Ok(()) => done += 1,
                Err(error @ AdminError::SubscriptionNotFound { .. }) => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        missing.filter(|_| done == 0).map_or(Ok(()), Err)
    }
}
