//! Hold a lock across several steps, and notice when it did not last. `cargo run --example lock`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leasehold::Leasehold;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    // Also sqlite:FILE for the processes of one host, redis://HOST for many hosts.
    let leases = Leasehold::connect("memory:").await?;

    // Waits up to 5 s. The lease lasts 30 s and is renewed every 10 s: if this process dies, the lock is free after 30 s.
    let guard = leases
        .lock("deal:42")
        .ttl(Duration::from_secs(30))
        .wait(Duration::from_secs(5))
        .keep_alive()
        .acquire()
        .await?;
    println!("{} is ours, fence {}", guard.name(), guard.fence());

    for step in ["reserve", "charge", "ship"] {
        // A process can be paused between any two lines: ask before each step, and give the fence to what you write to.
        assert!(guard.is_held(), "lost before {step}");
        println!("{step}, for another {:?} at least", guard.remaining());
    }

    // Expired and taken are outcomes: somebody else may have worked at the same time.
    let outcome = guard.release().await?;
    assert!(outcome.was_held(), "{outcome:?}");
    leases.close().await
}
