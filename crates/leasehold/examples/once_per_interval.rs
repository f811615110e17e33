//! Once per interval across a fleet, whose clocks differ. `cargo run --example once_per_interval`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leasehold::{Attempt, Leasehold, Released};

const INTERVAL: Duration = Duration::from_secs(60);

/// What every process of the fleet does when its own timer fires. True if it was this one that worked.
async fn tick(leases: &Leasehold) -> leasehold::Result<bool> {
    let lock = leases.lock("report:daily").hold_at_least(INTERVAL).keep_alive();
    let Attempt::Held(guard) = lock.try_acquire().await? else {
        return Ok(false);
    };
    println!("writing the report under fence {}", guard.fence());
    // Done early: the lock stays closed until the interval is over, so a later timer elsewhere finds it taken.
    match guard.release().await? {
        Released::Closed { remaining } => println!("nobody else writes it for another {remaining:?}"),
        other => println!("{other:?}"),
    }
    Ok(true)
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;
    let mut worked = 0;
    for _process in 0..3 {
        worked += u32::from(tick(&leases).await?);
    }
    assert_eq!(worked, 1);
    leases.close().await
}
