//! The rights that deadlines take.

use std::time::Duration;

use leasehold::engine::{
    EngineError,
    deadlines::{Placement, Settle},
};
use leasehold_testkit::RedisServer;

use crate::{
    each_right,
    fixture::{Client, LONG, due, receipts, soon, with},
};

/// Everything that a client does with deadlines.
async fn use_everything(server: &RedisServer) -> Result<(), EngineError> {
    let url = format!("redis://leasehold:pw@{}", server.addr());
    let client = Client::open(url, "pay", Placement::Spread);
    let (deadlines, pool) = (client.deadlines(), &client.pool);
    deadlines.layout(pool, soon()).await?;
    let all = ["a", "b", "c", "d"].map(|id| with(due(id), b"context"));
    deadlines.set(pool, &all, soon()).await?;
    deadlines.set(pool, &[due("d")], soon()).await?;
    deadlines.peek(pool, 10, soon()).await?;
    let claimed = deadlines.claim_due(pool, 10, LONG, soon()).await?;
    let [a, b, c, d] = &receipts(&claimed)[..] else { panic!("{claimed:?}") };
    let settlements = [
        (a.clone(), Settle::Done),
        (b.clone(), Settle::Postpone(Duration::ZERO)),
        (c.clone(), Settle::Bury("no go".into())),
    ];
    deadlines.settle(pool, &settlements, soon()).await?;
    deadlines.dead(pool, None, 100, soon()).await?;
    deadlines.stats(pool, soon()).await?;
    deadlines.cancel(pool, std::slice::from_ref(&d.id), soon()).await.map(drop)
}

#[tokio::test]
async fn the_documented_rights_suffice_and_each_is_needed() {
    each_right::is_needed("acl: deadlines", use_everything).await;
}
