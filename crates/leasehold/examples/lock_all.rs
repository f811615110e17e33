//! Hold several locks at once, of any kind, and never wait in a circle. `cargo run --example lock_all`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use leasehold::{Leasehold, RunError};

/// Moves money between two accounts. Another transfer may name the same two the other way round.
async fn transfer(leases: &Leasehold, from: u32, to: u32) -> Result<u32, RunError<u32>> {
    let accounts = [leases.lock(format!("account:{from}")), leases.lock(format!("account:{to}"))];
    // The rates may be read by others meanwhile, and at most four transfers run at a time.
    let others = [leases.read_lock("rates"), leases.semaphore("transfers", 4)];
    let all = leases.lock_all(accounts.into_iter().chain(others));
    // Cancelled when any of them can no longer be trusted; then all are given back.
    all.run(async |leases| {
        for (name, fence) in leases.fences() {
            println!("{name} under fence {fence}");
        }
        100
    })
    .await
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;
    let (one, other) = tokio::join!(transfer(&leases, 7, 8), transfer(&leases, 8, 7));
    assert_eq!(one? + other?, 200);

    // Across several steps: one guard of all.
    let guards = leases.lock_all([leases.lock("a"), leases.lock("b")]).keep_alive().acquire().await?;
    assert!(guards.is_held());
    assert!(guards.release().await.was_held());
    leases.close().await
}
