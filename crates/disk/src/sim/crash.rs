//! What a power cut leaves behind: chosen by seed, or every possibility in turn.

use super::medium::{FileOp, Medium, SECTOR, sectors};
use super::seeded::Seeded;

/// Lets a seeded power cut happen: every operation that was not synced is applied, lost or torn.
pub(super) fn cut_power(medium: &mut Medium, seeded: &mut Seeded) {
    let lost_names = match seeded.below(4) {
        0 => 0,
        1 => 100,
        _ => 50,
    };
    for op in std::mem::take(&mut medium.pending_names) {
        if !seeded.chance(lost_names) {
            op.apply(&mut medium.durable_names);
        }
    }
    for inode in medium.inodes.values_mut() {
        settle(&mut inode.durable, std::mem::take(&mut inode.pending), seeded);
    }
    medium.forget_the_rest();
}

/// Decides the fate of the unsynced operations of one file. Their order is free, because no sync stands between them.
pub(super) fn settle(image: &mut Vec<u8>, mut pending: Vec<FileOp>, seeded: &mut Seeded) {
    let (lost, torn) = match seeded.below(8) {
        0 => (0, 0),
        1 => (100, 0),
        2 => (0, 60),
        3 => (80, 10),
        _ => (35, 25),
    };
    if seeded.chance(20) {
        seeded.shuffle(&mut pending);
    }
    for op in pending {
        if seeded.chance(lost) {
            continue;
        }
        if !seeded.chance(torn) {
            op.apply(image, |_| true);
        } else if seeded.chance(50) {
            let mut holes = seeded.clone();
            op.apply(image, |_| holes.chance(50));
            seeded.bits();
        } else {
            let FileOp::Write { offset, data } = &op else { continue };
            let kept = seeded.below(data.len() as u64 / SECTOR + 1);
            let first = offset / SECTOR;
            op.apply(image, |sector| sector - first < kept);
        }
    }
}

/// A piece of unsynced work that a crash keeps or loses as a whole.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Name(usize),
    File { inode: u64, op: usize, first_sector: u64, end_sector: u64 },
}

/// How finely writes are taken apart so that the number of images stays within bounds.
#[derive(Clone, Copy, Debug)]
enum Grain {
    Sector,
    Half,
    Whole,
}

/// Every image that a crash could leave, see [`SimDisk::crash_images`](super::SimDisk::crash_images).
#[derive(Debug)]
pub struct CrashImages {
    medium: Medium,
    units: Vec<Unit>,
    next: u64,
}

impl CrashImages {
    /// Prepares the enumeration; `None` if there are more than `max_units` unsynced operations.
    pub(super) fn of(medium: &Medium, max_units: usize) -> Option<CrashImages> {
        let max_units = max_units.min(20);
        let units = [Grain::Sector, Grain::Half, Grain::Whole]
            .into_iter()
            .map(|grain| units(medium, grain))
            .find(|units| units.len() <= max_units)?;
        Some(CrashImages { medium: medium.clone(), units, next: 0 })
    }

    /// How many images there are.
    #[must_use]
    pub fn count_images(&self) -> u64 {
        1 << self.units.len()
    }

    pub(super) fn next_medium(&mut self) -> Option<Medium> {
        if self.next >= self.count_images() {
            return None;
        }
        let mask = self.next;
        self.next += 1;
        let mut medium = self.medium.clone();
        let kept = |index: usize| mask >> index & 1 == 1;
        for (_, unit) in self.units.iter().enumerate().filter(|(index, _)| kept(*index)) {
            match *unit {
                Unit::Name(op) => self.medium.pending_names[op].apply(&mut medium.durable_names),
                Unit::File { inode, op, first_sector, end_sector } => {
                    if let Some(inode) = medium.inodes.get_mut(&inode) {
                        inode.pending[op]
                            .apply(&mut inode.durable, |sector| (first_sector..end_sector).contains(&sector));
                    }
                }
            }
        }
        medium.forget_the_rest();
        Some(medium)
    }
}

fn units(medium: &Medium, grain: Grain) -> Vec<Unit> {
    let mut units: Vec<Unit> = (0..medium.pending_names.len()).map(Unit::Name).collect();
    for (&id, inode) in &medium.inodes {
        for (index, op) in inode.pending.iter().enumerate() {
            let unit = |first_sector, end_sector| Unit::File { inode: id, op: index, first_sector, end_sector };
            let FileOp::Write { offset, data } = op else {
                units.push(unit(0, u64::MAX));
                continue;
            };
            let all: Vec<u64> = sectors(*offset, data.len() as u64).map(|piece| piece.start / SECTOR).collect();
            match (grain, all.as_slice()) {
                (Grain::Sector, all) => units.extend(all.iter().map(|s| unit(*s, s + 1))),
                (Grain::Half, [first, .., last]) => {
                    let middle = first + (last - first).div_ceil(2);
                    units.extend([unit(*first, middle), unit(middle, last + 1)]);
                }
                _ => units.push(unit(0, u64::MAX)),
            }
        }
    }
    units
}
