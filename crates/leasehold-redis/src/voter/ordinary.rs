//! Votes and withdrawals of the ordinary case, many in one call.

use redis::{Cmd, Value};

use super::{Ballot, FLOOR, HIGHEST, RECORD, RedisVoter, Standing, is_of_run};
use crate::{
    connection::Link,
    keys::Keys,
    reply,
    script::{self, Crowd, HeldText, parts, px},
    topology::outcome,
};
use leasehold_core::{
    clock::Until,
    engine::{
        EngineError, Fault, Mode,
        registry::{Call, send_noted},
        voter::{Op, Outcome},
    },
    owner::Owner,
};

/// About the size of a withdrawal or a vote, and of what all votes of a call share.
const OP_BYTES: usize = 384;

/// What leaves of a call's operations, each with its place among them.
struct Batch<'a> {
    withdrawals: Vec<(usize, &'a Owner, Keys)>,
    /// By hint.
    votes: Vec<Asked<'a>>,
}

struct Asked<'a> {
    at: usize,
    ballot: &'a Ballot,
    keys: Keys,
    call: Call<std::sync::Arc<Ballot>>,
}

impl RedisVoter {
    pub(super) async fn ordinary(&self, ops: &[Op], until: Until) -> Result<Vec<Outcome>, EngineError> {
        // Before anything else: no vote of these attempts leaves from here on.
        for op in ops {
            if let Op::Withdraw(lock) = op {
                self.attempts.end(lock.1.id());
            }
        }
        let link = self.connection.link(until).await?;
        let standing = self.standing().clone().ok().filter(|standing| is_of_run(&link, &standing.record));
        let mut batch = self.batch(ops, &link, standing.is_some());
        let mut outcomes = vec![Outcome::NotOrdinary; ops.len()];
        let Some(value) = self.send_batch(&mut batch, &link, standing.as_deref(), until).await? else {
            return Ok(outcomes);
        };
        let Batch { withdrawals, votes } = &batch;
        let mut replies = script::replies(value, withdrawals.len() + votes.len())?.into_iter();
        for (at, owner, keys) in withdrawals {
            outcomes[*at] = match replies.next() {
                Some(Value::Int(1)) => Outcome::Withdrawn,
                Some(Value::Int(2)) => Outcome::Absent,
                _ => Outcome::NotOrdinary,
            };
            if outcomes[*at] == Outcome::NotOrdinary {
                self.contended.note(keys.lock(), Crowd::One);
            } else {
                self.attempts.ended(owner.id());
            }
        }
        for Asked { at, ballot, keys, call } in votes {
            outcomes[*at] = match replies.next() {
                Some(Value::Int(1)) => Outcome::Voted(ballot.hint),
                Some(later @ Value::BulkString(_)) => Outcome::Voted(reply::fence(&later)?),
                Some(Value::Int(8)) => Outcome::Abstained,
                _ => Outcome::NotOrdinary,
            };
            match outcomes[*at] {
                Outcome::NotOrdinary => self.contended.note(keys.lock(), Crowd::One),
                Outcome::Voted(_) if ballot.claim.queue.is_some() => call.waits_no_longer(),
                _ => {}
            }
        }
        Ok(outcomes)
    }

    /// What of these operations may be ordinary.
    fn batch<'a>(&self, ops: &'a [Op], link: &Link, votes: bool) -> Batch<'a> {
        let now = self.options.clock.now();
        let mut batch =
            Batch { withdrawals: Vec::with_capacity(ops.len()), votes: Vec::with_capacity(ops.len()) };
        for (at, op) in ops.iter().enumerate() {
            // A name that is not possible, or one attempt too many, is an error of its own.
            let Ok(keys) = self.keys(op.name()) else { continue };
            if self.contended.by(keys.lock()) != Crowd::Nobody {
                continue;
            }
            match op {
                // Readers are told from each other by their own script.
                Op::Vote(ballot) if votes && ballot.claim.mode == Mode::Exclusive => {
                    let Ok(call) = self.attempts.enter(ballot.claim.owner.id(), now) else { continue };
                    batch.votes.push(Asked { at, ballot, keys, call });
                }
                Op::Withdraw(lock) if !self.attempts.leaves_something(lock.1.id(), link.number) => {
                    batch.withdrawals.push((at, &lock.1, keys));
                }
                Op::Vote(_) | Op::Withdraw(_) => {}
            }
        }
        batch.votes.sort_by_key(|vote| vote.ballot.hint);
        batch
    }

    /// Sends what may still leave; `None` if nothing may.
    async fn send_batch(
        &self,
        batch: &mut Batch<'_>,
        link: &Link,
        standing: Option<&Standing>,
        until: Until,
    ) -> Result<Option<Value>, EngineError> {
        let mut by_hash = true;
        loop {
            batch.votes.retain(|vote| vote.call.leaves(None).is_ok());
            if batch.votes.is_empty() && batch.withdrawals.is_empty() {
                return Ok(None);
            }
            let bytes = OP_BYTES * (1 + batch.withdrawals.len() + batch.votes.len());
            let cmd = script::ORDINARY.call(by_hash, bytes, |cmd| batch.write(standing, cmd));
            let left = || batch.votes.iter().for_each(|vote| vote.call.left(link.number));
            let answer = send_noted(link.send(&cmd, until), left).await;
            if !matches!(&answer, Err(error) if error.fault == Fault::NoAnswer) {
                batch.votes.iter().for_each(|vote| vote.call.answered());
            }
            match answer {
                Err(error) if by_hash && outcome::is_unknown_script(&error) => by_hash = false,
                answer => return answer.map(Some),
            }
        }
    }
}

impl Batch<'_> {
    /// Keys and arguments, as `ordinary.lua` has them.
    fn write(&self, standing: Option<&Standing>, cmd: &mut Cmd) {
        let votes = standing.filter(|_| !self.votes.is_empty());
        cmd.arg(self.withdrawals.len() * 2 + votes.map_or(0, |_| 3 + self.votes.len() * 4));
        for (.., keys) in &self.withdrawals {
            cmd.arg(keys.lock());
        }
        for (.., keys) in &self.withdrawals {
            cmd.arg(keys.waiters());
        }
        if votes.is_some() {
            cmd.arg(RECORD).arg(HIGHEST).arg(FLOOR);
            for Asked { ballot, keys, .. } in &self.votes {
                cmd.arg(keys.waiters()).arg(keys.gone(ballot.claim.owner.id_text()));
            }
            for Asked { keys, .. } in &self.votes {
                cmd.arg(keys.lock());
            }
            for Asked { keys, .. } in &self.votes {
                cmd.arg(keys.fence());
            }
        }
        cmd.arg(self.withdrawals.len());
        for (_, owner, _) in &self.withdrawals {
            cmd.arg(parts(owner).0);
        }
        if let Some(standing) = votes {
            let [head, data] = &standing.parts;
            cmd.arg(head).arg(data).arg(standing.record.max_ms);
            let mut last_px = 0;
            for Asked { ballot, .. } in &self.votes {
                let (claim, fence) = (&ballot.claim, ballot.hint);
                let px = px(claim.ttl + claim.lock_delay);
                if std::mem::replace(&mut last_px, px) != px {
                    cmd.arg(px);
                }
                cmd.arg(HeldText { owner: &claim.owner, fence }).arg(fence.get());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_script_keeps_the_fence_of_a_name_as_long_as_the_others() {
        let script = include_str!("../scripts/voter/ordinary.lua");
        let (keep, lead) = (super::super::KEPT_MS, 60_000);
        let line = format!("local KEEP_MS, KEEP_HINT_MS = {keep}, '{}'\n", keep + lead);
        assert!(script.contains(&line) && script.contains(&format!("local HINT_MAX_US = {lead}000\n")));
    }
}
