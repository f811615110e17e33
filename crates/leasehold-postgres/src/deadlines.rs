//! Deadlines: one call of one function each. Buckets only bound how much of a pool one claim takes.

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::{Row, types::Type};

use super::{
    Postgres, Result,
    leases::millis,
    pool::{Param, Purpose},
    reply,
};
use leasehold_core::{
    Name,
    clock::Until,
    engine::{
        Cursor, Fut, Page,
        deadlines::{
            Batch, Dead, Deadline, DeadlineId, Deadlines, Delivery, DueTime, Pending, Placement, Pool,
            PoolLayout, PoolStats, Receipt, Settle,
        },
    },
};

fn ms(row: &Row, column: &str) -> Result<Duration> {
    Ok(Duration::from_millis(reply::get::<i64>(row, column)?.max(0).unsigned_abs()))
}

fn count(row: &Row, column: &str) -> Result<u64> {
    Ok(reply::get::<i64>(row, column)?.max(0).unsigned_abs())
}

fn attempts(row: &Row, column: &str) -> Result<u32> {
    Ok(reply::get::<i32>(row, column)?.max(0).unsigned_abs())
}

fn context(row: &Row) -> Result<Option<Bytes>> {
    Ok(reply::get::<Option<Vec<u8>>>(row, "context")?.map(Bytes::from))
}

impl Postgres {
    async fn layout_of(
        &self,
        pool: &Name,
        new: Option<PoolLayout>,
        until: Until,
    ) -> Result<Option<PoolLayout>> {
        let buckets = new.map(|layout| i32::from(layout.buckets));
        let placement = new.map(|layout| layout.placement.to_string());
        let params: [Param<'_>; 3] =
            [(&pool.as_str(), Type::TEXT), (&buckets, Type::INT4), (&placement, Type::TEXT)];
        let sql = "SELECT * FROM leasehold.pool_layout($1, $2, $3)";
        let row = reply::one(self.pool.query(until, Purpose::Ask, sql, &params).await?)?;
        let Some(buckets) = reply::get::<Option<i32>>(&row, "buckets")? else { return Ok(None) };
        let placement = match reply::get::<&str>(&row, "placement")? {
            "together" => Placement::Together,
            _ => Placement::Spread,
        };
        Ok(Some(PoolLayout { buckets: u16::try_from(buckets).unwrap_or(u16::MAX), placement }))
    }

    async fn claim(&self, pool: &Pool, limit: u32, visibility: Duration, until: Until) -> Result<Batch> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX - 1);
        let visibility = millis(visibility);
        let params: [Param<'_>; 3] =
            [(&pool.name.as_str(), Type::TEXT), (&limit, Type::INT4), (&visibility, Type::INT8)];
        let sql = "SELECT * FROM leasehold.claim_due($1, $2, $3)";
        let rows = self.pool.query(until, Purpose::Ask, sql, &params).await?;
        let mut batch = Batch { due: Vec::with_capacity(rows.len()), more: false };
        for row in &rows {
            batch.more |= reply::get::<bool>(row, "more")?;
            let number = count(row, "receipt")?;
            batch.due.push(Delivery {
                receipt: Receipt { id: reply::get::<&str>(row, "id")?.into(), number },
                attempt: attempts(row, "attempt")?,
                overdue: ms(row, "overdue_ms")?,
                context: context(row)?,
            });
        }
        Ok(batch)
    }

    async fn settle_all(&self, pool: &Pool, all: &[(Receipt, Settle)], until: Until) -> Result<Vec<bool>> {
        let ids: Vec<&str> = all.iter().map(|(receipt, _)| &*receipt.id).collect();
        // A number that was never given fits no row.
        let number = |receipt: &Receipt| i64::try_from(receipt.number).ok().filter(|number| *number > 0);
        let receipts: Vec<Option<i64>> = all.iter().map(|(receipt, _)| number(receipt)).collect();
        let (mut ends, mut times, mut whys) = (Vec::new(), Vec::new(), Vec::new());
        for (_, settle) in all {
            let (end, time, why) = match settle {
                Settle::Done => ("done", Duration::ZERO, None),
                Settle::Postpone(time) => ("postpone", *time, None),
                Settle::GiveBack => ("give back", Duration::ZERO, None),
                Settle::Bury(why) => ("bury", Duration::ZERO, Some(why.as_bytes())),
            };
            ends.push(end);
            times.push(millis(time));
            whys.push(why);
        }
        let params: [Param<'_>; 6] = [
            (&pool.name.as_str(), Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&receipts, Type::INT8_ARRAY),
            (&ends, Type::TEXT_ARRAY),
            (&times, Type::INT8_ARRAY),
            (&whys, Type::BYTEA_ARRAY),
        ];
        let sql = "SELECT leasehold.settle_deadlines($1, $2, $3, $4, $5, $6) AS good";
        reply::get(&reply::one(self.pool.query(until, Purpose::Keep, sql, &params).await?)?, "good")
    }
}

impl Deadlines for Postgres {
    fn layout<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolLayout> {
        Box::pin(async move {
            Ok(self.layout_of(&pool.name, Some(pool.layout), until).await?.unwrap_or(pool.layout))
        })
    }

    fn known_layout<'a>(&'a self, pool: &'a Name, until: Until) -> Fut<'a, Option<PoolLayout>> {
        Box::pin(self.layout_of(pool, None, until))
    }

    fn set<'a>(&'a self, pool: &'a Pool, deadlines: &'a [Deadline], until: Until) -> Fut<'a, ()> {
        Box::pin(async move {
            let ids: Vec<&str> = deadlines.iter().map(|deadline| &*deadline.id).collect();
            let buckets: Vec<i32> = ids.iter().map(|id| i32::from(pool.bucket_of(id))).collect();
            let after = |due: &DueTime| match due {
                DueTime::In(time) => Some(millis(*time).min(i64::MAX / 4)),
                DueTime::AtMs(_) => None,
            };
            let at = |due: &DueTime| match due {
                DueTime::AtMs(at) => Some(i64::try_from(*at).unwrap_or(i64::MAX)),
                DueTime::In(_) => None,
            };
            let afters: Vec<_> = deadlines.iter().map(|deadline| after(&deadline.due)).collect();
            let ats: Vec<_> = deadlines.iter().map(|deadline| at(&deadline.due)).collect();
            let contexts: Vec<Option<&[u8]>> =
                deadlines.iter().map(|deadline| deadline.context.as_deref()).collect();
            let (new_buckets, placement) =
                (i32::from(pool.layout.buckets), pool.layout.placement.to_string());
            let params: [Param<'_>; 8] = [
                (&pool.name.as_str(), Type::TEXT),
                (&new_buckets, Type::INT4),
                (&placement, Type::TEXT),
                (&ids, Type::TEXT_ARRAY),
                (&buckets, Type::INT4_ARRAY),
                (&afters, Type::INT8_ARRAY),
                (&ats, Type::INT8_ARRAY),
                (&contexts, Type::BYTEA_ARRAY),
            ];
            let sql = "SELECT 1 FROM leasehold.set_deadlines($1, $2, $3, $4, $5, $6, $7, $8)";
            self.pool.query(until, Purpose::Ask, sql, &params).await.map(drop)
        })
    }

    fn claim_due<'a>(
        &'a self,
        pool: &'a Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Fut<'a, Batch> {
        Box::pin(self.claim(pool, limit, visibility, until))
    }

    fn settle<'a>(
        &'a self,
        pool: &'a Pool,
        settlements: &'a [(Receipt, Settle)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        Box::pin(self.settle_all(pool, settlements, until))
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], until: Until) -> Fut<'a, Vec<bool>> {
        Box::pin(async move {
            let ids: Vec<&str> = ids.iter().map(|id| &**id).collect();
            let params: [Param<'_>; 2] = [(&pool.name.as_str(), Type::TEXT), (&ids, Type::TEXT_ARRAY)];
            let sql = "SELECT leasehold.cancel_deadlines($1, $2) AS was";
            reply::get(&reply::one(self.pool.query(until, Purpose::Keep, sql, &params).await?)?, "was")
        })
    }

    fn peek<'a>(&'a self, pool: &'a Pool, limit: u32, until: Until) -> Fut<'a, Vec<Pending>> {
        Box::pin(async move {
            let limit = i32::try_from(limit).unwrap_or(i32::MAX);
            let params: [Param<'_>; 2] = [(&pool.name.as_str(), Type::TEXT), (&limit, Type::INT4)];
            let sql = "SELECT * FROM leasehold.peek_due($1, $2)";
            let rows = self.pool.query(until, Purpose::Ask, sql, &params).await?;
            let pending = |row: &Row| {
                let id = reply::get::<&str>(row, "id")?.into();
                Ok(Pending { id, attempts: attempts(row, "attempts")?, overdue: ms(row, "overdue_ms")? })
            };
            rows.iter().map(pending).collect()
        })
    }

    fn dead<'a>(
        &'a self,
        pool: &'a Pool,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Dead>> {
        Box::pin(async move {
            let after = from.as_ref().map_or("", Cursor::as_str);
            let limit = limit.clamp(1, 10_000);
            let most = i32::try_from(limit).unwrap_or(i32::MAX).saturating_add(1);
            let params: [Param<'_>; 3] =
                [(&pool.name.as_str(), Type::TEXT), (&after, Type::TEXT), (&most, Type::INT4)];
            let sql = "SELECT * FROM leasehold.dead_deadlines($1, $2, $3)";
            let rows = self.pool.query(until, Purpose::Ask, sql, &params).await?;
            let dead = |row: &Row| {
                Ok(Dead {
                    id: reply::get::<&str>(row, "id")?.into(),
                    attempts: attempts(row, "attempts")?,
                    buried_at_ms: count(row, "buried_ms")?,
                    why: String::from_utf8_lossy(reply::get(row, "why")?).into_owned(),
                    context: context(row)?,
                })
            };
            let items = rows.iter().map(dead).collect::<Result<Vec<_>>>()?;
            Ok(Page::first(items.into_iter(), limit, |dead| &*dead.id))
        })
    }

    fn stats<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolStats> {
        Box::pin(async move {
            let params: [Param<'_>; 1] = [(&pool.name.as_str(), Type::TEXT)];
            let sql = "SELECT * FROM leasehold.pool_stats($1)";
            let row = reply::one(self.pool.query(until, Purpose::Ask, sql, &params).await?)?;
            Ok(PoolStats {
                pending: count(&row, "pending")?,
                due: count(&row, "due")?,
                tried: count(&row, "tried")?,
                overdue: ms(&row, "overdue_ms")?,
                dead: count(&row, "dead")?,
            })
        })
    }
}
