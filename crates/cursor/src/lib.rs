//! What a subscription has acknowledged.
//!
//! A [`Cursor`] is the mark-delete position, up to which everything is acked, and what is acked beyond it: entries as
//! bitmaps without a cap, and batches acked in part. It says what of it is to be stored, and which entries still have
//! to be delivered. [`Extents`] tell it how long each ledger of the topic is, so that it can step from one to the next.
//!
//! Deliberately not here: who consumes (`dispatch`), where the state is stored (`managed-ledger`).
//!
//! Start reading at [`Cursor`].

mod batch;
mod cursor;
mod extents;

pub use batch::UnackedSet;
pub use cursor::Cursor;
pub use extents::Extents;
