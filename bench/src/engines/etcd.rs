//! Acquire and release on etcd beside bare transactions, and what many leases take of the client.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use http::uri::PathAndQuery;
use leasehold::Leasehold;
use prost::{Message, Oneof};
use tonic::{
    Request, Status,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::Bench;
use crate::{Failure, cpu, report::Figures, spread::p50_us};

/// Cycles or pairs of transactions before the other side has its turn.
const PER_TURN: usize = 20;

/// A transaction without a condition that puts one key: names, numbers and types of `rpc.proto`.
#[derive(Clone, PartialEq, Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestOp {
    #[prost(oneof = "Op", tags = "2")]
    op: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Op {
    #[prost(message, tag = "2")]
    Put(PutRequest),
}

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResponse {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

async fn transaction(channel: &Channel) -> Result<(), Failure> {
    let put = PutRequest { key: b"bare".to_vec(), value: vec![b'x'; 64] };
    let request = TxnRequest { success: vec![RequestOp { op: Some(Op::Put(put)) }] };
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Txn");
    let codec = ProstCodec::<TxnRequest, TxnResponse>::default();
    let answer = grpc.unary(Request::new(request), path, codec).await?.into_inner();
    if answer.succeeded { Ok(()) } else { Err("a transaction was refused".into()) }
}

pub(super) async fn cycle(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let etcd = bench.etcd().await?;
    let leases = Leasehold::connect(etcd.url()).await?;
    let address = format!("http://{}", etcd.members()[0].addr());
    let channel = Endpoint::from_shared(address)?.tcp_nodelay(true).connect().await?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    // The first turn of each is the warm-up.
    for now in 0..=bench.count(20, 2) {
        for place in 0..2 {
            for _ in 0..PER_TURN {
                let began = Instant::now();
                if (place + now + turn).is_multiple_of(2) {
                    let released = leases.lock("bench:cycle").acquire().await?.release().await?;
                    if !released.was_held() {
                        return Err("a lease was lost".into());
                    }
                    ours.push(began.elapsed());
                } else {
                    transaction(&channel).await?;
                    bare.push(began.elapsed());
                }
            }
        }
        if now == 0 {
            ours.clear();
            bare.clear();
        }
    }
    leases.close().await?;
    Ok(vec![("etcd_cycle_us", p50_us(&ours)), ("bare_transaction_us", p50_us(&bare))])
}

/// Nothing else happens in this process meanwhile.
pub(super) async fn kept_alive(bench: &Bench) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.etcd().await?.url()).await?;
    let ttl = Duration::from_secs(bench.count(30, 3) as u64);
    let locks = bench.count(10_000, 500);
    let mut guards = Vec::with_capacity(locks);
    for first in (0..locks).step_by(100) {
        let some = (first..locks.min(first + 100)).map(|number| {
            let lock = leases.lock(format!("bench:kept:{number}")).ttl(ttl).keep_alive();
            async move { lock.acquire().await }
        });
        guards.extend(futures_util::future::try_join_all(some).await?);
    }
    let (began, before) = (Instant::now(), cpu::time_of(std::process::id())?);
    tokio::time::sleep(ttl).await;
    let used = cpu::time_of(std::process::id())? - before;
    let share = used.as_secs_f64() / began.elapsed().as_secs_f64();
    if guards.iter().any(|guard| !guard.is_held()) {
        return Err("a lease was lost".into());
    }
    // A member refuses more than 5,000 requests at a time.
    let mut released = stream::iter(guards).map(leasehold::Guard::release).buffer_unordered(64);
    while let Some(released) = released.next().await {
        let _ = released?;
    }
    leases.close().await?;
    Ok(vec![("etcd_kept_core_share", share)])
}
