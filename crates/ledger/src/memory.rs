//! Bookies in memory: for tests of what stands on ledgers, and wherever nothing has to last.
//!
//! They keep a bookie's rules on fences, keys and absence, answer at once, and fail when told to.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use geminga_bookie_wire::MasterKey;
use geminga_model::{BookieId, EntryId, LedgerId};
use geminga_quorum::BookieError;
use parking_lot::Mutex;

use crate::link::{AddRequest, BookieLink, Bookies, ReadLastRequest, ReadRequest, deliver_adds};

/// A set of bookies in memory, shared by clones.
#[derive(Clone, Debug)]
pub struct MemoryBookies {
    bookies: Arc<BTreeMap<BookieId, Arc<MemoryBookie>>>,
}

impl MemoryBookies {
    /// `count` bookies named `bookie-0:3181` and so on.
    #[must_use]
    pub fn new(count: usize) -> MemoryBookies {
        let named = (0..count).filter_map(|i| BookieId::parse(&format!("bookie-{i}:3181")).ok());
        let bookies = named.map(|id| (id, Arc::new(MemoryBookie::default()))).collect();
        MemoryBookies { bookies: Arc::new(bookies) }
    }

    /// Makes a bookie answer everything with `failure`, or work again.
    pub fn fail(&self, bookie: &BookieId, failure: Option<BookieError>) {
        if let Some(bookie) = self.bookies.get(bookie) {
            bookie.state.lock().failure = failure;
        }
    }

    /// Holds adds back, unanswered, until this is called with `false`.
    pub fn hold_adds(&self, hold: bool) {
        for bookie in self.bookies.values() {
            let mut held = {
                let mut state = bookie.state.lock();
                state.hold = hold;
                std::mem::take(&mut state.held)
            };
            if hold {
                bookie.state.lock().held = held;
            } else {
                bookie.add(&mut held);
            }
        }
    }

    /// The entries that a bookie has of a ledger.
    #[must_use]
    pub fn entries(&self, bookie: &BookieId, ledger: LedgerId) -> Vec<EntryId> {
        let Some(bookie) = self.bookies.get(bookie) else { return Vec::new() };
        let state = bookie.state.lock();
        state.ledgers.get(&ledger).map_or(Vec::new(), |ledger| ledger.entries.keys().copied().collect())
    }
}

impl Bookies for MemoryBookies {
    fn available(&self) -> Vec<BookieId> {
        let works = |bookie: &Arc<MemoryBookie>| bookie.state.lock().failure.is_none();
        self.bookies.iter().filter(|(_, bookie)| works(bookie)).map(|(id, _)| id.clone()).collect()
    }

    fn link(&self, bookie: &BookieId) -> Arc<dyn BookieLink> {
        match self.bookies.get(bookie) {
            Some(bookie) => Arc::clone(bookie) as Arc<dyn BookieLink>,
            None => {
                let absent = MemoryBookie::default();
                absent.state.lock().failure = Some(BookieError::Unreachable);
                Arc::new(absent)
            }
        }
    }
}

#[derive(Debug, Default)]
struct MemoryBookie {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failure: Option<BookieError>,
    hold: bool,
    held: Vec<AddRequest>,
    ledgers: BTreeMap<LedgerId, Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    key: Option<MasterKey>,
    fenced: bool,
    entries: BTreeMap<EntryId, Bytes>,
}

impl State {
    fn ledger(&mut self, id: LedgerId, key: MasterKey) -> Result<&mut Ledger, BookieError> {
        let ledger = self.ledgers.entry(id).or_default();
        if *ledger.key.get_or_insert(key) != key { Err(BookieError::Unauthorized) } else { Ok(ledger) }
    }

    fn add(&mut self, request: &AddRequest) -> Result<(), BookieError> {
        self.failure.map_or(Ok(()), Err)?;
        let ledger = self.ledger(request.ledger, request.master_key)?;
        if ledger.fenced && !request.recovery {
            return Err(BookieError::Fenced);
        }
        for (entry, body) in (request.first.0..).map(EntryId).zip(&request.bodies) {
            ledger.entries.insert(entry, [&body.head[..], &body.payload[..]].concat().into());
        }
        Ok(())
    }

    fn fence(&mut self, ledger: LedgerId, key: Option<MasterKey>) -> Result<(), BookieError> {
        self.failure.map_or(Ok(()), Err)?;
        if let Some(key) = key {
            self.ledger(ledger, key)?.fenced = true;
        }
        Ok(())
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Vec<Bytes>, BookieError> {
        self.fence(request.ledger, request.fence)?;
        let ledger = self.ledgers.get(&request.ledger).ok_or(BookieError::NoLedger)?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        for id in request.first.0..=request.last.0 {
            let Some(entry) = ledger.entries.get(&EntryId(id)) else { break };
            if !found.is_empty() && bytes + entry.len() > request.max_bytes {
                break;
            }
            bytes += entry.len();
            found.push(entry.clone());
        }
        if found.is_empty() { Err(BookieError::NoEntry) } else { Ok(found) }
    }

    fn read_last(&mut self, request: &ReadLastRequest) -> Result<Bytes, BookieError> {
        self.fence(request.ledger, request.fence)?;
        let ledger = self.ledgers.get(&request.ledger).ok_or(BookieError::NoLedger)?;
        ledger.entries.last_key_value().map(|(_, bytes)| bytes.clone()).ok_or(BookieError::NoEntry)
    }
}

impl BookieLink for MemoryBookie {
    fn add(&self, requests: &mut Vec<AddRequest>) {
        let mut answers = {
            let mut state = self.state.lock();
            if state.hold {
                state.held.append(requests);
                return;
            }
            requests
                .drain(..)
                .map(|request| {
                    let result = state.add(&request);
                    (request.reply, result)
                })
                .collect()
        };
        deliver_adds(&mut answers);
    }

    fn read(&self, request: ReadRequest) {
        let answer = self.state.lock().read(&request);
        request.reply.send(answer);
    }

    fn read_last(&self, request: ReadLastRequest) {
        let answer = self.state.lock().read_last(&request);
        request.reply.send(answer);
    }

    fn forget(&self, ledger: LedgerId) {
        self.state.lock().ledgers.remove(&ledger);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
