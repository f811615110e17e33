//! Run something while nobody else does; it is cancelled when the lock is lost. `cargo run --example run`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leasehold::{Leasehold, RunError};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;

    // The lease is renewed while the body runs, and given back when it ends, also by a panic.
    let total = leases
        .lock("reconciliation")
        .run(async |lease| {
            println!("reconciling under fence {}", lease.fence());
            [1, 2, 3].iter().sum::<u32>()
        })
        .await?;
    assert_eq!(total, 6);

    // An operator takes the lock away. The body stops at its next `.await`.
    let operator = leases.clone();
    let lost = leases
        .lock("reconciliation")
        .run(async |lease| {
            let taken = operator.force_release("reconciliation", lease.fence()).await;
            println!("taken away: {taken:?}");
            tokio::time::sleep(Duration::from_secs(60)).await;
        })
        .await;
    assert!(matches!(lost, Err(RunError::Lost { value: None, .. })), "{lost:?}");
    leases.close().await
}
