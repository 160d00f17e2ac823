//! What changed in a cursor since it was last saved.

use geminga_model::Position;

/// Changes that are kept; with more the whole state is saved instead. A mebibyte of positions.
const MOST: usize = 1 << 16;

/// Positions that changed, in the order in which they did, possibly several times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changes {
    /// Nobody saves the cursor, or the next save is a whole state anyway: nothing is kept.
    whole: Option<Whole>,
    pub(crate) acked: Vec<Position>,
    pub(crate) batches: Vec<Position>,
    pub(crate) redelivered: Vec<Position>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Whole {
    /// Until the next save.
    Once,
    /// For ever.
    Unsaved,
}

impl Changes {
    /// Of a cursor that nobody saves.
    pub(crate) fn unsaved() -> Changes {
        Changes { whole: Some(Whole::Unsaved), ..Changes::default() }
    }

    /// From now on they are kept, beginning with a whole state.
    pub(crate) fn keep(&mut self) {
        *self = Changes { whole: Some(Whole::Once), ..Changes::default() };
    }

    /// The state is another one altogether.
    pub(crate) fn forget(&mut self) {
        let whole = self.whole.unwrap_or(Whole::Once);
        *self = Changes { whole: Some(whole), ..Changes::default() };
    }

    pub(crate) fn acked(&mut self, position: Position) {
        if self.has_room() {
            self.acked.push(position);
        }
    }

    pub(crate) fn in_batch(&mut self, position: Position) {
        if self.has_room() {
            self.batches.push(position);
        }
    }

    pub(crate) fn redelivered(&mut self, position: Position) {
        if self.has_room() {
            self.redelivered.push(position);
        }
    }

    /// What is kept, sorted and without doubles; `None` if the whole state has to be saved. Begins anew.
    pub(crate) fn take(&mut self) -> Option<Changes> {
        if self.whole == Some(Whole::Unsaved) {
            return None;
        }
        let mut taken = std::mem::take(self);
        for positions in [&mut taken.acked, &mut taken.batches, &mut taken.redelivered] {
            positions.sort_unstable();
            positions.dedup();
        }
        taken.whole.is_none().then_some(taken)
    }

    pub(crate) fn len(&self) -> usize {
        self.acked.len() + self.batches.len() + self.redelivered.len()
    }

    fn has_room(&mut self) -> bool {
        if self.whole.is_none() && self.len() >= MOST {
            self.forget();
        }
        self.whole.is_none()
    }
}
