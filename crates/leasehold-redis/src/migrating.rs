//! Locks whose slot is moving to another node, while their keys are on both.
//!
//! A script that names several keys is refused there until the whole slot has arrived, which may take longer than a
//! lease. What takes one key works all the time: a renewal does, and an end goes key by key. Everything else waits.

use super::{
    Redis, reply,
    script::{Op, Step, TOMBSTONE, parts, px},
    topology::{Stop, outcome::Resend},
    wake::NO_LINK,
};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, Released},
    name::Name,
    owner::Owner,
};

impl Redis {
    /// Ends an attempt key by key, the lock last. Nobody is handed the lock: who waits finds it free at its next poll.
    pub(super) async fn end_by_single_keys(
        &self,
        name: &Name,
        owner: &Owner,
        entry: &str,
        until: Until,
    ) -> Result<Released, EngineError> {
        let keys = self.keys(name);
        let mut commands = Vec::new();
        if self.attempts.may_come_late(owner.id(), NO_LINK) {
            let mut set = redis::cmd("SET");
            set.arg(keys.gone(owner.id_text())).arg(1).arg("PX").arg(px(TOMBSTONE));
            commands.push(set);
        }
        if !entry.is_empty() {
            let (mut leave, mut forget) = (redis::cmd("ZREM"), redis::cmd("HDEL"));
            leave.arg(keys.waiters()).arg(entry);
            forget.arg(keys.seen()).arg(parts(owner).0);
            commands.extend([leave, forget]);
        }
        for command in &commands {
            let send = |Stop { shard, asking }: Stop| async move {
                shard.connection().link(until).await?.send_to(asking, command, until).await
            };
            self.topology.follow(keys.slot(), Resend::AwaitMigration, until, send).await?;
        }
        let op = || Op::new(keys.clone(), Step::ReleaseAlone(owner.clone()));
        let (value, _) = self.topology.send(name, op, until).await?;
        Ok(reply::released(value)?.unwrap_or(Released::Free))
    }
}
