//! Opening a store: whose is it, what does it hold, and what of it must be written again before anything is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use geminga_disk::{Disk, DiskError, DiskErrorKind, OpenMode};
use geminga_model::UnixMillis;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::chain::{self, Content, Found, Verdict, damaged};
use crate::error::OpenError;
use crate::format::block::{BLOCK_HEADER, BlockHeader, COPY, LogPosition, MOVED, SEAL, padded};
use crate::format::cookie::{BadCookie, COOKIE_FILE, Cookie, LAYOUT_VERSION};
use crate::format::index::Binding;
use crate::format::record::{self, RECORD_HEADER};
use crate::format::segment::{BadSegment, SEGMENT_HEADER, SEGMENT_VERSION, SegmentHeader};
use crate::index::{Index, Ledger, Part, SegmentEntry, Table};
use crate::options::StoreOptions;
use crate::pages::PageCache;
use crate::pool::Pool;
use crate::seal;
use crate::segment::{Name, Segment};
use crate::state::LedgerState;
use crate::store::BookieStore;
use crate::survey::{Survey, read_entry};
use crate::table::{Change, Logged, OpenTable};
use crate::writer::{Homed, LogWriter, Recovered};

impl BookieStore {
    /// Opens the store in `dir` and replays its log. When it returns, everything that the store knows is durable. A second
    /// opener is refused while the store or its writer lives.
    ///
    /// # Errors
    /// Every [`OpenError`]; its text says what to do. Nothing that the store holds is lost by a failed call.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: &StoreOptions,
        now: UnixMillis,
    ) -> Result<(Arc<BookieStore>, LogWriter), OpenError> {
        options.check()?;
        if options.create {
            disk.create_dir(dir)?;
            if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                disk.sync_dir(parent)?;
            }
        }
        let lock = disk.lock_dir(dir).map_err(OpenError::of_lock)?;
        let names = disk.list(dir)?;
        let cookie = identify(&*disk, dir, &names, options, now)?;
        let names: BTreeSet<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();

        let mut assembly = Assembly::default();
        let mut found = BTreeMap::new();
        for name in &names {
            if let Name::Log(id) = name {
                found.insert(*id, assembly.examine(&*disk, dir, *id, names.contains(&Name::Index(*id)), &cookie)?);
            }
        }
        let verdicts = chain::judge(&found)?;

        let read_only = Arc::new(AtomicBool::new(false));
        let mut pool = Pool {
            disk: Arc::clone(&disk),
            dir: dir.to_owned(),
            segment_bytes: options.segment_bytes,
            reserve: options.reserve_segments,
            most: options.reserve_segments + options.pool_segments,
            epoch: found.values().map(|found| found.segment.epoch).max().unwrap_or(0) + 1,
            store: cookie.store,
            created: now.0,
            next_id: names.last().map_or(1, |_| names.iter().map(|name| name.id()).max().unwrap_or(0) + 1),
            free: Vec::new(),
            prepared: None,
            read_only: Arc::clone(&read_only),
        };
        tidy(&mut pool, &names, &mut found, &verdicts)?;
        let room = options.segment_bytes.max(room_for_tail(&verdicts));
        let open = pool.make(true, room)?.ok_or_else(|| no_space(dir))?;

        let unfinished = assembly.take_up(found, &verdicts)?;
        for segment in &unfinished {
            assembly.take_up_tail(&segment.tail, open.id);
        }
        let (index, recovered) = assembly.finish(dir, &open)?;
        let store = Arc::new(BookieStore {
            disk,
            dir: dir.to_owned(),
            store: cookie.store,
            index: RwLock::new(index),
            pool: Mutex::new(pool),
            pages: Mutex::new(PageCache::new(options.index_cache_bytes)),
            sealing: Mutex::new(()),
            read_only,
            lock,
        });
        let mut writer = LogWriter::new(Arc::clone(&store), open, recovered, options, now);
        for segment in &unfinished {
            writer.copy_tail(segment)?;
        }
        // The newest first: what ends a segment is that the next one counts, which must be durable before.
        for segment in unfinished.iter().rev() {
            writer.finish_segment(segment)?;
        }
        store.pool.lock().fill_reserve()?;
        Ok((store, writer))
    }
}

/// How long a segment must be to take the copy of the tail, whatever size segments had when it was written.
fn room_for_tail(verdicts: &BTreeMap<u64, Verdict>) -> u64 {
    let tail = verdicts.values().map(|verdict| match verdict {
        Verdict::Tail { durable, end } => end - durable,
        Verdict::Whole { .. } | Verdict::Abandoned => 0,
    });
    let tail = tail.max().unwrap_or(0);
    // The blocks of the copy may be cut in other places; their headers and padding need an eighth at most.
    (SEGMENT_HEADER + tail + tail / 8).next_multiple_of(4096) + 4 * SEGMENT_HEADER
}

fn no_space(dir: &Path) -> OpenError {
    let detail = "no space left for one segment: free some space on this file system";
    OpenError::Disk(DiskError::new(DiskErrorKind::NoSpace, "allocate a segment in", dir, detail))
}

/// Checks whose store this is; a new one gets its cookie before anything else.
fn identify(
    disk: &dyn Disk,
    dir: &Path,
    names: &[String],
    options: &StoreOptions,
    now: UnixMillis,
) -> Result<Cookie, OpenError> {
    let path = dir.join(COOKIE_FILE);
    if !names.iter().any(|name| name == COOKIE_FILE) {
        if names.iter().any(|name| Name::parse(name).is_some()) {
            return Err(OpenError::NoCookie(dir.to_owned()));
        }
        if !options.create {
            return Err(OpenError::Empty(dir.to_owned()));
        }
        let owner = crc32c::crc32c(format!("{}\n{}", options.bookie, options.instance).as_bytes());
        let store = (u64::from(owner) << 32) ^ now.0.cast_unsigned();
        let cookie = Cookie { bookie: options.bookie.clone(), instance: options.instance.clone(), store };
        let draft = path.with_extension("tmp");
        let file = disk.open(&draft, OpenMode::OpenOrCreate)?;
        let text = cookie.encode();
        file.set_len(text.len() as u64)?;
        file.write_at(0, text.as_bytes())?;
        file.sync_data()?;
        disk.rename(&draft, &path)?;
        disk.sync_dir(dir)?;
        return Ok(cookie);
    }
    let file = disk.open(&path, OpenMode::Read)?;
    let mut bytes = vec![0; file.len()?.min(4096) as usize];
    file.read_exact_at(0, &mut bytes)?;
    let cookie = Cookie::decode(&bytes).map_err(|bad| match bad {
        BadCookie::Version(found) => OpenError::Version { path: path.clone(), found, supported: LAYOUT_VERSION },
        BadCookie::Garbled => OpenError::Damaged { path: path.clone(), offset: 0, what: "its text is garbled" },
    })?;
    let wrong = |what, found: &str, expected: &str| OpenError::WrongOwner {
        path: path.clone(),
        what,
        found: found.to_owned(),
        expected: expected.to_owned(),
    };
    if cookie.bookie != options.bookie {
        return Err(wrong("bookie", cookie.bookie.as_str(), options.bookie.as_str()));
    }
    if cookie.instance != options.instance {
        return Err(wrong("instance", &cookie.instance, &options.instance));
    }
    Ok(cookie)
}

/// Gives segments that never counted back to the pool and removes indexes without a segment, durably: the next start must
/// not see them between segments that count.
fn tidy(
    pool: &mut Pool,
    names: &BTreeSet<Name>,
    found: &mut BTreeMap<u64, Found>,
    verdicts: &BTreeMap<u64, Verdict>,
) -> Result<(), DiskError> {
    for name in names {
        match name {
            Name::Fresh(_) | Name::Old(_) => pool.adopt(*name)?,
            Name::Index(id) if !names.contains(&Name::Log(*id)) => pool.disk.unlink(&name.path(&pool.dir))?,
            Name::Log(id) if verdicts.get(id) == Some(&Verdict::Abandoned) => {
                found.remove(id);
                pool.recycle(*id)?;
            }
            Name::Index(_) | Name::Log(_) => {}
        }
    }
    pool.disk.sync_dir(&pool.dir)
}

/// A segment whose writer a crash took.
#[derive(Debug)]
struct Unfinished {
    segment: Arc<Segment>,
    /// Where it ends: known to be durable.
    end: u64,
    last_block: (u64, u32),
    next_sequence: u64,
    sealed: bool,
    /// Whether what followed its end is in the next segment: copied by this start or by one that a crash cut short.
    moved: bool,
    /// Records behind the end that are to be copied.
    tail: Vec<Logged>,
}

/// Puts together what the segments know; the highest birth sequence wins.
#[derive(Debug, Default)]
struct Assembly {
    states: HashMap<i64, (Homed<Arc<LedgerState>>, bool)>,
    tombstones: HashMap<i64, Homed<crate::state::Tombstone>>,
    groups: Vec<Group>,
    segments: BTreeMap<u64, SegmentEntry>,
    next_sequence: u64,
    last_end: LogPosition,
    /// Scratch space, kept between segments.
    buffer: Vec<u8>,
}

/// The entries of a ledger in one segment.
#[derive(Clone, Copy, Debug)]
struct Group {
    ledger: i64,
    part: Part,
    lac: i64,
    max_sequence: u64,
}

impl Assembly {
    /// Opens a segment and takes up its index; without a usable one, reads the segment itself.
    fn examine(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        id: u64,
        has_index: bool,
        cookie: &Cookie,
    ) -> Result<Found, OpenError> {
        let path = Name::Log(id).path(dir);
        let file = disk.open(&path, OpenMode::Write)?;
        let mut bytes = vec![0; SEGMENT_HEADER as usize];
        let got = file.read_at(0, &mut bytes)?;
        bytes.truncate(got);
        let header = SegmentHeader::decode(&bytes).map_err(|bad| match bad {
            BadSegment::Version(found) => {
                OpenError::Version { path: path.clone(), found: found.to_string(), supported: SEGMENT_VERSION }
            }
            BadSegment::Garbled => OpenError::Damaged { path: path.clone(), offset: 0, what: "its header is garbled" },
        })?;
        if header.store != cookie.store || header.id != id {
            return Err(OpenError::Foreign(path));
        }
        let segment = Arc::new(Segment::new(id, header.epoch, header.store, file)?);
        if has_index {
            let mut buffer = std::mem::take(&mut self.buffer);
            let bound = |binding: &Binding| seal::is_bound_to(binding, &segment, cookie.store);
            let table = seal::load(disk, &Name::Index(id).path(dir), &mut buffer, bound, |row| {
                if let Some(tombstone) = row.tombstone {
                    self.tombstone(row.ledger, tombstone, id);
                }
                if let Some(state) = &row.state {
                    self.state(row.ledger, id, state.sequence, state.record_here, || state.decode().map(Arc::new));
                }
                if let Some((first, last)) = row.entries {
                    self.group(row.ledger, Part { segment: id, first, last }, row.lac, row.max_sequence);
                }
            });
            self.buffer = buffer;
            // A bad index is made anew from the segment, whatever is bad about it.
            if let Ok(Some(table)) = table {
                return Ok(Found { segment, content: Content::Indexed(table) });
            }
        }
        let survey = Survey::of(&segment)?;
        Ok(Found { segment, content: Content::Surveyed(survey) })
    }

    fn tombstone(&mut self, ledger: i64, value: crate::state::Tombstone, home: u64) {
        let known = self.tombstones.get(&ledger).map(|known| (known.value.sequence, known.home));
        if known < Some((value.sequence, home)) {
            self.tombstones.insert(ledger, Homed { value, home });
        }
    }

    /// A copy of a state in an index is its home only if no record of it is found: what the records of a segment do not
    /// hold is lost when its index is.
    fn state(
        &mut self,
        ledger: i64,
        home: u64,
        sequence: u64,
        record_here: bool,
        value: impl FnOnce() -> Option<Arc<LedgerState>>,
    ) {
        let known = self.states.get(&ledger).map(|(known, record)| (known.value.sequence, *record, known.home));
        if known < Some((sequence, record_here, home))
            && let Some(value) = value()
        {
            self.states.insert(ledger, (Homed { value, home }, record_here));
        }
    }

    fn group(&mut self, ledger: i64, part: Part, lac: i64, max_sequence: u64) {
        self.groups.push(Group { ledger, part, lac, max_sequence });
    }

    /// Takes up all segments that count; returns those that need an index, the last with what is to be copied.
    fn take_up(
        &mut self,
        found: BTreeMap<u64, Found>,
        verdicts: &BTreeMap<u64, Verdict>,
    ) -> Result<Vec<Unfinished>, OpenError> {
        let mut unfinished = Vec::new();
        for (id, Found { segment, content }) in found {
            let (table, end) = match content {
                Content::Indexed(table) => {
                    self.next_sequence = self.next_sequence.max(table.binding.next_sequence);
                    let end = table.binding.end;
                    (Table::Sealed(Arc::new(table)), end)
                }
                Content::Surveyed(survey) => {
                    self.next_sequence = self.next_sequence.max(survey.next_sequence);
                    let end = match verdicts.get(&id) {
                        Some(Verdict::Whole { end, .. }) => *end,
                        Some(Verdict::Tail { durable, .. }) => *durable,
                        Some(Verdict::Abandoned) | None => continue,
                    };
                    let table = survey.table(end);
                    self.take_up_table(id, &table);
                    let sealed = survey.sealed && end == survey.end;
                    let last_block = survey.last_block(end);
                    let next_sequence = survey.next_sequence;
                    let is_tail = matches!(verdicts.get(&id), Some(Verdict::Tail { .. }));
                    let tail: Vec<Logged> =
                        survey.logged.into_iter().filter(|l| is_tail && u64::from(l.offset) >= end).collect();
                    let moved =
                        !tail.is_empty() || matches!(verdicts.get(&id), Some(Verdict::Whole { moved: true, .. }));
                    let binding = Binding {
                        store: 0,
                        segment: id,
                        epoch: segment.epoch,
                        end,
                        last_block: last_block.0,
                        last_crc: last_block.1,
                        next_sequence,
                    };
                    unfinished.push(Unfinished {
                        segment: Arc::clone(&segment),
                        end,
                        last_block,
                        next_sequence,
                        sealed,
                        moved,
                        tail,
                    });
                    (Table::Full(Arc::new(table), binding), end)
                }
            };
            self.last_end = LogPosition { segment: id, offset: end };
            self.segments.insert(id, SegmentEntry { segment, table, live_ledgers: 0 });
        }
        Ok(unfinished)
    }

    fn take_up_table(&mut self, id: u64, table: &OpenTable) {
        for (ledger, known) in table.sorted() {
            if let Some(tombstone) = known.tombstone {
                self.tombstone(ledger, tombstone, id);
            }
            if let Some(state) = &known.state {
                self.state(ledger, id, state.sequence, known.state_record_here, || Some(Arc::clone(state)));
            }
            if let (Some(first), Some(last)) = (known.rows.first(), known.rows.last()) {
                let part = Part { segment: id, first: first.entry, last: last.entry };
                self.group(ledger, part, known.lac, known.max_sequence);
            }
        }
    }

    /// Takes up the states and deletions that are about to be copied to the segment `home`: what lies before them may
    /// depend on them, because a carried state comes behind entries of its ledger. Entries follow with the copy.
    fn take_up_tail(&mut self, tail: &[Logged], home: u64) {
        for logged in tail {
            match &logged.change {
                Change::State(state) => {
                    self.state(logged.ledger, home, state.sequence, true, || Some(Arc::clone(state)))
                }
                Change::Delete(tombstone) => self.tombstone(logged.ledger, *tombstone, home),
                Change::Entry { .. } => {}
            }
        }
    }

    /// The index of everything before the open segment, and what the writer must know.
    fn finish(self, dir: &Path, open: &Arc<Segment>) -> Result<(Index, Recovered), OpenError> {
        let Assembly { states, tombstones, mut groups, segments, next_sequence, last_end, .. } = self;
        let mut index = Index { ledgers: HashMap::new(), segments };
        let mut ledgers = HashMap::new();
        let died_at = |ledger: i64| tombstones.get(&ledger).map_or(0, |tombstone| tombstone.value.sequence);
        for (ledger, (state, _)) in states {
            if state.value.sequence > died_at(ledger) {
                let value = Arc::clone(&state.value);
                index.ledgers.insert(ledger, Ledger { state: value, last_entry: -1, lac: -1, parts: Vec::new() });
                ledgers.insert(ledger, state);
            }
        }
        groups.retain(|group| group.max_sequence > died_at(group.ledger));
        groups.sort_unstable_by_key(|group| (group.ledger, group.part.segment));
        for parts in groups.chunk_by(|one, other| one.ledger == other.ledger) {
            let Some(Group { ledger: id, part, .. }) = parts.first() else { continue };
            let Some(ledger) = index.ledgers.get_mut(id) else {
                let what = "it holds entries of a ledger whose state is nowhere";
                return Err(OpenError::Damaged { path: Name::Log(part.segment).path(dir), offset: 0, what });
            };
            ledger.last_entry = parts.iter().map(|group| group.part.last).max().unwrap_or(-1);
            ledger.lac = parts.iter().map(|group| group.lac).max().unwrap_or(-1);
            ledger.parts = parts.iter().map(|group| group.part).collect();
        }
        let mut live: BTreeMap<u64, usize> = BTreeMap::new();
        for group in &groups {
            *live.entry(group.part.segment).or_default() += 1;
        }
        for (id, entry) in &mut index.segments {
            entry.live_ledgers = live.get(id).copied().unwrap_or(0);
        }
        index.start(Arc::clone(open));
        let next_sequence = next_sequence.max(1);
        Ok((index, Recovered { ledgers, tombstones, durable: last_end, next_sequence }))
    }
}

impl LogWriter {
    /// Writes the records behind a segment's durable end into the open segment and syncs them. Only then a block without
    /// the copy flag makes them count, and the old segment end where it is known to be durable.
    fn copy_tail(&mut self, old: &Unfinished) -> Result<(), OpenError> {
        if old.tail.is_empty() {
            return Ok(());
        }
        for logged in &old.tail {
            let died_at = self.tombstones.get(&logged.ledger).map_or(0, |tombstone| tombstone.value.sequence);
            if logged.sequence < died_at {
                continue;
            }
            let need = match &logged.change {
                Change::Entry { len, .. } => record::record_len(*len as usize),
                Change::State(state) => Self::state_len(state),
                Change::Delete(_) => record::record_len(record::DELETE_BODY),
            };
            if !self.block.is_empty() && self.block.len() as u64 + need > self.block_bytes as u64 {
                self.flush(COPY)?;
            }
            if self.block.is_empty() {
                self.block.resize(BLOCK_HEADER);
            }
            match &logged.change {
                Change::Entry { entry, len, .. } => {
                    let bytes = read_entry(&old.segment, logged.offset, *len)?;
                    let Some(body) = bytes.as_deref().and_then(|bytes| bytes.get(RECORD_HEADER..)) else {
                        return Err(damaged(&old.segment, logged.offset.into(), "a record changed while it was read"));
                    };
                    self.put_entry(logged.ledger, *entry, logged.sequence, [body, &[]]);
                }
                change => self.put_change(logged.ledger, change.clone()),
            }
        }
        if !self.block.is_empty() {
            self.flush(COPY)?;
        }
        self.sync()?;
        self.mark()?;
        Ok(())
    }

    /// Seals a segment at its end, so that it is known by itself from now on, and lets it wait for its index.
    fn finish_segment(&mut self, old: &Unfinished) -> Result<(), OpenError> {
        let segment = &old.segment;
        let mut binding = Binding {
            store: self.store.store,
            segment: segment.id,
            epoch: segment.epoch,
            end: old.end,
            last_block: old.last_block.0,
            last_crc: old.last_block.1,
            next_sequence: old.next_sequence,
        };
        if !old.sealed {
            let len = padded(BLOCK_HEADER as u64);
            let mut block = vec![0; len as usize];
            let header = BlockHeader {
                len: len as u32,
                used: BLOCK_HEADER as u32,
                records: 0,
                flags: if old.moved { SEAL | MOVED } else { SEAL },
                next_sequence: old.next_sequence,
                durable: LogPosition { segment: segment.id, offset: old.end },
                written: self.now,
                previous: old.last_block.1,
                crc: 0,
            };
            let crc = header.encode_into(segment.seed, old.end, &mut block);
            segment.file.write_at(old.end, &block)?;
            segment.file.sync_data()?;
            binding = Binding { end: old.end + len, last_block: old.end, last_crc: crc, ..binding };
        }
        let mut index = self.store.index.write();
        let Index { ledgers, segments } = &mut *index;
        if let Some(entry) = segments.get_mut(&segment.id)
            && let Table::Full(table, bound) = &mut entry.table
        {
            *bound = binding;
            if let Some(table) = Arc::get_mut(table) {
                table.fill_states(|ledger| ledgers.get(&ledger).map(|ledger| &ledger.state));
            }
        }
        Ok(())
    }
}
