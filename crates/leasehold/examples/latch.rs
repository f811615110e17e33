//! Waits until all shards of a migration are done, and is told which one failed. `cargo run --example latch`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leasehold::{
    Leasehold,
    latch::{Arrived, Awaited, Rearmed},
};

const SHARDS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> leasehold::Result<()> {
    let leases = Leasehold::connect("memory:").await?;
    let migration = leases.latch("migration", SHARDS);

    // In the first run the last shard fails. A process that dies has the same effect once its ttl is over.
    for broken in [Some(2), None] {
        for shard in 0..SHARDS {
            let latch = migration.clone().label(format!("shard {shard}"));
            tokio::spawn(async move {
                let participant = latch.join().await?.joined().expect("one of three");
                // The work. The lease is renewed meanwhile.
                if broken == Some(shard) {
                    return participant.fail().await;
                }
                participant.count_down().await.map(|counted| println!("shard {shard}: {counted:?}"))
            });
        }
        match migration.wait(Duration::from_secs(60)).await? {
            Awaited::Opened { generation } => println!("all shards are done in generation {generation}"),
            Awaited::Broken { generation, who } => {
                println!("did not come: {}", who.expect("it is known"));
                assert!(matches!(migration.rearm(generation).await?, Rearmed::Done { .. }));
            }
            other => println!("gave up: {other:?}"),
        }
    }

    // Two workers begin each phase together.
    let phase = leases.barrier("phase", 2);
    let work = async |name: &'static str| {
        let party = phase.clone().label(name).join().await?.joined().expect("one of two");
        for _ in 0..3 {
            let Arrived::Passed { index, .. } = party.arrive().await? else { panic!("the other has failed") };
            println!("{name} passed as number {index}");
        }
        Ok::<_, leasehold::Error>(party)
    };
    let (one, other) = tokio::join!(work("one"), work("other"));
    one?.leave().await?;
    other?.leave().await?;
    leases.close().await
}
