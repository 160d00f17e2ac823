//! What the machine itself can do, in the same minute as the server.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use geminga_wire::Command;

use crate::connection::Connection;

/// Figures of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Median of writing 4 KiB over old bytes and syncing it.
    pub(crate) sync: Duration,
    /// Bytes a second, written over old bytes in pieces of 4 MiB, each synced.
    pub(crate) sequential: f64,
    /// Median of one small frame and its answer through the server's sockets, without storage.
    pub(crate) round_trip: Duration,
}

const FILE_BYTES: u64 = 256 << 20;
const PIECE: usize = 4 << 20;

pub(crate) fn disk(folder: &Path) -> Result<(Duration, f64), String> {
    let path = folder.join("probe");
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).map_err(fail)?;
    let piece = vec![7_u8; PIECE];
    write_through(&file, &piece).map_err(fail)?;
    let started = Instant::now();
    write_through(&file, &piece).map_err(fail)?;
    let sequential = FILE_BYTES as f64 / started.elapsed().as_secs_f64();
    let small = piece.get(..4096).unwrap_or_default();
    let mut took = Vec::new();
    for index in 0..1000_u64 {
        let started = Instant::now();
        file.write_all_at(small, index * 4096).and_then(|()| file.sync_data()).map_err(fail)?;
        took.push(started.elapsed());
    }
    std::fs::remove_file(&path).map_err(fail)?;
    Ok((median(took), sequential))
}

fn write_through(file: &File, piece: &[u8]) -> std::io::Result<()> {
    for at in (0..FILE_BYTES).step_by(PIECE) {
        file.write_all_at(piece, at)?;
        file.sync_data()?;
    }
    Ok(())
}

/// PING and PONG take the path of a SEND and its receipt, but for topic and storage.
pub(crate) fn round_trip(connection: &mut Connection) -> Result<Duration, String> {
    let mut took = Vec::new();
    for _ in 0..2000 {
        let started = Instant::now();
        connection.send(&Command::PING)?;
        while !matches!(connection.next()?.0, Command::Pong(_)) {}
        took.push(started.elapsed());
    }
    Ok(median(took))
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took.get(took.len() / 2).copied().unwrap_or_default()
}
