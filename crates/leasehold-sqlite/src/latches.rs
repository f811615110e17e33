//! Latches and barriers of a lease file: rows are read, [`latch::decide`] decides, rows are written, in one transaction.
//!
//! A request reads the latch, the participant that asks and the first lease that ends, so it costs the same however many take
//! part. Who waits is in the table of watchers.

#[cfg(test)]
mod tests;

use std::sync::PoisonError;

use rusqlite::{Row, params};

use leasehold_core::clock::{BootInstant, Until};
use leasehold_core::decide::latch::{self, Found, Latch, Party, Phase};
use leasehold_core::engine::latches::{
    Answer, KEPT, Kind, Latches, Op, PARTIES_SHOWN, ParticipantInfo, Request, Snapshot,
};
use leasehold_core::engine::registry::ended_error;
use leasehold_core::engine::{EngineError, Fault, Fut, Hold, Renewed};
use leasehold_core::{Holder, Name, owner::Owner};

use super::store::{Store, instant, nanos, unsigned};
use super::worker::{Access, Purpose, on_thread};
use super::{Sqlite, fault::Result};

impl Latches for Sqlite {
    fn ask<'a>(&'a self, request: &'a Request, until: Until) -> Fut<'a, Answer> {
        if request.wake() {
            self.wakes.listen();
        }
        let (ended, owner) = (self.ended.clone(), request.owner.id());
        let (purpose, access) = match request.op {
            // What was counted stays so.
            Op::CountDown { .. } => (Purpose::Keep, Access::WriteToLast),
            Op::Rearm { .. } => (Purpose::Ask, Access::WriteToLast),
            Op::Leave { .. } => (Purpose::End, Access::Write),
            Op::Join { .. } | Op::Look { .. } => (Purpose::Ask, Access::Write),
        };
        if let Op::Leave { .. } = request.op {
            ended.lock().unwrap_or_else(PoisonError::into_inner).insert(owner, ());
        }
        let (request, wake) = (request.clone(), self.wakes.id.clone());
        self.worker.call(until, purpose, access, move |store| {
            // Its end may have overtaken it on the way to the thread.
            let is_over = ended.lock().unwrap_or_else(PoisonError::into_inner).contains(owner);
            if is_over && matches!(request.op, Op::Join { .. }) {
                return Err(ended_error().into());
            }
            store.ask_latch(&request, &wake)
        })
    }

    on_thread! {
        state(&name: Name) -> Option<Snapshot> => Ask Read inspect_latch;
    }
}

impl Store<'_> {
    /// `wake` is the engine that asks.
    fn ask_latch(&mut self, request: &Request, wake: &str) -> Result<Answer> {
        let name = &request.name;
        let found = self.found_latch(name, Some(&request.owner))?;
        let (is_new, was_in) = (found.latch.is_none(), found.me);
        let decided = latch::decide(found, request, self.now)?;
        let Some(latch) = decided.latch else { return Ok(decided.answer) };
        if decided.clears {
            self.run("DELETE FROM party WHERE latch = ?1", [name.as_str()])?;
        }
        match decided.me {
            Some(me) if was_in != Some(me) => self.write_party(name, &request.owner, me)?,
            None if was_in.is_some() => {
                let row = [name.as_str(), request.owner.expose()];
                self.run("DELETE FROM party WHERE latch = ?1 AND owner = ?2", row)?;
            }
            _ => {}
        }
        self.write_latch(name, &latch)?;
        if is_new {
            self.sweep_latches()?;
        }
        if decided.tells {
            self.tell_watchers(&watched(name))?;
        }
        if decided.watches {
            let expires_in = decided.answer.first_ends_in.unwrap_or_default();
            self.watch(&watched(name), request.owner.id_text(), expires_in, wake)?;
        }
        Ok(decided.answer)
    }

    pub(super) fn renew_party(&self, hold: &Hold, since: BootInstant) -> Result<Renewed> {
        let name = &hold.name;
        let found = self.found_latch(name, Some(&hold.owner))?;
        let Some(party) = latch::renew(&found, self.now.boot + hold.ttl, self.now.boot) else {
            return Ok(Renewed::Gone);
        };
        self.write_party(name, &hold.owner, party)?;
        let row = params![name.as_str(), self.wall_us_in(KEPT)];
        self.run("UPDATE latch SET sweep_us = ?2 WHERE name = ?1", row)?;
        Ok(Renewed::Kept { since, link: None })
    }

    fn inspect_latch(&self, name: &Name) -> Result<Option<Snapshot>> {
        let found = self.found_latch(name, None)?;
        let Some(seen) = latch::inspect(name, found, self.now.boot) else { return Ok(None) };
        let sql = "SELECT owner, arrived, ends FROM party WHERE latch = ?1 LIMIT ?2";
        let read = |row: &Row<'_>| {
            let holder = Holder::parse(row.get_ref(0)?.as_str()?);
            let ends = row.get::<_, Option<i64>>(2)?.is_some().then(|| instant(row, 2)).transpose()?;
            let expires_in = ends.map(|ends| ends.since(self.now.boot));
            Ok(ParticipantInfo::new(holder, unsigned(row, 1)? == seen.generation, expires_in))
        };
        let participants = self.all(sql, params![name.as_str(), seen.joined.min(PARTIES_SHOWN)], read)?;
        Ok(Some(Snapshot { participants, ..seen }))
    }

    fn found_latch(&self, name: &Name, asks: Option<&Owner>) -> Result<Found> {
        let sql = "SELECT kind, count, generation, phase, counted, joined, previous, floor, broken, broken_by \
                   FROM latch WHERE name = ?1";
        let Some(latch) = self.all(sql, [name.as_str()], |row| Ok(read_latch(row)))?.pop() else {
            return Ok(Found::default());
        };
        let sql = "SELECT ends, arrived, place, boot = ?3 FROM party WHERE latch = ?1 AND owner = ?2";
        let read = |row: &Row<'_>| {
            let is_of_boot: bool = row.get(3)?;
            let ends = row.get::<_, Option<i64>>(0)?.map(|_| instant(row, 0)).transpose()?;
            let ends = ends.map(|ends| if is_of_boot { ends } else { BootInstant::from_nanos(0) });
            Ok(Party { ends, arrived: unsigned(row, 1)?, index: row.get(2)? })
        };
        let me = match asks {
            Some(owner) => self.all(sql, params![name.as_str(), owner.expose(), self.boot], read)?.pop(),
            None => None,
        };
        let read = |row: &Row<'_>| Ok((instant(row, 1)?, Holder::parse(row.get_ref(0)?.as_str()?)));
        let first =
            self.all(include_str!("latches/first_end.sql"), params![name.as_str(), self.boot], read)?;
        Ok(Found { latch: Some(latch?), me, first: first.into_iter().next() })
    }

    fn write_latch(&self, name: &Name, latch: &Latch) -> Result<()> {
        let broken: Vec<_> = latch.broken.iter().map(u64::to_string).collect();
        let broken_by = latch.broken_by.as_ref().map(|who| Owner::new(0, who).expose()[33..].to_owned());
        let row = params![
            name.as_str(),
            latch.kind.as_str(),
            latch.count.get(),
            latch.generation.cast_signed(),
            latch.phase.as_str(),
            latch.counted,
            latch.joined,
            latch.previous.cast_signed(),
            latch.floor.cast_signed(),
            broken.join(" "),
            broken_by,
            self.wall_us_in(KEPT)
        ];
        self.run(include_str!("latches/write.sql"), row).map(drop)
    }

    fn write_party(&self, name: &Name, owner: &Owner, party: Party) -> Result<()> {
        let (ends, arrived) = (party.ends.map(nanos), party.arrived.cast_signed());
        let row = params![name.as_str(), owner.expose(), self.boot, ends, arrived, party.index];
        self.run(include_str!("latches/write_party.sql"), row).map(drop)
    }

    /// Removes a few that are over. Whoever adds a row runs this, so there are never many.
    fn sweep_latches(&self) -> Result<()> {
        let now = params![self.now.wall_us.cast_signed(), self.boot, nanos(self.now.boot)];
        let over = self.all(include_str!("latches/over.sql"), now, |row| row.get::<_, String>(0))?;
        for name in over {
            self.run("DELETE FROM party WHERE latch = ?1", [&name])?;
            self.run("DELETE FROM latch WHERE name = ?1", [&name])?;
        }
        Ok(())
    }
}

/// The key under which those who wait for a latch are known.
fn watched(name: &Name) -> String {
    format!("\u{1}{name}")
}

fn read_latch(row: &Row<'_>) -> Result<Latch> {
    let corrupt = || EngineError::new(Fault::Corrupt, "the row of the latch cannot be read");
    let word = |column| row.get::<_, String>(column);
    let broken_by: Option<String> = row.get(9)?;
    Ok(Latch {
        kind: Kind::parse(&word(0)?).ok_or_else(corrupt)?,
        count: row.get::<_, u32>(1)?.try_into().map_err(|_| corrupt())?,
        generation: unsigned(row, 2)?,
        phase: Phase::parse(&word(3)?).ok_or_else(corrupt)?,
        counted: row.get(4)?,
        joined: row.get(5)?,
        previous: unsigned(row, 6)?,
        floor: unsigned(row, 7)?,
        broken: word(8)?.split(' ').filter_map(|generation| generation.parse().ok()).collect(),
        broken_by: broken_by.map(|who| Holder::parse(&format!("{:032x} {who}", 0))),
    })
}
