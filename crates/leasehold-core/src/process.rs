//! Which process this is, without asking the kernel at every call.
//!
//! The child of a fork has a copy of all memory: it would show its parent's process id, and draw its parent's random
//! numbers. So what is remembered lies on a page that Linux clears in a child, whatever kind of fork made it.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use crate::entropy::from_the_system;

/// What is known of this process; all zero until it is asked for, and again in a child.
struct Page {
    stamp: AtomicU64,
    id: AtomicU32,
}

/// The id of this process.
pub(crate) fn id() -> u32 {
    remembered().map_or_else(std::process::id, |page| page.id.load(Ordering::Relaxed))
}

/// A random number that no other process has, not even one that has its process id. `None` where a fork cannot be
/// noticed.
pub(crate) fn stamp() -> Option<u64> {
    remembered().map(|page| page.stamp.load(Ordering::Relaxed))
}

fn remembered() -> Option<&'static Page> {
    static PAGE: OnceLock<Option<&'static Page>> = OnceLock::new();
    let page = (*PAGE.get_or_init(cleared_in_a_child))?;
    if page.stamp.load(Ordering::Acquire) == 0 {
        // Threads that come here together agree on one stamp.
        page.id.store(std::process::id(), Ordering::Relaxed);
        let stamp = u64::from_le_bytes(from_the_system()) | 1;
        let _ = page.stamp.compare_exchange(0, stamp, Ordering::Release, Ordering::Relaxed);
    }
    Some(page)
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe interface maps a page that a fork clears")]
fn cleared_in_a_child() -> Option<&'static Page> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

    let (size, access) = (size_of::<Page>(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the kernel chooses a free place, so the mapping overlaps nothing.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: it is the whole mapping from above. Nothing refers to it in a child that sees it cleared but atomics.
    unsafe { madvise(page, size, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the mapping is never removed, aligned to a page, large enough, and zero, which is a value of every atomic.
    Some(unsafe { &*page.cast::<Page>() })
}

#[cfg(not(target_os = "linux"))]
fn cleared_in_a_child() -> Option<&'static Page> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
