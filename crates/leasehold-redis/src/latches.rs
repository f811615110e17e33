//! Latches and barriers: one script, whose operations find their way like those of a lock. Who waits is in a set beside the latch,
//! and told by a message.
//!
//! While nothing new is granted after a promotion (`grace=on`) a latch that is not there is not armed, because it may have been
//! at the server before.

use std::num::NonZeroU32;

use redis::Value;

use super::{
    Redis, reply,
    script::{LatchStep, Op, Step},
    wake::NO_LINK,
};
use leasehold_core::{
    clock::Until,
    engine::{
        EngineError, Fault, Fut,
        latches::{self, Answer, Kind, Latches, ParticipantInfo, Request, Said, Snapshot, Standing},
    },
    name::Name,
    owner::Holder,
};

type Result<T> = std::result::Result<T, EngineError>;

impl Redis {
    /// Sends one operation on a latch.
    async fn latch_step(&self, name: &Name, build: impl Fn() -> LatchStep, until: Until) -> Result<Value> {
        let keys = self.keys(name).checked()?;
        let op = || Op::new(keys.clone(), Step::Latch(build()));
        let value = self.topology.send(name, op, until).await?.0;
        match reply::items(&value) {
            [Value::Int(5)] | [Value::Int(9), _] => {
                let mut error = reply::failed_or_unexpected(value);
                if error.fault == Fault::WrongType {
                    error.why = format!("a key of the latch {name} is of another type");
                }
                Err(error)
            }
            _ => Ok(value),
        }
    }

    async fn ask_latch(&self, request: &Request, until: Until) -> Result<Answer> {
        let attempt = request.owner.id();
        let leaves = matches!(request.op, latches::Op::Leave { .. });
        let joins = matches!(request.op, latches::Op::Join { .. });
        let copy = joins.then(|| self.attempts.leaves(attempt, self.clock.now())).transpose()?;
        copy.iter().for_each(|copy| copy.left(NO_LINK));
        let unanswered = leaves && self.attempts.may_come_late(attempt, u64::MAX);
        let step = || {
            let channel = self.topology.channel(&request.name, || self.keys(&request.name).slot());
            LatchStep::Ask { request: request.clone(), channel, unanswered }
        };
        let answer = self.latch_step(&request.name, step, until).await;
        if let Some(copy) = copy
            && !matches!(&answer, Err(error) if error.fault == Fault::NoAnswer)
        {
            copy.answered();
        }
        let answer = answer.map_err(|error| stored_otherwise(error, request))?;
        if leaves {
            self.attempts.registry.ended(attempt);
        }
        read_answer(&answer)
    }
}

impl Latches for Redis {
    fn ask<'a>(&'a self, request: &'a Request, until: Until) -> Fut<'a, Answer> {
        Box::pin(async move {
            // In a cluster a subscription costs a call per slot: first it is asked once.
            if let latches::Op::Look { generation, wake: true } = request.op
                && !self.topology.is_subscribed(|| self.keys(&request.name).slot())
            {
                let op = latches::Op::Look { generation, wake: false };
                let answer = self.ask_latch(&Request { op, ..request.clone() }, until).await?;
                if !matches!(answer.said, Said::Stands(Standing::Armed { .. })) {
                    return Ok(answer);
                }
            }
            self.ask_latch(request, until).await
        })
    }

    fn state<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move { read_snapshot(name, &self.latch_step(name, || LatchStep::Show, until).await?) })
    }
}

/// What is stored instead of what a request names.
fn stored_otherwise(error: EngineError, request: &Request) -> EngineError {
    let kind = error.why.strip_prefix("KIND ").and_then(Kind::parse);
    let count = error.why.strip_prefix("COUNT ").and_then(|count| count.parse::<NonZeroU32>().ok());
    match (kind, count) {
        (Some(kind), _) => EngineError::other_kind(kind, request.kind),
        (_, Some(count)) => EngineError::other_count(count, request.count),
        _ => error,
    }
}

fn number<T: TryFrom<i64>>(value: &Value) -> Result<T> {
    let Value::Int(number) = value else { return Err(reply::unexpected(value)) };
    T::try_from(*number).map_err(|_| reply::unexpected(value))
}

fn generation(value: &Value) -> Result<u64> {
    reply::fence(value).map(|fence| fence.get())
}

fn word(value: &Value) -> &str {
    reply::text(value).unwrap_or_default()
}

/// Holder data without the random part of an owner value.
fn holder(text: &str) -> Holder {
    Holder::parse(&format!("{:032x} {text}", 0))
}

fn read_answer(value: &Value) -> Result<Answer> {
    let [present, Value::Int(first_ms), letter, rest @ ..] = reply::items(value) else {
        return Err(reply::unexpected(value));
    };
    let said = match (word(letter), rest) {
        ("j", []) => Said::Joined,
        ("f", []) => Said::Full,
        ("c", [index, again, missing]) => {
            Said::Counted { index: number(index)?, again: *again == Value::Int(1), missing: number(missing)? }
        }
        ("l", []) => Said::Left,
        ("r", []) => Said::Rearmed,
        ("g", []) => Said::OtherGeneration,
        ("s", []) => Said::Stranger,
        (letter, rest) => Said::Stands(read_standing(letter, rest)?),
    };
    Ok(Answer { generation: generation(present)?, said, first_ends_in: reply::left(*first_ms) })
}

fn read_standing(letter: &str, about: &[Value]) -> Result<Standing> {
    Ok(match (letter, about) {
        ("a", [missing]) => Standing::Armed { missing: number(missing)? },
        ("o", _) => Standing::Opened,
        ("b", [who]) => {
            let who = reply::text(who).filter(|who| !who.is_empty());
            Standing::Broken { who: who.map(holder) }
        }
        _ => return Err(reply::unexpected(&Value::Nil)),
    })
}

fn read_snapshot(name: &Name, value: &Value) -> Result<Option<Snapshot>> {
    let [present, _, kind, count, joined, letter, about, parties @ ..] = reply::items(value) else {
        return Ok(None);
    };
    let generation = generation(present)?;
    let party = |party: &[Value]| {
        let [arrived, who, Value::Int(left_ms)] = party else { return Err(reply::unexpected(value)) };
        let is_counted = self::generation(arrived)? == generation;
        Ok(ParticipantInfo::new(holder(word(who)), is_counted, reply::left(*left_ms)))
    };
    let (count, joined) = (number(count)?, number(joined)?);
    let kind = Kind::parse(word(kind)).ok_or_else(|| reply::unexpected(value))?;
    let standing = read_standing(word(letter), std::slice::from_ref(about))?;
    let participants = parties.chunks(3).map(party).collect::<Result<_>>()?;
    Ok(Some(Snapshot { name: name.clone(), kind, count, generation, standing, joined, participants }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn an_answer_says_who_broke_the_latch_and_nothing_else_of_it() {
        let broken = |who| {
            let value = Value::Array(vec![text("17"), Value::Int(-1), text("b"), text(who)]);
            read_answer(&value).unwrap()
        };
        let answer = broken("1700000000000 7 web1 a label");
        assert_eq!((answer.generation, answer.first_ends_in), (17, None));
        let Said::Stands(Standing::Broken { who: Some(Holder::Leasehold { label, pid: 7, .. }) }) =
            answer.said
        else {
            panic!("{answer:?}")
        };
        assert_eq!(label, "a label");
        assert_eq!(broken("").said, Said::Stands(Standing::Broken { who: None }));
    }

    #[test]
    fn an_odd_answer_is_an_error() {
        for odd in [
            vec![],
            vec![text("17"), Value::Int(1)],
            vec![text("17"), Value::Int(1), text("c"), Value::Int(1)],
            vec![text("17"), Value::Int(1), text("a"), Value::Int(-1)],
            vec![text("x"), Value::Int(1), text("j")],
            vec![text("17"), Value::Int(1), text("?")],
        ] {
            assert!(read_answer(&Value::Array(odd.clone())).is_err(), "{odd:?}");
        }
    }
}
