//! What a subscription has acknowledged.
//!
//! A [`Cursor`] is the mark-delete position, up to which everything is acked, and what is acked beyond it: entries as
//! bitmaps without a cap, and batches acked in part; and how often entries were asked to be delivered again. It says
//! which entries still have to be delivered. [`Extents`] tell it how long each ledger of the topic is, so that it can
//! step from one to the next.
//!
//! A [`SaveLog`] writes what of it is to be stored: snapshots, and deltas between them. A [`Replay`] reads that back.
//!
//! Deliberately not here: who consumes (`dispatch`), where the state is stored (`managed-ledger`).
//!
//! Start reading at [`Cursor`].

mod batch;
mod changes;
mod cursor;
mod extents;
mod replay;
mod save_log;
mod stored;

pub use batch::UnackedSet;
pub use cursor::Cursor;
pub use extents::Extents;
pub use replay::{Replay, StoredCursor, StoredDelta};
pub use save_log::{SaveLimits, SaveLog};
