//! Notice what should have ended by now, also after a crash. `cargo run --example deadlines`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leasehold::{Due, Leasehold};
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;
    let payments = leases.deadlines("payments");

    // A program that begins a payment says by when it must be over, and what it takes to find out.
    payments.set_json("tx:1", Duration::from_secs(1800), &"order 1").await?;
    payments.set_json("tx:2", Duration::ZERO, &"order 2").await?;
    // This one was finished in time. The other belongs to a program that died.
    assert!(payments.cancel("tx:1").await?);

    // Every process of the fleet can recover: each deadline goes to one of them, and comes back if that one dies too.
    let (late, mut found) = mpsc::unbounded_channel();
    let recovery = payments
        .recover(move |due: Due| {
            let late = late.clone();
            async move {
                let order: Option<String> = due.context_as()?;
                println!("{} is {:?} late, attempt {}", due.id(), due.overdue(), due.attempt());
                late.send(order.unwrap_or_default()).ok();
                Ok::<(), leasehold::Error>(()) // which acknowledges it; an error tries again later
            }
        })
        .every(Duration::from_secs(1))
        .await?;
    assert_eq!(found.recv().await.as_deref(), Some("order 2"));
    assert!(recovery.stop().await);

    // By hand: what was claimed is hidden from others for its visibility, and settled by its receipt.
    payments.set("tx:3", Duration::ZERO).await?;
    for due in payments.claim().limit(10).visibility(Duration::from_secs(60)).await? {
        assert!(due.acknowledge().await?.is_settled());
    }
    leases.close().await
}
