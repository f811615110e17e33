//! Leases of readers on one node: they lie in other keys than those of writers.

use std::sync::Arc;

use redis::Cmd;

use super::{HIGHEST, KEPT_MS, RECORD, RedisVoter, reply, send, send_counted};
use crate::{
    connection::Link,
    keys::Keys,
    reply::read,
    script::{self, px},
};
use leasehold_core::{
    clock::Until,
    engine::{
        EngineError, Hold,
        registry::Call,
        voter::{Ballot, Kept},
    },
};

type Result<T> = std::result::Result<T, EngineError>;

pub(super) async fn confirm(link: &Link, keys: &Keys, hold: &Hold, until: Until) -> Result<bool> {
    let write = |cmd: &mut Cmd| {
        cmd.arg(5).arg(keys.lock()).arg(keys.fence()).arg(keys.ends()).arg(keys.members()).arg(HIGHEST);
        cmd.arg(KEPT_MS).arg(hold.owner.expose()).arg(hold.fence.get());
    };
    read(send(link, &script::READER_CONFIRM, write, until).await?)
}

/// Repairs under the record of this text.
pub(super) async fn repair(
    link: &Link,
    call: &Call<Arc<Ballot>>,
    keys: &Keys,
    (hold, record): (&Hold, &str),
    until: Until,
) -> Result<bool> {
    let write = |cmd: &mut Cmd| {
        cmd.arg(7).arg(keys.lock()).arg(keys.fence()).arg(keys.ends()).arg(keys.members());
        cmd.arg(keys.gone(hold.owner.id_text())).arg(RECORD).arg(HIGHEST);
        cmd.arg(KEPT_MS).arg(hold.owner.expose()).arg(px(hold.ttl + hold.lock_delay));
        cmd.arg(record).arg(hold.fence.get());
    };
    read(send_counted(link, call, None, &script::READER_REPAIR, write, until).await?)
}

impl RedisVoter {
    pub(super) async fn renew_readers(
        &self,
        link: &Link,
        holds: &[&Hold],
        until: Until,
    ) -> Result<Vec<Kept>> {
        let keys = self.keys_of(holds);
        let write = |cmd: &mut Cmd| {
            cmd.arg(1 + keys.len() * 4).arg(RECORD);
            for keys in &keys {
                cmd.arg(keys.lock()).arg(keys.fence()).arg(keys.ends()).arg(keys.members());
            }
            write_leases(cmd, holds);
        };
        reply::renewed(send(link, &script::READER_RENEW, write, until).await?, holds.len())
    }

    pub(super) async fn renew_writers(
        &self,
        link: &Link,
        holds: &[&Hold],
        until: Until,
    ) -> Result<Vec<Kept>> {
        if holds.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.keys_of(holds);
        let write = |cmd: &mut Cmd| {
            cmd.arg(1 + keys.len() * 2).arg(RECORD);
            for keys in &keys {
                cmd.arg(keys.lock()).arg(keys.fence());
            }
            write_leases(cmd, holds);
        };
        reply::renewed(send(link, &script::VOTER_RENEW, write, until).await?, holds.len())
    }

    fn keys_of(&self, holds: &[&Hold]) -> Vec<Keys> {
        holds.iter().map(|hold| Keys::new(&self.options.prefix, &hold.name)).collect()
    }
}

fn write_leases(cmd: &mut Cmd, holds: &[&Hold]) {
    cmd.arg(KEPT_MS);
    for hold in holds {
        cmd.arg(hold.owner.expose()).arg(px(hold.ttl + hold.lock_delay));
    }
}
