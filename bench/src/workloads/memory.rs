//! Bytes of a held lock in the server and in the client, and what is left of it after its release.

use std::time::Duration;

use leasehold_testkit::{RedisServer, poll};
use serde_json::Value;

use super::{Setup, number};
use crate::{
    Failure,
    contest::{OURS, Side, Turn, Watch, Watched, one_by_one, pin_servers, start},
    core::Core,
    cpu, rounds,
    section::{Better, Section},
    server,
};

/// Tables of the server shrink in the background.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// Enough for every script to be loaded.
const BASE: usize = 200;

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let locks = setup.count(10_000, 1_000);
    let results =
        one_by_one("memory of held locks", setup.libraries(), setup.count(3, 1), |side| turn(side, locks))?;
    let mut outcomes = Vec::new();
    for (key, words, figure) in [
        ("held_server_bytes", "bytes of a held lock in the server", "server_bytes"),
        ("client_rss", "resident bytes of a held lock in the client", "client_rss_bytes"),
        ("client_bytes", "allocated bytes of a guard", "client_bytes"),
    ] {
        outcomes.extend(results.compare(key, words, figure, Better::Lower));
    }
    outcomes.extend(results.own(
        "client_bytes_per_guard",
        "allocated bytes of a guard",
        OURS,
        "client_bytes",
    ));
    let title = format!("Bytes of a held lock, {locks} of them");
    let own = "Bytes of a lock in the server with the shortest holder data";
    Ok(vec![
        Section::of("memory", &title, results, outcomes)
            .charted("server_bytes", "bytes of a held lock in the server, lower is better"),
        rounds::section("memory_of_scripts", own, setup, &[Core::Memory])?,
    ])
}

/// A few locks first, and what they take of both sides: scripts, counters, a connection.
fn turn(side: &Side<'_>, locks: usize) -> Result<Turn, Failure> {
    let server = RedisServer::start()?;
    pin_servers(&[&server]);
    let (few, many) = (BASE, BASE + locks);
    let before = match held(side, &server, few)? {
        Ok(before) => before,
        Err(why) => return Ok(Err(why)),
    };
    let after = match held(side, &server, many)? {
        Ok(after) => after,
        Err(why) => return Ok(Err(why)),
    };
    let per_lock = |one: f64, other: f64| (other - one) / locks as f64;
    let mut figures = vec![
        ("server_bytes", per_lock(before.server, after.server)),
        ("server_bytes_left", per_lock(before.released, after.released).max(0.0)),
        ("client_rss_bytes", per_lock(before.rss, after.rss)),
    ];
    if let (Ok(one), Ok(other)) =
        (number(&before.answer, "client_bytes"), number(&after.answer, "client_bytes"))
    {
        figures.push(("client_bytes", per_lock(one, other)));
    }
    Ok(Ok((figures, after.others_share)))
}

/// Bytes while locks were held, and of the server when they were released.
struct Held {
    server: f64,
    released: f64,
    rss: f64,
    answer: Value,
    others_share: f64,
}

fn held(side: &Side<'_>, server: &RedisServer, locks: usize) -> Result<Result<Held, String>, Failure> {
    let (url, number_of_locks) = (server.url(), locks.to_string());
    let keys = [("url", url.as_str()), ("locks", &number_of_locks)];
    let mut contestants = match start(side, 1, "hold", &keys)? {
        Ok(contestants) => contestants,
        Err(why) => return Ok(Err(why)),
    };
    let contestant = &mut contestants[0];
    let watched = Watched { servers: &[server], clients: vec![contestant.pid()], idle: Vec::new() };
    let watch = Watch::begin(watched)?;
    let answer = contestant.round()?;
    if number(&answer, "held")? != locks as f64 {
        return Err(format!("of {locks} locks not all are held: {answer}").into());
    }
    let (held, rss) = (settled(server)?, cpu::resident_bytes(contestant.pid())?);
    let _ = contestant.release()?;
    let released = settled(server)?;
    let others_share = watch.end()?.others_share;
    contestants.swap_remove(0).quit()?;
    Ok(Ok(Held { server: held, released, rss, answer, others_share }))
}

/// What the server uses once that no longer changes.
fn settled(server: &RedisServer) -> Result<f64, Failure> {
    let mut last = server::memory(server)?;
    let unchanged = poll(SETTLED_WITHIN, || {
        std::thread::sleep(Duration::from_millis(200));
        match server::memory(server) {
            Ok(now) if (now - last).abs() > 1024.0 => {
                last = now;
                None
            }
            outcome => Some(outcome),
        }
    });
    unchanged.unwrap_or(Ok(last))
}
