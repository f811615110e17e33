//! Latches and barriers: one call of one function each.

use tokio_postgres::{Row, types::Type};

use super::{
    Postgres, Result,
    leases::{Uuid, id, is_unknown, millis, shown},
    pool::{Checkout, Param, Purpose},
    reply,
};
use leasehold_core::{
    Name,
    clock::Until,
    engine::{
        EngineError, Fault, Fut,
        latches::{Answer, Kind, Latches, Op, Request, Said, Snapshot, Standing},
        registry::ended_error,
    },
};

impl Postgres {
    async fn ask_latch(&self, request: &Request, until: Until) -> Result<Answer> {
        let channel = if request.wake() { self.listener.channel(until).await } else { None };
        let purpose = match request.op {
            Op::CountDown { .. } | Op::Leave { .. } => Purpose::Keep,
            Op::Join { .. } | Op::Look { .. } | Op::Rearm { .. } => Purpose::Ask,
        };
        let attempt = request.owner.id();
        let joins = matches!(request.op, Op::Join { .. });
        let call = if joins { Some(self.leaves(&request.owner)?) } else { None };
        if let Op::Leave { .. } = request.op {
            self.attempts.end(attempt);
        }
        let mut connection = self.pool.checkout(until, purpose).await?;
        // Its end may have overtaken it on the way to a connection.
        if call.as_ref().is_some_and(|call| call.has_ended()) {
            return Err(ended_error());
        }
        let number = connection.number();
        let left = || call.iter().for_each(|call| call.left(number));
        let rows = self.send(&mut connection, request, channel, left, until).await;
        if !is_unknown(&rows) {
            call.iter().for_each(|call| call.answered());
        }
        let row = reply::one(rows?)?;
        if let Op::Leave { .. } = request.op {
            self.attempts.ended(attempt);
        }
        answer(&row)
    }

    async fn send(
        &self,
        connection: &mut Checkout,
        request: &Request,
        channel: Option<&str>,
        left: impl Fn(),
        until: Until,
    ) -> Result<Vec<Row>> {
        let Request { name, kind, count, owner, op } = request;
        let parties = i32::try_from(count.get()).unwrap_or(i32::MAX);
        let patience = self.pool.patience_ms(until);
        let may_arrive = self.attempts.may_come_late(owner.id(), connection.number());
        let (name, kind, uuid): (Param<'_>, Param<'_>, _) =
            ((&name.as_str(), Type::TEXT), (&kind.as_str(), Type::TEXT), Uuid(id(owner)));
        let (parties, uuid): (Param<'_>, Param<'_>) = ((&parties, Type::INT4), (&uuid, Type::UUID));
        let patience: Param<'_> = (&patience, Type::INT8);
        match op {
            Op::Join { ttl } => {
                let ttl = millis(*ttl);
                let (ttl, holder) = ((&ttl as _, Type::INT8), (&shown(owner) as _, Type::TEXT));
                let params = [name, parties, uuid, kind, ttl, holder, patience];
                let sql = "SELECT * FROM leasehold.join_latch($1, $2, $3, $4, $5, $6, $7)";
                connection.query(until, sql, &params, left).await
            }
            Op::CountDown { generation } => {
                let generation = (&generation.cast_signed() as _, Type::INT8);
                let params = [name, parties, uuid, generation, kind, patience];
                let sql = "SELECT * FROM leasehold.count_down($1, $2, $3, $4, $5, $6)";
                connection.query(until, sql, &params, left).await
            }
            Op::Leave { breaks } => {
                let (breaks, late) = ((breaks as _, Type::BOOL), (&may_arrive as _, Type::BOOL));
                let params = [name, uuid, breaks, kind, late, patience];
                let sql = "SELECT * FROM leasehold.leave_latch($1, $2, $3, $4, $5, $6)";
                connection.query(until, sql, &params, left).await
            }
            Op::Look { generation, .. } => {
                let generation = generation.map(u64::cast_signed);
                let (generation, channel) = ((&generation as _, Type::INT8), (&channel as _, Type::TEXT));
                let params = [name, parties, kind, generation, uuid, channel, patience];
                let sql = "SELECT * FROM leasehold.look_at_latch($1, $2, $3, $4, $5, $6, $7)";
                connection.query(until, sql, &params, left).await
            }
            Op::Rearm { generation } => {
                let generation = (&generation.cast_signed() as _, Type::INT8);
                let params = [name, parties, generation, kind, patience];
                let sql = "SELECT * FROM leasehold.rearm_latch($1, $2, $3, $4, $5)";
                connection.query(until, sql, &params, left).await
            }
        }
    }
}

impl Latches for Postgres {
    fn ask<'a>(&'a self, request: &'a Request, until: Until) -> Fut<'a, Answer> {
        Box::pin(self.ask_latch(request, until))
    }

    fn state<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move {
            let params: [Param<'_>; 1] = [(&name.as_str(), Type::TEXT)];
            let sql = "SELECT * FROM leasehold.show_latch($1)";
            snapshot(name, &reply::one(self.pool.query(until, Purpose::Ask, sql, &params).await?)?)
        })
    }
}

fn corrupt(what: &str) -> EngineError {
    EngineError::new(Fault::Corrupt, format!("an answer about a latch that cannot be read: {what}"))
}

fn unsigned(number: i64) -> u64 {
    number.max(0).unsigned_abs()
}

/// A number that is there if the word before it says so.
fn count(row: &Row, column: &str) -> Result<u32> {
    let number: Option<i32> = reply::get(row, column)?;
    number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| corrupt(column))
}

fn answer(row: &Row) -> Result<Answer> {
    let said = match reply::get::<&str>(row, "said")? {
        "joined" => Said::Joined,
        "full" => Said::Full,
        "counted" => Said::Counted {
            index: count(row, "place")?,
            again: reply::get(row, "again")?,
            missing: count(row, "missing")?,
        },
        "left" => Said::Left,
        "rearmed" => Said::Rearmed,
        "other generation" => Said::OtherGeneration,
        "stranger" => Said::Stranger,
        said => Said::Stands(standing(said, row)?),
    };
    let generation = unsigned(reply::get(row, "generation")?);
    let first_us: Option<i64> = reply::get(row, "first_us")?;
    Ok(Answer { generation, said, first_ends_in: first_us.map(reply::micros) })
}

fn standing(said: &str, row: &Row) -> Result<Standing> {
    Ok(match said {
        "armed" => Standing::Armed { missing: count(row, "missing")? },
        "open" => Standing::Opened,
        "broken" => Standing::Broken { who: reply::get::<Option<&str>>(row, "who")?.map(reply::holder) },
        other => return Err(corrupt(other)),
    })
}

fn snapshot(name: &Name, row: &Row) -> Result<Option<Snapshot>> {
    let Some(kind) = reply::get::<Option<&str>>(row, "kind")? else { return Ok(None) };
    let kind = Kind::parse(kind).ok_or_else(|| corrupt(kind))?;
    let lines: Option<Vec<String>> = reply::get(row, "participants")?;
    let participants = lines.unwrap_or_default().iter().filter_map(|line| reply::participant(line)).collect();
    Ok(Some(Snapshot {
        name: name.clone(),
        kind,
        count: count(row, "parties")?,
        generation: unsigned(reply::get(row, "generation")?),
        standing: standing(reply::get(row, "said")?, row)?,
        joined: count(row, "joined")?,
        participants,
    }))
}
