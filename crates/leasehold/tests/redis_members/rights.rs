//! The rights that readers and permits take.

use leasehold::engine::{Answer, Claim, EngineError, Mode, Queue};
use leasehold_testkit::RedisServer;

use super::every_server::{LONG, open, soon};
use super::{claim, each_right, permits};

/// Everything that a client does with them.
async fn use_everything(server: &RedisServer) -> Result<(), EngineError> {
    let engine = open(format!("redis://leasehold:pw@{}", server.addr()));
    let leases = engine.leases();
    let mut random = 0;
    let mut next = |mode| {
        random += 1;
        claim(random, if matches!(mode, Mode::Permits { .. }) { "gpu" } else { "config" }, mode)
    };
    for mode in [Mode::Shared, permits(1, 2)] {
        let (one, other) = (next(mode), next(mode));
        let Answer::Granted(first) = leases.claim(&one, soon()).await? else { panic!("free") };
        let Answer::Granted(second) = leases.claim(&other, soon()).await? else { panic!("there is room") };
        // Once more, by the script for all cases.
        leases.claim(&one, soon()).await?;
        let queue = Some(Queue { wait: LONG, poll_every: LONG });
        let large = if mode == Mode::Shared { Mode::Exclusive } else { permits(2, 2) };
        let waits = Claim { queue, ..next(large) };
        leases.claim(&waits, soon()).await?;
        engine.inspector().inspect(&one.name, soon()).await?;
        leases.renew(&[one.hold(first.fence)], soon()).await?.remove(0)?;
        leases.force_release(&one.name, second.fence, soon()).await.map(drop)?;
        leases.release(&one.hold(first.fence), soon()).await.map(drop)?;
        let Answer::Granted(third) = leases.claim(&waits, soon()).await? else { panic!("it is next") };
        leases.renew(&[waits.hold(third.fence).closed_for(LONG)], soon()).await?.remove(0)?;
    }
    leases.set_limit(&next(permits(1, 2)).name, 3.try_into().unwrap(), soon()).await?;
    let writer = Claim { name: claim(0, "other", Mode::Exclusive).name, ..next(Mode::Exclusive) };
    let Answer::Granted(grant) = leases.claim(&writer, soon()).await? else { panic!("free") };
    leases.convert(&writer.hold(grant.fence), Mode::Shared, soon()).await?;
    leases.convert(&writer.hold(grant.fence), Mode::Exclusive, soon()).await.map(drop)
}

#[tokio::test]
async fn the_documented_rights_suffice_and_each_is_needed() {
    each_right::is_needed("acl: readers and permits", use_everything).await;
}
