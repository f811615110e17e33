//! Code that takes a lock calls code that takes the same lock. `cargo run --example reentrant`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use leasehold::{Leasehold, LockOwner};

/// Books one line of an invoice. It takes the lock of the invoice, whoever calls it.
async fn book(me: &LockOwner, invoice: u32, cents: u32) -> leasehold::Result<()> {
    let guard = me.lock(format!("invoice:{invoice}")).acquire().await?;
    println!("booking {cents} under fence {}", guard.fence());
    assert!(guard.release().await?.was_held());
    Ok(())
}

/// Books all lines of it, and lets nobody in between them.
async fn book_all(me: &LockOwner, invoice: u32) -> leasehold::Result<()> {
    let guard = me.lock(format!("invoice:{invoice}")).keep_alive().acquire().await?;
    for cents in [1999, 500] {
        // The same lease and the same fence, without a round trip.
        book(me, invoice, cents).await?;
    }
    assert!(guard.release().await?.was_held());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;
    // One owner for each request: two requests must exclude each other.
    book_all(&leases.owner(), 7).await?;
    book(&leases.owner(), 7, 100).await?;
    leases.close().await
}
