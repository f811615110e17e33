//! From just before a release to the next holder's `acquire` returning, between two clients.

use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, PushInfo, PushKind, aio::MultiplexedConnection};
use tokio::sync::mpsc;

use super::Bench;
use crate::{
    Failure, bare,
    pair::{Pair, REST},
    report::Figures,
    spread::p50_us,
};

/// Samples of one contestant before the other has its turn.
const PER_TURN: usize = 25;
const CHANNEL: &str = "leasehold:wake:bench";

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let mut pair = Pair::connect(&bench.server.url()).await?;
    let mut bare = Bare::connect(bench).await?;
    let [mut handovers, mut messages] = [const { Vec::new() }; 2];
    for now in 0..bench.count(60, 2) {
        for contestant in 0..2 {
            if (contestant + now + turn).is_multiple_of(2) {
                for _ in 0..PER_TURN {
                    handovers.push(pair.hand_over().await?);
                }
            } else {
                for _ in 0..PER_TURN {
                    messages.push(bare.publish().await?);
                }
            }
        }
    }
    pair.close().await?;
    Ok(vec![("handover_us", p50_us(&handovers)), ("publish_us", p50_us(&messages))])
}

/// A message from one connection to another, without the library.
struct Bare {
    publisher: MultiplexedConnection,
    _subscriber: MultiplexedConnection,
    messages: Option<mpsc::UnboundedReceiver<()>>,
}

impl Bare {
    async fn connect(bench: &Bench) -> Result<Self, Failure> {
        let (heard, messages) = mpsc::unbounded_channel();
        let push = move |push: PushInfo| {
            if push.kind == PushKind::Message {
                let _ = heard.send(());
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(push);
        let mut subscriber = bare::connection_with(&bench.server.url(), &config).await?;
        subscriber.subscribe(CHANNEL).await?;
        let publisher = bare::connection(&bench.server.url()).await?;
        Ok(Self { publisher, _subscriber: subscriber, messages: Some(messages) })
    }

    async fn publish(&mut self) -> Result<Duration, Failure> {
        let mut messages = self.messages.take().ok_or("nobody listens")?;
        let waiter = tokio::spawn(async move {
            messages.recv().await.map(|()| (messages, Instant::now())).ok_or("the subscription ended")
        });
        tokio::time::sleep(REST).await;
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(CHANNEL).arg("0123456789abcdef0123456789abcdef 1700000000000000");
        let began = Instant::now();
        self.publisher.send_packed_command(&publish).await?;
        let (messages, arrived) = waiter.await??;
        self.messages = Some(messages);
        Ok(arrived - began)
    }
}
