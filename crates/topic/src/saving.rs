//! When a subscription's cursor is saved, and who is told.

use std::sync::Arc;
use std::time::Duration;

use geminga_managed_ledger::{CursorEvent, SaveFor, Saved};
use geminga_model::Instant;

use crate::consumers::COALESCE;
use crate::operations::Asker;
use crate::refusal::of_log;
use crate::subscription_task::{Phase, Serving, Subscription};
use crate::topic_handle::TopicItem;

/// Bytes of changes that are saved at once, though nobody waits.
const COALESCE_BYTES: usize = 64 << 10;
/// How long redelivery counts alone wait to be saved.
pub(crate) const COALESCE_COUNTS: Duration = Duration::from_secs(1);

impl Subscription {
    /// Something may have been acked: when is it stored, and who waits for that?
    pub(crate) fn acked(&mut self, asker: Option<Asker>) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        let revision = serving.cursor.revision();
        let stored = !self.durable || revision <= serving.saved;
        match asker {
            Some(asker) if stored => asker.answer(Ok(())),
            Some(asker) => {
                serving.receipts.push_back((revision, asker));
                serving.save_at = Some(Instant::default());
            }
            None if stored => {}
            None if serving.cursor.unsaved_bytes() >= COALESCE_BYTES => serving.save_at = Some(Instant::default()),
            None => self.save_within(COALESCE),
        }
    }

    /// What changed waits for other changes, for so long at most.
    pub(crate) fn save_within(&mut self, delay: Duration) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        if self.durable && serving.cursor.revision() > serving.saved {
            let later = self.env.clock.now() + delay;
            serving.save_at = Some(serving.save_at.map_or(later, |at| at.min(later)));
        }
    }

    pub(crate) fn cursor_event(&mut self, event: CursorEvent) {
        let now = self.env.clock.now();
        let (Phase::Serving(serving) | Phase::Closing(serving, _)) = &mut self.phase else { return };
        let Some(store) = &mut serving.store else { return };
        match store.handle_event(now, event, &mut serving.cursor) {
            None => {}
            Some(Saved::Durable(revision)) => {
                serving.saved = serving.saved.max(revision);
                serving.saved_mark_delete = serving.saving_mark_delete;
                while let Some((_, asker)) = serving.receipts.pop_front_if(|(r, _)| *r <= revision) {
                    asker.answer(Ok(()));
                }
                if serving.cursor.revision() <= serving.saved {
                    serving.save_at = None;
                }
            }
            Some(Saved::Failed(error)) => {
                let why = of_log(&error);
                serving.consumers.close_all();
                serving.receipts.drain(..).for_each(|(_, asker)| asker.answer(Err(why.clone())));
                drop(self.to_topic.push(TopicItem::SubscriptionFailed(Arc::clone(&self.name), error)));
                self.gone(why);
            }
        }
    }

    /// The topic trims by it, so it need only know the ledger.
    pub(crate) fn tell_mark_delete(&mut self) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        let mark_delete = serving.cursor.mark_delete().min(serving.saved_mark_delete);
        let next = self.log.with_extents(|extents| extents.next(mark_delete)).unwrap_or(mark_delete);
        if self.durable && serving.told_mark_delete.map(|told| told.ledger) != Some(next.ledger) {
            serving.told_mark_delete = Some(next);
            drop(self.to_topic.push(TopicItem::MarkDeleted(Arc::clone(&self.name), mark_delete)));
        }
    }
}

impl Serving {
    /// Whether what is stored is all there is; `exactly`, also to whoever opens it next.
    pub(crate) fn is_saved(&self, exactly: bool) -> bool {
        let Some(store) = &self.store else { return true };
        self.cursor.revision() <= self.saved && (store.is_exact() || !exactly)
    }

    /// Saves the state if it is time and no save is under way.
    pub(crate) fn save(&mut self, now: Instant, closes: bool) {
        let dirty = !self.is_saved(closes);
        let Some(store) = &mut self.store else { return };
        if store.deadline().is_some_and(|deadline| deadline <= now) {
            store.handle_timeout(now);
        }
        if dirty && !store.is_busy() && (closes || self.save_at.is_some_and(|at| at <= now)) {
            self.save_at = None;
            self.saving_mark_delete = self.cursor.mark_delete();
            let why = match self.receipts.is_empty() {
                _ if closes => SaveFor::Close,
                true => SaveFor::Time,
                false => SaveFor::Receipt,
            };
            store.save(now, &mut self.cursor, why);
        }
        store.flush();
    }
}
