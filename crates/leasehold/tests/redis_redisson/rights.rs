//! The rights that locks in Redisson's format take.

use leasehold::engine::{Answer, Claim, EngineError, Fault, Queue};
use leasehold_testkit::RedisServer;

use super::{
    each_right,
    every_server::{LONG, open, soon},
    store::claim,
};

/// Everything that a client does with them.
async fn use_everything(server: &RedisServer) -> Result<(), EngineError> {
    let engine = open(format!("redis://leasehold:pw@{}", server.addr()));
    let leases = engine.leases();
    let (one, other) = (claim(1, "x"), claim(2, "x"));
    let Answer::Granted(grant) = leases.claim(&one, soon()).await? else { panic!("free") };
    leases.claim(&one, soon()).await?;
    let queue = Some(Queue { wait: LONG, poll_every: LONG });
    leases.claim(&Claim { queue, ..other.clone() }, soon()).await?;
    let channel = "redisson_lock__channel:{lock:x}";
    if server.cli(&["PUBSUB", "NUMSUB", channel]).list()[1].int() != 1 {
        return Err(EngineError::new(Fault::Unsupported, "nobody hears of a release"));
    }
    let held = engine.inspector().inspect(&one.name, soon()).await?;
    if held.held().map(|held| held.fence) != Some(grant.fence) {
        return Err(EngineError::new(Fault::Unsupported, "the holder is not shown"));
    }
    leases.renew(&[one.hold(grant.fence)], soon()).await?.remove(0)?;
    leases.release(&one.hold(grant.fence), soon()).await.map(drop)?;
    let Answer::Granted(grant) = leases.claim(&other, soon()).await? else { panic!("it is free") };
    leases.force_release(&one.name, grant.fence, soon()).await.map(drop)?;
    leases.abandon(&other, soon()).await?;
    let last = claim(3, "x");
    let Answer::Granted(grant) = leases.claim(&last, soon()).await? else { panic!("it is free") };
    leases.renew(&[last.hold(grant.fence).closed_for(LONG)], soon()).await?.remove(0).map(drop)
}

#[tokio::test]
async fn the_documented_rights_suffice_and_each_is_needed() {
    each_right::is_needed("acl: redisson", use_everything).await;
}
