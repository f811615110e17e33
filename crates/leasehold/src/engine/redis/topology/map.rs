//! Reading a cluster's slot map from whichever node answers.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{
    cluster::Cluster,
    slots::{self, Primary},
};
use crate::{
    clock::Until,
    engine::{
        EngineError, Fault,
        redis::{connection::Connection, url::Endpoint},
    },
    error::Refusal,
};

/// A node that has not answered by then is not waited for: the next one is asked as well.
const NEXT_AFTER: Duration = Duration::from_millis(200);

impl Cluster {
    /// The first complete map that a node returns; if there is none, the one with the most slots.
    pub(super) async fn ask_for_map(
        &self,
        doubted: Option<&Endpoint>,
        until: Until,
    ) -> Result<Vec<Primary>, EngineError> {
        let clock = &self.options().clock;
        let mut sources = self.sources(doubted).into_iter();
        let mut asked = FuturesUnordered::new();
        let (mut best, mut faults) = (Vec::new(), Vec::new());
        loop {
            if let Some((endpoint, connection)) = sources.next() {
                asked.push(ask(endpoint, connection, until));
            }
            if asked.is_empty() {
                break;
            }
            let limit = if sources.len() > 0 { (clock.now() + NEXT_AFTER).min(until) } else { until };
            match clock.bounded(limit, asked.next()).await.flatten() {
                Some((_, Ok(primaries))) if slots::check_complete(&primaries).is_ok() => {
                    return Ok(primaries);
                }
                Some((_, Ok(primaries))) if slots::coverage(&primaries) > slots::coverage(&best) => {
                    best = primaries;
                }
                Some((_, Ok(_))) => {}
                Some((address, Err(error))) => faults.push((address, error)),
                None if clock.now() >= until => break,
                None => {}
            }
        }
        if best.is_empty() { Err(nobody(&faults)) } else { Ok(best) }
    }
}

async fn ask(
    endpoint: Endpoint,
    connection: Arc<Connection>,
    until: Until,
) -> (Endpoint, Result<Vec<Primary>, EngineError>) {
    let map = async {
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg("SLOTS");
        let value = connection.link(until).await?.send(&cmd, until).await?;
        slots::primaries(&value, &endpoint.host)
    };
    let map = map.await;
    (endpoint, map)
}

/// The error when no node returned a map.
fn nobody(faults: &[(Endpoint, EngineError)]) -> EngineError {
    let Some((address, first)) = faults.first() else {
        return EngineError::new(Fault::Unreachable, "no cluster node has answered, or knows a primary");
    };
    if first.why.contains("cluster support disabled") {
        let words = format!("{address} is not part of a cluster; use redis://");
        return EngineError::new(Fault::Unsupported, words);
    }
    // A wrong password is wrong everywhere, and worth its own kind of error.
    if let Fault::Refused(Refusal::Auth | Refusal::Acl | Refusal::Certificate) | Fault::Unsupported =
        first.fault
    {
        return first.clone();
    }
    let said: Vec<_> = faults.iter().map(|(address, error)| format!("{address} ({error})")).collect();
    let words = format!("no cluster node returned a slot map: {}", said.join(", "));
    EngineError::new(Fault::Unreachable, words.chars().take(400).collect::<String>())
}
