//! The end of a run: every topic is read, every subscription drained.

use std::time::Duration;

use geminga_client::{ClientError, ReaderOptions, Start};

use crate::consuming::join_all;
use crate::payload;
use crate::plan::{Plan, Setting, Subscription};
use crate::violation::Id;

/// How long a subscription that has given all it must is watched for what it must not give.
const QUIET: Duration = Duration::from_secs(1);
/// How often it may be quiet that long while something is missing.
const MAX_QUIET: u32 = 10;

/// Reads every topic from its earliest message on.
pub(crate) async fn read(setting: &Setting, plan: &Plan) -> Result<(), ClientError> {
    for (index, topic) in plan.topics.into_iter().enumerate() {
        let mut reader = setting.client.reader(topic, ReaderOptions::new(Start::Earliest)).await?;
        while reader.has_message_available().await? {
            let received = reader.read().await?;
            let said = payload::decode(setting.seed, &received.payload);
            setting.history.lock().read(index, Id::from(&received.id), said);
        }
        reader.close().await?;
    }
    Ok(())
}

/// Takes everything that the subscriptions still have.
pub(crate) async fn drain(setting: &Setting, plan: &Plan) -> Result<(), ClientError> {
    let drains = plan.subscriptions.iter().map(|subscription| Box::pin(drain_one(setting, subscription)) as _);
    join_all(drains.collect()).await.into_iter().collect()
}

async fn drain_one(setting: &Setting, subscription: &Subscription) -> Result<(), ClientError> {
    let clock = setting.env.clock;
    let mut consumer = setting.client.subscribe(subscription.topic, subscription.options()).await?;
    let mut quiet = 0;
    while quiet < MAX_QUIET {
        if let Some(received) = consumer.receive_before(clock.now() + QUIET).await? {
            quiet = 0;
            let said = payload::decode(setting.seed, &received.payload);
            setting.history.lock().delivered(subscription.index, Id::from(&received.id), said);
            // Else the broker would stop at its bound of what one consumer may hold.
            consumer.ack(&received.id)?;
        } else if setting.history.lock().missing(subscription.index).is_empty() {
            break;
        } else {
            quiet += 1;
        }
    }
    consumer.close().await
}
