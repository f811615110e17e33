//! The rights that latches take.

use leasehold::engine::{
    EngineError,
    latches::{Kind, Op, Request},
};
use leasehold_testkit::RedisServer;

use super::every_server::{LONG, open, soon};
use super::{JOIN, each_right, request};

/// Everything that a client does with them.
async fn use_everything(server: &RedisServer) -> Result<(), EngineError> {
    let engine = open(format!("redis://leasehold:pw@{}", server.addr()));
    let latches = engine.latches().unwrap();
    for kind in [Kind::Latch, Kind::Barrier] {
        let ask = async |random, op| {
            let request = Request { kind, ..request(random, kind.as_str(), op) };
            latches.ask(&request, soon()).await
        };
        let generation = ask(1, JOIN).await?.generation;
        ask(1, JOIN).await?;
        ask(2, JOIN).await?;
        let hold = request(1, kind.as_str(), JOIN).hold(generation, LONG);
        engine.leases().renew(&[hold], soon()).await?.remove(0)?;
        ask(9, Op::Look { generation: None, wake: true }).await?;
        latches.state(&request(1, kind.as_str(), JOIN).name, soon()).await?;
        ask(1, Op::CountDown { generation }).await?;
        let opened = ask(2, Op::CountDown { generation }).await?.generation;
        ask(9, Op::Rearm { generation: opened }).await?;
        let generation = ask(3, Op::Look { generation: None, wake: false }).await?.generation;
        ask(3, Op::Leave { breaks: false }).await?;
        ask(1, JOIN).await?;
        ask(1, Op::Leave { breaks: true }).await?;
        ask(9, Op::Rearm { generation }).await?;
        ask(1, JOIN).await?;
        ask(1, Op::Leave { breaks: false }).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_documented_rights_suffice_and_each_is_needed() {
    each_right::is_needed("acl: latches", use_everything).await;
}
