//! Records: what was begun, how it ended, and marks.
//!
//! Each step of a record is an operation of a script of their own, and finds its way like one of a lock. What a
//! script finds and cannot judge by the owner alone it answers as it is; the contract's own rules read it. Whoever waits for
//! the end of somebody else's execution is in a set beside the record and told by a message.
//!
//! While nothing new is granted after a promotion (`grace=on`) a record that is not there is refused, because it may have
//! been begun or done at the server before; a running one that was forgotten is lost.

use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Value};

use super::{
    Redis,
    fan_out::{self, ScriptCall},
    keys::Keys,
    reply,
    script::{MARKS, Op, Step, px},
    topology::{outcome::Resend, slots},
    wake::NO_LINK,
};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{
        Cursor, EngineError, Fault, Fut, Grant, Page,
        records::{Begin, Begun, Content, FORCED_PREFIX, MarkOp, Record, Records, Settle, Settled, decide},
    },
    fence::Fence,
    name::Name,
};

/// When to ask again about a running record that never runs out by itself, because somebody changed it by hand.
const NEVER: Duration = Duration::from_secs(86_400);
/// Records that are looked at together; a result may be long.
const LOOKS_AT_ONCE: usize = 32;
/// Marks in one call; bounds how long the server is busy with one.
const MARKS_PER_CALL: usize = 1000;

type Result<T> = std::result::Result<T, EngineError>;

impl Redis {
    /// Sends one step of a record and reads its answer.
    async fn step<T>(
        &self,
        key: &Name,
        build: impl Fn() -> Step,
        read: impl FnOnce(Value) -> Result<T>,
        until: Until,
    ) -> Result<T> {
        let keys = Keys::of_record(key).checked()?;
        let op = || Op::new(keys.clone(), build());
        let answer = match self.topology.send(key, op, until).await?.0 {
            value if matches!(reply::items(&value), [Value::Int(5)] | [Value::Int(9), _]) => {
                Err(reply::failed_or_unexpected(value))
            }
            value => read(value),
        };
        answer.map_err(|error| if error.fault == Fault::WrongType { wrong_type(key) } else { error })
    }

    async fn begin_once(&self, begin: &Begin, until: Until) -> Result<Begun> {
        let since = self.clock.now();
        let call = self.attempts.leaves(begin.owner.id(), since)?;
        call.left(NO_LINK);
        let read = |value| begun(value, begin, since);
        let channel = || self.topology.channel(&begin.key, || slots::slot(begin.key.as_str()));
        let begun = self.step(&begin.key, || Step::Begin(begin.clone(), channel()), read, until).await;
        if !matches!(&begun, Err(error) if error.fault == Fault::NoAnswer) {
            call.answered();
        }
        begun
    }

    /// One answer per key. On one server all leave in one write; in a cluster all that a shard has, each in a call of its own:
    /// those of one slot may be on two nodes.
    async fn call_marks(&self, keys: &[Name], op: MarkOp, until: Until) -> Result<Vec<bool>> {
        let mut callers = keys.iter().filter(|key| !key.as_str().starts_with(FORCED_PREFIX));
        callers.try_for_each(|key| Keys::of_record(key).checked().map(drop))?;
        let per_call = if self.topology.in_cluster { 1 } else { MARKS_PER_CALL };
        let calls = keys.chunks(per_call).map(|some| {
            ScriptCall::new(&MARKS, slots::slot(some[0].as_str()), move |cmd| write_marks(cmd, some, op))
        });
        let answers = self.call_each(keys.first(), Resend::AwaitMigration, calls, until).await;
        let mut found = Vec::with_capacity(keys.len());
        for (some, answer) in keys.chunks(per_call).zip(answers) {
            for (key, digit) in some.iter().zip(fan_out::digits(answer?, some.len())?) {
                match digit {
                    b'0' | b'1' => found.push(digit == b'1'),
                    _ => return Err(wrong_type(key)),
                }
            }
        }
        Ok(found)
    }
}

fn write_marks(cmd: &mut Cmd, keys: &[Name], op: MarkOp) {
    cmd.arg(keys.len());
    for key in keys {
        cmd.arg(key.as_str());
    }
    match op {
        MarkOp::Set(ttl) => cmd.arg("m").arg(px(ttl)),
        MarkOp::SetIfAbsent(ttl) => cmd.arg("n").arg(px(ttl)),
        MarkOp::Test => cmd.arg("e"),
        MarkOp::Clear => cmd.arg("c"),
    };
}

fn wrong_type(key: &Name) -> EngineError {
    EngineError::new(Fault::WrongType, format!("the key {key} is of another type than a record"))
}

fn begun(value: Value, begin: &Begin, since: BootInstant) -> Result<Begun> {
    match value {
        Value::Array(_) => {
            let (found, pttl) = reply::read::<(Vec<u8>, i64)>(value)?;
            match decide::begin(Some(&found), reply::left(pttl).unwrap_or(NEVER), begin)? {
                decide::Beginning::Answer(begun) => Ok(begun),
                _ => Err(reply::unexpected(&Value::Nil)),
            }
        }
        fence => {
            let fence = reply::fence(&fence)?;
            Ok(Begun::Yours(Grant { fence, since, ttl: begin.lease, acks: 0 }))
        }
    }
}

fn settled(value: Value, settle: &Settle) -> Result<Settled> {
    if value == Value::Int(1) {
        return Ok(Settled::Stored);
    }
    let (found, last) = reply::read::<(Option<Vec<u8>>, u64)>(value)?;
    let settled = decide::settle(found.as_deref(), (last > 0).then(|| Fence::new(last)), settle)?;
    settled.ok_or_else(|| reply::unexpected(&Value::Nil))
}

fn record(key: &Name, value: Value) -> Result<Option<Record>> {
    let (text, pttl) = reply::read::<(Option<Vec<u8>>, i64)>(value)?;
    let (key, expires_in) = (key.clone(), reply::left(pttl));
    Ok(text.map(|text| Record { key, content: decide::content(&text), expires_in }))
}

impl Records for Redis {
    fn begin<'a>(&'a self, begin: &'a Begin, until: Until) -> Fut<'a, Begun> {
        Box::pin(async move {
            // In a cluster a subscription costs a call per slot, and most records are not running: first it is asked once.
            if begin.wake && !self.topology.is_subscribed(|| slots::slot(begin.key.as_str())) {
                let once = Begin { wake: false, ..begin.clone() };
                match self.begin_once(&once, until).await? {
                    Begun::Running { .. } => {}
                    begun => return Ok(begun),
                }
            }
            self.begin_once(begin, until).await
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        Box::pin(async move {
            let attempt = settle.hold.owner.id();
            let unanswered = self.attempts.may_come_late(attempt, u64::MAX);
            let step = || Step::Settle { settle: settle.clone(), unanswered };
            let settled = self.step(&settle.hold.name, step, |value| settled(value, settle), until).await?;
            self.attempts.registry.ended(attempt);
            Ok(settled)
        })
    }

    fn on_marks<'a>(&'a self, keys: &'a [Name], op: MarkOp, until: Until) -> Fut<'a, Vec<bool>> {
        Box::pin(self.call_marks(keys, op, until))
    }

    fn read<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, Option<Record>> {
        Box::pin(self.step(key, || Step::Look, |value| record(key, value), until))
    }

    fn remove<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, bool> {
        Box::pin(self.step(key, || Step::Remove, reply::read, until))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Record>> {
        Box::pin(async move {
            let mut found = self.page_of_names(("", prefix), from, limit, until).await?;
            if !self.prefix.is_empty() && !prefix.starts_with(&self.prefix) {
                found.items.retain(|key| !key.as_str().starts_with(&self.prefix));
            }
            let mut items = Vec::with_capacity(found.items.len());
            for some in found.items.chunks(LOOKS_AT_ONCE) {
                let looks = join_all(some.iter().map(|key| self.read(key, until))).await;
                for (key, look) in some.iter().zip(looks) {
                    match look {
                        Err(error) if error.fault == Fault::WrongType => {
                            let (key, content) = (key.clone(), Content::Corrupt);
                            items.push(Record { key, content, expires_in: None });
                        }
                        // Gone since the scan, if there is none.
                        look => items.extend(look?),
                    }
                }
            }
            Ok(Page { items, next: found.next })
        })
    }
}
