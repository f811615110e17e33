//! One bucket: deadlines by id, and by when they are due.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    clock::BootInstant,
    engine::{
        deadlines::{Batch, Deadline, DeadlineId, Delivery, DueTime, Receipt},
        memory::store::Now,
    },
};

#[derive(Default)]
pub(super) struct Bucket {
    pub(super) deadlines: HashMap<DeadlineId, Entry>,
    /// Every deadline by when it is due, and among those of one millisecond by its id.
    order: BTreeSet<(u64, DeadlineId)>,
    last_receipt: u64,
}

pub(super) struct Entry {
    /// By the wall clock.
    due_ms: u64,
    /// By the boot clock, once it was claimed: a step of the wall clock shows nothing too early.
    hidden_until: Option<BootInstant>,
    pub(super) attempts: u32,
    receipt: Option<u64>,
    pub(super) context: Option<Bytes>,
}

impl Entry {
    pub(super) fn new(deadline: &Deadline, now: Now) -> Self {
        let due_ms = match deadline.due {
            DueTime::In(after) => later(now, after),
            DueTime::AtMs(at) => at,
        };
        let context = deadline.context.clone();
        Self { due_ms, hidden_until: None, attempts: 0, receipt: None, context }
    }

    pub(super) fn hidden_for(self, time: Duration, now: Now) -> Self {
        Self { due_ms: later(now, time), hidden_until: Some(now.boot + time), ..self }
    }

    pub(super) fn given_back(self, now: Now) -> Self {
        let attempts = self.attempts.saturating_sub(1);
        Self { due_ms: later(now, Duration::ZERO), hidden_until: None, attempts, receipt: None, ..self }
    }
}

impl Bucket {
    pub(super) fn due(&self, now: Now) -> impl Iterator<Item = &(u64, DeadlineId)> {
        let come = self.order.iter().take_while(move |(due_ms, _)| *due_ms <= now.wall_us / 1_000);
        come.filter(move |(_, id)| self.deadlines[id].hidden_until.is_none_or(|until| until <= now.boot))
    }

    pub(super) fn put(&mut self, id: DeadlineId, entry: Entry) {
        self.order.insert((entry.due_ms, id.clone()));
        if let Some(old) = self.deadlines.insert(id.clone(), entry)
            && old.due_ms != self.deadlines[&id].due_ms
        {
            self.order.remove(&(old.due_ms, id));
        }
    }

    pub(super) fn take(&mut self, id: &DeadlineId) -> Option<Entry> {
        let entry = self.deadlines.remove(id)?;
        self.order.remove(&(entry.due_ms, id.clone()));
        Some(entry)
    }

    /// Takes a deadline out if it is still claimed under this receipt.
    pub(super) fn take_claimed(&mut self, receipt: &Receipt) -> Option<Entry> {
        let good = self.deadlines.get(&receipt.id)?.receipt == Some(receipt.number);
        if good { self.take(&receipt.id) } else { None }
    }

    pub(super) fn claim_due(&mut self, limit: u32, visibility: Duration, now: Now, batch: &mut Batch) {
        let now_ms = now.wall_us / 1_000;
        let mut due: Vec<_> = self.due(now).take(limit as usize + 1).cloned().collect();
        if due.len() > limit as usize {
            due.pop();
            batch.more = true;
        }
        for (due_ms, id) in due {
            let Some(entry) = self.take(&id) else { continue };
            self.last_receipt = (self.last_receipt + 1).max(now.wall_us);
            let attempt = entry.attempts.saturating_add(1);
            batch.due.push(Delivery {
                receipt: Receipt { id: id.clone(), number: self.last_receipt },
                attempt,
                overdue: Duration::from_millis(now_ms - due_ms),
                context: entry.context.clone(),
            });
            let receipt = Some(self.last_receipt);
            self.put(id, Entry { attempts: attempt, receipt, ..entry }.hidden_for(visibility, now));
        }
    }
}

fn later(now: Now, by: Duration) -> u64 {
    (now.wall_us / 1_000).saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
}
