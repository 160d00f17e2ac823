//! What a simulated disk holds: per file the durable bytes, the bytes that a reader sees, and the operations between.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Writes are torn at multiples of this many bytes, never inside.
pub(super) const SECTOR: u64 = 512;

/// A change of a file that no sync has covered yet.
#[derive(Clone, Debug)]
pub(super) enum FileOp {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
}

/// A change of names that no directory sync has covered yet.
#[derive(Clone, Debug)]
pub(super) enum DirOp {
    Link { path: PathBuf, node: Node },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, node: Node },
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(u64),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) durable: Vec<u8>,
    pub(super) current: Vec<u8>,
    pub(super) pending: Vec<FileOp>,
    /// Ranges whose reads fail.
    pub(super) unreadable: Vec<Range<u64>>,
}

/// Names and files, as they are and as they would be after a power cut.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: BTreeMap<PathBuf, Node>,
    pub(super) durable_names: BTreeMap<PathBuf, Node>,
    pub(super) pending_names: Vec<DirOp>,
    next_inode: u64,
}

impl FileOp {
    /// Applies the part of the operation that `keep` lets through, asked once for every sector of a write.
    pub(super) fn apply(&self, image: &mut Vec<u8>, mut keep: impl FnMut(u64) -> bool) {
        match self {
            FileOp::SetLen(len) => image.resize(*len as usize, 0),
            FileOp::Write { offset, data } => {
                for piece in sectors(*offset, data.len() as u64) {
                    if keep(piece.start / SECTOR) {
                        let from = (piece.start - offset) as usize;
                        let to = (piece.end - offset) as usize;
                        overwrite(image, piece.start as usize, &data[from..to]);
                    }
                }
            }
        }
    }
}

/// The pieces of a write that a crash may take apart.
pub(super) fn sectors(offset: u64, len: u64) -> impl Iterator<Item = Range<u64>> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let piece = at..end.min((at / SECTOR + 1) * SECTOR);
            at = piece.end;
            piece
        })
    })
}

fn overwrite(image: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[at..end].copy_from_slice(bytes);
}

impl DirOp {
    pub(super) fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            DirOp::Link { path, node } => {
                names.insert(path.clone(), *node);
            }
            DirOp::Unlink { path } => {
                names.remove(path);
            }
            DirOp::Rename { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }

    fn touches(&self, dir: &Path) -> bool {
        let within = |path: &Path| path.parent() == Some(dir);
        match self {
            DirOp::Link { path, .. } | DirOp::Unlink { path } => within(path),
            DirOp::Rename { from, to, .. } => within(from) || within(to),
        }
    }
}

impl Medium {
    pub(super) fn is_dir(&self, dir: &Path) -> bool {
        dir.parent().is_none() || dir.as_os_str().is_empty() || self.names.get(dir) == Some(&Node::Dir)
    }

    pub(super) fn file(&self, path: &Path) -> Option<u64> {
        match self.names.get(path) {
            Some(Node::File(inode)) => Some(*inode),
            _ => None,
        }
    }

    pub(super) fn new_file(&mut self) -> u64 {
        self.next_inode += 1;
        self.inodes.insert(self.next_inode, Inode::default());
        self.next_inode
    }

    pub(super) fn change_names(&mut self, op: DirOp) {
        op.apply(&mut self.names);
        self.pending_names.push(op);
    }

    pub(super) fn change_file(&mut self, inode: u64, op: FileOp) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            op.apply(&mut inode.current, |_| true);
            inode.pending.push(op);
        }
    }

    pub(super) fn sync_file(&mut self, inode: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            for op in inode.pending.drain(..) {
                op.apply(&mut inode.durable, |_| true);
            }
        }
    }

    pub(super) fn sync_names(&mut self, dir: &Path) {
        let durable = &mut self.durable_names;
        self.pending_names.retain(|op| {
            let covered = op.touches(dir);
            if covered {
                op.apply(durable);
            }
            !covered
        });
    }

    /// Bytes in use, as the full disk counts them: what readers see of every file that has a name.
    pub(super) fn used(&self) -> u64 {
        let file = |node: &Node| match node {
            Node::File(inode) => self.inodes.get(inode).map(|i| i.current.len() as u64),
            Node::Dir => None,
        };
        self.names.values().filter_map(file).sum()
    }

    /// After a crash: what is durable is all there is, and files without a name are gone.
    pub(super) fn forget_the_rest(&mut self) {
        let mut kept: BTreeMap<PathBuf, Node> = BTreeMap::new();
        // Parents sort before their children, so a lost directory loses what was in it.
        for (path, node) in &self.durable_names {
            let parent_is_there = path
                .parent()
                .is_none_or(|p| p.parent().is_none() || p.as_os_str().is_empty() || kept.get(p) == Some(&Node::Dir));
            if parent_is_there {
                kept.insert(path.clone(), *node);
            }
        }
        self.pending_names.clear();
        self.names = kept.clone();
        let files: Vec<u64> =
            kept.values().filter_map(|n| if let Node::File(inode) = n { Some(*inode) } else { None }).collect();
        self.durable_names = kept;
        self.inodes.retain(|id, _| files.contains(id));
        for inode in self.inodes.values_mut() {
            inode.pending.clear();
            inode.current.clone_from(&inode.durable);
        }
    }
}
