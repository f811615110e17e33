//! Bytes that this process has allocated and not freed. Counted only where they are asked for: a counter costs time.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; this one hands everything on to the system's"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

#[global_allocator]
static COUNTING: Counting = Counting;
static IS_ON: AtomicBool = AtomicBool::new(false);
static ALIVE: AtomicI64 = AtomicI64::new(0);

struct Counting;

fn count(bytes: i64) {
    if IS_ON.load(Relaxed) {
        ALIVE.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Begins to count.
pub(crate) fn watch() {
    IS_ON.store(true, Relaxed);
}

/// Bytes since [`watch`].
pub(crate) fn bytes() -> i64 {
    ALIVE.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alive_is_counted() {
        watch();
        let before = bytes();
        let block = std::hint::black_box(vec![0_u8; 1 << 30]);
        // Other tests allocate too, but not as much.
        assert!(bytes() - before > 1 << 29);
        drop(block);
        assert!(bytes() - before < 1 << 29);
    }
}
