//! What one renewal of a session with many locks sends to the store.

use std::time::Instant;

use super::{Bench, client::Client};
use crate::{Failure, monitor::watch_sent, report::Figures};

const LOCKS: usize = 1_000;

pub(super) async fn measure(bench: &Bench) -> Result<Figures, Failure> {
    let service = bench.service().await?;
    let mut client = Client::connect(service.address).await?;
    let opened = client.send("POST", "/v1/sessions", "", "{\"ttl\":\"60s\"}").await?.with(201)?.json()?;
    let text = |field: &str| opened[field].as_str().map(str::to_owned).ok_or(format!("no {field}"));
    let (id, secret) = (text("id")?, text("secret")?);
    let secret = format!("Leasehold-Secret: {secret}\r\n");
    for number in 0..LOCKS {
        let path = format!("/v1/locks/bench:session:{number}/acquire");
        client.send("POST", &path, &secret, &format!("{{\"session\":\"{id}\"}}")).await?.with(200)?;
    }
    let path = format!("/v1/sessions/{id}");
    // Loads the scripts.
    client.send("PUT", &path, &secret, "").await?.with(200)?;
    let (sent, began) = (watch_sent(&bench.server)?, Instant::now());
    let renewed = client.send("PUT", &path, &secret, "").await?.with(200)?.json()?;
    let (took, sent) = (began.elapsed(), sent.end()?);
    if renewed["held"].as_array().map(Vec::len) != Some(LOCKS) {
        return Err("a lock of the session was lost".into());
    }
    client.send("DELETE", &path, &secret, "").await?.with(200)?;
    Ok(vec![("session_renewal_calls", sent as f64), ("session_renewal_ms", took.as_secs_f64() * 1e3)])
}
