//! How much memory something takes: an allocator that counts, per thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends frees after its counters are gone.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old and the new may be there together while it is copied.
        count(size as isize);
        count(-(layout.size() as isize));
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `act`, which must not hold more than `limit` bytes at any moment beyond what was held before.
///
/// # Panics
/// If it does.
pub fn within<T>(limit: usize, act: impl FnOnce() -> T) -> T {
    let before = NOW.get();
    MOST.set(before);
    let result = act();
    let most = (MOST.get() - before).max(0) as usize;
    assert!(most <= limit, "{most} bytes were taken where {limit} must do");
    result
}
