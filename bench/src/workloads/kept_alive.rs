//! Many locks that are kept alive: what that takes of a core on each side.

use std::{thread, time::Duration};

use leasehold_testkit::RedisServer;

use super::{Setup, number};
use crate::{
    Failure,
    contest::{OURS, Side, Turn, Watch, Watched, one_by_one, pin_servers, start},
    section::{Better, Section},
};

/// Libraries renew at a third, a half or four fifths of the ttl; the window is two of them.
const TTL_MS: usize = 30_000;

pub(super) fn measure(setup: &Setup, locks: usize) -> Result<Section, Failure> {
    let (sides, rounds) = (setup.libraries(), if locks > 10_000 { 1 } else { 2 });
    let results = one_by_one(&format!("{locks} locks kept alive"), sides, setup.count(rounds, 1), |side| {
        turn(setup, side, setup.count(locks, locks / 20))
    })?;
    let (key, words) =
        (format!("kept_{locks}"), |what: &str| format!("{what} share, {locks} locks kept alive"));
    let mut outcomes =
        results.compare(&format!("{key}_server"), &words("server"), "server_core_share", Better::Lower);
    let client = words("client");
    outcomes.extend(results.compare(&format!("{key}_client"), &client, "client_core_share", Better::Lower));
    let keys = match locks {
        10_000 => ["renewal_core_share", "renewal_client_core_share"].map(str::to_owned),
        _ => [format!("{key}_core_share"), format!("{key}_client_core_share")],
    };
    outcomes.extend(results.own(&keys[0], &words("server"), OURS, "server_core_share"));
    outcomes.extend(results.own(&keys[1], &words("client"), OURS, "client_core_share"));
    let title = format!("{} locks kept alive", setup.count(locks, locks / 20));
    let section = Section::of(&key, &title, results, outcomes);
    Ok(section.charted("server_core_share", "share of a core that the server uses, lower is better"))
}

/// Alone on a server: renewals of others would go on all the time.
fn turn(setup: &Setup, side: &Side<'_>, locks: usize) -> Result<Turn, Failure> {
    let server = RedisServer::start()?;
    pin_servers(&[&server]);
    let ttl_ms = setup.count(TTL_MS, 1_500);
    let (url, locks_text, ttl, ms) =
        (server.url(), locks.to_string(), ttl_ms.to_string(), (ttl_ms * 2).to_string());
    let keys = [("url", url.as_str()), ("locks", &locks_text), ("ttl_ms", &ttl), ("ms", &ms)];
    let mut contestants = match start(side, 1, "keep", &keys)? {
        Ok(contestants) => contestants,
        Err(why) => return Ok(Err(why)),
    };
    let contestant = &mut contestants[0];
    // Renewals come in bursts, a third of the ttl apart: the window begins and ends between two of them.
    thread::sleep(Duration::from_millis(ttl_ms as u64 / 6));
    let watched = Watched { servers: &[&server], clients: vec![contestant.pid()], idle: Vec::new() };
    let watch = Watch::begin(watched)?;
    let answer = contestant.round()?;
    let used = watch.end()?;
    let expected = server.cli(&["DBSIZE"]).int() as usize;
    if number(&answer, "held")? < locks as f64 || expected < locks {
        return Err(format!("of {locks} locks {expected} are in the server after {answer}").into());
    }
    contestants.swap_remove(0).quit()?;
    let figures = vec![
        ("server_core_share", used.servers / used.seconds),
        ("client_core_share", used.clients / used.seconds),
        ("commands_per_lock_and_s", used.commands / used.seconds / locks as f64),
    ];
    Ok(Ok((figures, used.others_share)))
}
