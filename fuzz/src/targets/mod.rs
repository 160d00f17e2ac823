//! The targets, one a file.

pub mod bookie_entries;
pub mod bookie_store;
pub mod cursor_replay;
pub mod names;
pub mod properties;
pub mod records;
pub mod rest_bodies;
pub mod schemas;
pub mod session;
pub mod wire_batches;
pub mod wire_commands;
pub mod wire_entries;

/// The first byte, which chooses, and the rest.
fn choice(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (*first, rest))
}

/// Takes a part off the front: one whose length, of two bytes, stands before it, or all that is left.
fn part<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first_chunk::<2>()?;
    let (part, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*length).into()));
    *data = rest;
    Some(part)
}
