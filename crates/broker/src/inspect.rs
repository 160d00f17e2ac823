//! What topics tell: statistics, ledgers, single messages; and what ends or moves a whole topic.

use std::collections::BTreeMap;
use std::sync::Arc;

use geminga_admin_model::{InternalStats, LedgerStats, PartitionedTopicStats, SubscriptionStats, TopicStats};
use geminga_env::reply;
use geminga_managed_ledger::{Log, StoredLog, read_stored};
use geminga_model::{Position, TopicName, UnixMillis};
use geminga_session::SeekTarget;
use geminga_topic::{TopicMeasures, TopicOrder, find_position, last_message};
use geminga_wire::{Entry, MessageId};

use crate::admin_error::AdminError;
use crate::broker::Broker;

/// Topics whose numbers are taken before others may run.
const MEASURED_AT_ONCE: usize = 500;

impl Broker {
    /// The statistics of a topic. Of one that is not open, what metadata tell; it stays so.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`], or metadata cannot be reached.
    pub async fn stats(&self, topic: &TopicName) -> Result<TopicStats, AdminError> {
        self.check_topic(topic).await?;
        if let Some(open) = self.topics().get(topic) {
            let (to, mut from) = reply();
            open.stats(to);
            if let Ok(stats) = self.before_deadline(topic, from.wait()).await? {
                return Ok(stats);
            }
        }
        Ok(stats_of(&self.stored(topic).await?))
    }

    /// What is stored of a topic.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`], or metadata cannot be reached.
    pub async fn stored(&self, topic: &TopicName) -> Result<StoredLog, AdminError> {
        self.check_topic(topic).await?;
        let stored = read_stored(self.ledgers(), topic).await?;
        stored.ok_or_else(|| AdminError::TopicNotFound(topic.clone()))
    }

    /// The statistics of a partitioned topic.
    ///
    /// # Errors
    /// [`AdminError::PartitionedTopicNotFound`], or metadata cannot be reached.
    pub async fn partitioned_stats(&self, topic: &TopicName, each: bool) -> Result<PartitionedTopicStats, AdminError> {
        self.check_topic(topic).await?;
        let Some((whole, _)) = self.partitioned_topic(topic).await? else {
            return Err(AdminError::PartitionedTopicNotFound(topic.clone()));
        };
        let (mut total, mut partitions) = (TopicStats::default(), BTreeMap::new());
        for index in 0..whole.partitions {
            let partition = topic.with_partition(index);
            match self.stats(&partition).await {
                Ok(stats) => {
                    total.add(&stats);
                    if each {
                        partitions.insert(partition.to_string(), stats);
                    }
                }
                // It was deleted alone.
                Err(AdminError::TopicNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let metadata = serde_json::to_value(&whole).unwrap_or_default();
        Ok(PartitionedTopicStats { total, metadata, partitions })
    }

    /// The ledgers and cursors of a topic. Of one that is not open, what metadata tell; it stays so.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`], or metadata cannot be reached.
    pub async fn internal_stats(&self, topic: &TopicName) -> Result<InternalStats, AdminError> {
        self.check_topic(topic).await?;
        if let Some(open) = self.topics().get(topic) {
            let (to, mut from) = reply();
            open.internal_stats(to);
            if let Ok(stats) = self.before_deadline(topic, from.wait()).await? {
                return Ok(stats);
            }
        }
        Ok(internal_stats_of(&self.stored(topic).await?))
    }

    async fn log(&self, topic: &TopicName, what: &'static str) -> Result<Arc<Log>, AdminError> {
        self.check_single(topic, what).await?;
        self.order(topic, TopicOrder::Log).await
    }

    /// The id of the last message; −1:−1 if there is none.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`], or the entry cannot be read.
    pub async fn last_message_id(&self, topic: &TopicName) -> Result<MessageId, AdminError> {
        let log = self.log(topic, "Get-last-message-id").await?;
        Ok(self.before_deadline(topic, last_message(&log)).await??)
    }

    /// The first entry that was published at `time` or later, if there is one.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`], or an entry cannot be read.
    pub async fn position_at(&self, topic: &TopicName, time: UnixMillis) -> Result<Option<Position>, AdminError> {
        let log = self.log(topic, "Get message ID by timestamp").await?;
        let before = self.before_deadline(topic, find_position(&log, &SeekTarget::Time(time))).await??;
        Ok(log.with_extents(|extents| extents.next(before)))
    }

    /// An entry of a topic.
    ///
    /// # Errors
    /// [`AdminError::MessageNotFound`], [`AdminError::TopicNotFound`], or it cannot be read.
    pub async fn entry(&self, topic: &TopicName, position: Position) -> Result<Entry, AdminError> {
        let log = self.log(topic, "Get message by ID").await?;
        if !log.has(position) {
            return Err(AdminError::MessageNotFound);
        }
        let read = self.before_deadline(topic, log.read(position, 1, 0)).await??;
        let payload = read.into_iter().next().ok_or(AdminError::MessageNotFound)?.payload;
        Entry::parse(payload).map_err(|error| AdminError::Unreadable(position, error.to_string()))
    }

    /// Ends a topic for ever, and tells its last position. Producers are refused from now on; consumers hear of it when they
    /// have consumed everything.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`], [`AdminError::NotOnPartitioned`], or what stops it; then it can be repeated.
    pub async fn terminate(&self, topic: &TopicName) -> Result<Position, AdminError> {
        self.check_single(topic, "Termination").await?;
        self.order(topic, TopicOrder::Terminate).await
    }

    /// Ends every partition.
    ///
    /// # Errors
    /// As of [`Broker::terminate`].
    pub async fn terminate_partitions(&self, topic: &TopicName) -> Result<Vec<(u32, Position)>, AdminError> {
        let mut ends = Vec::new();
        for (index, partition) in (0..).zip(self.partitions_or_self(topic).await?) {
            ends.push((index, self.order(&partition, TopicOrder::Terminate).await?));
        }
        Ok(ends)
    }

    /// Closes a topic, or all partitions; clients look it up again, which opens it anew.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`].
    pub async fn unload(&self, topic: &TopicName) -> Result<(), AdminError> {
        for partition in self.partitions_or_self(topic).await? {
            if let Some(open) = self.topics().get(&partition) {
                let (done, mut closed) = reply();
                open.close(done);
                // One that went away without an answer is closed.
                let _ = self.before_deadline(&partition, closed.wait()).await?;
            } else if !self.topic_exists(&partition).await? {
                return Err(AdminError::TopicNotFound(partition));
            }
        }
        Ok(())
    }

    /// The topics that are open, in numbers. No topic is woken for it, however many there are.
    pub async fn measure(&self) -> Vec<(TopicName, TopicMeasures)> {
        let now = self.env().clock.now();
        let topics = self.topics().all();
        let mut measured = Vec::with_capacity(topics.len());
        for some in topics.chunks(MEASURED_AT_ONCE) {
            measured.extend(some.iter().map(|topic| (topic.name().clone(), topic.measure(now))));
            tokio::task::yield_now().await;
        }
        measured
    }
}

fn stats_of(stored: &StoredLog) -> TopicStats {
    let subscription = |cursor: &geminga_managed_ledger::StoredCursorNode| {
        let backlog = stored.backlog(&cursor.info);
        let stats = SubscriptionStats {
            msg_backlog: backlog,
            msg_backlog_no_delayed: backlog,
            backlog_size: -1,
            is_durable: true,
            durable: true,
            subscription_properties: cursor.info.cursor_properties.iter().cloned().collect(),
            ..SubscriptionStats::default()
        };
        (cursor.name.clone(), stats)
    };
    TopicStats {
        storage_size: stored.size(),
        subscriptions: stored.cursors.iter().map(subscription).collect(),
        deduplication_status: "Disabled".to_owned(),
        ..TopicStats::default()
    }
}

fn internal_stats_of(stored: &StoredLog) -> InternalStats {
    let ledgers: Vec<LedgerStats> = (stored.info.ledgers.iter())
        .map(|ledger| LedgerStats {
            ledger_id: ledger.ledger.0,
            entries: ledger.entries.unwrap_or(0),
            size: ledger.size.unwrap_or(0),
            ..LedgerStats::default()
        })
        .collect();
    let cursors = stored.cursors.iter().map(|cursor| {
        let stats = geminga_admin_model::CursorStats {
            mark_delete_position: cursor.info.mark_delete.map(|at| at.to_string()).unwrap_or_default(),
            cursor_ledger: cursor.info.cursor_ledger.0,
            state: "Closed".to_owned(),
            ..Default::default()
        };
        (cursor.name.clone(), stats)
    });
    InternalStats {
        number_of_entries: ledgers.iter().map(|ledger| ledger.entries.unsigned_abs()).sum(),
        total_size: stored.size(),
        state: if stored.info.terminated.is_some() { "Terminated" } else { "Closed" }.to_owned(),
        cursors: cursors.collect(),
        ledgers,
        ..InternalStats::default()
    }
}
