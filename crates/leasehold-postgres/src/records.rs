//! Records and marks: one call of one function each.

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::{Row, types::Type};

use super::{
    Postgres, Result,
    leases::{Uuid, id, is_unknown, millis, shown},
    pool::{Param, Purpose},
    reply,
};
use leasehold_core::{
    Name,
    clock::Until,
    engine::{
        Cursor, EngineError, Fault, Fut, Grant, Page,
        records::{
            Begin, Begun, Content, Fingerprint, MarkOp, Outcome, Record, Records, Settle, Settled, State,
            Stored,
        },
        registry::ended_error,
    },
    owner::Owner,
};

impl Postgres {
    async fn begin_record(&self, begin: &Begin, until: Until) -> Result<Begun> {
        let channel = if begin.wake { self.listener.channel(until).await } else { None };
        let call = self.leaves(&begin.owner)?;
        let mut connection = self.pool.checkout(until, Purpose::Ask).await?;
        if call.has_ended() {
            return Err(ended_error());
        }
        let since = self.clock.now();
        let fingerprint = begin.fingerprint.as_ref().map(Fingerprint::as_bytes);
        let (lease, patience) = (millis(begin.lease), self.pool.patience_ms(until));
        let params: [Param<'_>; 7] = [
            (&begin.key.as_str(), Type::TEXT),
            (&Uuid(id(&begin.owner)), Type::UUID),
            (&lease, Type::INT8),
            (&fingerprint, Type::BYTEA),
            (&shown(&begin.owner), Type::TEXT),
            (&channel, Type::TEXT),
            (&patience, Type::INT8),
        ];
        let number = connection.number();
        let sql = "SELECT * FROM leasehold.begin_record($1, $2, $3, $4, $5, $6, $7)";
        let rows = connection.query(until, sql, &params, || call.left(number)).await;
        if !is_unknown(&rows) {
            call.answered();
        }
        let row = reply::one(rows?)?;
        let body = || {
            Ok::<_, EngineError>(Bytes::from(
                reply::get::<Option<Vec<u8>>>(&row, "body")?.unwrap_or_default(),
            ))
        };
        Ok(match reply::get::<&str>(&row, "outcome")? {
            "yours" => {
                let fence = reply::fence(reply::get(&row, "fence")?);
                Begun::Yours(Grant { fence, since, ttl: begin.lease, acks: 0 })
            }
            "running" => Begun::Running {
                holder: reply::holder(reply::get(&row, "holder")?),
                expires_in: reply::micros(reply::get(&row, "expires_us")?),
            },
            "completed" => Begun::Completed(body()?),
            "failed" => Begun::Failed(body()?),
            "quarantined" => Begun::Quarantined(body()?),
            "mark" => Begun::DoneElsewhere,
            "mismatch" => Begun::Mismatch,
            other => return Err(EngineError::new(Fault::Corrupt, format!("an unknown outcome: {other}"))),
        })
    }

    async fn settle_record(&self, settle: &Settle, until: Until) -> Result<Settled> {
        let Settle { hold, fingerprint, outcome, keep } = settle;
        let mut connection = self.pool.checkout(until, Purpose::Keep).await?;
        let may_arrive = self.attempts.may_come_late(hold.owner.id(), connection.number());
        let (state, body) = match outcome {
            Outcome::Completed(body) => (Some("completed"), Some(&**body)),
            Outcome::Failed(body) => (Some("failed"), Some(&**body)),
            Outcome::Quarantined(body) => (Some("quarantined"), Some(&**body)),
            Outcome::Retry => (None, None),
        };
        let fingerprint = fingerprint.as_ref().map(Fingerprint::as_bytes);
        let (keep, patience) = (millis(*keep), self.pool.patience_ms(until));
        let params: [Param<'_>; 10] = [
            (&hold.name.as_str(), Type::TEXT),
            (&Uuid(id(&hold.owner)), Type::UUID),
            (&hold.fence.as_i64(), Type::INT8),
            (&state, Type::TEXT),
            (&fingerprint, Type::BYTEA),
            (&body, Type::BYTEA),
            (&keep, Type::INT8),
            (&shown(&hold.owner), Type::TEXT),
            (&may_arrive, Type::BOOL),
            (&patience, Type::INT8),
        ];
        let sql = "SELECT * FROM leasehold.settle_record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let row = reply::one(connection.query(until, sql, &params, || ()).await?)?;
        self.attempts.ended(hold.owner.id());
        let later: Option<i64> = reply::get(&row, "later")?;
        let stored: bool = reply::get(&row, "stored")?;
        Ok(if stored { Settled::Stored } else { Settled::FencedOff { by: later.map(reply::fence) } })
    }
}

impl Records for Postgres {
    fn begin<'a>(&'a self, begin: &'a Begin, until: Until) -> Fut<'a, Begun> {
        Box::pin(self.begin_record(begin, until))
    }

    fn settle<'a>(&'a self, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        Box::pin(self.settle_record(settle, until))
    }

    fn on_marks<'a>(&'a self, keys: &'a [Name], op: MarkOp, until: Until) -> Fut<'a, Vec<bool>> {
        Box::pin(async move {
            let names: Vec<&str> = keys.iter().map(Name::as_str).collect();
            let (op, ttl, purpose) = match op {
                MarkOp::Set(ttl) => ("set", ttl, Purpose::Ask),
                MarkOp::SetIfAbsent(ttl) => ("add", ttl, Purpose::Ask),
                MarkOp::Test => ("test", Duration::ZERO, Purpose::Ask),
                MarkOp::Clear => ("clear", Duration::ZERO, Purpose::Keep),
            };
            let (ttl, patience) = (millis(ttl), self.pool.patience_ms(until));
            let params: [Param<'_>; 4] =
                [(&names, Type::TEXT_ARRAY), (&op, Type::TEXT), (&ttl, Type::INT8), (&patience, Type::INT8)];
            let sql = "SELECT leasehold.on_marks($1, $2, $3, $4) AS done";
            reply::get(&reply::one(self.pool.query(until, purpose, sql, &params).await?)?, "done")
        })
    }

    fn read<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, Option<Record>> {
        Box::pin(async move {
            let params: [Param<'_>; 1] = [(&key.as_str(), Type::TEXT)];
            let sql = "SELECT * FROM leasehold.show_record($1)";
            let rows = self.pool.query(until, Purpose::Ask, sql, &params).await?;
            rows.first().map(|row| record(key.clone(), row)).transpose()
        })
    }

    fn remove<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, bool> {
        Box::pin(async move {
            let patience = self.pool.patience_ms(until);
            let params: [Param<'_>; 2] = [(&key.as_str(), Type::TEXT), (&patience, Type::INT8)];
            let sql = "SELECT leasehold.remove_record($1, $2) AS removed";
            reply::get(&reply::one(self.pool.query(until, Purpose::Keep, sql, &params).await?)?, "removed")
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Record>> {
        Box::pin(async move {
            let after = from.as_ref().map_or("", Cursor::as_str);
            let limit = limit.clamp(1, 10_000);
            let most = i32::try_from(limit).unwrap_or(i32::MAX).saturating_add(1);
            let params: [Param<'_>; 3] = [(&prefix, Type::TEXT), (&after, Type::TEXT), (&most, Type::INT4)];
            let sql = "SELECT * FROM leasehold.show_records($1, $2, $3)";
            let rows = self.pool.query(until, Purpose::Ask, sql, &params).await?;
            let mut items = Vec::with_capacity(rows.len());
            for row in &rows {
                if let Ok(key) = Name::new(reply::get::<&str>(row, "key")?) {
                    items.push(record(key, row)?);
                }
            }
            Ok(Page::first(items.into_iter(), limit, |record| record.key.as_str()))
        })
    }
}

fn record(key: Name, row: &Row) -> Result<Record> {
    let body = Bytes::from(reply::get::<Option<Vec<u8>>>(row, "body")?.unwrap_or_default());
    let state = match reply::get::<&str>(row, "state")? {
        "mark" => None,
        "completed" => Some(State::Completed(body)),
        "failed" => Some(State::Failed(body)),
        "quarantined" => Some(State::Quarantined(body)),
        _ => {
            let owner = Owner::from_exposed(reply::get(row, "owner")?);
            let unreadable = || EngineError::new(Fault::Corrupt, "an owner value that cannot be read");
            Some(State::Running(owner.ok_or_else(unreadable)?))
        }
    };
    let fingerprint: Option<&[u8]> = reply::get(row, "fingerprint")?;
    let fence = reply::fence(reply::get(row, "fence")?);
    let content = match state {
        None => Content::Mark,
        Some(state) => Content::Stored(Stored {
            state,
            fence,
            fingerprint: fingerprint.and_then(Fingerprint::from_bytes),
        }),
    };
    Ok(Record { key, content, expires_in: Some(reply::micros(reply::get(row, "expires_us")?)) })
}
