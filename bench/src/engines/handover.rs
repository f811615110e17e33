//! From a release to the next holder, and a bare notification from one connection to another.

use std::{
    future::poll_fn,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use super::{Bench, session};
use crate::{
    Failure,
    pair::{Pair, REST},
    report::Figures,
    spread::p50_us,
};

/// Two connections: one listens, the other notifies.
struct Notifier {
    client: Client,
    notify: Statement,
    _listener: Client,
    heard: mpsc::UnboundedReceiver<Instant>,
}

impl Notifier {
    async fn connect(url: &str) -> Result<Self, Failure> {
        let (listener, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        let (hears, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    let _ = hears.send(Instant::now());
                }
            }
        });
        listener.batch_execute("LISTEN bench").await?;
        let client = session(url).await?;
        let notify = client.prepare("SELECT pg_notify('bench', $1)").await?;
        Ok(Self { client, notify, _listener: listener, heard })
    }

    async fn notify(&mut self) -> Result<Duration, Failure> {
        tokio::time::sleep(REST).await;
        let began = Instant::now();
        self.client.execute(&self.notify, &[&"0123456789abcdef0123456789abcdef"]).await?;
        Ok(self.heard.recv().await.ok_or("the listener ended")? - began)
    }
}

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let url = bench.in_memory().await?.url("bench");
    let (mut pair, mut notifier) = (Pair::connect(&url, "bench:pair").await?, Notifier::connect(&url).await?);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for now in 0..bench.count(300, 10) {
        for place in 0..2 {
            if (place + now + turn).is_multiple_of(2) {
                ours.push(pair.hand_over().await?);
            } else {
                bare.push(notifier.notify().await?);
            }
        }
    }
    pair.close().await?;
    Ok(vec![("postgres_handover_us", p50_us(&ours)), ("bare_notify_us", p50_us(&bare))])
}
