//! Two clients hand one lock to each other; beside that, a bare message from one connection to another.

use serde_json::json;

use super::{Keys, Orders, say, say_ready};
use crate::{
    Failure,
    pair::{Pair, Publisher},
    spread::percentile_us,
};

const WARM_UP: usize = 20;

pub(super) async fn play(keys: &Keys, mut orders: Orders) -> Result<(), Failure> {
    let (url, prefix, count) = (keys.text("url")?, keys.text("prefix")?, keys.number::<usize>("count")?);
    let mut sides = match keys.text("lib")? {
        "leasehold" => Sides::Locks(Pair::connect(url, prefix).await?),
        _ => Sides::Messages(Publisher::connect(url, prefix).await?),
    };
    sides.pass(WARM_UP).await?;
    say_ready()?;
    while orders.next().await.is_some() {
        let mut samples = sides.pass(count).await?;
        say(&json!({
            "handovers": samples.len(),
            "p50_us": percentile_us(&mut samples, 0.5),
            "p99_us": percentile_us(&mut samples, 0.99),
        }))?;
    }
    match sides {
        Sides::Locks(pair) => pair.close().await,
        Sides::Messages(_) => Ok(()),
    }
}

enum Sides {
    Locks(Pair),
    Messages(Publisher),
}

impl Sides {
    async fn pass(&mut self, times: usize) -> Result<Vec<std::time::Duration>, Failure> {
        let mut samples = Vec::with_capacity(times);
        for _ in 0..times {
            samples.push(match self {
                Self::Locks(pair) => pair.hand_over().await?,
                Self::Messages(publisher) => publisher.publish().await?,
            });
        }
        Ok(samples)
    }
}
