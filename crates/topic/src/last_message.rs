//! GET_LAST_MESSAGE_ID: the last message, and how far the subscription has consumed.

use std::sync::Arc;

use geminga_managed_ledger::{Log, ManagedLedgerError};
use geminga_model::{EntryId, LedgerId, Position};
use geminga_session::{Answer, RequestKey};
use geminga_wire::{Entry, MessageId};

use crate::connection::ConnectionHandle;
use crate::refusal::of_log;

/// Answers a request for the last message id.
///
/// Fact: clients compare the mark-delete position with it to know whether there is something to receive; it is left out
/// when the topic has no ledger.
pub(crate) async fn answer(log: Arc<Log>, mark_delete: Position, to: ConnectionHandle, request: RequestKey) {
    let mark_delete = Some(mark_delete).filter(|position| position.ledger >= LedgerId(0));
    match last_message(&log).await {
        Ok(last) => to.answer(request, Ok(Answer::LastMessageId { last, mark_delete })),
        Err(error) => to.answer(request, Err(of_log(&error))),
    }
}

/// The id of the last message, with its index if the last entry is a batch; −1:−1 of a topic without messages.
///
/// # Errors
/// The entry cannot be read; try again.
pub async fn last_message(log: &Log) -> Result<MessageId, ManagedLedgerError> {
    let position = log.last_confirmed();
    if position.entry < EntryId(0) {
        return Ok(MessageId::of_entry(Position::EARLIEST));
    }
    let mut id = MessageId::of_entry(position);
    let read = log.read(position, 1, 0).await?;
    let entry = read.into_iter().next().and_then(|entry| Entry::parse(entry.payload).ok());
    if let Some(summary) = entry.as_ref().and_then(|entry| entry.summary().ok())
        && summary.is_batch()
    {
        id.batch_index = i32::try_from(summary.messages()).unwrap_or(i32::MAX) - 1;
    }
    Ok(id)
}
