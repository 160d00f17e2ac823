//! Ledgers that have one entry from the start and for ever.

use std::sync::Arc;

use bytes::Bytes;
use geminga_env::{Inbox, Mailbox, mailbox};
use geminga_model::{EntryId, Instant, LedgerId};
use geminga_quorum::WriterState;

use crate::{CreateLedger, LedgerClient, LedgerError, LedgerEvent, LedgerSink, Writer};

struct ToTask(Mailbox<LedgerEvent>);

impl LedgerSink for ToTask {
    fn deliver(&self, event: LedgerEvent) {
        // Whoever waited has given up.
        drop(self.0.push(event));
    }
}

/// Writes a ledger whose only entry is `payload`, entry 0, and closes it. Once this returns the entry is stored for sure.
pub(crate) async fn create_single(
    client: &LedgerClient,
    create: &CreateLedger,
    payload: Bytes,
    deadline: Instant,
) -> Result<LedgerId, LedgerError> {
    let (items, inbox) = mailbox();
    let created = client.create(create).await?;
    let ledger = created.ledger;
    let mut writer = client.writer(created, Arc::new(ToTask(items)));
    writer.add(payload);
    if let Err(error) = confirm(client, &mut writer, inbox, deadline).await {
        // Nothing names it; if this fails too it remains, and nobody reads it.
        if let Err(error) = client.delete(ledger).await {
            tracing::warn!(%ledger, %error, "a ledger that was given up remains");
        }
        return Err(error);
    }
    // The entry can be read from an open ledger as well; who needs its end finds it by recovery.
    if let Err(error) = writer.close().await {
        tracing::warn!(%ledger, %error, "a ledger with its one entry is left open");
    }
    Ok(ledger)
}

async fn confirm(
    client: &LedgerClient,
    writer: &mut Writer,
    mut inbox: Inbox<LedgerEvent>,
    deadline: Instant,
) -> Result<(), LedgerError> {
    let clock = client.env().clock;
    let mut batch = Vec::new();
    loop {
        writer.flush();
        if writer.last_add_confirmed() >= EntryId(0) {
            return Ok(());
        }
        if writer.state() != WriterState::Open || clock.now() >= deadline {
            return Err(LedgerError::NotWritten(writer.ledger()));
        }
        let until = writer.deadline().map_or(deadline, |timer| timer.min(deadline));
        tokio::select! {
            biased;
            () = inbox.wait() => {}
            () = clock.sleep_until(until) => writer.handle_timeout(clock.now()),
        }
        inbox.take(&mut batch);
        let now = clock.now();
        batch.drain(..).for_each(|event| writer.handle_event(now, event));
    }
}
