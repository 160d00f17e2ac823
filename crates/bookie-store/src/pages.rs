//! Index pages in memory, bounded by bytes; the one read in first leaves first.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::table::Row;

/// A page's segment and number.
type PageKey = (u64, usize);

#[derive(Debug)]
pub(crate) struct PageCache {
    pages: HashMap<PageKey, Arc<[Row]>>,
    order: VecDeque<PageKey>,
    bytes: usize,
    most: usize,
}

impl PageCache {
    pub(crate) fn new(most: usize) -> PageCache {
        PageCache { pages: HashMap::new(), order: VecDeque::new(), bytes: 0, most }
    }

    pub(crate) fn get(&self, key: PageKey) -> Option<Arc<[Row]>> {
        self.pages.get(&key).cloned()
    }

    pub(crate) fn put(&mut self, key: PageKey, rows: Arc<[Row]>) {
        self.bytes += size_of_val(&*rows);
        if let Some(old) = self.pages.insert(key, rows) {
            self.bytes -= size_of_val(&*old);
        } else {
            self.order.push_back(key);
        }
        while self.bytes > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(old) = self.pages.remove(&oldest) {
                self.bytes -= size_of_val(&*old);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_within_the_bound() {
        let mut cache = PageCache::new(10 * size_of::<Row>());
        let rows = |n: usize| vec![Row { entry: 0, offset: 0, len: 0 }; n].into();
        cache.put((1, 0), rows(4));
        cache.put((1, 0), rows(5));
        cache.put((1, 1), rows(5));
        assert!(cache.get((1, 0)).is_some());
        cache.put((2, 0), rows(1));
        assert!(cache.get((1, 0)).is_none() && cache.get((1, 1)).is_some());
        cache.put((3, 0), rows(50));
        assert!(cache.get((3, 0)).is_none() && cache.bytes == 0);
    }
}
