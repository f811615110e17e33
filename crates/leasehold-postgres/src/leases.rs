//! Claims, renewals and ends of attempts: one call of one function each.

use std::{num::NonZeroU32, time::Duration};

use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    Postgres, Result,
    pool::{Param, Purpose},
    reply,
};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{
        Answer, AnswerAll, Claim, Converted, EngineError, Fault, Fut, Grant, HandedTo, Held, Hold, Leases,
        Mode, Released, Renewed, registry::Call,
    },
    fence::Fence,
    name::Name,
    owner::{Holder, Owner},
};

/// An owner as the database has it: the random part as a uuid, and what people may see.
pub(super) fn id(owner: &Owner) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(owner.id_text().as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
    }
    bytes
}

pub(super) fn shown(owner: &Owner) -> &str {
    owner.expose().get(33..).unwrap_or_default()
}

/// A uuid parameter; the driver has none without one more dependency.
#[derive(Debug)]
pub(super) struct Uuid(pub(super) [u8; 16]);

impl ToSql for Uuid {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(tokio_postgres::types::IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::UUID
    }

    tokio_postgres::types::to_sql_checked!();
}

/// Whole milliseconds, never less than asked for.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX / 2)
}

fn mode_text(mode: Mode) -> &'static str {
    mode.as_str()
}

impl Postgres {
    /// A copy of a claim, or of a wish to begin a record, is about to leave.
    pub(super) fn leaves(&self, owner: &Owner) -> Result<Call<()>> {
        let call = self.attempts.enter(owner.id(), self.clock.now())?;
        call.leaves(None)?;
        Ok(call)
    }

    async fn claim_one(&self, claim: &Claim, until: Until) -> Result<Answer> {
        self.capabilities.check(claim)?;
        let channel = if claim.queue.is_some() { self.listener.channel(until).await } else { None };
        let call = self.leaves(&claim.owner)?;
        let since = self.clock.now();
        let mut connection = self.pool.checkout(until, Purpose::Ask).await?;
        // Its end may have overtaken it on the way to a connection.
        if call.has_ended() {
            return Err(leasehold_core::engine::registry::ended_error());
        }
        let since = since.max(self.clock.now());
        let (take, of) = reply::take(claim.mode);
        let wait = claim.queue.map(|queue| millis(queue.wait));
        let poll = claim.queue.map_or(0, |queue| millis(queue.poll_every));
        let (ttl, delay) = (millis(claim.ttl), millis(claim.lock_delay));
        let patience = self.pool.patience_ms(until);
        let params: [Param<'_>; 12] = [
            (&claim.name.as_str(), Type::TEXT),
            (&Uuid(id(&claim.owner)), Type::UUID),
            (&ttl, Type::INT8),
            (&mode_text(claim.mode), Type::TEXT),
            (&take.max(1), Type::INT4),
            (&of, Type::INT4),
            (&wait, Type::INT8),
            (&poll, Type::INT8),
            (&delay, Type::INT8),
            (&shown(&claim.owner), Type::TEXT),
            (&channel, Type::TEXT),
            (&patience, Type::INT8),
        ];
        let number = connection.number();
        let sql = "SELECT * FROM leasehold.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        let rows = connection.query(until, sql, &params, || call.left(number)).await;
        if !is_unknown(&rows) {
            call.answered();
        }
        answer(&reply::one(rows?)?, since, claim.ttl)
    }

    async fn claim_every(&self, claims: &[Claim], until: Until) -> Result<AnswerAll> {
        claims.iter().try_for_each(|claim| self.capabilities.check(claim))?;
        let calls = claims.iter().map(|claim| self.leaves(&claim.owner)).collect::<Result<Vec<_>>>()?;
        let mut connection = self.pool.checkout(until, Purpose::Ask).await?;
        let since = self.clock.now();
        let mut order: Vec<usize> = (0..claims.len()).collect();
        order.sort_by_key(|place| claims[*place].name.as_str());
        let of =
            |what: &dyn Fn(&Claim) -> i64| -> Vec<i64> { order.iter().map(|n| what(&claims[*n])).collect() };
        let names: Vec<&str> = order.iter().map(|n| claims[*n].name.as_str()).collect();
        let owners: Vec<Uuid> = order.iter().map(|n| Uuid(id(&claims[*n].owner))).collect();
        let holders: Vec<&str> = order.iter().map(|n| shown(&claims[*n].owner)).collect();
        let takes: Vec<i32> = order.iter().map(|n| reply::take(claims[*n].mode).0).collect();
        let ofs: Vec<i32> = order.iter().map(|n| reply::take(claims[*n].mode).1).collect();
        let (ttls, delays) = (of(&|claim| millis(claim.ttl)), of(&|claim| millis(claim.lock_delay)));
        let patience = self.pool.patience_ms(until);
        let params: [Param<'_>; 8] = [
            (&names, Type::TEXT_ARRAY),
            (&owners, Type::UUID_ARRAY),
            (&ttls, Type::INT8_ARRAY),
            (&takes, Type::INT4_ARRAY),
            (&ofs, Type::INT4_ARRAY),
            (&delays, Type::INT8_ARRAY),
            (&holders, Type::TEXT_ARRAY),
            (&patience, Type::INT8),
        ];
        let number = connection.number();
        let left = || calls.iter().for_each(|call| call.left(number));
        let sql =
            "SELECT claim, (answer).*, refusal FROM leasehold.claim_all($1, $2, $3, $4, $5, $6, $7, $8)";
        let rows = connection.query(until, sql, &params, left).await;
        if !is_unknown(&rows) {
            calls.iter().for_each(Call::answered);
        }
        let mut grants = vec![None; claims.len()];
        for row in rows? {
            let place = usize::try_from(reply::get::<i32>(&row, "claim")? - 1).ok();
            let Some(place) = place.and_then(|at| order.get(at).copied()) else { continue };
            if let Some(refusal) = reply::get::<Option<Vec<String>>>(&row, "refusal")? {
                return Ok(AnswerAll::Refused { claim: place, error: reply::refusal(&refusal) });
            }
            match answer(&row, since, claims[place].ttl)? {
                Answer::Granted(grant) => grants[place] = Some(grant),
                Answer::Busy { holders } => return Ok(AnswerAll::Busy { claim: place, holders }),
                _ => {}
            }
        }
        let grants: Option<Vec<_>> = grants.into_iter().collect();
        let missing = || EngineError::new(Fault::Corrupt, "fewer answers than claims");
        Ok(AnswerAll::Granted(grants.ok_or_else(missing)?))
    }

    async fn renew_all(&self, holds: &[Hold], until: Until) -> Result<Vec<Result<Renewed>>> {
        let since = self.clock.now();
        let kind = |hold: &Hold| match hold.of {
            Held::Lock | Held::Closed => "lock",
            Held::Record => "record",
            Held::Latch => "latch",
        };
        let kinds: Vec<&str> = holds.iter().map(kind).collect();
        let names: Vec<&str> = holds.iter().map(|hold| hold.name.as_str()).collect();
        let owners: Vec<Uuid> = holds.iter().map(|hold| Uuid(id(&hold.owner))).collect();
        let lasts: Vec<i64> = holds.iter().map(|hold| millis(hold.ttl + hold.lock_delay)).collect();
        let patience = self.pool.patience_ms(until);
        let params: [Param<'_>; 5] = [
            (&kinds, Type::TEXT_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&owners, Type::UUID_ARRAY),
            (&lasts, Type::INT8_ARRAY),
            (&patience, Type::INT8),
        ];
        let sql = "SELECT leasehold.renew($1, $2, $3, $4, $5) AS renewed";
        let row = reply::one(self.pool.query(until, Purpose::Keep, sql, &params).await?)?;
        let renewed: Vec<bool> = reply::get(&row, "renewed")?;
        let kept = |is_kept| if is_kept { Renewed::Kept { since, link: None } } else { Renewed::Gone };
        Ok(renewed.into_iter().map(|is_kept| Ok(kept(is_kept))).collect())
    }

    /// Release and abandon.
    async fn end(&self, name: &Name, mode: Mode, owner: &Owner, until: Until) -> Result<Released> {
        self.attempts.end(owner.id());
        let mut connection = self.pool.checkout(until, Purpose::Keep).await?;
        let may_arrive = self.attempts.may_come_late(owner.id(), connection.number());
        let patience = self.pool.patience_ms(until);
        let params: [Param<'_>; 5] = [
            (&name.as_str(), Type::TEXT),
            (&Uuid(id(owner)), Type::UUID),
            (&mode_text(mode), Type::TEXT),
            (&may_arrive, Type::BOOL),
            (&patience, Type::INT8),
        ];
        let sql = "SELECT * FROM leasehold.release($1, $2, $3, $4, $5)";
        let row =
            reply::one(connection.query(until, sql, &params, || ()).await.map_err(reply::still_checked)?)?;
        self.attempts.ended(owner.id());
        released(&row)
    }

    async fn change_mode(&self, hold: &Hold, to: Mode, until: Until) -> Result<Converted> {
        self.capabilities.check_mode(to)?;
        let since = self.clock.now();
        let (lasts, patience) = (millis(hold.ttl + hold.lock_delay), self.pool.patience_ms(until));
        let params: [Param<'_>; 5] = [
            (&hold.name.as_str(), Type::TEXT),
            (&Uuid(id(&hold.owner)), Type::UUID),
            (&mode_text(to), Type::TEXT),
            (&lasts, Type::INT8),
            (&patience, Type::INT8),
        ];
        let sql = "SELECT * FROM leasehold.convert($1, $2, $3, $4, $5)";
        let row = reply::one(
            self.pool.query(until, Purpose::Keep, sql, &params).await.map_err(reply::still_checked)?,
        )?;
        Ok(match reply::get::<&str>(&row, "outcome")? {
            "done" => Converted::Done { fence: reply::fence(reply::get(&row, "fence")?), since },
            "busy" => Converted::Busy,
            _ => Converted::Gone,
        })
    }

    async fn hand_over_to(&self, hold: &Hold, next: &Holder, until: Until) -> Result<HandedTo> {
        let patience = self.pool.patience_ms(until);
        let next = Owner::new(0, next);
        let params: [Param<'_>; 4] = [
            (&hold.name.as_str(), Type::TEXT),
            (&Uuid(id(&hold.owner)), Type::UUID),
            (&shown(&next), Type::TEXT),
            (&patience, Type::INT8),
        ];
        let sql = "SELECT * FROM leasehold.hand_to($1, $2, $3, $4)";
        let row = reply::one(
            self.pool.query(until, Purpose::Keep, sql, &params).await.map_err(reply::still_checked)?,
        )?;
        Ok(match reply::get::<&str>(&row, "outcome")? {
            "done" => HandedTo::Done { fence: reply::fence(reply::get(&row, "fence")?) },
            "not waiting" => HandedTo::NotWaiting,
            _ => HandedTo::Gone,
        })
    }
}

/// Whether what was sent may have had an effect that is not known.
pub(super) fn is_unknown<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(error) if error.fault == Fault::NoAnswer)
}

fn answer(row: &Row, since: BootInstant, ttl: Duration) -> Result<Answer> {
    let fence = reply::fence(reply::get(row, "fence")?);
    let outcome: &str = reply::get(row, "outcome")?;
    if outcome == "granted" {
        return Ok(Answer::Granted(Grant { fence, since, ttl, acks: 0 }));
    }
    let held_by: Option<Vec<String>> = reply::get(row, "held_by")?;
    let (total, free_in) = (reply::get(row, "holders")?, reply::get(row, "free_in_us")?);
    let holders = reply::holders(total, free_in, held_by.as_deref());
    if outcome != "queued" {
        return Ok(Answer::Busy { holders });
    }
    let ahead: i32 = reply::get(row, "ahead")?;
    Ok(Answer::Queued { ahead: ahead.max(0).unsigned_abs(), holders, last: fence, link: 0 })
}

fn released(row: &Row) -> Result<Released> {
    let (woken, fence) = (reply::get::<i32>(row, "woken")?, reply::get::<Option<i64>>(row, "fence")?);
    Ok(match reply::get::<&str>(row, "outcome")? {
        "released" if woken == 0 => Released::Free,
        "released" => Released::HandedOver { to: woken.max(0).unsigned_abs(), next: None },
        "taken" => Released::Taken { by: fence.map(reply::fence) },
        _ => Released::Expired,
    })
}

impl Leases for Postgres {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(self.claim_one(claim, until))
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], until: Until) -> Fut<'a, AnswerAll> {
        Box::pin(self.claim_every(claims, until))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed>>> {
        Box::pin(self.renew_all(holds, until))
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        Box::pin(self.end(&hold.name, hold.mode, &hold.owner, until))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        Box::pin(async move { self.end(&claim.name, claim.mode, &claim.owner, until).await.map(drop) })
    }

    fn convert<'a>(&'a self, hold: &'a Hold, to: Mode, until: Until) -> Fut<'a, Converted> {
        Box::pin(self.change_mode(hold, to, until))
    }

    fn hand_to<'a>(&'a self, hold: &'a Hold, next: &'a Holder, until: Until) -> Fut<'a, HandedTo> {
        Box::pin(self.hand_over_to(hold, next, until))
    }

    fn set_limit<'a>(&'a self, name: &'a Name, limit: NonZeroU32, until: Until) -> Fut<'a, ()> {
        Box::pin(async move {
            let permits = i32::try_from(limit.get()).unwrap_or(i32::MAX);
            let patience = self.pool.patience_ms(until);
            let params: [Param<'_>; 3] =
                [(&name.as_str(), Type::TEXT), (&permits, Type::INT4), (&patience, Type::INT8)];
            let sql = "SELECT 1 FROM leasehold.set_limit($1, $2, $3)";
            self.pool.query(until, Purpose::Ask, sql, &params).await.map(drop)
        })
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        Box::pin(async move {
            let patience = self.pool.patience_ms(until);
            let params: [Param<'_>; 3] =
                [(&name.as_str(), Type::TEXT), (&seen.as_i64(), Type::INT8), (&patience, Type::INT8)];
            let sql = "SELECT * FROM leasehold.force_release($1, $2, $3)";
            released(&reply::one(
                self.pool.query(until, Purpose::Keep, sql, &params).await.map_err(reply::still_checked)?,
            )?)
        })
    }
}
