//! What a guard costs its client in memory.
#![cfg(all(feature = "memory", feature = "redis"))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use leasehold::{Guard, Leasehold};
use leasehold_testkit::RedisServer;

const GUARDS: usize = 5_000;

struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// What glibc takes for it: a header of eight bytes, rounded up.
fn taken(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its contract")]
// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes per guard that is kept alive, the guard itself included.
async fn bytes_per_guard(url: &str) -> usize {
    let leases = Leasehold::connect(url).await.unwrap();
    // Buffers have grown.
    for number in 0..100 {
        let _ = leases.lock(format!("warm:{number}")).acquire().await.unwrap().release().await.unwrap();
    }
    let before = IN_USE.load(Ordering::Relaxed);
    let mut guards: Vec<Guard> = Vec::with_capacity(GUARDS);
    for number in 0..GUARDS {
        guards.push(leases.lock(format!("guard:{number:05}")).keep_alive().acquire().await.unwrap());
    }
    let bytes = (IN_USE.load(Ordering::Relaxed) - before) / GUARDS;
    for guard in guards {
        let _ = guard.release().await.unwrap();
    }
    bytes
}

#[tokio::test]
async fn a_guard_that_is_kept_alive_takes_at_most_500_bytes() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let bytes = bytes_per_guard(&server.url()).await;
    assert!(bytes <= 500, "{bytes} bytes");
    // The store itself is in the same process.
    let bytes = bytes_per_guard("memory:").await;
    assert!(bytes <= 800, "{bytes} bytes");
}
