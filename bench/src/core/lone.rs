//! The server's work for an uncontended lock, compared with a peer's scripts.

use redis::{Cmd, Value, aio::MultiplexedConnection};

use super::Bench;
use crate::{
    Failure, bare,
    report::Figures,
    scripts::{PeerLock, RawLock},
    server,
};

/// Cycles of one contestant before the other has its turn.
const PER_TURN: usize = 200;

/// What the server has spent so far, in microseconds.
#[derive(Clone, Copy, Default)]
struct Spent {
    /// All of its work.
    processor: f64,
    /// Scripts alone.
    scripts: f64,
}

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let mut bare = bare::connection(&bench.server.url()).await?;
    for cmd in RawLock::load().iter().chain(&PeerLock::load()) {
        bare.send_packed_command(cmd).await?;
    }
    let (mut raw, peer) = (RawLock::new("bench:lone"), PeerLock::new("lock:bench:lone:peer"));
    let turns = bench.count(50, 3);
    let mut spent = [Spent::default(); 2];
    // The first turn of each contestant is the warm-up.
    for now in 0..=turns {
        for contestant in 0..2 {
            let which = (contestant + now + turn) % 2;
            let before = Spent::of(bench)?;
            for _ in 0..PER_TURN {
                match which {
                    0 => our_cycle(&mut bare, &mut raw).await?,
                    _ => peer_cycle(&mut bare, &peer).await?,
                }
            }
            let after = Spent::of(bench)?;
            if now > 0 {
                spent[which].processor += after.processor - before.processor;
                spent[which].scripts += after.scripts - before.scripts;
            }
        }
    }
    let per_cycle = |spent: f64| spent / (turns * PER_TURN) as f64;
    Ok(vec![
        ("lone_cycle_server_us", per_cycle(spent[0].processor)),
        ("lone_cycle_scripts_us", per_cycle(spent[0].scripts)),
        ("redisson_cycle_server_us", per_cycle(spent[1].processor)),
        ("redisson_cycle_scripts_us", per_cycle(spent[1].scripts)),
    ])
}

async fn our_cycle(bare: &mut MultiplexedConnection, raw: &mut RawLock) -> Result<(), Failure> {
    let id = raw.next_id();
    let granted = bare.send_packed_command(&raw.claim(&id)).await?;
    let released = bare.send_packed_command(&raw.release(&id)).await?;
    match (&granted, &released) {
        (Value::BulkString(_), Value::Int(1)) => Ok(()),
        other => Err(format!("the bare scripts answered {other:?}").into()),
    }
}

async fn peer_cycle(bare: &mut MultiplexedConnection, peer: &PeerLock) -> Result<(), Failure> {
    let ask = async |bare: &mut MultiplexedConnection, cmd: &Cmd| bare.send_packed_command(cmd).await;
    let granted = ask(bare, &peer.claim()).await?;
    let [release, forget] = peer.release();
    let released = ask(bare, &release).await?;
    ask(bare, &forget).await?;
    match (&granted, &released) {
        (Value::Array(answer), Value::Int(1)) if answer.first() == Some(&Value::Int(-1)) => Ok(()),
        other => Err(format!("the peer's scripts answered {other:?}").into()),
    }
}

impl Spent {
    fn of(bench: &Bench) -> Result<Self, Failure> {
        let number = |field| server::number(&bench.server, field);
        let processor = (number("used_cpu_user")? + number("used_cpu_sys")?) * 1e6;
        Ok(Self { processor, scripts: server::script_us(&bench.server) })
    }
}
