//! At most so many at a time, on all hosts. `cargo run --example semaphore`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leasehold::{ErrorKind, Leasehold};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;

    // Five permits in all. A holder that dies gives its permits back after its ttl.
    let large =
        leases.semaphore("gpu", 5).permits(3).ttl(Duration::from_secs(30)).keep_alive().acquire().await?;
    let small = leases.semaphore("gpu", 5).acquire().await?;
    let seen = leases.inspect("gpu").await?;
    println!("{:?} permits are in use, {:?} free", seen.permits_used(), seen.permits_free());

    // Too many: it waits, or asks later. Whoever comes behind it does not overtake it.
    assert!(leases.semaphore("gpu", 5).permits(2).try_acquire().await?.held().is_none());

    // The store keeps the limit. A program that was deployed with another one is told so, and admits nobody too many.
    let error = leases.semaphore("gpu", 8).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OtherLimit);
    println!("{error}");

    // An operator changes it while it is in use; nobody loses a permit.
    leases.set_limit("gpu", 8).await?;
    let more = leases.semaphore("gpu", 8).permits(4).acquire().await?;
    for guard in [large, small, more] {
        assert!(guard.release().await?.was_held());
    }
    leases.close().await
}
