//! What a bookie stores and sends: the layout of an entry, its digest, and the master key of a ledger.
//!
//! Deliberately not here: the request and response frames of BookKeeper's protocols, which come with bookies on the
//! network.
//!
//! A writer seals a payload into an [`Entry`]; a reader opens the bytes of one with the same [`Digester`]. The bookie in
//! between never checks a digest: it only reads the ids and the last-add-confirmed at fixed places.
//!
//! Start reading at [`Entry`].

mod digest;
mod entry;
mod key;

pub use digest::Digester;
pub use entry::{Entry, EntryError, EntryHead, EntryHeader, HEADER_LEN, OpenedEntry};
pub use key::{MASTER_KEY_LEN, MasterKey};
